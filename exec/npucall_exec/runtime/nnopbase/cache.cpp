#include "nnopbase/cache.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "acl/call.h"
#include "acl/counters.h"
#include "acl/device.h"
#include "acl/settings.h"

namespace sim {
namespace {

constexpr uint64_t STANDARD_LIMIT = 10000;
constexpr uint64_t LARGEST_LIMIT = 10000000;
constexpr size_t LONGEST_KEY = 8192;  // of the text here; CANN counts bytes of its own

uint64_t limit_of_environment() {
    const char *value = std::getenv("ACLNN_CACHE_LIMIT");
    if (value == nullptr) return STANDARD_LIMIT;
    return std::min<uint64_t>(std::strtoull(value, nullptr, 10), LARGEST_LIMIT);
}

}  // namespace

bool ThreadCache::find(const std::string &key, CachedPlan &plan) {
    std::lock_guard<std::mutex> guard(mutex);
    const auto found = by_key.find(key);
    if (found == by_key.end() || !found->second->second.usable) return false;
    plans.splice(plans.begin(), plans, found->second);
    plan = found->second->second;
    return true;
}

void ThreadCache::put(const std::string &key, const CachedPlan &plan) {
    std::lock_guard<std::mutex> guard(mutex);
    if (limit == 0 || by_key.count(key) != 0) return;
    if (plans.size() >= limit) drop_oldest();
    plans.emplace_front(key, plan);
    by_key[key] = plans.begin();
    if (plan.dead) count_dead(1);
}

void ThreadCache::put_dead(const std::string &key, uint64_t workspace) {
    CachedPlan plan{workspace, false};
    plan.dead = true;
    plan.usable = settings().unrun == Unrun::Unguarded;
    // A guarded entry has lost its key: each further one is one more.
    const bool keeps_key = settings().unrun != Unrun::Guarded;
    put(keeps_key ? key : key + "/dead " + std::to_string(++dead_), plan);
}

void ThreadCache::drop_oldest() {
    if (plans.back().second.dead) count_dead(-1);
    by_key.erase(plans.back().first);
    plans.pop_back();
}

void ThreadCache::count_dead(int64_t more) const {
    Lock lock(state().mutex);
    if (epoch == sim::epoch()) counters().dead_plans += static_cast<uint64_t>(more);
}

ThreadCache::~ThreadCache() {
    const auto dead = std::count_if(plans.begin(), plans.end(),
                                    [](const auto &entry) { return entry.second.dead; });
    if (dead != 0) count_dead(-dead);
}

std::shared_ptr<ThreadCache> thread_cache() {
    static thread_local std::shared_ptr<ThreadCache> own;
    if (std::getenv("DISABLE_L2_CACHE") != nullptr) return nullptr;
    if (own == nullptr || own->epoch != epoch()) {
        own = std::make_shared<ThreadCache>();
        own->epoch = epoch();
        own->limit = limit_of_environment();
    }
    return own;
}

std::string cache_key(const Executor &executor, int device) {
    std::string key = executor.call + "/" + std::to_string(device) + "/" +
                      std::to_string(executor.deterministic);
    std::map<const void *, size_t> seen;  // one descriptor given twice is part of the key
    for (const Value &value : executor.values) {
        for (const Snapshot &tensor : value.tensors) {
            key += "/" + std::to_string(seen.emplace(tensor.handle, seen.size()).first->second);
        }
    }
    return key.size() <= LONGEST_KEY ? key : std::string();
}

}  // namespace sim
