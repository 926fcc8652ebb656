// Devices, contexts, and the one lock of the runtime's state.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "acl/registry.h"
#include "acl_types.h"

namespace sim {

struct Stream;

struct Context : Object {
    int device = 0;
    bool primary = false;
    bool stop_on_failure = false;
    int error = 0;  // of failed work, in STOP mode; stays
    std::string error_text;
    std::shared_ptr<Stream> default_stream;
    std::map<int, int64_t> options;
};

using ContextPointer = std::shared_ptr<Context>;

struct Device {
    int references = 0;  // aclrtSetDevice less aclrtResetDevice
    int sticky = 0;      // a status that every later call gets
    int overflow = 0;    // the mode of streams that are made from now on: 0 saturation, 1 INFNAN
    ContextPointer primary;
};

struct State {
    std::mutex mutex;
    std::condition_variable changed;  // work ended
    std::map<int, Device> devices;
    std::map<int, int64_t> options;
    uint64_t initialised = 0;  // aclInit less its counterparts
    bool was_initialised = false, was_finalised = false;
    std::string configuration;
    int64_t kernel_timeout_ms = 1091000;  // the default of A2 and A3
    int next_stream = 0;
};

SIM_EXPORT State &state();
using Lock = std::unique_lock<std::mutex>;

// All that follows is called under the lock.

ContextPointer new_context(int device, bool primary);

// The calling thread's context, whatever state it is in; null where it has none.
SIM_EXPORT ContextPointer current_context();

// 0 and the calling thread's context, or the status of a call that cannot have it.
SIM_EXPORT int require_context(ContextPointer &context);

// 0, or the status that work of this context gets since something failed for good.
SIM_EXPORT int standing_error(const Context &context);

// The deterministic option of the process, which phase one reads.
SIM_EXPORT int64_t deterministic_level();

// Ends what belongs to a context; the streams' work is waited for unless `discard`.
void release_context(Lock &lock, const ContextPointer &context, bool discard);

// Takes the lock: the calling thread's device returns this status from here on.
void make_sticky(int status);

}  // namespace sim
