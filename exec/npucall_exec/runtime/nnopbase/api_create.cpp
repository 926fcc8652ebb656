// Descriptors are made and destroyed.
#include <cstring>

#include "acl/call.h"
#include "acl_types.h"
#include "nnopbase/meta.h"

using namespace sim;

namespace {

constexpr uint64_t TOO_MANY = uint64_t{1} << 24;

// What the nine arguments of aclCreateTensor and aclInitTensor say; false where they cannot be.
bool describe(TensorView &view, const int64_t *dims, uint64_t dims_count, aclDataType dtype,
              const int64_t *strides, int64_t offset, aclFormat format, const int64_t *storage,
              uint64_t storage_count, void *data) {
    if ((dims == nullptr && dims_count != 0) || (storage == nullptr && storage_count != 0)) {
        return false;
    }
    if (dims_count > TOO_MANY || storage_count > TOO_MANY) {
        violate("%llu dimensions: arguments of a wrong type",
                static_cast<unsigned long long>(dims_count));
        return false;
    }
    view.dtype = static_cast<int>(dtype);
    view.shape.assign(dims, dims + dims_count);
    view.strides.assign(dims_count, 1);
    if (strides != nullptr) {
        view.strides.assign(strides, strides + dims_count);
    } else {
        for (size_t i = dims_count; i-- > 1;) view.strides[i - 1] = view.strides[i] * dims[i];
    }
    view.storage_shape.assign(storage, storage + storage_count);
    view.offset = offset;
    view.format = format;
    if (data != nullptr) view.address = data;
    return true;
}

template <class Array, class Value>
Array *create_array(const char *name, const Value *values, uint64_t size, ObjectKind kind) {
    Call current(name);
    if (current.fault() != 0) {
        current.finish(current.fault());
        return nullptr;
    }
    if (size > TOO_MANY) {
        violate("%llu elements: arguments of a wrong type", static_cast<unsigned long long>(size));
        return nullptr;
    }
    auto array = std::make_shared<Array>();
    array->kind = kind;
    if (values != nullptr) array->values.assign(values, values + size);
    add_object(array);
    return array.get();
}

int destroy(const char *name, const void *handle, ObjectKind kind) {
    return destroying_call(name, [&] {
        if (handle == nullptr || remove_object(handle, kind)) return 0;
        return misused(handle, kind, 561103);
    });
}

template <class Element>
int destroy_element(const char *name, const void *handle, ObjectKind kind) {
    return destroying_call(name, [&] {
        if (handle == nullptr) return 0;
        const auto element = find<Element>(handle, kind);
        if (element == nullptr) return misused(handle, kind, 561103);
        if (element->list != nullptr) violate("the element belongs to a list, which destroys it");
        remove_object(handle, kind);
        return 0;
    });
}

template <class Element>
void *create_list(const char *name, const void *const *elements, uint64_t size, ObjectKind kind,
                  ObjectKind element_kind) {
    return pointer_call(name, [&]() -> void * {
        if ((elements == nullptr && size != 0) || size > TOO_MANY) return nullptr;
        auto list = std::make_shared<List>();
        list->kind = kind;
        add_object(list);
        for (uint64_t i = 0; i < size; ++i) {
            list->elements.push_back(elements[i]);
            if (elements[i] == nullptr) continue;
            const auto element = find<Element>(elements[i], element_kind);
            if (element == nullptr) {
                misused(elements[i], element_kind, 561103);
                continue;
            }
            if (element->list != nullptr)
                violate("element %d belongs to a list", static_cast<int>(i));
            element->list = list->handle;
        }
        return list->handle;
    });
}

int destroy_list(const char *name, const void *handle, ObjectKind kind, ObjectKind element_kind) {
    return destroying_call(name, [&] {
        if (handle == nullptr) return 0;
        const auto list = find<List>(handle, kind);
        if (list == nullptr) return misused(handle, kind, 561103);
        for (const void *element : list->elements) {
            if (element == nullptr || remove_object(element, element_kind)) continue;
            misused(element, element_kind, 561103);
        }
        remove_object(handle, kind);
        return 0;
    });
}

template <class Pointer>
Pointer *handle_of(const Object *object) {
    return object == nullptr ? nullptr : static_cast<Pointer *>(object->handle);
}

}  // namespace

SIM_API aclTensor *aclCreateTensor(const int64_t *dims, uint64_t dims_count, aclDataType dtype,
                                   const int64_t *strides, int64_t offset, aclFormat format,
                                   const int64_t *storage, uint64_t storage_count, void *data) {
    return pointer_call("aclCreateTensor", [&]() -> aclTensor * {
        auto tensor = std::make_shared<Tensor>();
        tensor->kind = ObjectKind::Tensor;
        tensor->view.address = nullptr;
        tensor->view.null = false;
        if (!describe(tensor->view, dims, dims_count, dtype, strides, offset, format, storage,
                      storage_count, data)) {
            return nullptr;
        }
        return static_cast<aclTensor *>(add_object(tensor));
    });
}

