// Every handle that was ever given out: what it is, and whether it is alive.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "acl_types.h"

namespace sim {

enum class ObjectKind : uint8_t {
    None,
    Context,
    Stream,
    Event,
    Tensor,
    Scalar,
    IntArray,
    FloatArray,
    BoolArray,
    TensorList,
    ScalarList,
    Executor,
};

SIM_EXPORT const char *name_of(ObjectKind kind);

// What a handle stands for. `counted` objects are the caller's to destroy.
struct Object {
    ObjectKind kind = ObjectKind::None;
    bool counted = true;
    void *handle = nullptr;
};

// Handles are addresses that nobody can read and that are never used again.
SIM_EXPORT void *add_object(const std::shared_ptr<Object> &object);
SIM_EXPORT std::shared_ptr<Object> find_object(const void *handle, ObjectKind kind);
SIM_EXPORT bool remove_object(const void *handle, ObjectKind kind);

// "a destroyed aclTensor", "an aclrtStream", "no handle", ...
SIM_EXPORT std::string description_of(const void *handle);

template <class T>
std::shared_ptr<T> find(const void *handle, ObjectKind kind) {
    return std::static_pointer_cast<T>(find_object(handle, kind));
}

// Records that `handle` is no live object of the kind and fails with `status`.
SIM_EXPORT int misused(const void *handle, ObjectKind expected, int status);

// Live counted objects, by the name of their kind.
std::map<std::string, uint64_t> live_handles();
void forget_all_objects();

}  // namespace sim
