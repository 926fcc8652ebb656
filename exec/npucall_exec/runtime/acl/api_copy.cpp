// Copies and fills.
#include <chrono>
#include <cstring>
#include <thread>

#include "acl/call.h"
#include "acl/counters.h"
#include "acl/device.h"
#include "acl/memory.h"
#include "acl/settings.h"
#include "acl/stream.h"
#include "end.h"

using namespace sim;

namespace {

enum Direction { HOST_TO_HOST = 0, HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2, DEVICE_TO_DEVICE = 3 };

// One end of a copy. `allocation` is null for ordinary host memory.
struct End {
    AllocationPointer allocation;
    uintptr_t address = 0;

    bool is_device() const { return allocation != nullptr && allocation->is_device(); }
    bool is_pinned() const { return allocation != nullptr && !allocation->is_device(); }
    bool is_pageable() const { return allocation == nullptr; }
    uint8_t *data() const {
        return allocation != nullptr ? allocation->at(address)
                                     : reinterpret_cast<uint8_t *>(address);
    }
};

struct Copy {
    End destination, source;
    size_t count = 0;
    Direction direction = HOST_TO_HOST;
};

using Clock = std::chrono::steady_clock;

// How long so many bytes are under way.
Clock::duration time_of(size_t count) {
    if (settings().bandwidth == 0) return {};
    const double seconds = static_cast<double>(count) / static_cast<double>(settings().bandwidth);
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Four sums side by side, so that looking at memory takes about as long as reading it.
uint64_t checksum(const uint8_t *data, size_t count) {
    uint64_t sums[4] = {count, 1, 2, 3};
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        uint64_t words[4];
        std::memcpy(words, data + i, 32);
        for (int n = 0; n < 4; ++n) sums[n] = (sums[n] ^ words[n]) * 0x9E3779B97F4A7C15ULL;
    }
    for (; i < count; ++i) sums[0] = (sums[0] ^ data[i]) * 0x9E3779B97F4A7C15ULL;
    return sums[0] ^ (sums[1] << 1) ^ (sums[2] << 2) ^ (sums[3] << 3);
}

// 0 and one end, if the bytes lie where their kind of memory has them.
int find_end(const void *pointer, size_t count, const char *name, End &end) {
    end.address = reinterpret_cast<uintptr_t>(pointer);
    end.allocation = find_allocation(pointer);
    if (end.allocation == nullptr) {
        if (!was_freed(pointer)) return 0;
        violate("%s (%p) is in memory that was freed", name, pointer);
        return fail(107000, "%s was freed", name);
    }
    if (end.address + count <= end.allocation->end()) return 0;
    violate("%s: %zu bytes at byte %zu of an allocation of %zu bytes", name, count,
            static_cast<size_t>(end.address - end.allocation->address), end.allocation->size);
    return fail(107000, "%s is too small", name);
}

// The direction is what the addresses say; a kind that says something else is the caller's mistake.
int check_direction(int kind, Copy &copy) {
    copy.direction = static_cast<Direction>((copy.source.is_device() ? 2 : 0) +
                                            (copy.destination.is_device() ? 1 : 0));
    const int said = kind == 5 ? HOST_TO_DEVICE : kind;
    if (said == 4 || said == copy.direction || !settings().kinds_matter) return 0;
    violate("the copy's kind is %d, its addresses say %d", kind, copy.direction);
    return fail(107000, "the copy's kind is %d, its addresses say %d", kind, copy.direction);
}

int check_arguments(void *destination, size_t maximum, const void *source, size_t count, int kind) {
    if (destination == nullptr || source == nullptr) return fail(100000, "NULL");
    if (kind < 0 || kind > 5) return fail(100000, "%d is no kind of copy", kind);
    if (count > maximum) return fail(107000, "%zu bytes into %zu", count, maximum);
    return 0;
}

int check_ends(void *destination, const void *source, size_t count, int kind, Copy &copy) {
    copy.count = count;
    int status = find_end(destination, count, "dst", copy.destination);
    if (status == 0) status = find_end(source, count, "src", copy.source);
    return status != 0 ? status : check_direction(kind, copy);
}

void check_end_unordered(const End &end, size_t count, bool write) {
    if (end.allocation == nullptr) return;
    check_unordered(*end.allocation, end.address, end.address + count, write, nullptr,
                    write ? "writes" : "reads");
}

// What a device's end of a copy is lies where the host can move it.
Outcome reach_ends(const Copy &copy) {
    Outcome outcome;
    if (copy.source.is_device()) outcome = reach(copy.source.data(), copy.count, false);
    if (outcome.status != 0 || !copy.destination.is_device()) return outcome;
    return reach(copy.destination.data(), copy.count, true);
}

// Copies at once, with the lock held.
int copy_at_once(Lock &lock, const Copy &copy) {
    check_end_unordered(copy.destination, copy.count, true);
    check_end_unordered(copy.source, copy.count, false);
    lock.unlock();
    std::this_thread::sleep_for(time_of(copy.count));  // and the move is that into a buffer
    const Outcome outcome = reach_ends(copy);
    if (outcome.status == 0) {
        std::memmove(copy.destination.data(), copy.source.data(), copy.count);
    }
    lock.lock();
    if (outcome.status != 0) return fail(outcome.status, "%s", outcome.text.c_str());
    count_copy(copy.direction, copy.count);
    return 0;
}

std::vector<Access> accesses_of(const Copy &copy) {
    std::vector<Access> accesses;
    const End &to = copy.destination, &from = copy.source;
    if (from.allocation) {
        accesses.push_back({from.allocation, from.address, from.address + copy.count, false});
    }
    if (to.allocation)
        accesses.push_back({to.allocation, to.address, to.address + copy.count, true});
    return accesses;
}

// True if earlier work of a stream may still write the bytes of this end.
bool is_being_written(const End &end, size_t count) {
    for (const Use &use : end.allocation->uses) {
        const bool overlaps = use.begin < end.address + count && end.address < use.end;
        if (use.write && overlaps && use.number > use.stream->observed) return true;
    }
    return false;
}

// Moves bytes as the device does, which needs no time of the host beside that of the copy. Pageable
// memory is touched as late as it may be.
Outcome move(const Copy &copy, uint8_t *destination) {
    const Outcome outcome = reach_ends(copy);
    if (outcome.status != 0) return outcome;
    const auto end = Clock::now() + time_of(copy.count);
    if (copy.source.is_pageable() || copy.destination.is_pageable()) {
        std::this_thread::sleep_until(end);
    }
    std::memmove(destination, copy.source.data(), copy.count);
    std::this_thread::sleep_until(end);
    return {};
}

// Into the host: the bytes arrive when the host learns of it, and are garbage until then.
Outcome copy_to_host(Stream &stream, uint64_t number, const Copy &copy) {
    if (!settings().watch) {
        const Outcome outcome = move(copy, copy.destination.data());
        Lock lock(state().mutex);
        count_copy(copy.direction, copy.count);
        return outcome;
    }
    auto arriving = std::make_shared<std::vector<uint8_t>>(copy.count);
    const Outcome outcome = move(copy, arriving->data());
    Lock lock(state().mutex);
    if (outcome.status != 0) return outcome;
    land(stream, number - 1);
    std::memset(copy.destination.data(), 0xA5, copy.count);
    land_later(stream, number, [copy, arriving] {
        std::memcpy(copy.destination.data(), arriving->data(), copy.count);
    });
    count_copy(copy.direction, copy.count);
    return {};
}

// What the host, or the device, has when the copy runs. Pinned memory (`watch`) must stay as it is
// until the host learns that the copy is over; of pageable memory nobody knows.
Outcome copy_now(Stream &stream, uint64_t number, const Copy &copy, bool watch, uint64_t before) {
    {
        Lock lock(state().mutex);
        if (!watch) land(stream, number - 1);
    }
    const Outcome outcome = move(copy, copy.destination.data());
    Lock lock(state().mutex);
    count_copy(copy.direction, copy.count);
    if (!watch || outcome.status != 0) return outcome;
    land_later(stream, number, [copy, before] {
        if (checksum(copy.source.data(), copy.count) == before) return;
        violate("host memory was changed while an asynchronous copy could still read it");
    });
    return {};
}

int copy_later(const StreamPointer &stream, const Copy &copy) {
    Stream *on = stream.get();
    const uint64_t number = stream->submitted + 1;
    if (copy.direction == DEVICE_TO_HOST) {
        return submit(stream, "aclrtMemcpyAsync", accesses_of(copy),
                      [on, number, copy] { return copy_to_host(*on, number, copy); });
    }
    const bool watch =
        settings().watch && copy.source.is_pinned() && !is_being_written(copy.source, copy.count);
    const uint64_t before = watch ? checksum(copy.source.data(), copy.count) : 0;
    return submit(stream, "aclrtMemcpyAsync", accesses_of(copy), [on, number, copy, watch, before] {
        return copy_now(*on, number, copy, watch, before);
    });
}

int fill_arguments(void *pointer, size_t maximum, size_t count, ContextPointer &context, End &end) {
    if (pointer == nullptr) return fail(100000, "NULL");
    if (count > maximum) return fail(107000, "%zu bytes into %zu", count, maximum);
    int status = require_context(context);
    if (status == 0) status = find_end(pointer, count, "devPtr", end);
    if (status != 0) return status;
    if (end.is_device()) return 0;
    violate("%p is no device memory", pointer);
    return fail(107000, "%p is no device memory", pointer);
}

// All but the newest products have no task that fills: the runtime fills memory of the host, and
// copies that.
bool is_filled_by_copies(size_t count) {
    if (is_ascend950()) return false;
    count_fill_by_copies(count);
    return true;
}

Outcome fill(const End &end, int32_t value, size_t count, bool by_copies) {
    if (by_copies) std::this_thread::sleep_for(time_of(count));
    Outcome outcome = reach(end.data(), count, true);
    if (outcome.status == 0) std::memset(end.data(), value, count);
    return outcome;
}

}  // namespace

