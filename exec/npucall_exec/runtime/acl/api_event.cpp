// Events.
#include <chrono>
#include <thread>

#include "acl/call.h"
#include "acl/device.h"
#include "acl/stream.h"

using namespace sim;

namespace {

enum Flag : uint32_t { SYNC = 0x1, TIME_LINE = 0x8 };

constexpr uint32_t EVENT_FLAGS = SIM_GENERATION >= 90 ? 0x7B : 0x2B;

// One use of an event: what was submitted to the stream before it.
struct Record {
    StreamPointer stream;
    uint64_t number = 0;
    std::map<int, uint64_t> waited;
    bool over = false;
    bool seen = false;  // by the host, which asked for this event itself
    uint64_t time_us = 0;
};

struct Event : Object {
    ContextPointer context;
    uint32_t flags = 0;
    bool extended = false;  // made by aclrtCreateEventExWithFlag
    std::shared_ptr<Record> record;
};

using EventPointer = std::shared_ptr<Event>;

uint64_t clock_us() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

int create(aclrtEvent *made, uint32_t flags, bool extended) {
    if (made == nullptr) return fail(100000, "event is NULL");
    if (flags == 0 || (flags & ~EVENT_FLAGS) != 0) return fail(107000, "0x%x is no flag", flags);
    Lock lock(state().mutex);
    ContextPointer context;
    const int status = require_context(context);
    if (status != 0) return status;
    auto event = std::make_shared<Event>();
    event->kind = ObjectKind::Event;
    event->context = context;
    event->flags = flags;
    event->extended = extended;
    *made = add_object(event);
    return 0;
}

// 0 and the event, for a thread that has a context.
int require_event(aclrtEvent handle, ContextPointer &context, EventPointer &event) {
    if (handle == nullptr) return fail(100000, "event is NULL");
    const int status = require_context(context);
    if (status != 0) return status;
    event = find<Event>(handle, ObjectKind::Event);
    return event != nullptr ? 0 : misused(handle, ObjectKind::Event, 107017);
}

int require_event_and_stream(aclrtEvent handle, aclrtStream stream_handle, EventPointer &event,
                             StreamPointer &stream) {
    ContextPointer context;
    int status = require_event(handle, context, event);
    if (status == 0) status = require_stream(stream_handle, context, stream);
    if (status != 0) return status;
    return event->context == context ? 0 : fail(107003, "the event belongs to another context");
}

void observe_record(const Record &record) {
    if (record.over) observe(*record.stream, record.number);
}

int record(aclrtEvent handle, aclrtStream stream_handle) {
    Lock lock(state().mutex);
    EventPointer event;
    StreamPointer stream;
    const int refused = require_event_and_stream(handle, stream_handle, event, stream);
    if (refused != 0) return refused;
    auto made = std::make_shared<Record>();
    made->stream = stream;
    made->waited = stream->waited;
    const int status = submit(stream, "aclrtRecordEvent", {}, [made] {
        Lock inner(state().mutex);
        made->time_us = clock_us();
        made->over = true;
        state().changed.notify_all();
        return Outcome{};
    });
    made->number = stream->submitted;
    if (status == 0) event->record = made;
    return status;
}

int synchronize_event(aclrtEvent handle, int64_t milliseconds) {
    Lock lock(state().mutex);
    ContextPointer context;
    EventPointer event;
    const int refused = require_event(handle, context, event);
    if (refused != 0) return refused;
    const std::shared_ptr<Record> waited = event->record;
    if (waited == nullptr) return 0;
    const StreamPointer stream = waited->stream;
    drain(lock, stream, waited->number);
    const auto over = [&] { return stream->finished >= waited->number || stream->aborted; };
    if (milliseconds < 0) {
        state().changed.wait(lock, over);
    } else if (!state().changed.wait_for(lock, std::chrono::milliseconds(milliseconds), over)) {
        return fail(507047, "the event was not reached after %d ms",
                    static_cast<int>(milliseconds));
    }
    if (stream->aborted) return fail(107023, "stream %d was aborted", stream->id);
    observe(*stream, waited->number);
    waited->seen = true;
    return standing_error(*context);
}

// Complete: 1 where it never happened for events of this kind, as the real ones say.
int is_complete(aclrtEvent handle, bool only_plain, bool &complete) {
    Lock lock(state().mutex);
    ContextPointer context;
    EventPointer event;
    const int refused = require_event(handle, context, event);
    if (refused != 0) return refused;
    if (only_plain && event->extended) {
        return fail(207000, "not for events of aclrtCreateEventExWithFlag");
    }
    if (event->record != nullptr) drain(lock, event->record->stream, event->record->number);
    complete = event->record == nullptr ? event->extended : event->record->over;
    if (event->record != nullptr) observe_record(*event->record);
    if (event->record != nullptr && complete) event->record->seen = true;
    return 0;
}

}  // namespace

SIM_API aclError aclrtCreateEvent(aclrtEvent *made) {
    return call("aclrtCreateEvent", [&] { return create(made, SYNC | TIME_LINE, false); });
}

SIM_API aclError aclrtCreateEventWithFlag(aclrtEvent *made, uint32_t flag) {
    return call("aclrtCreateEventWithFlag", [&] { return create(made, flag, false); });
}

SIM_API aclError aclrtCreateEventExWithFlag(aclrtEvent *made, uint32_t flag) {
    return call("aclrtCreateEventExWithFlag", [&] { return create(made, flag, true); });
}

