// What phase one of some operators checks beyond the descriptors: shapes and types.
#pragma once

#include "operator_entry.h"

namespace sim {

// Each answers the text of a refusal with 161002, or null. The text is valid until the next check
// of the same thread.

// The first two tensors broadcast to the shape of the last.
const char *check_broadcast(const Argument *arguments, size_t count);
// The second tensor broadcasts to the shape of the first, which is written.
const char *check_broadcast_into_first(const Argument *arguments, size_t count);
// [m, k] times [k, n] is the shape of the third tensor.
const char *check_mm(const Argument *arguments, size_t count);
// Input and output have one shape, and the output has the type that the third argument names.
const char *check_cumsum(const Argument *arguments, size_t count);
// The first tensor and the last have one shape and one type.
const char *check_same_shape(const Argument *arguments, size_t count);

}  // namespace sim
