// The functions by which tests control the simulator. Returned text lives until the same function
// is called again by the same thread.
#include <string>

#include "acl/call.h"
#include "acl/counters.h"
#include "acl/device.h"
#include "acl/memory.h"
#include "acl/release.h"
#include "acl/settings.h"
#include "acl/stream.h"
#include "faults.h"
#include "simulation.h"

using namespace sim;

namespace {

const char *kept(std::string text) {
    static thread_local std::string last;
    last = std::move(text);
    return last.c_str();
}

// Every stream's work is dropped and its thread ended.
void end_all_streams(Lock &lock) {
    const auto streams = all_streams();
    for (const auto &stream : streams) end_stream(lock, stream, true);
    for (const auto &stream : streams) {
        state().changed.wait(lock, [&] { return stream->ended; });
        stream->landings.clear();
        stream->context->default_stream = nullptr;
    }
}

void forget_state() {
    State &all = state();
    all.devices.clear();
    all.options.clear();
    all.initialised = 0;
    all.was_initialised = all.was_finalised = false;
    all.configuration.clear();
    all.kernel_timeout_ms = 1091000;
    all.next_stream = 0;
    counters() = Counters{};
}

}  // namespace

SIM_API int npucall_sim_generation() { return this_release.number; }

// As a process that has just loaded the libraries.
SIM_API void npucall_sim_reset() {
    clear_faults();
    Lock lock(state().mutex);
    end_all_streams(lock);
    forget_all_objects();
    forget_all_memory();
    forget_state();
    start_epoch();
    read_settings();
    clear_violations();
    clear_call_counts();
    read_faults();
}

SIM_API int npucall_sim_set_fault(const char *function, int nth, int status, const char *what) {
    return set_fault(function, nth, status, what) ? 0 : -1;
}

SIM_API void npucall_sim_clear_faults() { clear_faults(); }

SIM_API const char *npucall_sim_live_objects() { return kept(live_objects_json()); }

// The violations so far as a JSON list; they are cleared.
SIM_API const char *npucall_sim_violations() {
    const std::string text = violations_json();
    clear_violations();
    return kept(text);
}

SIM_API const char *npucall_sim_counters() { return kept(counters_json()); }

SIM_API uint64_t npucall_sim_call_count(const char *function) {
    const auto counts = call_counts();
    const auto found = counts.find(function);
    return found == counts.end() ? 0 : found->second;
}

SIM_API int npucall_sim_set_kernels(const char *kernels) {
    const std::string wanted = kernels;
    if (wanted != "python" && wanted != "none") return -1;
    simulation().python = wanted == "python";
    return 0;
}

SIM_API void npucall_sim_set_kernel_delay_us(uint64_t microseconds) {
    settings().kernel_us = microseconds;
}

SIM_API void npucall_sim_set_bandwidth(uint64_t bytes_per_second) {
    settings().bandwidth = bytes_per_second;
}

SIM_API void npucall_sim_set_memory(uint64_t bytes) { settings().memory = bytes; }

// Stops every thread that comes to the runtime's lock, until the caller lets go of it.
SIM_API void npucall_sim_hold() { state().mutex.lock(); }

SIM_API void npucall_sim_let_go() { state().mutex.unlock(); }

SIM_API int npucall_sim_set_soc(const char *soc) {
    Lock lock(state().mutex);
    settings().soc = soc;
    return 0;
}
