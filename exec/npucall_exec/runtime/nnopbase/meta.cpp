#include "nnopbase/meta.h"

#include <cmath>
#include <cstdio>

namespace sim {

ObjectKind object_kind(Kind kind) {
    switch (kind) {
        case Kind::Tensor:
            return ObjectKind::Tensor;
        case Kind::TensorList:
            return ObjectKind::TensorList;
        case Kind::Scalar:
            return ObjectKind::Scalar;
        case Kind::ScalarList:
            return ObjectKind::ScalarList;
        case Kind::IntArray:
            return ObjectKind::IntArray;
        case Kind::FloatArray:
            return ObjectKind::FloatArray;
        case Kind::BoolArray:
            return ObjectKind::BoolArray;
        default:
            return ObjectKind::None;
    }
}

int bits_of(int dtype) {
    switch (dtype) {
        case ACL_UINT1:
            return 1;
        case ACL_INT4:
        case ACL_FLOAT4_E2M1:
        case ACL_FLOAT4_E1M2:
            return 4;
        case ACL_FLOAT6_E3M2:
        case ACL_FLOAT6_E2M3:
            return 6;
        case ACL_INT8:
        case ACL_UINT8:
        case ACL_BOOL:
        case ACL_HIFLOAT8:
        case ACL_FLOAT8_E5M2:
        case ACL_FLOAT8_E4M3FN:
        case ACL_FLOAT8_E8M0:
            return 8;
        case ACL_FLOAT16:
        case ACL_BF16:
        case ACL_INT16:
        case ACL_UINT16:
            return 16;
        case ACL_FLOAT:
        case ACL_INT32:
        case ACL_UINT32:
        case ACL_COMPLEX32:
            return 32;
        case ACL_INT64:
        case ACL_UINT64:
        case ACL_DOUBLE:
        case ACL_COMPLEX64:
            return 64;
        case ACL_COMPLEX128:
            return 128;
        default:
            return 0;
    }
}

int64_t elements_of(const std::vector<int64_t> &shape) {
    int64_t product = 1;
    for (const int64_t extent : shape) product *= extent;
    return product;
}

uint64_t bytes_of(int dtype, int64_t elements) {
    return (static_cast<uint64_t>(elements) * static_cast<uint64_t>(bits_of(dtype)) + 7) / 8;
}

std::string json_of_number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    char digits[40];
    std::snprintf(digits, sizeof digits, "%.17g", value);
    return digits;
}

std::string json_of_scalar(const void *handle) {
    const auto scalar = find<Scalar>(handle, ObjectKind::Scalar);
    if (scalar == nullptr) return "null";
    std::string digits;
    for (const uint8_t byte : scalar->bytes) {
        char two[3];
        std::snprintf(two, sizeof two, "%02x", byte);
        digits += two;
    }
    return "{\"dtype\": " + std::to_string(scalar->dtype) + ", \"bytes\": \"" + digits + "\"}";
}

TensorView view_of(const void *handle) {
    const auto tensor = find<Tensor>(handle, ObjectKind::Tensor);
    if (tensor != nullptr) return tensor->view;
    TensorView nothing{};
    nothing.dtype = -1;
    nothing.null = true;
    return nothing;
}

}  // namespace sim