SIM_API aclnnStatus aclInitTensor(aclTensor *handle, const int64_t *dims, uint64_t dims_count,
                                  aclDataType dtype, const int64_t *strides, int64_t offset,
                                  aclFormat format, const int64_t *storage, uint64_t storage_count,
                                  void *data) {
    return call("aclInitTensor", [&] {
        if (handle == nullptr) return fail(161001, "tensor: must not be nullptr");
        const auto tensor = find<Tensor>(handle, ObjectKind::Tensor);
        if (tensor == nullptr) return misused(handle, ObjectKind::Tensor, 561103);
        const bool described = describe(tensor->view, dims, dims_count, dtype, strides, offset,
                                        format, storage, storage_count, data);
        return described ? 0 : fail(161001, "dims: must not be nullptr");
    });
}

SIM_API aclScalar *aclCreateScalar(void *value, aclDataType dtype) {
    return pointer_call("aclCreateScalar", [&]() -> aclScalar * {
        if (value == nullptr) return nullptr;
        auto scalar = std::make_shared<Scalar>();
        scalar->kind = ObjectKind::Scalar;
        scalar->dtype = static_cast<int>(dtype);
        const auto *first = static_cast<const uint8_t *>(value);
        scalar->bytes.assign(first, first + (bits_of(scalar->dtype) + 7) / 8);
        return static_cast<aclScalar *>(add_object(scalar));
    });
}

SIM_API aclIntArray *aclCreateIntArray(const int64_t *values, uint64_t size) {
    return handle_of<aclIntArray>(
        create_array<IntArray>("aclCreateIntArray", values, size, ObjectKind::IntArray));
}

SIM_API aclFloatArray *aclCreateFloatArray(const float *values, uint64_t size) {
    return handle_of<aclFloatArray>(
        create_array<FloatArray>("aclCreateFloatArray", values, size, ObjectKind::FloatArray));
}

SIM_API aclBoolArray *aclCreateBoolArray(const bool *values, uint64_t size) {
    // Read as bytes: a caller's mistake must not become undefined behaviour here.
    const auto *bytes = reinterpret_cast<const uint8_t *>(values);
    auto *made = create_array<BoolArray>("aclCreateBoolArray", bytes, size, ObjectKind::BoolArray);
    if (made == nullptr) return nullptr;
    for (const uint8_t byte : made->values) {
        if (byte <= 1) continue;
        violate("an element is %d: elements are bytes of 0 and 1", byte);
        break;
    }
    return handle_of<aclBoolArray>(made);
}

SIM_API aclTensorList *aclCreateTensorList(const aclTensor *const *elements, uint64_t size) {
    return static_cast<aclTensorList *>(
        create_list<Tensor>("aclCreateTensorList", reinterpret_cast<const void *const *>(elements),
                            size, ObjectKind::TensorList, ObjectKind::Tensor));
}

SIM_API aclScalarList *aclCreateScalarList(const aclScalar *const *elements, uint64_t size) {
    return static_cast<aclScalarList *>(
        create_list<Scalar>("aclCreateScalarList", reinterpret_cast<const void *const *>(elements),
                            size, ObjectKind::ScalarList, ObjectKind::Scalar));
}

SIM_API aclnnStatus aclDestroyTensor(const aclTensor *handle) {
    return destroy_element<Tensor>("aclDestroyTensor", handle, ObjectKind::Tensor);
}

SIM_API aclnnStatus aclDestroyScalar(const aclScalar *handle) {
    return destroy_element<Scalar>("aclDestroyScalar", handle, ObjectKind::Scalar);
}

SIM_API aclnnStatus aclDestroyIntArray(const aclIntArray *handle) {
    return destroy("aclDestroyIntArray", handle, ObjectKind::IntArray);
}

SIM_API aclnnStatus aclDestroyFloatArray(const aclFloatArray *handle) {
    return destroy("aclDestroyFloatArray", handle, ObjectKind::FloatArray);
}

SIM_API aclnnStatus aclDestroyBoolArray(const aclBoolArray *handle) {
    return destroy("aclDestroyBoolArray", handle, ObjectKind::BoolArray);
}

SIM_API aclnnStatus aclDestroyTensorList(const aclTensorList *handle) {
    return destroy_list("aclDestroyTensorList", handle, ObjectKind::TensorList, ObjectKind::Tensor);
}

SIM_API aclnnStatus aclDestroyScalarList(const aclScalarList *handle) {
    return destroy_list("aclDestroyScalarList", handle, ObjectKind::ScalarList, ObjectKind::Scalar);
}
