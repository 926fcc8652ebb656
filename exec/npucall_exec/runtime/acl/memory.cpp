#include "acl/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "acl/call.h"
#include "acl/settings.h"
#include "end.h"

namespace sim {
namespace {

constexpr uint8_t GARBAGE = 0xA5;
constexpr uint8_t CANARY = 0xC7;
constexpr uint8_t CANARY_OF_DEVICE = 0;  // what a tensor finds that reads on behind its memory
constexpr size_t MOST_GARBAGE = size_t{64} << 20;  // what is behind it is 0
constexpr size_t PAGE = 4096;
constexpr size_t HUGE_PAGE = size_t{2} << 20;

size_t rounded(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

struct Memory {
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

std::atomic<uintptr_t> first_address{0};

// The addresses of device memory. One that was freed is used again as late as can be.
struct Addresses {
    std::mutex mutex;
    uintptr_t first = 0, next = 0, limit = 0;
    std::map<uintptr_t, uintptr_t> taken;  // whole pages

    Addresses() {
        void *start = reserve(settings().addresses);
        if (start == nullptr) return;
        first = next = reinterpret_cast<uintptr_t>(start);
        limit = first + settings().addresses;
        first_address = first;
    }

    // The first of so many bytes from there on that belong to nobody; 0 if there are none.
    uintptr_t gap(uintptr_t from, size_t length) const {
        auto one = taken.upper_bound(from);
        if (one != taken.begin()) from = std::max(from, std::prev(one)->second);
        for (; one != taken.end() && one->first - from < length; ++one) from = one->second;
        return from + length <= limit ? from : 0;
    }
};

Addresses &addresses() {
    static auto *one = new Addresses;
    return *one;
}

// Addresses on a multiple of 64 and of nothing larger, each behind a page that belongs to nobody.
uintptr_t new_address(size_t real) {
    Addresses &all = addresses();
    std::lock_guard<std::mutex> guard(all.mutex);
    const size_t length = rounded(64 + real, PAGE) + PAGE;
    if (length > settings().addresses || all.first == 0) return 0;
    uintptr_t start = all.gap(all.next, length);
    if (start == 0) start = all.gap(all.first, length);
    if (start == 0) return 0;
    all.next = all.taken[start] = start + length;
    return start + 64;
}

void give_address_back(uintptr_t address) {
    Addresses &all = addresses();
    std::lock_guard<std::mutex> guard(all.mutex);
    all.taken.erase(address - 64);
}

void add(const AllocationPointer &allocation) {
    Memory &all = memory();
    all.live[allocation->address] = allocation;
    all.freed.erase(all.freed.lower_bound(allocation->address),
                    all.freed.lower_bound(allocation->address + allocation->real));
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
    if (is_device()) {
        give_bytes_back(data, real);
        give_address_back(address);
    }
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
    const uintptr_t address = new_address(real);
    if (address == 0) return nullptr;
    made->data = take_bytes(address - addresses().first, real);
    if (made->data == nullptr) {
        give_address_back(address);
        return nullptr;
    }
    made->address = address;
    made->size = size;
    made->real = real;
    made->taken = device_bytes_taken(real);
    made->device = device;
    std::memset(made->data, GARBAGE, std::min(size, MOST_GARBAGE));
    std::memset(made->data + size, CANARY_OF_DEVICE, real - size);
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

bool is_device_address(const void *pointer) {
    const uintptr_t first = first_address;
    return first != 0 && reinterpret_cast<uintptr_t>(pointer) - first < settings().addresses;
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
    const uint8_t canary = allocation.is_device() ? CANARY_OF_DEVICE : CANARY;
    for (size_t i = allocation.size; i < allocation.real; ++i) {
        if (allocation.data[i] == canary) continue;
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
