// Phase two of every operator.
#include "acl/call.h"
#include "acl/device.h"
#include "nnopbase/cache.h"
#include "nnopbase/executor.h"

namespace sim {
namespace {

enum class Fate { Gone, Kept };

// Marks an executor, or a thread's cache, as in use for a while.
class InUse {
  public:
    explicit InUse(Executor &executor) : executor_(executor) {
        if (executor.running.exchange(true))
            violate("the executor is used by two threads at a time");
        if (!executor.wrapper) return;
        cache_ = executor.cache.lock();
        if (cache_ == nullptr) {
            violate("the thread of phase one, whose cache holds the executor, has ended");
        } else if (cache_->phase_twos.fetch_add(1) > 0) {
            violate("two executors of one thread's cache are launched at a time");
        }
    }
    ~InUse() {
        executor_.running = false;
        if (cache_ != nullptr) cache_->phase_twos.fetch_sub(1);
    }

  private:
    Executor &executor_;
    std::shared_ptr<ThreadCache> cache_;
};

int check_workspace(const Executor &executor, void *workspace, uint64_t size, Fate &fate) {
    const bool single = executor.entry.single_kernel;
    const auto wanted = static_cast<unsigned long long>(executor.workspace);
    if (executor.workspace == 0) {
        if (workspace != nullptr || size != 0) violate("a workspace of size 0 is NULL, 0");
        return 0;
    }
    if (workspace == nullptr) {
        fate = single ? Fate::Kept : Fate::Gone;
        return fail(161001, "workspace: must not be nullptr, %llu bytes are needed", wanted);
    }
    if (size < executor.workspace && single) {
        fate = Fate::Kept;
        return fail(161002, "a workspace of %llu bytes is needed", wanted);
    }
    if (size < executor.workspace) violate("a workspace of %llu bytes is needed", wanted);
    if (reinterpret_cast<uintptr_t>(workspace) % 64 != 0) {
        violate("workspace: %p is not on a multiple of 64", workspace);
    }
    return 0;
}

int run(const ExecutorPointer &executor, void *workspace, uint64_t size, void *stream, Fate &fate) {
    InUse used(*executor);
    int status = check_workspace(*executor, workspace, size, fate);
    if (status != 0) {
        if (fate == Fate::Gone) executor->repeatable = false;
        return status;
    }
    if (!check_descriptors(*executor)) return fail(561103, "a descriptor of the executor is gone");
    {
        Lock lock(state().mutex);
        ContextPointer context = current_context();
        const int standing = context == nullptr ? 0 : standing_error(*context);
        if (standing != 0) {
            this_thread().last_error = standing;
            return fail(361001, "a call of the runtime failed with %d", standing);
        }
        status = launch(*executor, workspace, stream);
    }
    const auto cache = executor->cache.lock();
    if (status == 0 && cache != nullptr && !executor->wrapper && !executor->repeatable) {
        cache->put(executor->key, {executor->workspace, executor->launches});
    }
    return status;
}

}  // namespace

int32_t phase_two(const OperatorEntry &entry, void *workspace, uint64_t size, void *handle,
                  void *stream) {
    Call current(entry.name);
    int status = 0;
    if (handle == nullptr) {
        status = fail(161001, "executor: must not be nullptr");
    } else if (const auto executor = find<Executor>(handle, ObjectKind::Executor)) {
        Fate fate = Fate::Gone;
        if (executor->entry.name != std::string(entry.name)) {
            violate("the executor is one of %s", executor->entry.name);
            status = fail(561000, "the executor is one of %s", executor->entry.name);
        } else if (current.fault() == 0) {
            status = run(executor, workspace, size, stream, fate);
        }
        if (!executor->repeatable && fate == Fate::Gone)
            remove_object(handle, ObjectKind::Executor);
    } else {
        status = misused(handle, ObjectKind::Executor, 561103);
    }
    return current.finish(current.fault() != 0 ? current.fault() : status);
}

}  // namespace sim
