// Functions that are told to fail, and how often each was called.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace sim {

// `function` fails at its `nth` next call; "*" is any function. False for an unknown `what`:
// return, hang, crash, at_sync, sticky, stall or tolerated.
bool set_fault(const std::string &function, int nth, int status, const std::string &what);

// Also releases what hangs or stalls.
void clear_faults();

// The rules of NPUCALL_SIM_FAULTS, "function:nth:what:status;...".
void read_faults();

std::map<std::string, uint64_t> call_counts();
void clear_call_counts();

}  // namespace sim
