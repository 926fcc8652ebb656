#include "acl/device.h"

#include "acl/call.h"
#include "acl/stream.h"

namespace sim {

State &state() {
    static auto *one = new State;
    return *one;
}

ContextPointer new_context(int device, bool primary) {
    auto context = std::make_shared<Context>();
    context->kind = ObjectKind::Context;
    context->counted = !primary;
    context->device = device;
    context->primary = primary;
    add_object(context);
    context->default_stream = new_stream(context, false);
    return context;
}

ContextPointer current_context() {
    return find<Context>(this_thread().context, ObjectKind::Context);
}

int require_context(ContextPointer &context) {
    const void *handle = this_thread().context;
    if (handle == nullptr) {
        return fail(107002,
                    "this thread has no context: call aclrtSetDevice or aclrtSetCurrentContext");
    }
    if (state().was_finalised && state().initialised == 0) violate("called after aclFinalize");
    context = current_context();
    if (context == nullptr) {
        violate("the thread's current context was released");
        return fail(107002, "the thread's current context was released");
    }
    const int sticky = state().devices[context->device].sticky;
    return sticky == 0 ? 0 : fail(sticky, "device %d failed for good", context->device);
}

int standing_error(const Context &context) {
    const int sticky = state().devices[context.device].sticky;
    if (sticky != 0) return fail(sticky, "device %d failed for good", context.device);
    if (context.error != 0) return fail(context.error, "%s", context.error_text.c_str());
    return 0;
}

int64_t deterministic_level() { return state().options[0]; }

void release_context(Lock &lock, const ContextPointer &context, bool discard) {
    for (const auto &stream : streams_of(*context)) end_stream(lock, stream, discard);
    remove_object(context->handle, ObjectKind::Context);
    context->default_stream = nullptr;
}

void make_sticky(int status) {
    Lock lock(state().mutex);
    const ContextPointer context = current_context();
    state().devices[context == nullptr ? 0 : context->device].sticky = status;
    state().changed.notify_all();
}

}  // namespace sim
