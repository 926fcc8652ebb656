// What descriptors say of themselves.
#include <algorithm>

#include "acl/call.h"
#include "acl_types.h"
#include "nnopbase/meta.h"

using namespace sim;

namespace {

// Runs `body` with the live object, unless it or an output is missing.
template <class T, class Body>
int with(const char *name, const void *handle, ObjectKind kind, const void *out, Body body) {
    return call(name, [&] {
        if (handle == nullptr || out == nullptr) return fail(161001, "must not be nullptr");
        const auto object = find<T>(handle, kind);
        if (object == nullptr) return misused(handle, kind, 561103);
        body(*object);
        return 0;
    });
}

// The caller must release it with delete[].
int copy_out(const char *name, const aclTensor *handle, std::vector<int64_t> TensorView::*member,
             int64_t **values, uint64_t *count) {
    return with<Tensor>(name, handle, ObjectKind::Tensor, values, [&](const Tensor &tensor) {
        const std::vector<int64_t> &source = tensor.view.*member;
        *values = new int64_t[source.size()];
        std::copy(source.begin(), source.end(), *values);
        if (count != nullptr) *count = source.size();
    });
}

template <class Array>
int size_of(const char *name, const void *handle, ObjectKind kind, uint64_t *size) {
    return with<Array>(name, handle, kind, size,
                       [&](const Array &array) { *size = array.values.size(); });
}

int size_of_list(const char *name, const void *handle, ObjectKind kind, uint64_t *size) {
    return with<List>(name, handle, kind, size,
                      [&](const List &list) { *size = list.elements.size(); });
}

}  // namespace

SIM_API aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **dims, uint64_t *count) {
    return copy_out("aclGetViewShape", tensor, &TensorView::shape, dims, count);
}

SIM_API aclnnStatus aclGetStorageShape(const aclTensor *tensor, int64_t **dims, uint64_t *count) {
    return copy_out("aclGetStorageShape", tensor, &TensorView::storage_shape, dims, count);
}

SIM_API aclnnStatus aclGetViewStrides(const aclTensor *tensor, int64_t **strides, uint64_t *count) {
    return copy_out("aclGetViewStrides", tensor, &TensorView::strides, strides, count);
}

SIM_API aclnnStatus aclGetViewOffset(const aclTensor *tensor, int64_t *offset) {
    return with<Tensor>("aclGetViewOffset", tensor, ObjectKind::Tensor, offset,
                        [&](const Tensor &live) { *offset = live.view.offset; });
}

SIM_API aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format) {
    return with<Tensor>("aclGetFormat", tensor, ObjectKind::Tensor, format,
                        [&](const Tensor &live) { *format = live.view.format; });
}

SIM_API aclnnStatus aclGetDataType(const aclTensor *tensor, int *dtype) {
    return with<Tensor>("aclGetDataType", tensor, ObjectKind::Tensor, dtype,
                        [&](const Tensor &live) { *dtype = live.view.dtype; });
}

SIM_API aclnnStatus aclGetIntArraySize(const aclIntArray *array, uint64_t *size) {
    return size_of<IntArray>("aclGetIntArraySize", array, ObjectKind::IntArray, size);
}

SIM_API aclnnStatus aclGetFloatArraySize(const aclFloatArray *array, uint64_t *size) {
    return size_of<FloatArray>("aclGetFloatArraySize", array, ObjectKind::FloatArray, size);
}

SIM_API aclnnStatus aclGetBoolArraySize(const aclBoolArray *array, uint64_t *size) {
    return size_of<BoolArray>("aclGetBoolArraySize", array, ObjectKind::BoolArray, size);
}

SIM_API aclnnStatus aclGetTensorListSize(const aclTensorList *list, uint64_t *size) {
    return size_of_list("aclGetTensorListSize", list, ObjectKind::TensorList, size);
}

SIM_API aclnnStatus aclGetScalarListSize(const aclScalarList *list, uint64_t *size) {
    return size_of_list("aclGetScalarListSize", list, ObjectKind::ScalarList, size);
}

SIM_API aclnnStatus aclSetRawTensorAddr(aclTensor *tensor, void *address) {
    return with<Tensor>("aclSetRawTensorAddr", tensor, ObjectKind::Tensor, tensor,
                        [&](Tensor &live) { live.view.address = address; });
}

SIM_API aclnnStatus aclGetRawTensorAddr(const aclTensor *tensor, void **address) {
    return with<Tensor>(
        "aclGetRawTensorAddr", tensor, ObjectKind::Tensor, address,
        [&](const Tensor &live) { *address = const_cast<void *>(live.view.address); });
}
