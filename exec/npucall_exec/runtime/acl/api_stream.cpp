// Streams.
#include <algorithm>
#include <thread>

#include "acl/call.h"
#include "acl/device.h"
#include "acl/settings.h"
#include "acl/stream.h"

using namespace sim;

namespace {

constexpr uint32_t STREAM_FLAGS = SIM_GENERATION >= 90 ? 0x3F : 0x3;

size_t stream_limit() {
    const std::string &soc = settings().soc;
    if (soc.rfind("Ascend310P", 0) == 0) return 1024;
    return soc == "Ascend910A" || soc == "Ascend910ProA" ? 2048 : 1984;
}

int create(aclrtStream *made) {
    if (made == nullptr) return fail(100000, "stream is NULL");
    Lock lock(state().mutex);
    ContextPointer context;
    const int status = require_context(context);
    if (status != 0) return status;
    if (all_streams().size() >= stream_limit()) return fail(207008, "no stream is left");
    *made = new_stream(context, true)->handle;
    return 0;
}

int destroy(aclrtStream handle, bool discard) {
    if (handle == nullptr) return fail(100000, "stream is NULL");
    Lock lock(state().mutex);
    const StreamPointer stream = find<Stream>(handle, ObjectKind::Stream);
    if (stream == nullptr) return misused(handle, ObjectKind::Stream, 107017);
    const ContextPointer context = current_context();
    if (context == nullptr) return fail(107002, "this thread has no context");
    if (stream->context != context) {
        return fail(107003, "stream %d belongs to another context", stream->id);
    }
    end_stream(lock, stream, discard);
    return 0;
}

int wait(aclrtStream handle, int32_t milliseconds) {
    Lock lock(state().mutex);
    ContextPointer context;
    const int status = require_context(context);
    if (status != 0) return status;
    // A synchronise may name a stream of another context.
    const StreamPointer stream =
        handle == nullptr ? context->default_stream : find<Stream>(handle, ObjectKind::Stream);
    if (stream == nullptr) return misused(handle, ObjectKind::Stream, 107017);
    return synchronize(lock, stream, milliseconds);
}

[[maybe_unused]] void drain_alone(const StreamPointer &stream, uint64_t number) {
    Lock lock(state().mutex);
    drain(lock, stream, number);
}

}  // namespace

SIM_API aclError aclrtCreateStream(aclrtStream *made) {
    return call("aclrtCreateStream", [&] { return create(made); });
}

SIM_API aclError aclrtCreateStreamWithConfig(aclrtStream *made, uint32_t priority, uint32_t flag) {
    return call("aclrtCreateStreamWithConfig", [&] {
        if (priority > 7) return fail(107000, "%u is no priority", priority);
        if ((flag & ~STREAM_FLAGS) != 0) return fail(107000, "0x%x is no flag", flag);
        return create(made);
    });
}

SIM_API aclError aclrtDestroyStream(aclrtStream stream) {
    return destroying_call("aclrtDestroyStream", [&] { return destroy(stream, false); });
}

SIM_API aclError aclrtDestroyStreamForce(aclrtStream stream) {
    return destroying_call("aclrtDestroyStreamForce", [&] { return destroy(stream, true); });
}

SIM_API aclError aclrtSynchronizeStream(aclrtStream stream) {
    return call("aclrtSynchronizeStream", [&] { return wait(stream, -1); });
}

SIM_API aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t milliseconds) {
    return call("aclrtSynchronizeStreamWithTimeout", [&] {
        if (!is_timeout(milliseconds)) return fail(107000, "%d ms is no timeout", milliseconds);
        return wait(stream, milliseconds);
    });
}

SIM_API aclError aclrtStreamQuery(aclrtStream handle, int *status) {
    return call("aclrtStreamQuery", [&] {
        if (status == nullptr) return fail(100000, "status is NULL");
        Lock lock(state().mutex);
        ContextPointer context;
        StreamPointer stream;
        int refused = require_context(context);
        if (refused == 0) refused = require_stream(handle, context, stream);
        if (refused != 0) return refused;
        drain(lock, stream, stream->submitted);
        const bool complete = stream->finished == stream->submitted;
        if (complete) observe(*stream, stream->finished);
        *status = complete ? 0 : 1;
        return 0;
    });
}

SIM_API aclError aclrtStreamAbort(aclrtStream handle) {
    return call("aclrtStreamAbort", [&] {
        if (handle == nullptr) return fail(100000, "stream is NULL");
        Lock lock(state().mutex);
        const StreamPointer stream = find<Stream>(handle, ObjectKind::Stream);
        if (stream == nullptr) return misused(handle, ObjectKind::Stream, 107017);
        stream->aborted = stream->discarded = true;
        stream->queue.clear();
        state().changed.notify_all();
        state().changed.wait(lock, [&] { return !stream->busy; });
        stream->finished = stream->submitted;
        observe(*stream, stream->submitted);
        return 0;
    });
}

SIM_API aclError aclrtSetStreamFailureMode(aclrtStream handle, uint64_t mode) {
    return call("aclrtSetStreamFailureMode", [&] {
        if (mode > 1) return fail(107000, "%llu is no mode", static_cast<unsigned long long>(mode));
        Lock lock(state().mutex);
        ContextPointer context;
        StreamPointer stream;
        int refused = require_context(context);
        if (refused == 0) refused = require_stream(handle, context, stream);
        if (refused != 0) return refused;
        if (stream->mode_was_set) return fail(107000, "a stream's mode can be set once");
        stream->mode_was_set = true;
        // One stream in STOP mode puts all of its context into it.
        if (mode == 1) context->stop_on_failure = true;
        return 0;
    });
}

SIM_API aclError aclrtStreamGetId(aclrtStream handle, int32_t *id) {
    return call("aclrtStreamGetId", [&] {
        if (id == nullptr) return fail(100000, "id is NULL");
        Lock lock(state().mutex);
        ContextPointer context;
        StreamPointer stream;
        int refused = require_context(context);
        if (refused == 0) refused = require_stream(handle, context, stream);
        if (refused == 0) *id = stream->id;
        return refused;
    });
}

#if SIM_GENERATION >= 90
SIM_API aclError aclrtLaunchHostFunc(aclrtStream handle, aclrtHostFunc function, void *arguments) {
    return call("aclrtLaunchHostFunc", [&] {
        if (function == nullptr) return fail(100000, "the function is NULL");
        Lock lock(state().mutex);
        ContextPointer context;
        StreamPointer stream;
        int refused = require_context(context);
        if (refused == 0) refused = require_stream(handle, context, stream);
        if (refused != 0) return refused;
        const uint64_t before = stream->submitted;
        Stream *of = stream.get();
        const int status =
            submit(stream, "aclrtLaunchHostFunc", {}, [of, before, function, arguments] {
                {
                    Lock inner(state().mutex);
                    land(*of, before);
                }
                function(arguments);
                return Outcome{};
            });
        // Nobody need wait for a function, and it may wait for its caller.
        if (status == 0 && settings().lazy) std::thread(drain_alone, stream, before + 1).detach();
        return status;
    });
}
#endif
