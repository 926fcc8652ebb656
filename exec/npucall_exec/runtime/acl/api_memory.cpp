// Device memory and pinned host memory.
#include "acl/call.h"
#include "acl/device.h"
#include "acl/memory.h"
#include "acl/settings.h"
#include "acl/stream.h"

using namespace sim;

namespace {

constexpr size_t UNIT = 32;

size_t rounded(size_t size) { return (size + UNIT - 1) / UNIT * UNIT; }

int allocate(void **made, size_t size, size_t extra) {
    if (made == nullptr) return fail(100000, "devPtr is NULL");
    if (size == 0) return fail(100000, "size is 0");
    Lock lock(state().mutex);
    ContextPointer context;
    const int status = require_context(context);
    if (status != 0) return status;
    const size_t real = rounded(size) + extra;
    const size_t taken = device_bytes_taken(real);
    const uint64_t used = bytes_used(context->device);
    if (size > settings().memory || used + taken > settings().memory) {
        return fail(207001, "%zu bytes wanted, %llu of %llu in use", taken,
                    static_cast<unsigned long long>(used),
                    static_cast<unsigned long long>(settings().memory));
    }
    const AllocationPointer allocation = allocate_device(context->device, size, real);
    if (allocation == nullptr) return fail(207001, "the simulating host has no memory left");
    *made = reinterpret_cast<void *>(allocation->address);
    return 0;
}

int release(void *pointer, bool device) {
    if (pointer == nullptr) return fail(100000, "the pointer is NULL");
    Lock lock(state().mutex);
    ContextPointer context;
    const int status = require_context(context);
    if (status == 107002) return status;
    const AllocationPointer allocation = find_allocation(pointer);
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    if (allocation == nullptr || allocation->address != address || allocation->registered ||
        allocation->is_device() != device) {
        violate("%p is %s", pointer,
                was_freed(pointer)               ? "freed already"
                : allocation == nullptr          ? "no allocation"
                : allocation->address != address ? "not the start of its allocation"
                                                 : "memory of the other kind");
        return fail(107000, "%p cannot be freed", pointer);
    }
    check_unordered(*allocation, allocation->address, allocation->address + allocation->real, true,
                    nullptr, "frees");
    forget_allocation(allocation);
    return status;
}

}  // namespace

SIM_API aclError aclrtMalloc(void **made, size_t size, int) {
    return call("aclrtMalloc", [&] { return allocate(made, size, is_ascend950() ? 0 : UNIT); });
}

SIM_API aclError aclrtMallocAlign32(void **made, size_t size, int) {
    return call("aclrtMallocAlign32", [&] { return allocate(made, size, 0); });
}

SIM_API aclError aclrtFree(void *pointer) {
    return destroying_call("aclrtFree", [&] { return release(pointer, true); });
}

SIM_API aclError aclrtMallocHost(void **made, size_t size) {
    return call("aclrtMallocHost", [&] {
        if (made == nullptr) return fail(100000, "hostPtr is NULL");
        if (size == 0) return fail(100000, "size is 0");
        Lock lock(state().mutex);
        ContextPointer context;
        const int status = require_context(context);
        if (status != 0) return status;
        const AllocationPointer allocation = allocate_pinned(size);
        if (allocation == nullptr) return fail(207001, "no host memory of %zu bytes", size);
        *made = reinterpret_cast<void *>(allocation->address);
        return 0;
    });
}

SIM_API aclError aclrtFreeHost(void *pointer) {
    return destroying_call("aclrtFreeHost", [&] { return release(pointer, false); });
}

SIM_API aclError aclrtHostRegister(void *pointer, uint64_t size, int, void **device_pointer) {
    return call("aclrtHostRegister", [&] {
        if (pointer == nullptr || device_pointer == nullptr || size == 0)
            return fail(100000, "NULL");
        if (reinterpret_cast<uintptr_t>(pointer) % 4096 != 0) {
            return fail(107000, "%p is not on a multiple of 4096", pointer);
        }
        Lock lock(state().mutex);
        ContextPointer context;
        const int status = require_context(context);
        if (status != 0) return status;
        if (find_allocation(pointer) != nullptr) return fail(107000, "%p is pinned", pointer);
        register_host(pointer, size);
        *device_pointer = pointer;
        return 0;
    });
}

SIM_API aclError aclrtHostUnregister(void *pointer) {
    return destroying_call("aclrtHostUnregister", [&] {
        if (pointer == nullptr) return fail(100000, "the pointer is NULL");
        Lock lock(state().mutex);
        const AllocationPointer allocation = find_allocation(pointer);
        if (allocation == nullptr || !allocation->registered) {
            violate("%p is not registered", pointer);
            return fail(107000, "%p is not registered", pointer);
        }
        check_unordered(*allocation, allocation->address, allocation->end(), true, nullptr,
                        "unregisters");
        forget_allocation(allocation);
        return 0;
    });
}

SIM_API aclError aclrtGetMemInfo(int attribute, size_t *free, size_t *total) {
    return call("aclrtGetMemInfo", [&] {
        if (free == nullptr || total == nullptr) return fail(100000, "NULL");
        if (attribute < 0 || attribute > 17) return fail(107000, "%d is no attribute", attribute);
        Lock lock(state().mutex);
        ContextPointer context;
        const int status = require_context(context);
        if (status != 0) return status;
        *total = settings().memory;
        *free = settings().memory - bytes_used(context->device);
        return 0;
    });
}
