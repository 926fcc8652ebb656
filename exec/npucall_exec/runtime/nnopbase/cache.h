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
    bool dead = false;    // its executor never ran
    bool usable = true;   // answers phase ones
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

    // What stays of a phase one whose executor never ran.
    void put_dead(const std::string &key, uint64_t workspace);

    ~ThreadCache();

  private:
    uint64_t dead_ = 0;  // ever, so that their keys differ
    void drop_oldest();
    void count_dead(int64_t more) const;
};

// The calling thread's; null where DISABLE_L2_CACHE is set.
std::shared_ptr<ThreadCache> thread_cache();

// Everything but addresses that a phase one depends on; empty if it is too long to be cached.
std::string cache_key(const Executor &executor, int device);

}  // namespace sim
