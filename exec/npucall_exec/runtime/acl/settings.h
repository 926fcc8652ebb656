// What the device and the release are like.
#pragma once

#include <cstdint>
#include <string>

#include "acl_types.h"

namespace sim {

// What becomes of an executor that is destroyed though it never ran.
enum class Unrun {
    Unguarded,  // the cache answers the next equal phase one from its entry, which launches nothing
    Guarded,    // the entry answers nothing
    Refused,    // the executor stays, and its entry in the way of others
};

struct Settings {
    std::string soc;
    int devices;
    uint64_t memory;     // bytes of HBM, a device
    uint64_t kernel_us;  // how long each kernel takes at least
    uint64_t bandwidth;  // bytes per second of copies and fills; 0 is no limit
    bool watch;           // host memory of copies that are under way is watched
    bool pageable_waits; // asynchronous copies of pageable memory are over when they return
    Unrun unrun;
    uint64_t thread_end_ms;  // that a thread which made a phase one takes to end
    size_t addresses;        // of device memory, the bytes of all that is taken at a time
    bool kinds_matter;       // a copy whose kind is not what its addresses say is refused
    bool lazy = false;       // streams have no threads: who waits for work does it
};

SIM_EXPORT Settings &settings();

// The environment's values again.
void read_settings();

// The number of devices that the process sees.
int visible_devices();

SIM_EXPORT bool is_ascend950();

}  // namespace sim
