#include "acl/report.h"

#include <cstdio>

#include "acl/counters.h"
#include "acl/device.h"
#include "acl/memory.h"
#include "acl/registry.h"

namespace sim {

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

}  // namespace sim
