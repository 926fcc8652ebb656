// The cache of phase ones that every thread has.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "nnopbase/executor.h"

namespace sim {

struct CachedPlan {
    uint64_t workspace;
    bool launches;
};

// Keeps the most recently used keys, as many as ACLNN_CACHE_LIMIT says.
struct ThreadCache {
    std::mutex mutex;
    uint64_t epoch = 0;
    uint64_t limit = 0;
    std::list<std::pair<std::string, CachedPlan>> plans;  // newest first
    std::unordered_map<std::string, decltype(plans)::iterator> by_key;
    std::atomic<int> phase_twos{0};  // of its wrappers, under way

    bool find(const std::string &key, CachedPlan &plan);
    void put(const std::string &key, const CachedPlan &plan);
};

// The calling thread's; null where DISABLE_L2_CACHE is set.
std::shared_ptr<ThreadCache> thread_cache();

// Everything but addresses that a phase one depends on; empty if it is too long to be cached.
std::string cache_key(const OperatorEntry &entry, const std::vector<Value> &values, int device,
                      int64_t deterministic);

}  // namespace sim
