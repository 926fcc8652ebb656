#include "acl/settings.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace sim {
namespace {

std::string text_of(const char *name, const char *standard) {
    const char *value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : standard;
}

uint64_t number_of(const char *name, uint64_t standard) {
    const std::string value = text_of(name, "");
    return value.empty() ? standard : std::strtoull(value.c_str(), nullptr, 10);
}

Unrun unrun_of(const std::string &value) {
    if (value == "guarded") return Unrun::Guarded;
    return value == "refused" ? Unrun::Refused : Unrun::Unguarded;
}

Settings settings_of_environment() {
    Settings read;
    read.soc = text_of("NPUCALL_SIM_SOC", "Ascend910B2");
    read.devices = static_cast<int>(number_of("NPUCALL_SIM_DEVICES", 2));
    read.memory = number_of("NPUCALL_SIM_MEMORY", uint64_t{1} << 30);
    read.kernel_us = number_of("NPUCALL_SIM_KERNEL_US", 0);
    read.bandwidth = number_of("NPUCALL_SIM_BANDWIDTH", 0);
    read.watch = text_of("NPUCALL_SIM_WATCH", "1") != "0";
    read.pageable_waits = text_of("NPUCALL_SIM_PAGEABLE", "late") == "waits";
    read.python = text_of("NPUCALL_SIM_KERNELS", "python") != "none";
    read.abort = text_of("NPUCALL_SIM_ABORT", "0") == "1";
    read.unrun = unrun_of(text_of("NPUCALL_SIM_UNRUN", "unguarded"));
    read.thread_end_ms = number_of("NPUCALL_SIM_THREAD_END_MS", 20);
    read.report = text_of("NPUCALL_SIM_REPORT", "");
    return read;
}

}  // namespace

Settings &settings() {
    static auto *current = new Settings(settings_of_environment());
    return *current;
}

void read_settings() { settings() = settings_of_environment(); }

int visible_devices() {
    const std::string listed = text_of("ASCEND_RT_VISIBLE_DEVICES", "");
    if (listed.empty()) return settings().devices;
    std::istringstream entries(listed);
    std::string entry;
    int visible = 0;
    // The list ends at the first entry that is no device.
    while (std::getline(entries, entry, ',')) {
        const int device = std::atoi(entry.c_str());
        if (device < 0 || device >= settings().devices) break;
        ++visible;
    }
    return visible;
}

bool is_ascend950() {
    return settings().soc.rfind("Ascend950", 0) == 0 ||
           settings().soc.rfind("Ascend910_95", 0) == 0;
}

}  // namespace sim
