#include "acl/stream.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "acl/settings.h"
#include "end.h"

namespace sim {
namespace {

std::set<StreamPointer> &every_stream() {
    static auto *all = new std::set<StreamPointer>;
    return *all;
}

constexpr size_t MOST_WAITING = 256;

bool stays_for_good(int status) {
    return status == 507010 || status == 507901 || status == 507053 || status == 107022;
}

void record_failure(Stream &stream, const Outcome &outcome) {
    Context &context = *stream.context;
    if (stays_for_good(outcome.status)) state().devices[context.device].sticky = outcome.status;
    if (context.stop_on_failure) {
        context.error = outcome.status;
        context.error_text = outcome.text;
    } else {
        stream.error = outcome.status;
        stream.error_text = outcome.text;
    }
}

// Work that ends only by the timeout of kernels, an abort, or when the faults are cleared.
Outcome stalled(const Stream &stream, const Task &task) {
    const auto step = 5;
    for (int64_t waited = 0; waited < state().kernel_timeout_ms; waited += step) {
        if (stall(task.deferred.generation, step) || stream.discarded) {
            return {task.deferred.status, "the simulator was told to stall here"};
        }
    }
    return {507014, "the kernel ran longer than its timeout"};
}

Outcome carried_out(const Stream &stream, const Task &task) {
    if (task.deferred.stall) return stalled(stream, task);
    if (task.deferred.status != 0) {
        return {task.deferred.status, "the simulator was told to fail here"};
    }
    if (task.is_kernel && settings().kernel_us != 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(settings().kernel_us));
    }
    return task.work();
}

Task next_task(Stream &stream) {
    Task task = std::move(stream.queue.front());
    stream.queue.pop_front();
    return task;
}

// Does a task, without the lock for the while.
Outcome done(Lock &lock, const Stream &stream, const Task &task) {
    if (stream.discarded || stream.context->error != 0) return {};
    lock.unlock();
    this_thread().function = task.function;
    const Outcome outcome = carried_out(stream, task);
    lock.lock();
    return outcome;
}

void finish(Stream &stream, uint64_t number, const Outcome &outcome) {
    stream.finished = std::max(stream.finished, number);
    if (outcome.status != 0 && !stream.discarded) record_failure(stream, outcome);
    state().changed.notify_all();
}

// Waits for the kernels that this thread has begun, if there are any.
void settle(Lock &lock, Stream &stream, uint64_t begun) {
    if (begun <= stream.finished) return;
    lock.unlock();
    const Outcome outcome = kernels_over();
    lock.lock();
    finish(stream, begun, outcome);
}

void serve(const StreamPointer &stream) {
    Lock lock(state().mutex);
    while (true) {
        stream->work.wait(lock, [&] { return stream->ending || !stream->queue.empty(); });
        if (stream->queue.empty()) break;
        stream->busy = true;
        const Task task = next_task(*stream);
        const Outcome outcome = done(lock, *stream, task);
        stream->busy = false;
        finish(*stream, task.number, outcome);
    }
    stream->ended = true;
    state().changed.notify_all();
}

bool overlaps(const Use &use, uintptr_t begin, uintptr_t end) {
    return use.begin < end && begin < use.end;
}

void forget_observed(std::vector<Use> &uses) {
    uses.erase(std::remove_if(uses.begin(), uses.end(),
                              [](const Use &use) { return use.number <= use.stream->observed; }),
               uses.end());
}

bool comes_before(const Use &use, const Stream *by) {
    if (use.number <= use.stream->observed || use.stream.get() == by) return true;
    if (by == nullptr) return false;
    const auto waited = by->waited.find(use.stream->id);
    return waited != by->waited.end() && use.number <= waited->second;
}

// What the host is told at the end of a synchronise.
int told(Stream &stream) {
    const int standing = standing_error(*stream.context);
    if (standing != 0) return standing;
    if (stream.error == 0) return 0;
    const int status = fail(stream.error, "%s", stream.error_text.c_str());
    stream.error = 0;
    return status;
}

}  // namespace

StreamPointer new_stream(const ContextPointer &context, bool counted) {
    auto stream = std::make_shared<Stream>();
    stream->kind = ObjectKind::Stream;
    stream->counted = counted;
    stream->context = context;
    stream->id = state().next_stream++;
    stream->saturates = state().devices[context->device].overflow == 0;
    add_object(stream);
    every_stream().insert(stream);
    if (!settings().lazy) std::thread(serve, stream).detach();
    return stream;
}

std::vector<StreamPointer> streams_of(const Context &context) {
    std::vector<StreamPointer> found;
    for (const auto &stream : every_stream()) {
        if (stream->context.get() == &context) found.push_back(stream);
    }
    return found;
}

std::vector<StreamPointer> all_streams() { return {every_stream().begin(), every_stream().end()}; }

void end_stream(Lock &lock, const StreamPointer &stream, bool discard) {
    remove_object(stream->handle, ObjectKind::Stream);
    if (stream->waiters != 0 && !discard) violate("another thread still waits for the stream");
    stream->discarded = stream->discarded || discard;
    stream->ending = true;
    stream->work.notify_all();
    if (!discard) drain(lock, stream, stream->submitted);
    stream->ended = stream->ended || settings().lazy;
    if (!discard) state().changed.wait(lock, [&] { return stream->ended || stream->discarded; });
    observe(*stream, stream->submitted);
    every_stream().erase(stream);
    state().changed.notify_all();
}

