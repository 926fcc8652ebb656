// Functions that are told to fail, and how often each was called.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "acl/call.h"

namespace sim {

// Counts a call and applies the rule that it meets. Returns the status to fail with, or 0;
// failures of the submitted work are left in `deferred`.
int apply_fault(const char *function, Deferred &deferred);

// `function` fails at its `nth` next call; "*" is any function. False for an unknown `what`:
// return, hang, crash, at_sync, sticky, stall or tolerated.
bool set_fault(const std::string &function, int nth, int status, const std::string &what);

// Also releases what hangs or stalls.
void clear_faults();

// The rules of NPUCALL_SIM_FAULTS, "function:nth:what:status;...".
void read_faults();

// Blocks until the faults of this generation are cleared or `milliseconds` have passed (-1: never).
// True for the former.
bool stall(uint64_t generation, int64_t milliseconds);

std::map<std::string, uint64_t> call_counts();
void clear_call_counts();

}  // namespace sim
