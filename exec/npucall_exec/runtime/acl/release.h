// The release of CANN that a library stands for.
#pragma once

namespace sim {

struct Release {
    int number;        // 81, 83 or 90
    const char *cann;  // such as "8.3.RC1"
    int major, minor;
    const char *candidate;  // "RC1", or "0"
    int runtime;            // minor version of the runtime's interface
};

extern const Release this_release;

}  // namespace sim