int require_stream(aclrtStream handle, const ContextPointer &context, StreamPointer &stream) {
    stream = handle == nullptr ? context->default_stream : find<Stream>(handle, ObjectKind::Stream);
    if (stream == nullptr) return misused(handle, ObjectKind::Stream, 107003);
    if (stream->context != context) {
        return fail(107003, "stream %d belongs to another context", stream->id);
    }
    return 0;
}

int submit(const StreamPointer &stream, const char *function, const std::vector<Access> &accesses,
           Work work, bool is_kernel) {
    const int standing = standing_error(*stream->context);
    if (standing != 0) return standing;
    if (stream->aborted) return fail(107023, "stream %d was aborted", stream->id);
    Task task;
    task.function = function;
    task.work = std::move(work);
    task.is_kernel = is_kernel;
    task.deferred = this_thread().deferred;
    task.number = ++stream->submitted;
    this_thread().deferred = Deferred{};
    for (const Access &access : accesses) {
        check_unordered(*access.allocation, access.begin, access.end, access.write, stream.get(),
                        access.write ? "writes" : "reads");
        forget_observed(access.allocation->uses);
        access.allocation->uses.push_back(
            {access.begin, access.end, stream, task.number, access.write});
    }
    stream->queue.push_back(std::move(task));
    stream->work.notify_one();
    if (settings().lazy && stream->queue.size() >= MOST_WAITING && !stream->busy) {
        Lock lock(state().mutex, std::adopt_lock);
        drain(lock, stream, stream->submitted);
        lock.release();
    }
    return 0;
}

void drain(Lock &lock, const StreamPointer &stream, uint64_t number) {
    if (!settings().lazy) return;
    state().changed.wait(lock, [&] { return !stream->busy || stream->finished >= number; });
    if (stream->finished >= number || stream->queue.empty()) return;
    stream->busy = true;
    const char *caller = this_thread().function;
    uint64_t begun = 0;  // the last kernel
    while (!stream->queue.empty() && stream->queue.front().number <= number) {
        const Task task = next_task(*stream);
        if (!task.is_kernel) settle(lock, *stream, begun);
        const Outcome outcome = done(lock, *stream, task);
        if (task.is_kernel && outcome.status == 0) {
            begun = task.number;
        } else {
            settle(lock, *stream, begun);
            finish(*stream, task.number, outcome);
        }
    }
    settle(lock, *stream, begun);
    this_thread().function = caller;
    stream->busy = false;
    state().changed.notify_all();
}

void land_later(Stream &stream, uint64_t number, std::function<void()> land) {
    stream.landings.push_back({number, std::move(land)});
}

int synchronize(Lock &lock, const StreamPointer &stream, int64_t milliseconds) {
    const uint64_t target = stream->submitted;
    const auto over = [&] {
        return stream->finished >= target || stream->aborted || stream->discarded;
    };
    ++stream->waiters;
    drain(lock, stream, target);
    bool in_time = true;
    if (milliseconds < 0) {
        state().changed.wait(lock, over);
    } else {
        in_time = state().changed.wait_for(lock, std::chrono::milliseconds(milliseconds), over);
    }
    --stream->waiters;
    if (!in_time)
        return fail(507046, "stream %d was still busy after %d ms", stream->id,
                    static_cast<int>(milliseconds));
    if (stream->aborted) return fail(107023, "stream %d was aborted", stream->id);
    observe(*stream, target);
    check_padding_of_device(stream->context->device);
    return told(*stream);
}

bool is_timeout(int32_t milliseconds) {
    return milliseconds > 0 || milliseconds == -1 || (milliseconds == 0 && SIM_GENERATION < 90);
}

void land(Stream &stream, uint64_t number) {
    while (!stream.landings.empty() && stream.landings.front().number <= number) {
        const auto landing = std::move(stream.landings.front().land);
        stream.landings.pop_front();
        landing();
    }
}

void observe(Stream &stream, uint64_t number) {
    if (number > stream.observed) stream.observed = number;
    land(stream, number);
    while (!stream.links.empty() && stream.links.front().number <= number) {
        const Link link = stream.links.front();
        stream.links.pop_front();
        observe(*link.other, link.other_number);
    }
}

void check_unordered(Allocation &allocation, uintptr_t begin, uintptr_t end, bool write,
                     const Stream *by, const char *action) {
    for (const Use &use : allocation.uses) {
        if (!overlaps(use, begin, end) || comes_before(use, by)) continue;
        if (!write && !use.write) continue;
        violate("%s bytes that work of stream %d may still %s: nothing orders them", action,
                use.stream->id, use.write ? "write" : "read");
        return;
    }
}

AllocationPointer require_device_bytes(const void *address, uint64_t bytes, uint64_t touched,
                                       int device, const char *what) {
    const AllocationPointer allocation = find_allocation(address);
    if (allocation == nullptr || !allocation->is_device()) {
        violate("%s (%p) is %s", what, address,
                was_freed(address)      ? "in memory that was freed"
                : allocation != nullptr ? "pinned host memory, not device memory"
                                        : "in no memory of the device");
        return nullptr;
    }
    if (allocation->device != device) {
        violate("%s (%p) is memory of device %d, used on device %d", what, address,
                allocation->device, device);
        return nullptr;
    }
    const auto begin = reinterpret_cast<uintptr_t>(address);
    const bool fits = touched <= allocation->address + allocation->real - begin;
    if (!fits || begin + bytes > allocation->end()) {
        violate("%s: %llu bytes at byte %llu of an allocation of %zu bytes", what,
                static_cast<unsigned long long>(fits ? bytes : touched),
                static_cast<unsigned long long>(begin - allocation->address), allocation->size);
    }
    return fits ? allocation : nullptr;
}

}  // namespace sim