SIM_API aclError aclrtMemcpy(void *destination, size_t maximum, const void *source, size_t count,
                             int kind) {
    return call("aclrtMemcpy", [&] {
        if (count == 0) return 0;
        int status = check_arguments(destination, maximum, source, count, kind);
        if (status != 0 || destination == source) return status;
        Lock lock(state().mutex);
        ContextPointer context;
        Copy copy;
        status = require_context(context);
        if (status == 0) status = check_ends(destination, source, count, kind, copy);
        return status != 0 ? status : copy_at_once(lock, copy);
    });
}

SIM_API aclError aclrtMemcpyAsync(void *destination, size_t maximum, const void *source,
                                  size_t count, int kind, aclrtStream handle) {
    return call("aclrtMemcpyAsync", [&] {
        if (count == 0) return 0;
        int status = check_arguments(destination, maximum, source, count, kind);
        if (status != 0) return status;
        if (kind == HOST_TO_HOST) return fail(207000, "no asynchronous copy within the host");
        Lock lock(state().mutex);
        ContextPointer context;
        StreamPointer stream;
        Copy copy;
        status = require_context(context);
        if (status == 0) status = require_stream(handle, context, stream);
        if (status == 0) status = check_ends(destination, source, count, kind, copy);
        if (status != 0) return status;
        if (copy.direction == HOST_TO_HOST) {
            return fail(207000, "no asynchronous copy within the host");
        }
        const bool is_pageable = copy.destination.is_pageable() || copy.source.is_pageable();
        if (is_pageable) count_pageable_copy();
        if (!is_pageable || !settings().pageable_waits) return copy_later(stream, copy);
        status = synchronize(lock, stream, -1);
        return status != 0 ? status : copy_at_once(lock, copy);
    });
}