SIM_API aclError aclrtDestroyEvent(aclrtEvent handle) {
    return destroying_call("aclrtDestroyEvent", [&] {
        if (handle == nullptr) return fail(100000, "event is NULL");
        Lock lock(state().mutex);
        const EventPointer event = find<Event>(handle, ObjectKind::Event);
        if (event != nullptr && event->record != nullptr && event->record->stream->ending) {
            violate("its stream was destroyed before it");
        }
        const bool removed = remove_object(handle, ObjectKind::Event);
        return removed ? 0 : misused(handle, ObjectKind::Event, 107017);
    });
}

SIM_API aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
    return call("aclrtRecordEvent", [&] { return record(event, stream); });
}

SIM_API aclError aclrtResetEvent(aclrtEvent handle, aclrtStream stream_handle) {
    return call("aclrtResetEvent", [&] {
        Lock lock(state().mutex);
        EventPointer event;
        StreamPointer stream;
        const int refused = require_event_and_stream(handle, stream_handle, event, stream);
        if (refused != 0) return refused;
        if (event->extended || (event->flags & SYNC) == 0) {
            return fail(207000, "only for events of aclrtCreateEventWithFlag with SYNC");
        }
        event->record = nullptr;
        return 0;
    });
}

SIM_API aclError aclrtQueryEventStatus(aclrtEvent event, int *status) {
    return call("aclrtQueryEventStatus", [&] {
        if (status == nullptr) return fail(100000, "status is NULL");
        bool complete = false;
        const int refused = is_complete(event, false, complete);
        if (refused == 0) *status = complete ? 1 : 0;
        return refused;
    });
}

SIM_API aclError aclrtQueryEvent(aclrtEvent event, int *status) {
    return call("aclrtQueryEvent", [&] {
        if (status == nullptr) return fail(100000, "status is NULL");
        bool complete = false;
        const int refused = is_complete(event, true, complete);
        if (refused == 0) *status = complete ? 0 : 1;
        return refused;
    });
}

SIM_API aclError aclrtQueryEventWaitStatus(aclrtEvent event, int *status) {
    return call("aclrtQueryEventWaitStatus", [&] {
        if (status == nullptr) return fail(100000, "status is NULL");
        bool complete = false;
        const int refused = is_complete(event, true, complete);
        if (refused == 0) *status = complete ? 0 : 1;
        return refused;
    });
}

SIM_API aclError aclrtSynchronizeEvent(aclrtEvent event) {
    return call("aclrtSynchronizeEvent", [&] { return synchronize_event(event, -1); });
}

SIM_API aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t milliseconds) {
    return call("aclrtSynchronizeEventWithTimeout", [&] {
        if (!is_timeout(milliseconds)) return fail(107000, "%d ms is no timeout", milliseconds);
        return synchronize_event(event, milliseconds);
    });
}

SIM_API aclError aclrtEventElapsedTime(float *milliseconds, aclrtEvent first, aclrtEvent second) {
    return call("aclrtEventElapsedTime", [&] {
        if (milliseconds == nullptr) return fail(100000, "ms is NULL");
        Lock lock(state().mutex);
        ContextPointer context;
        EventPointer start, end;
        int refused = require_event(first, context, start);
        if (refused == 0) refused = require_event(second, context, end);
        if (refused != 0) return refused;
        for (const EventPointer &event : {start, end}) {
            if ((event->flags & TIME_LINE) == 0) return fail(107006, "an event without TIME_LINE");
            if (event->record == nullptr) return fail(507000, "an event that was never recorded");
            if (!event->record->over) return fail(107006, "an event that is not over");
            // Its time reaches the host when it is waited for, or asked whether it is over.
            if (!event->record->seen) return fail(107006, "an event that was not synchronised");
        }
        const auto from = static_cast<int64_t>(start->record->time_us);
        const auto to = static_cast<int64_t>(end->record->time_us);
        *milliseconds = static_cast<float>(to - from) / 1000.0F;
        return 0;
    });
}

SIM_API aclError aclrtEventGetTimestamp(aclrtEvent handle, uint64_t *time) {
    return call("aclrtEventGetTimestamp", [&] {
        if (time == nullptr) return fail(100000, "timestamp is NULL");
        Lock lock(state().mutex);
        ContextPointer context;
        EventPointer event;
        const int refused = require_event(handle, context, event);
        if (refused != 0) return refused;
        if ((event->flags & TIME_LINE) == 0) return fail(107006, "an event without TIME_LINE");
        if (event->record == nullptr || !event->record->over) {
            return fail(107006, "an event that is not over");
        }
        *time = event->record->time_us;
        return 0;
    });
}

SIM_API aclError aclrtStreamWaitEvent(aclrtStream stream_handle, aclrtEvent handle) {
    return call("aclrtStreamWaitEvent", [&] {
        Lock lock(state().mutex);
        EventPointer event;
        StreamPointer stream;
        const int refused = require_event_and_stream(handle, stream_handle, event, stream);
        if (refused != 0) return refused;
        if ((event->flags & SYNC) == 0) return fail(207000, "an event without SYNC");
        const std::shared_ptr<Record> waited = event->record;
        if (waited == nullptr) {
            violate("waits for an event that was never recorded");
            return 0;
        }
        const Stream *waiting = stream.get();
        const int status = submit(stream, "aclrtStreamWaitEvent", {}, [waited, waiting] {
            Lock inner(state().mutex);
            Stream &other = *waited->stream;
            drain(inner, waited->stream, waited->number);
            state().changed.wait(
                inner, [&] { return other.finished >= waited->number || waiting->discarded; });
            land(other, waited->number);
            return Outcome{};
        });
        if (status != 0) return status;
        for (const auto &[other, number] : waited->waited) {
            stream->waited[other] = std::max(stream->waited[other], number);
        }
        uint64_t &known = stream->waited[waited->stream->id];
        known = std::max(known, waited->number);
        stream->links.push_back({stream->submitted, waited->stream, waited->number});
        return 0;
    });
}
