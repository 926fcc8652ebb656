// What tests read, and the report at the end of a process.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "acl/counters.h"
#include "acl/device.h"
#include "acl/memory.h"
#include "acl/report.h"
#include "end.h"
#include "faults.h"
#include "simulation.h"

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

std::mutex &violations_mutex() {
    static auto *mutex = new std::mutex;
    return *mutex;
}

std::vector<std::string> &recorded() {
    static auto *list = new std::vector<std::string>;
    return *list;
}

// {"violations": [...], "live_objects": {...}, "counters": {...}}
std::string report() {
    return "{\"violations\": " + violations_json() + ", \"live_objects\": " + live_objects_json() +
           ", \"counters\": " + counters_json() + "}\n";
}

}  // namespace

void found(const std::string &line) {
    if (simulation().abort) {
        std::fprintf(stderr, "simulator: violation: %s\n", line.c_str());
        std::abort();
    }
    std::lock_guard<std::mutex> guard(violations_mutex());
    recorded().push_back(line);
}

void clear_violations() {
    std::lock_guard<std::mutex> guard(violations_mutex());
    recorded().clear();
}

std::string live_objects_json() {
    Lock lock(state().mutex);
    return json_of(live_objects());
}

std::string violations_json() {
    std::lock_guard<std::mutex> guard(violations_mutex());
    return json_list(recorded(), quoted);
}

std::string counters_json() {
    const std::string calls = json_of(call_counts());
    Lock lock(state().mutex);
    const std::string numbers = json_of(figures());
    return numbers.substr(0, numbers.size() - 1) + ", \"calls\": " + calls + "}";
}

void write_report() {
    if (simulation().report.empty()) return;
    std::ofstream(simulation().report) << report();
}

}  // namespace sim
