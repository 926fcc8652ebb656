// Phase one of the simulated operators.
#include <string>

#include "acl/call.h"
#include "acl/device.h"
#include "acl/memory.h"
#include "acl/settings.h"
#include "end.h"

namespace sim {
namespace {

bool is_public_dtype(int dtype) {
    if (dtype >= ACL_HIFLOAT8 && SIM_GENERATION < 90) return false;
    return dtype == ACL_STRING || bits_of(dtype) != 0;
}

bool has_bfloat16() {
    const std::string &soc = settings().soc;
    if (is_ascend950() || soc.rfind("Ascend910_", 0) == 0) return true;
    return soc.size() > 10 && soc.rfind("Ascend910B", 0) == 0;
}

// The last element of the view, counted in elements of the storage.
int64_t last_element(const TensorView &view) {
    int64_t last = view.offset;
    for (size_t i = 0; i < view.shape.size(); ++i) last += (view.shape[i] - 1) * view.strides[i];
    return last;
}

int check_layout(const char *name, const TensorView &view, bool output, size_t most) {
    if (view.shape.size() > most) {
        return fail(161002, "%s: %zu dimensions, %zu are the most", name, view.shape.size(), most);
    }
    if (!is_public_dtype(view.dtype)) return fail(161002, "%s: %d is no dtype", name, view.dtype);
    if (view.offset < 0) return fail(161002, "%s: the offset is negative", name);
    for (const int64_t extent : view.storage_shape) {
        if (extent < 0) return fail(161002, "%s: an extent of the storage is negative", name);
    }
    for (size_t i = 0; i < view.shape.size(); ++i) {
        if (view.shape[i] < 0) return fail(161002, "%s: an extent is negative", name);
        if (view.strides[i] < 0) return fail(161002, "%s: a stride is negative", name);
        if (output && view.strides[i] == 0 && view.shape[i] > 1) {
            return fail(161002, "%s: an output has a stride of 0", name);
        }
    }
    if (is_empty(view)) return 0;
    if (last_element(view) < elements_of(view.storage_shape)) return 0;
    return fail(161002, "%s: the view ends at element %lld of a storage of %lld", name,
                static_cast<long long>(last_element(view)),
                static_cast<long long>(elements_of(view.storage_shape)));
}

// An address in no allocation is accepted here: phase one does not touch memory.
int check_address(const char *name, const TensorView &view) {
    if (is_empty(view)) return 0;
    if (view.address == nullptr) return fail(161001, "%s: its data must not be nullptr", name);
    const auto address = reinterpret_cast<uintptr_t>(view.address);
    if (address % 32 != 0)
        return fail(161002, "%s: %p is not on a multiple of 32", name, view.address);
    Lock lock(state().mutex);
    const AllocationPointer allocation = find_allocation(view.address);
    if (allocation == nullptr || !allocation->is_device()) return 0;
    const uint64_t left = address < allocation->end() ? allocation->end() - address : 0;
    if (storage_bytes(view) <= left) return 0;
    violate("%s: a storage of %llu bytes where the allocation has %llu left", name,
            static_cast<unsigned long long>(storage_bytes(view)),
            static_cast<unsigned long long>(left));
    return fail(161002, "%s: the storage is larger than the allocation", name);
}

int check_tensor(const char *name, const TensorView &view, bool output, size_t most) {
    int status = check_layout(name, view, output, most);
    if (status == 0) status = check_address(name, view);
    if (status != 0) return status;
    if (view.dtype != ACL_BF16 || has_bfloat16()) return 0;
    return fail(561003, "%s: %s has no kernel for bfloat16", name, settings().soc.c_str());
}

int check_list(const Argument &argument, size_t most) {
    const auto list = find<List>(argument.handle, object_kind(argument.kind));
    const bool of_tensors = argument.kind == Kind::TensorList;
    const ObjectKind kind = of_tensors ? ObjectKind::Tensor : ObjectKind::Scalar;
    for (const void *element : list->elements) {
        if (element == nullptr) continue;
        if (find_object(element, kind) == nullptr) return misused(element, kind, 561103);
        if (!of_tensors) continue;
        const int status = check_tensor(argument.name, view_of(element), argument.output, most);
        if (status != 0) return status;
    }
    return 0;
}

int check_argument(const Argument &argument, size_t most) {
    if (argument.kind == Kind::Text) {
        if (argument.text != nullptr || argument.optional) return 0;
        return fail(161001, "%s: must not be nullptr", argument.name);
    }
    const ObjectKind kind = object_kind(argument.kind);
    if (kind == ObjectKind::None) return 0;
    if (argument.handle == nullptr) {
        return argument.optional ? 0 : fail(161001, "%s: must not be nullptr", argument.name);
    }
    if (find_object(argument.handle, kind) == nullptr) {
        return misused(argument.handle, kind, 561103);
    }
    if (argument.kind == Kind::Tensor) {
        return check_tensor(argument.name, view_of(argument.handle), argument.output, most);
    }
    const bool list = argument.kind == Kind::TensorList || argument.kind == Kind::ScalarList;
    return list ? check_list(argument, most) : 0;
}

int check_arguments(const Argument *arguments, size_t count, size_t most) {
    for (size_t i = 0; i < count; ++i) {
        const int status = check_argument(arguments[i], most);
        if (status != 0) return status;
    }
    return 0;
}

bool outputs_are_empty(const std::vector<Value> &values) {
    bool some = false;
    for (const Value &value : values) {
        if (!value.argument.output) continue;
        for (const Snapshot &tensor : value.tensors) {
            if (tensor.handle == nullptr) continue;
            if (!is_empty(tensor.view)) return false;
            some = true;
        }
    }
    return some;
}

CachedPlan plan_of(const OperatorEntry &entry, const std::vector<Value> &values) {
    if (outputs_are_empty(values)) return {0, false};
    if (entry.workspace_policy == 0) return {0, true};
    uint64_t bytes = 0;
    for (const Value &value : values) {
        for (const Snapshot &tensor : value.tensors) {
            if (!value.argument.output && tensor.handle != nullptr) {
                bytes += bytes_of(tensor.view.dtype, elements_of(tensor.view.shape));
            }
        }
    }
    return {(bytes + 511) / 512 * 512 + 16384, true};
}

}  // namespace

int plan_call(const Argument *arguments, size_t count, const Executor &executor, CachedPlan &plan) {
    const OperatorEntry &entry = executor.entry;
    const int status = check_arguments(arguments, count, entry.most_dimensions);
    if (status != 0) return status;
    const char *refusal = entry.check == nullptr ? nullptr : entry.check(arguments, count);
    if (refusal != nullptr) return fail(161002, "%s", refusal);
    plan = plan_of(entry, executor.values);
    return 0;
}

}  // namespace sim
