// Streams: queues of work, each with a thread of its own. All under the state's lock.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "acl/call.h"
#include "acl/device.h"
#include "acl/memory.h"

namespace sim {

// What a task leaves behind for the host.
struct Outcome {
    int status = 0;
    std::string text;
};

using Work = std::function<Outcome()>;

// Bytes that a task will touch.
struct Access {
    AllocationPointer allocation;
    uintptr_t begin, end;
    bool write;
};

struct Task {
    const char *function = "";
    Work work;
    bool is_kernel = false;
    Deferred deferred;
    uint64_t number = 0;
};

// Something to do when the host learns that a task is over, and not before.
struct Landing {
    uint64_t number;
    std::function<void()> land;
};

// Whoever knows that task `number` is over, knows it of `other_number` of `other` too.
struct Link {
    uint64_t number;
    std::shared_ptr<Stream> other;
    uint64_t other_number;
};

struct Stream : Object {
    ContextPointer context;
    int id = 0;
    std::deque<Task> queue;
    uint64_t submitted = 0;  // tasks so far
    uint64_t finished = 0;   // tasks that are over
    uint64_t observed = 0;   // tasks of which the host knows that they are over
    std::deque<Landing> landings;
    std::deque<Link> links;
    std::map<int, uint64_t> waited;  // by stream's id: tasks that come before its next one
    int error = 0;                   // of failed work, in CONTINUE mode; returned once
    std::string error_text;
    bool mode_was_set = false;
    bool saturates = false;  // what is infinite becomes the largest number
    bool busy = false, aborted = false, discarded = false, ending = false, ended = false;
    int waiters = 0;
    std::condition_variable work;
};

using StreamPointer = std::shared_ptr<Stream>;

StreamPointer new_stream(const ContextPointer &context, bool counted);
std::vector<StreamPointer> streams_of(const Context &context);
std::vector<StreamPointer> all_streams();

// Waits for a stream's work, or drops it, and ends its thread.
void end_stream(Lock &lock, const StreamPointer &stream, bool discard);

// 0 and the stream of this handle (NULL: the default stream) if the context may submit to it.
SIM_EXPORT int require_stream(aclrtStream handle, const ContextPointer &context,
                              StreamPointer &stream);

// Puts work at the end of a stream. Uses up the failure that the call under way was given.
// `is_kernel`: it takes as long as kernels are told to take, and may go on after `work`.
SIM_EXPORT int submit(const StreamPointer &stream, const char *function,
                      const std::vector<Access> &accesses, Work work, bool is_kernel = false);

// Does the tasks up to this one, if the stream has no thread. Before anybody asks whether they are
// over.
void drain(Lock &lock, const StreamPointer &stream, uint64_t number);

// Called while a task's work runs: `land` happens when the host learns of the task's end.
void land_later(Stream &stream, uint64_t number, std::function<void()> land);

// Waits for what was submitted: forever (-1), or so long. Returns what the host is told.
int synchronize(Lock &lock, const StreamPointer &stream, int64_t milliseconds);

// True for what the functions with a timeout take; they differ in what 0 is.
bool is_timeout(int32_t milliseconds);

// The host has proof that the tasks up to `number` are over.
void observe(Stream &stream, uint64_t number);

// Lands what tasks up to `number` left, for later work that reads it.
void land(Stream &stream, uint64_t number);

// Reports work that may still touch these bytes although nothing orders it before.
void check_unordered(Allocation &allocation, uintptr_t begin, uintptr_t end, bool write,
                     const Stream *by, const char *action);

// The memory of a device that has these bytes; null, and a violation, if a kernel would touch others.
SIM_EXPORT AllocationPointer require_device_bytes(const void *address, uint64_t bytes,
                                                  uint64_t touched, int device, const char *what);

}  // namespace sim