SIM_API aclError aclrtMemset(void *pointer, size_t maximum, int32_t value, size_t count) {
    return call("aclrtMemset", [&] {
        if (count == 0) return 0;
        Lock lock(state().mutex);
        ContextPointer context;
        End end;
        const int status = fill_arguments(pointer, maximum, count, context, end);
        if (status != 0) return status;
        check_end_unordered(end, count, true);
        const bool by_copies = is_filled_by_copies(count);
        lock.unlock();
        const Outcome outcome = fill(end, value, count, by_copies);
        return outcome.status == 0 ? 0 : fail(outcome.status, "%s", outcome.text.c_str());
    });
}

SIM_API aclError aclrtMemsetAsync(void *pointer, size_t maximum, int32_t value, size_t count,
                                  aclrtStream handle) {
    return call("aclrtMemsetAsync", [&] {
        if (count == 0) return 0;
        Lock lock(state().mutex);
        ContextPointer context;
        End end;
        int status = fill_arguments(pointer, maximum, count, context, end);
        StreamPointer stream;
        if (status == 0) status = require_stream(handle, context, stream);
        if (status != 0) return status;
        return submit(stream, "aclrtMemsetAsync",
                      {{end.allocation, end.address, end.address + count, true}},
                      [end, value, count, by_copies = is_filled_by_copies(count)] {
                          return fill(end, value, count, by_copies);
                      });
    });
}
