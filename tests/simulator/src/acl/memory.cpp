#include "acl/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "acl/call.h"

namespace sim {
namespace {

constexpr uint8_t GARBAGE = 0xA5;
constexpr uint8_t CANARY = 0xC7;
constexpr size_t PAGE = 4096;
constexpr size_t HUGE_PAGE = size_t{2} << 20;

size_t rounded(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

struct Memory {
    uintptr_t next = 0, limit = 0;  // of device addresses, which are never used again
    std::map<uintptr_t, AllocationPointer> live;
    std::map<uintptr_t, uintptr_t> freed;  // first and last byte + 1
    std::map<int, uint64_t> used;
    MemoryCount count;
};

Memory &memory() {
    static auto *one = new Memory;
    return *one;
}

void *reserve(size_t size) {
    void *space =
        mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return space == MAP_FAILED ? nullptr : space;
}

// Addresses on a multiple of 64 and of nothing larger, each behind a page that belongs to nobody.
uintptr_t new_address(size_t real) {
    Memory &all = memory();
    if (all.next + real + 2 * PAGE > all.limit) {
        const size_t space = std::max(size_t{1} << 40, rounded(real, PAGE) + 4 * PAGE);
        void *start = reserve(space);
        if (start == nullptr) return 0;
        all.next = reinterpret_cast<uintptr_t>(start);
        all.limit = all.next + space;
    }
    const uintptr_t address = all.next + 64;
    all.next = rounded(address + real, PAGE) + PAGE;
    return address;
}

void add(const AllocationPointer &allocation) {
    Memory &all = memory();
    all.live[allocation->address] = allocation;
    MemoryCount &count = all.count;
    if (allocation->is_device()) {
        all.used[allocation->device] += allocation->taken;
        ++count.device_live, ++count.device_made;
        count.device_bytes += allocation->taken;
        count.device_peak = std::max(count.device_peak, count.device_bytes);
    } else if (!allocation->registered) {
        ++count.pinned_live, ++count.pinned_made;
        count.pinned_bytes += allocation->size;
        count.pinned_peak = std::max(count.pinned_peak, count.pinned_bytes);
    }
}

}  // namespace

Allocation::~Allocation() {
    if (is_device()) std::free(data);
    if (mapping == nullptr) return;
    // The addresses stay taken, so that the host faults when it touches freed memory.
    madvise(mapping, mapped, MADV_DONTNEED);
    mprotect(mapping, mapped, PROT_NONE);
}

size_t device_bytes_taken(size_t real) {
    return real > HUGE_PAGE / 2 ? rounded(real, HUGE_PAGE) : real;
}

AllocationPointer allocate_device(int device, size_t size, size_t real) {
    auto made = std::make_shared<Allocation>();
    made->address = new_address(real);
    void *data = nullptr;
    if (made->address == 0 || posix_memalign(&data, 64, real) != 0) return nullptr;
    made->size = size;
    made->real = real;
    made->taken = device_bytes_taken(real);
    made->device = device;
    made->data = static_cast<uint8_t *>(data);
    std::memset(data, GARBAGE, size);
    std::memset(made->data + size, CANARY, real - size);
    add(made);
    return made;
}

AllocationPointer allocate_pinned(size_t size) {
    const size_t padded = rounded(size, 64);
    const size_t pages = rounded(padded, PAGE);
    // A page that nobody may touch follows at once.
    auto *mapping = static_cast<uint8_t *>(reserve(pages + PAGE));
    if (mapping == nullptr || mprotect(mapping, pages, PROT_READ | PROT_WRITE) != 0) return nullptr;
    auto made = std::make_shared<Allocation>();
    made->data = mapping + pages - padded;
    made->address = reinterpret_cast<uintptr_t>(made->data);
    made->size = size;
    made->real = padded;
    made->mapping = mapping;
    made->mapped = pages;
    std::memset(made->data, GARBAGE, size);
    std::memset(made->data + size, CANARY, padded - size);
    add(made);
    return made;
}

AllocationPointer register_host(void *address, size_t size) {
    auto made = std::make_shared<Allocation>();
    made->registered = true;
    made->data = static_cast<uint8_t *>(address);
    made->address = reinterpret_cast<uintptr_t>(address);
    made->size = made->real = size;
    add(made);
    return made;
}

AllocationPointer find_allocation(const void *pointer) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const auto &live = memory().live;
    auto found = live.upper_bound(address);
    if (found == live.begin()) return nullptr;
    --found;
    return address < found->second->address + found->second->real ? found->second : nullptr;
}

bool was_freed(const void *pointer) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    const auto &freed = memory().freed;
    auto found = freed.upper_bound(address);
    if (found == freed.begin()) return false;
    --found;
    return address < found->second;
}

void forget_allocation(const AllocationPointer &allocation) {
    check_padding(*allocation);
    Memory &all = memory();
    all.live.erase(allocation->address);
    if (allocation->registered) return;
    all.freed[allocation->address] = allocation->address + allocation->real;
    MemoryCount &count = all.count;
    if (allocation->is_device()) {
        all.used[allocation->device] -= allocation->taken;
        --count.device_live;
        count.device_bytes -= allocation->taken;
    } else {
        --count.pinned_live;
        count.pinned_bytes -= allocation->size;
    }
}

void check_padding(Allocation &allocation) {
    if (allocation.reported || allocation.registered) return;
    for (size_t i = allocation.size; i < allocation.real; ++i) {
        if (allocation.data[i] == CANARY) continue;
        allocation.reported = true;
        violate("byte %zu behind an allocation of %zu bytes was overwritten", i - allocation.size,
                allocation.size);
        return;
    }
}

void check_padding_of_device(int device) {
    for (const auto &[address, allocation] : memory().live) {
        if (allocation->device == device || !allocation->is_device()) check_padding(*allocation);
    }
}

MemoryCount memory_count() { return memory().count; }

uint64_t bytes_used(int device) { return memory().used[device]; }

void forget_all_memory() {
    Memory &all = memory();
    all.live.clear();
    all.used.clear();
    all.count = MemoryCount{};
}

}  // namespace sim
