// Figures besides the calls. All under the state's lock.
#pragma once

#include <cstddef>
#include <cstdint>

#include "acl_types.h"

namespace sim {

struct Counters {
    uint64_t bytes[4] = {0, 0, 0, 0};  // copied, by direction: host/device to host/device
    uint64_t copies[4] = {0, 0, 0, 0};
    uint64_t pageable_copies = 0;  // by aclrtMemcpyAsync
    uint64_t filled_by_copies = 0; // bytes of fills that the runtime does by copying
    uint64_t launches = 0;         // kernels that ran
    uint64_t deterministic_launches = 0;
    uint64_t cache_hits = 0;  // phase ones answered from the thread's cache
    uint64_t dead_plans = 0;  // entries of living threads' caches that no phase two has filled
};

SIM_EXPORT Counters &counters();

inline void count_copy(int direction, size_t bytes) {
    counters().bytes[direction] += bytes;
    ++counters().copies[direction];
}

inline void count_fill_by_copies(size_t bytes) { counters().filled_by_copies += bytes; }

inline void count_pageable_copy() { ++counters().pageable_copies; }

}  // namespace sim
