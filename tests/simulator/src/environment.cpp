// What the environment tells the simulator.
#include <cstdlib>

#include "end.h"
#include "simulation.h"

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

Simulation &own() {
    static auto *one = new Simulation;
    return *one;
}

Unrun unrun_of(const std::string &value) {
    if (value == "guarded") return Unrun::Guarded;
    return value == "refused" ? Unrun::Refused : Unrun::Unguarded;
}

}  // namespace

Settings settings_of_environment() {
    Settings read;
    read.soc = text_of("NPUCALL_SIM_SOC", "Ascend910B2");
    read.devices = static_cast<int>(number_of("NPUCALL_SIM_DEVICES", 2));
    read.memory = number_of("NPUCALL_SIM_MEMORY", uint64_t{1} << 30);
    read.kernel_us = number_of("NPUCALL_SIM_KERNEL_US", 0);
    read.bandwidth = number_of("NPUCALL_SIM_BANDWIDTH", 0);
    read.watch = text_of("NPUCALL_SIM_WATCH", "1") != "0";
    read.pageable_waits = text_of("NPUCALL_SIM_PAGEABLE", "late") == "waits";
    own().python = text_of("NPUCALL_SIM_KERNELS", "python") != "none";
    own().abort = text_of("NPUCALL_SIM_ABORT", "0") == "1";
    read.unrun = unrun_of(text_of("NPUCALL_SIM_UNRUN", "unguarded"));
    read.thread_end_ms = number_of("NPUCALL_SIM_THREAD_END_MS", 20);
    own().report = text_of("NPUCALL_SIM_REPORT", "");
    read.addresses = size_t{1} << 40;
    read.kinds_matter = true;
    return read;
}

Simulation &simulation() {
    settings();  // reads them once
    return own();
}

// Each allocation has memory of its own, so that sanitizers see where it ends.
uint8_t *take_bytes(size_t, size_t size) {
    void *data = nullptr;
    return posix_memalign(&data, 64, size) == 0 ? static_cast<uint8_t *>(data) : nullptr;
}

void give_bytes_back(uint8_t *data, size_t) { std::free(data); }

Outcome kernels_over() { return {}; }

Outcome reach(const uint8_t *, size_t, bool) { return {}; }

}  // namespace sim
