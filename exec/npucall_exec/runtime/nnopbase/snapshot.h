// Arguments as phase one sees them, and whether phase two still does.
#pragma once

#include <vector>

#include "nnopbase/executor.h"

namespace sim {

std::vector<Value> snapshot_of(const Argument *arguments, size_t count);

}  // namespace sim
