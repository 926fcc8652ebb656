// What an operator's entry points call: phase one and two, given the C arguments as tagged values.
// libnnopbase.so exports these; the libraries of operators are generated and call them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "acl_types.h"

namespace sim {

enum class Kind {
    Tensor,
    TensorList,
    Scalar,
    ScalarList,
    IntArray,
    FloatArray,
    BoolArray,
    Integer,
    Real,
    Text,
    Boolean,
    DataType,
};

// One C argument. `handle` holds pointers to descriptors; `integer` Integer, Boolean and DataType;
// `real` Real; `text` Text. Names must outlive the process (string literals).
struct Argument {
    const char *name;
    Kind kind;
    bool optional;
    bool output;
    const void *handle;
    int64_t integer;
    double real;
    const char *text;
};

struct TensorView {
    int dtype;
    std::vector<int64_t> shape, strides, storage_shape;
    int64_t offset;
    int format;
    const void *address;
    bool null;
};

// A live tensor's description; `null` for NULL and for what is no live tensor.
SIM_EXPORT TensorView view_of(const void *tensor);

struct OperatorEntry {
    const char *name;     // the C name, as "aclnnAdd"
    const char *package;  // "builtin" or "custom"
    // The text of a refusal with 161002, or null. May be null itself.
    const char *(*check)(const Argument *, size_t);
    uint64_t workspace_policy;  // 0 none, 1 by the bytes of the inputs
    bool single_kernel;         // the family of executors
    size_t most_dimensions;     // of a tensor
};

SIM_EXPORT int32_t phase_one(const OperatorEntry &entry, const Argument *arguments, size_t count,
                             uint64_t *workspace_size, void **executor);
SIM_EXPORT int32_t phase_two(const OperatorEntry &entry, void *workspace, uint64_t size,
                             void *executor, void *stream);

}  // namespace sim
