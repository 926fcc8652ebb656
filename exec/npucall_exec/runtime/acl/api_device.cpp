// Devices, contexts and their options.
#include <map>

#include "acl/call.h"
#include "acl/device.h"
#include "acl/memory.h"
#include "acl/settings.h"
#include "acl/stream.h"

using namespace sim;

namespace {

struct Utilization {
    int32_t cube, vector, aicpu, memory;
    void *extend;
};

int unknown_device(int32_t device) {
    return fail(107001, "device %d does not exist; there are %d", device, visible_devices());
}

bool is_device(int32_t device) { return device >= 0 && device < visible_devices(); }

// Waits for all streams of a device; the first failure wins.
int synchronize_device(Lock &lock, int device, int64_t milliseconds) {
    int status = 0;
    for (const auto &stream : all_streams()) {
        if (stream->context->device != device) continue;
        const int one = synchronize(lock, stream, milliseconds);
        if (status == 0) status = one;
    }
    return status;
}

int release_device(Lock &lock, Device &record) {
    const ContextPointer primary = record.primary;
    record.references = 0;
    record.primary = nullptr;
    if (primary == nullptr) return 0;
    if (this_thread().context == primary->handle) this_thread().context = nullptr;
    release_context(lock, primary, false);
    return 0;
}

int set_option(std::map<int, int64_t> &options, int option, int64_t value) {
    if (option < 0 || option > (SIM_GENERATION >= 90 ? 2 : 1)) {
        return fail(100000, "%d is no option", option);
    }
    options[option] = value;
    return 0;
}

int option_of(const std::map<int, int64_t> &options, int option, int64_t *value) {
    if (value == nullptr) return fail(100000, "value is NULL");
    const auto found = options.find(option);
    if (found == options.end()) return fail(107021, "option %d was never set", option);
    *value = found->second;
    return 0;
}

}  // namespace

SIM_API aclError aclrtGetDeviceCount(uint32_t *count) {
    return call("aclrtGetDeviceCount", [&] {
        if (count == nullptr) return fail(100000, "count is NULL");
        *count = static_cast<uint32_t>(visible_devices());
        return 0;
    });
}

SIM_API aclError aclrtSetDevice(int32_t device) {
    return call("aclrtSetDevice", [&] {
        Lock lock(state().mutex);
        if (!is_device(device)) return unknown_device(device);
        Device &record = state().devices[device];
        if (record.primary == nullptr) record.primary = new_context(device, true);
        ++record.references;
        this_thread().context = record.primary->handle;
        return 0;
    });
}

SIM_API aclError aclrtResetDevice(int32_t device) {
    return destroying_call("aclrtResetDevice", [&] {
        Lock lock(state().mutex);
        if (!is_device(device)) return unknown_device(device);
        Device &record = state().devices[device];
        if (record.references == 0) {
            violate("device %d was reset more often than set", device);
            return fail(107001, "device %d is not set", device);
        }
        if (--record.references > 0) return 0;
        return release_device(lock, record);
    });
}

SIM_API aclError aclrtResetDeviceForce(int32_t device) {
    return destroying_call("aclrtResetDeviceForce", [&] {
        Lock lock(state().mutex);
        if (!is_device(device)) return unknown_device(device);
        Device &record = state().devices[device];
        if (record.references == 0) return fail(107001, "device %d is not set", device);
        return release_device(lock, record);
    });
}

SIM_API aclError aclrtGetDevice(int32_t *device) {
    return call("aclrtGetDevice", [&] {
        if (device == nullptr) return fail(100000, "device is NULL");
        Lock lock(state().mutex);
        const ContextPointer context = current_context();
        if (context == nullptr) return fail(107002, "this thread has no device");
        *device = context->device;
        return 0;
    });
}

SIM_API const char *aclrtGetSocName() {
    return pointer_call("aclrtGetSocName", []() -> const char * {
        static std::map<std::string, bool> names;
        Lock lock(state().mutex);
        return names.emplace(settings().soc, true).first->first.c_str();
    });
}

SIM_API aclError aclrtGetRunMode(int *mode) {
    return call("aclrtGetRunMode", [&] {
        if (mode == nullptr) return fail(100000, "mode is NULL");
        *mode = 1;
        return 0;
    });
}

SIM_API aclError aclrtQueryDeviceStatus(int32_t device, int *status) {
    return call("aclrtQueryDeviceStatus", [&] {
        if (status == nullptr) return fail(100000, "status is NULL");
        Lock lock(state().mutex);
        if (!is_device(device)) return unknown_device(device);
        *status = state().devices[device].sticky == 0 ? 0 : 1;
        return 0;
    });
}

SIM_API aclError aclrtGetDeviceUtilizationRate(int32_t device, Utilization *rate) {
    return call("aclrtGetDeviceUtilizationRate", [&] {
        if (rate == nullptr) return fail(100000, "info is NULL");
        if (rate->extend != nullptr) return fail(100000, "utilizationExtend must be NULL");
        if (!is_device(device)) return unknown_device(device);
        *rate = Utilization{7, 5, 3, -1, nullptr};
        return 0;
    });
}

SIM_API aclError aclrtCreateContext(aclrtContext *made, int32_t device) {
    return call("aclrtCreateContext", [&] {
        if (made == nullptr) return fail(100000, "context is NULL");
        Lock lock(state().mutex);
        if (!is_device(device)) return unknown_device(device);
        *made = new_context(device, false)->handle;
        this_thread().context = *made;
        return 0;
    });
}

