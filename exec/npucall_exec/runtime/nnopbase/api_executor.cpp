// Executors that run more than once.
#include "acl/call.h"
#include "acl/settings.h"
#include "acl_types.h"
#include "nnopbase/cache.h"
#include "nnopbase/executor.h"

using namespace sim;

namespace {

enum class Which { Inputs, Outputs, All };

int require(const aclOpExecutor *handle, ExecutorPointer &executor) {
    if (handle == nullptr) return fail(561103, "executor: must not be nullptr");
    executor = find<Executor>(handle, ObjectKind::Executor);
    return executor != nullptr ? 0 : misused(handle, ObjectKind::Executor, 561103);
}

int make_repeatable(aclOpExecutor *handle) {
    ExecutorPointer executor;
    const int status = require(handle, executor);
    if (status != 0) return status;
    if (executor->thread != this_thread_number()) {
        violate("an executor is made repeatable by the thread of its phase one");
        return fail(561000, "another thread made the executor");
    }
    if (last_executor() != handle) {
        violate("an executor is made repeatable before the next phase one");
        return fail(561000, "another phase one came between");
    }
    if (executor->wrapper) return fail(561000, "phase one was answered from the thread's cache");
    executor->repeatable = true;
    return 0;
}

int destroy(aclOpExecutor *handle) {
    ExecutorPointer executor;
    const int status = require(handle, executor);
    if (status != 0) return status;
    if (executor->running) violate("the executor is running");
    for (const Value &value : executor->values) {
        for (const Snapshot &tensor : value.tensors) {
            if (tensor.handle == nullptr || !view_of(tensor.handle).null) continue;
            violate("%s was destroyed before the executor", value.argument.name);
        }
    }
    if (executor->repeatable) {
        remove_object(handle, ObjectKind::Executor);
        return 0;
    }
    const bool refused = settings().unrun == Unrun::Refused;
    const auto cache = executor->cache.lock();
    // What the cache answered leaves the entry as it was.
    if (cache != nullptr && !executor->wrapper) {
        cache->put_dead(executor->key, executor->workspace);
    }
    if (refused) return fail(561000, "the executor is not one that repeats");
    remove_object(handle, ObjectKind::Executor);
    return 0;
}

bool counts(const Value &value, Which which) {
    if (value.argument.kind != Kind::Tensor) return false;
    return which == Which::All || value.argument.output == (which == Which::Outputs);
}

// The tensor of a single-kernel executor, by its number among its like; null if there is none.
Snapshot *numbered(Executor &executor, Which which, size_t index) {
    for (Value &value : executor.values) {
        if (counts(value, which) && index-- == 0) return &value.tensors[0];
    }
    return nullptr;
}

// Points every use of the descriptor to another address, as composite operators do.
bool move_descriptor(Executor &executor, const void *descriptor, void *address) {
    bool found = false;
    for (Value &value : executor.values) {
        for (Snapshot &tensor : value.tensors) {
            if (tensor.handle != descriptor) continue;
            tensor.view.address = address;
            found = true;
        }
    }
    return found;
}

int require_movable(const aclOpExecutor *handle, const void *descriptor,
                    ExecutorPointer &executor) {
    if (descriptor == nullptr) return fail(561103, "the descriptor must not be nullptr");
    const int status = require(handle, executor);
    if (status != 0) return status;
    return executor->repeatable ? 0 : fail(561000, "the executor is not repeatable");
}

int set_address(const char *name, aclOpExecutor *handle, size_t index, aclTensor *descriptor,
                void *address, Which which) {
    return call(name, [&] {
        ExecutorPointer executor;
        const int status = require_movable(handle, descriptor, executor);
        if (status != 0) return status;
        const Snapshot *tensor = numbered(*executor, which, index);
        const bool right = tensor != nullptr && tensor->handle == descriptor;
        if (executor->entry.single_kernel && !right) {
            return fail(161002, "tensor %zu is not this one", index);
        }
        // The real ones do not notice a wrong index; here it shows.
        if (!right) violate("tensor %zu of the executor is another one", index);
        if (!move_descriptor(*executor, descriptor, address)) {
            violate("the descriptor is not one of phase one");
        }
        return 0;
    });
}

int set_list_address(const char *name, aclOpExecutor *handle, size_t index, aclTensorList *list,
                     void *address) {
    return call(name, [&] {
        ExecutorPointer executor;
        const int status = require_movable(handle, list, executor);
        if (status != 0) return status;
        const auto live = find<List>(list, ObjectKind::TensorList);
        if (live == nullptr) return misused(list, ObjectKind::TensorList, 561103);
        if (index >= live->elements.size())
            return fail(161002, "the list has no tensor %zu", index);
        if (!move_descriptor(*executor, live->elements[index], address)) {
            violate("the list is not one of phase one");
        }
        return 0;
    });
}

}  // namespace

