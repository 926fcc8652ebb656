// Phase one of every operator.
#include <cstdlib>
#include <mutex>
#include <set>

#include "acl/call.h"
#include "acl/counters.h"
#include "acl/device.h"
#include "end.h"
#include "nnopbase/cache.h"
#include "nnopbase/executor.h"
#include "nnopbase/snapshot.h"
#include "nnopbase/thread_end.h"

namespace sim {
namespace {

// Names of functions must live as long as the process.
const char *kept(const std::string &name) {
    static auto *mutex = new std::mutex;
    static auto *names = new std::set<std::string>;
    std::lock_guard<std::mutex> guard(*mutex);
    return names->insert(name).first->c_str();
}

// A failed phase one leaves these: numbers and a handle with which nothing can be done.
void poison(uint64_t *workspace_size, void **executor) {
    auto dead = std::make_shared<Executor>();
    dead->kind = ObjectKind::Executor;
    void *handle = add_object(dead);
    remove_object(handle, ObjectKind::Executor);
    *executor = handle;
    *workspace_size = 0xA5A5A5A5A5A5A5A5;
}

struct Place {
    int device;
    int64_t deterministic;
};

// 0 and where the thread is, or why it cannot prepare anything.
int find_place(Place &place) {
    if (std::getenv("ASCEND_OPP_PATH") == nullptr) {
        return fail(561107, "ASCEND_OPP_PATH is not set");
    }
    Lock lock(state().mutex);
    const ContextPointer context = current_context();
    if (context == nullptr) {
        ContextPointer none;
        return require_context(none);
    }
    const int standing = standing_error(*context);
    if (standing != 0) {
        this_thread().last_error = standing;
        return fail(361001, "a call of the runtime failed with %d", standing);
    }
    place = {context->device, deterministic_level()};
    outlive_this_thread(context);
    return 0;
}

// 0 and the plan: the cache's, or that of arguments which pass every check.
int find_plan(const Argument *arguments, size_t count, Executor &made, CachedPlan &plan) {
    const auto cache = thread_cache();
    if (cache != nullptr && !made.key.empty()) {
        made.cache = cache;
        made.wrapper = cache->find(made.key, plan);
        if (made.wrapper) return 0;
    }
    return plan_call(arguments, count, made, plan);
}

int make(const OperatorEntry &entry, const Argument *arguments, size_t count,
         uint64_t *workspace_size, void **handle) {
    Place place{};
    int status = find_place(place);
    if (status != 0) return status;
    auto made = std::make_shared<Executor>();
    made->kind = ObjectKind::Executor;
    made->entry = entry;
    made->values = snapshot_of(arguments, count);
    made->call = describe_call(entry, made->values);
    made->deterministic = place.deterministic;
    made->key = cache_key(*made, place.device);
    made->thread = this_thread_number();
    CachedPlan plan{};
    status = find_plan(arguments, count, *made, plan);
    if (status != 0) return status;
    made->workspace = plan.workspace;
    made->launches = plan.launches;
    if (made->wrapper) {
        check_descriptors(*made);
        Lock lock(state().mutex);
        ++counters().cache_hits;
    }
    *workspace_size = plan.workspace;
    *handle = add_object(made);
    last_executor() = *handle;
    return 0;
}

}  // namespace

const void *&last_executor() {
    static thread_local const void *last = nullptr;
    return last;
}

uint64_t this_thread_number() {
    static std::atomic<uint64_t> threads{0};
    static thread_local const uint64_t number = ++threads;
    return number;
}

int32_t phase_one(const OperatorEntry &entry, const Argument *arguments, size_t count,
                  uint64_t *workspace_size, void **executor) {
    return call(kept(std::string(entry.name) + "GetWorkspaceSize"), [&] {
        last_executor() = nullptr;
        if (workspace_size == nullptr) return fail(161001, "workspaceSize: must not be nullptr");
        if (executor == nullptr) return fail(161001, "executor: must not be nullptr");
        const int status = make(entry, arguments, count, workspace_size, executor);
        if (status != 0) poison(workspace_size, executor);
        return status;
    });
}

}  // namespace sim
