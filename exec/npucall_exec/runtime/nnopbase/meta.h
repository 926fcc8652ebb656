// The descriptors of acl_meta: tensors, scalars, arrays and lists.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "acl/registry.h"
#include "operator_entry.h"

namespace sim {

struct Tensor : Object {
    TensorView view;
    const void *list = nullptr;  // that owns it
};

struct Scalar : Object {
    int dtype = -1;
    std::vector<uint8_t> bytes;
    const void *list = nullptr;
};

struct IntArray : Object {
    std::vector<int64_t> values;
};

struct FloatArray : Object {
    std::vector<float> values;
};

struct BoolArray : Object {
    std::vector<uint8_t> values;
};

// Of tensors or of scalars.
struct List : Object {
    std::vector<const void *> elements;
};

ObjectKind object_kind(Kind kind);

// Bits of one element; 0 for what has no size or is no dtype.
int bits_of(int dtype);

int64_t elements_of(const std::vector<int64_t> &shape);
uint64_t bytes_of(int dtype, int64_t elements);
inline uint64_t storage_bytes(const TensorView &view) {
    return bytes_of(view.dtype, elements_of(view.storage_shape));
}
inline bool is_empty(const TensorView &view) { return elements_of(view.shape) == 0; }

// The value of a descriptor as JSON, for all but tensors.
std::string json_of_scalar(const void *scalar);
std::string json_of_number(double value);

}  // namespace sim