SIM_API aclnnStatus aclnnInit(const char *) {
    return call("aclnnInit", [] { return 0; });
}

SIM_API aclnnStatus aclnnFinalize() {
    return call("aclnnFinalize", [] { return 0; });
}

SIM_API aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *handle) {
    return call("aclSetAclOpExecutorRepeatable", [&] { return make_repeatable(handle); });
}

SIM_API aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *handle) {
    return destroying_call("aclDestroyAclOpExecutor", [&] { return destroy(handle); });
}

SIM_API aclnnStatus aclSetInputTensorAddr(aclOpExecutor *executor, const size_t index,
                                          aclTensor *tensor, void *address) {
    return set_address("aclSetInputTensorAddr", executor, index, tensor, address, Which::Inputs);
}

SIM_API aclnnStatus aclSetOutputTensorAddr(aclOpExecutor *executor, const size_t index,
                                           aclTensor *tensor, void *address) {
    return set_address("aclSetOutputTensorAddr", executor, index, tensor, address, Which::Outputs);
}

SIM_API aclnnStatus aclSetTensorAddr(aclOpExecutor *executor, const size_t index,
                                     aclTensor *tensor, void *address) {
    return set_address("aclSetTensorAddr", executor, index, tensor, address, Which::All);
}

SIM_API aclnnStatus aclSetDynamicInputTensorAddr(aclOpExecutor *executor, size_t,
                                                 const size_t index, aclTensorList *list,
                                                 void *address) {
    return set_list_address("aclSetDynamicInputTensorAddr", executor, index, list, address);
}

SIM_API aclnnStatus aclSetDynamicOutputTensorAddr(aclOpExecutor *executor, size_t,
                                                  const size_t index, aclTensorList *list,
                                                  void *address) {
    return set_list_address("aclSetDynamicOutputTensorAddr", executor, index, list, address);
}

SIM_API aclnnStatus aclSetDynamicTensorAddr(aclOpExecutor *executor, size_t,
                                            const size_t index, aclTensorList *list,
                                            void *address) {
    return set_list_address("aclSetDynamicTensorAddr", executor, index, list, address);
}

// Deprecated synonyms.

SIM_API aclnnStatus AclSetInputTensorAddr(aclOpExecutor *executor, const size_t index,
    aclTensor *tensor, void *address) {
    return aclSetInputTensorAddr(executor, index, tensor, address);
}

SIM_API aclnnStatus AclSetOutputTensorAddr(aclOpExecutor *executor, const size_t index,
    aclTensor *tensor, void *address) {
    return aclSetOutputTensorAddr(executor, index, tensor, address);
}

SIM_API aclnnStatus AclSetTensorAddr(aclOpExecutor *executor, const size_t index,
    aclTensor *tensor, void *address) {
    return aclSetTensorAddr(executor, index, tensor, address);
}

SIM_API aclnnStatus AclSetDynamicInputTensorAddr(aclOpExecutor *executor, size_t input,
    const size_t index, aclTensorList *list, void *address) {
    return aclSetDynamicInputTensorAddr(executor, input, index, list, address);
}

SIM_API aclnnStatus AclSetDynamicOutputTensorAddr(aclOpExecutor *executor, size_t input,
    const size_t index, aclTensorList *list, void *address) {
    return aclSetDynamicOutputTensorAddr(executor, input, index, list, address);
}

SIM_API aclnnStatus AclSetDynamicTensorAddr(aclOpExecutor *executor, size_t input,
    const size_t index, aclTensorList *list, void *address) {
    return aclSetDynamicTensorAddr(executor, input, index, list, address);
}
