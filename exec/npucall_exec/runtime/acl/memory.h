// Device memory, which the host cannot touch, and pinned host memory. All under the state's lock.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "acl_types.h"

namespace sim {

struct Stream;

// Bytes that work of a stream may still touch.
struct Use {
    uintptr_t begin, end;
    std::shared_ptr<Stream> stream;
    uint64_t number;  // of the task
    bool write;
};

struct Allocation {
    uintptr_t address = 0;    // what the caller holds
    size_t size = 0;          // what the caller asked for
    size_t real = 0;          // what is reserved, padding included
    size_t taken = 0;         // what the device has less: whole pages
    int device = -1;          // -1 is pinned host memory
    bool registered = false;  // the caller's own memory, pinned by aclrtHostRegister
    bool reported = false;    // its padding was found overwritten already
    uint8_t *data = nullptr;  // where the bytes are
    void *mapping = nullptr;  // pinned: the pages
    size_t mapped = 0;
    std::vector<Use> uses;

    ~Allocation();
    bool is_device() const { return device >= 0; }
    uintptr_t end() const { return address + size; }
    uint8_t *at(uintptr_t where) const { return data + (where - address); }
};

using AllocationPointer = std::shared_ptr<Allocation>;

// What an allocation takes of its device: huge pages if it is larger than half of one, as the
// driver decides where huge pages come first.
size_t device_bytes_taken(size_t real);

AllocationPointer allocate_device(int device, size_t size, size_t real);
AllocationPointer allocate_pinned(size_t size);
AllocationPointer register_host(void *address, size_t size);

// The live allocation that holds this address (padding included), or null.
SIM_EXPORT AllocationPointer find_allocation(const void *address);

// True for an address that memory of a device has, had, or may have. Safe in a signal's handler.
bool is_device_address(const void *address);

// True for an address inside memory that was freed.
SIM_EXPORT bool was_freed(const void *address);

void forget_allocation(const AllocationPointer &allocation);

// Reports padding that somebody has overwritten.
void check_padding(Allocation &allocation);
void check_padding_of_device(int device);

struct MemoryCount {
    uint64_t device_live = 0, pinned_live = 0;   // allocations
    uint64_t device_made = 0, pinned_made = 0;   // so far
    uint64_t device_bytes = 0, device_peak = 0;  // whole pages, all devices
    uint64_t pinned_bytes = 0, pinned_peak = 0;
};

MemoryCount memory_count();
uint64_t bytes_used(int device);
void forget_all_memory();

}  // namespace sim
