// Arguments as phase one sees them, and whether phase two still does.
#pragma once

#include <string>
#include <vector>

#include "nnopbase/executor.h"

namespace sim {

std::vector<Value> snapshot_of(const Argument *arguments, size_t count);

// A call as JSON, without addresses: what npucall_exec/launches.py reads.
std::string describe_call(const OperatorEntry &entry, const std::vector<Value> &values);

}  // namespace sim
