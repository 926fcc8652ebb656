#include "acl/report.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "acl/call.h"
#include "acl/counters.h"
#include "acl/device.h"
#include "acl/faults.h"
#include "acl/memory.h"
#include "acl/registry.h"
#include "acl/settings.h"

namespace sim {
namespace {

std::string json_of(const std::map<std::string, uint64_t> &numbers) {
    std::string text = "{";
    for (const auto &[name, number] : numbers) {
        text += (text.size() > 1 ? ", " : "") + quoted(name) + ": " + std::to_string(number);
    }
    return text + "}";
}

std::map<std::string, uint64_t> figures() {
    const Counters &count = counters();
    const MemoryCount memory = memory_count();
    return {
        {"bytes_host_to_device", count.bytes[1]},
        {"bytes_device_to_host", count.bytes[2]},
        {"bytes_device_to_device", count.bytes[3]},
        {"copies_host_to_device", count.copies[1]},
        {"copies_device_to_host", count.copies[2]},
        {"copies_device_to_device", count.copies[3]},
        {"pageable_copies", count.pageable_copies},
        {"bytes_filled_by_copies", count.filled_by_copies},
        {"launches", count.launches},
        {"deterministic_launches", count.deterministic_launches},
        {"cache_hits", count.cache_hits},
        {"dead_plans", count.dead_plans},
        {"device_allocations", memory.device_made},
        {"device_bytes", memory.device_bytes},
        {"device_bytes_peak", memory.device_peak},
        {"pinned_allocations", memory.pinned_made},
        {"pinned_bytes", memory.pinned_bytes},
        {"pinned_bytes_peak", memory.pinned_peak},
    };
}

const bool report_at_exit = [] { return std::atexit(write_report) == 0; }();

}  // namespace

Counters &counters() {
    static auto *one = new Counters;
    return *one;
}

std::map<std::string, uint64_t> live_objects() {
    std::map<std::string, uint64_t> live = live_handles();
    const MemoryCount memory = memory_count();
    if (memory.device_live != 0) live["aclrtMalloc"] = memory.device_live;
    if (memory.pinned_live != 0) live["aclrtMallocHost"] = memory.pinned_live;
    for (const auto &[number, device] : state().devices) {
        if (device.references != 0) {
            live["aclrtSetDevice"] += static_cast<uint64_t>(device.references);
        }
    }
    return live;
}

std::string quoted(const std::string &text) {
    std::string result = "\"";
    for (const char letter : text) {
        char escaped[8];
        if (letter == '"' || letter == '\\') {
            result += '\\';
            result += letter;
        } else if (static_cast<unsigned char>(letter) < 0x20) {
            std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(letter));
            result += escaped;
        } else {
            result += letter;
        }
    }
    return result + "\"";
}

std::string live_objects_json() {
    Lock lock(state().mutex);
    return json_of(live_objects());
}

std::string violations_json() {
    std::string text = "[";
    for (const std::string &line : violations()) {
        text += (text.size() > 1 ? ", " : "") + quoted(line);
    }
    return text + "]";
}

std::string counters_json() {
    const std::string calls = json_of(call_counts());
    Lock lock(state().mutex);
    const std::string numbers = json_of(figures());
    return numbers.substr(0, numbers.size() - 1) + ", \"calls\": " + calls + "}";
}

std::string report() {
    return "{\"violations\": " + violations_json() + ", \"live_objects\": " + live_objects_json() +
           ", \"counters\": " + counters_json() + "}\n";
}

void write_report() {
    if (settings().report.empty()) return;
    std::ofstream(settings().report) << report();
}

}  // namespace sim
