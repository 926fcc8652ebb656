// What tests read: live objects, counters, and the report at the end of a process.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "acl_types.h"

namespace sim {

// What the caller has not given back, by kind: "aclTensor", "aclrtMalloc", "aclrtSetDevice", ...
// Under the state's lock.
std::map<std::string, uint64_t> live_objects();

// {"violations": [...], "live_objects": {...}, "counters": {...}}; takes the lock.
std::string report();

// Writes the report where NPUCALL_SIM_REPORT says.
void write_report();

// A JSON string, with its quotes.
SIM_EXPORT std::string quoted(const std::string &text);

std::string live_objects_json();
std::string violations_json();
std::string counters_json();

}  // namespace sim
