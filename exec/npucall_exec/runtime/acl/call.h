// Round every C function: counts, faults, the thread's state, error texts and violations.
#pragma once

#include <cstdint>
#include <string>

#include "acl_types.h"

namespace sim {

// A failure that does not show in the call itself but in the work which it submits.
struct Deferred {
    int status = 0;
    bool stall = false;       // the work does not end by itself
    uint64_t generation = 0;  // of the faults that it belongs to
};

struct Thread {
    uint64_t epoch = 0;
    const char *function = "";
    void *context = nullptr;
    int last_error = 0;
    Deferred deferred;
    std::string message;   // of the failure under way
    std::string text;      // of all failures since it was last read, newest first
    std::string returned;  // what the pointer that aclGetRecentErrMsg last gave points to
};

SIM_EXPORT Thread &this_thread();

// Makes every thread forget its state.
void start_epoch();
SIM_EXPORT uint64_t epoch();

// Says why the call under way fails; returns `status`.
SIM_EXPORT int fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Records what would be undefined behaviour on a real host.
SIM_EXPORT void violate(const char *format, ...) __attribute__((format(printf, 1, 2)));

// One call of a C function, from its first line to its last.
class SIM_EXPORT Call {
  public:
    explicit Call(const char *name);
    ~Call();
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    // The status that the call was told to fail with, or 0.
    int fault() const { return fault_; }

    // Leaves the thread's last error and error text behind; returns `status`.
    int finish(int status);

  private:
    int fault_ = 0;
    void *python_thread_ = nullptr;
};

// Runs a C function that does nothing when it is told to fail.
template <class Body>
int call(const char *name, Body body) {
    Call current(name);
    return current.finish(current.fault() != 0 ? current.fault() : body());
}

// Runs a C function that destroys something, which it does even when it is told to fail.
template <class Body>
int destroying_call(const char *name, Body body) {
    Call current(name);
    const int status = body();
    return current.finish(current.fault() != 0 ? current.fault() : status);
}

// Runs a C function that returns a pointer, NULL when it is told to fail.
template <class Body>
auto pointer_call(const char *name, Body body) -> decltype(body()) {
    Call current(name);
    if (current.fault() != 0) {
        current.finish(current.fault());
        return nullptr;
    }
    return body();
}

}  // namespace sim