SIM_API aclError aclrtDestroyContext(aclrtContext handle) {
    return destroying_call("aclrtDestroyContext", [&] {
        if (handle == nullptr) return fail(100000, "context is NULL");
        Lock lock(state().mutex);
        const ContextPointer context = find<Context>(handle, ObjectKind::Context);
        if (context == nullptr) return misused(handle, ObjectKind::Context, 107017);
        if (context->primary) {
            violate("the default context is released by aclrtResetDevice");
            return fail(100000, "this is a default context");
        }
        release_context(lock, context, false);
        if (this_thread().context == handle) this_thread().context = nullptr;
        return 0;
    });
}

SIM_API aclError aclrtSetCurrentContext(aclrtContext handle) {
    return call("aclrtSetCurrentContext", [&] {
        if (handle == nullptr) return fail(100000, "context is NULL");
        Lock lock(state().mutex);
        const ContextPointer context = find<Context>(handle, ObjectKind::Context);
        if (context == nullptr) return misused(handle, ObjectKind::Context, 107017);
        this_thread().context = handle;
        return 0;
    });
}

SIM_API aclError aclrtGetCurrentContext(aclrtContext *handle) {
    return call("aclrtGetCurrentContext", [&] {
        if (handle == nullptr) return fail(100000, "context is NULL");
        Lock lock(state().mutex);
        const ContextPointer context = current_context();
        if (context == nullptr) return fail(107002, "this thread has no context");
        *handle = context->handle;
        return 0;
    });
}

SIM_API aclError aclrtSynchronizeDevice() {
    return call("aclrtSynchronizeDevice", [] {
        Lock lock(state().mutex);
        ContextPointer context;
        const int status = require_context(context);
        return status != 0 ? status : synchronize_device(lock, context->device, -1);
    });
}

SIM_API aclError aclrtSynchronizeDeviceWithTimeout(int32_t milliseconds) {
    return call("aclrtSynchronizeDeviceWithTimeout", [&] {
        Lock lock(state().mutex);
        ContextPointer context;
        const int status = require_context(context);
        if (status != 0) return status;
        if (!is_timeout(milliseconds)) return fail(107000, "%d ms is no timeout", milliseconds);
        return synchronize_device(lock, context->device, milliseconds);
    });
}

SIM_API aclError aclrtSetSysParamOpt(int option, int64_t value) {
    return call("aclrtSetSysParamOpt", [&] {
        Lock lock(state().mutex);
        return set_option(state().options, option, value);
    });
}

SIM_API aclError aclrtGetSysParamOpt(int option, int64_t *value) {
    return call("aclrtGetSysParamOpt", [&] {
        Lock lock(state().mutex);
        return option_of(state().options, option, value);
    });
}

SIM_API aclError aclrtCtxSetSysParamOpt(int option, int64_t value) {
    return call("aclrtCtxSetSysParamOpt", [&] {
        Lock lock(state().mutex);
        ContextPointer context;
        const int status = require_context(context);
        return status != 0 ? status : set_option(context->options, option, value);
    });
}

SIM_API aclError aclrtCtxGetSysParamOpt(int option, int64_t *value) {
    return call("aclrtCtxGetSysParamOpt", [&] {
        Lock lock(state().mutex);
        ContextPointer context;
        const int status = require_context(context);
        return status != 0 ? status : option_of(context->options, option, value);
    });
}

namespace {

int set_kernel_timeout(int64_t milliseconds) {
    Lock lock(state().mutex);
    ContextPointer context;
    const int status = require_context(context);
    // 0 is the longest.
    if (status == 0) state().kernel_timeout_ms = milliseconds == 0 ? INT32_MAX : milliseconds;
    return status;
}

}  // namespace

SIM_API aclError aclrtSetOpExecuteTimeOut(uint32_t seconds) {
    return call("aclrtSetOpExecuteTimeOut",
                [&] { return set_kernel_timeout(int64_t{1000} * seconds); });
}

SIM_API aclError aclrtSetOpExecuteTimeOutWithMs(uint32_t milliseconds) {
    return call("aclrtSetOpExecuteTimeOutWithMs", [&] { return set_kernel_timeout(milliseconds); });
}

SIM_API aclError aclrtSetOpWaitTimeout(uint32_t) {
    return call("aclrtSetOpWaitTimeout", [] { return 0; });
}

SIM_API aclError aclrtSetDeviceSatMode(int mode) {
    return call("aclrtSetDeviceSatMode", [&] {
        Lock lock(state().mutex);
        ContextPointer context;
        const int status = require_context(context);
        if (status != 0) return status;
        if (mode != 0 && mode != 1) return fail(107000, "%d is no overflow mode", mode);
        state().devices[context->device].overflow = mode;
        return 0;
    });
}

SIM_API aclError aclrtDeviceTaskAbort(int32_t device, uint32_t) {
    return call("aclrtDeviceTaskAbort", [&] {
        Lock lock(state().mutex);
        if (!is_device(device)) return unknown_device(device);
        for (const auto &stream : all_streams()) {
            if (stream->context->device == device) stream->discarded = true;
        }
        state().devices[device].sticky = 107022;
        state().changed.notify_all();
        return 0;
    });
}
