// What the environment and the control functions set.
#pragma once

#include <cstdint>
#include <string>

#include "acl_types.h"

namespace sim {

struct Settings {
    std::string soc;
    int devices;
    uint64_t memory;     // bytes of HBM, a device
    uint64_t kernel_us;  // how long each kernel takes at least
    uint64_t bandwidth;  // bytes per second of copies and fills; 0 is no limit
    bool python;         // kernels compute
    bool abort;          // the first violation ends the process
    std::string report;  // path of the report at exit; empty is none
};

SIM_EXPORT Settings &settings();

// The environment's values again.
void read_settings();

// The number of devices that the process sees.
int visible_devices();

SIM_EXPORT bool is_ascend950();

}  // namespace sim
