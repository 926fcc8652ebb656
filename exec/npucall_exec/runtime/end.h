// What an end of the runtime supplies: the simulator (Python in the process, faults) or `npucall
// exec` (a socket).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "acl/call.h"
#include "acl/settings.h"
#include "acl/stream.h"
#include "nnopbase/cache.h"
#include "nnopbase/executor.h"

namespace sim {

// What holds from the first call on.
Settings settings_of_environment();

// Counts a call and applies the fault that it meets. Returns the status to fail with, or 0;
// failures of the submitted work are left in `deferred`.
int apply_fault(const char *function, Deferred &deferred);

// Blocks until the faults of this generation are cleared or `milliseconds` have passed (-1: never).
// True for the former.
SIM_EXPORT bool stall(uint64_t generation, int64_t milliseconds);

// A line of text: a caller did what is undefined behaviour on a real host.
SIM_EXPORT void found(const std::string &line);

// The caller has finalised, or the process ends.
void write_report();

// The bytes behind an address of a device's memory, which lies `offset` behind the first one; null
// if there are none.
uint8_t *take_bytes(size_t offset, size_t size);
void give_bytes_back(uint8_t *data, size_t size);

// Phase one of an operator: 0 and what it needs, or a failure.
int plan_call(const Argument *arguments, size_t count, const Executor &executor, CachedPlan &plan);

// What a kernel has beside its executor: where its tensors are, in their order; 0 for an empty one.
struct Kernel {
    std::string call;  // `describe_call`
    std::vector<const uint8_t *> tensors;
    bool saturates = false;
};

// Runs a kernel, on the thread of its stream; where that has none it may only begin.
Outcome compute(const Kernel &kernel);

// The kernels that the calling thread has begun are over: the first failure of them.
Outcome kernels_over();

// The host may read these bytes of a device's memory now, and write them if it `writes`.
SIM_EXPORT Outcome reach(const uint8_t *data, size_t size, bool writes);

}  // namespace sim
