#include "acl/call.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>

#include "end.h"

namespace sim {
namespace {

std::atomic<uint64_t> current_epoch{1};
std::atomic<bool> forked{false};

std::string formatted(const char *format, va_list values) {
    va_list again;
    va_copy(again, values);
    std::string text(static_cast<size_t>(std::vsnprintf(nullptr, 0, format, again)), '\0');
    va_end(again);
    std::vsnprintf(text.data(), text.size() + 1, format, values);
    return text;
}

// The code at the start of an error text; the real ones are grouped like this.
const char *code_of(int status) {
    if (status == 207001) return "EL0004";
    if (status == 561003 || status == 561112) return "EZ3002";
    if (status / 1000 == 161) return "EZ1001";
    if (status / 1000 == 561 || status / 1000 == 507) return "EZ9999";
    return "EE1001";
}

// Codes of the runtime; those of aclnn do not become the thread's last error.
bool is_runtime_code(int status) {
    const int group = status / 1000;
    return group != 161 && group != 361 && group != 561;
}

void watch_forks() {
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
    (void)registered;
}

using HoldsLock = int (*)();
using SaveThread = void *(*)();
using RestoreThread = void (*)(void *);

// Blocking calls must let other Python threads run, as kernels need to here.
void *release_python() {
    static const auto holds = reinterpret_cast<HoldsLock>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
    static const auto alive = reinterpret_cast<HoldsLock>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
    static const auto save = reinterpret_cast<SaveThread>(dlsym(RTLD_DEFAULT, "PyEval_SaveThread"));
    if (holds == nullptr || alive == nullptr || save == nullptr) return nullptr;
    if (alive() == 0 || holds() == 0) return nullptr;
    violate("called with Python's interpreter lock held (PyDLL instead of CDLL)");
    return save();
}

}  // namespace

Thread &this_thread() {
    static thread_local Thread thread;
    const uint64_t now = epoch();
    if (thread.epoch != now) {
        thread = Thread{};
        thread.epoch = now;
    }
    return thread;
}

void start_epoch() { current_epoch.fetch_add(1); }

uint64_t epoch() { return current_epoch.load(std::memory_order_relaxed); }

int fail(int status, const char *format, ...) {
    va_list values;
    va_start(values, format);
    this_thread().message = formatted(format, values);
    va_end(values);
    return status;
}

void violate(const char *format, ...) {
    va_list values;
    va_start(values, format);
    const std::string line = std::string(this_thread().function) + ": " + formatted(format, values);
    va_end(values);
    if (forked.load(std::memory_order_relaxed)) {
        std::fprintf(stderr, "violation: %s\n", line.c_str());
    } else {
        found(line);
    }
}

Call::Call(const char *name) {
    watch_forks();
    Thread &thread = this_thread();
    thread.function = name;
    thread.deferred = Deferred{};
    thread.message.clear();
    if (forked.load(std::memory_order_relaxed)) {
        violate("called in a forked child of a process that had loaded the library");
        fault_ = fail(500000, "process %d is a fork", static_cast<int>(getpid()));
        return;
    }
    python_thread_ = release_python();
    fault_ = apply_fault(name, thread.deferred);
}

Call::~Call() {
    if (python_thread_ == nullptr) return;
    static const auto restore =
        reinterpret_cast<RestoreThread>(dlsym(RTLD_DEFAULT, "PyEval_RestoreThread"));
    restore(python_thread_);
}

int Call::finish(int status) {
    if (status == 0) return 0;
    Thread &thread = this_thread();
    if (is_runtime_code(status)) thread.last_error = status;
    const std::string message = thread.message.empty() ? "failed" : thread.message;
    thread.text = std::string(code_of(status)) + ": [" + thread.function + "] " + message + "\n" +
                  thread.text;
    return status;
}

}  // namespace sim
