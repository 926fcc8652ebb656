// The end of the runtime that `npucall exec` serves: it computes in the command, by a socket.
#include "end.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "acl/report.h"
#include "socket/connection.h"
#include "socket/touched.h"

namespace sim {
namespace {

// Unless another thread is in a call, which ends with the process.
void tell_what_is_left() {
    const Lock lock(state().mutex, std::try_to_lock);
    if (!lock.owns_lock()) return;
    for (const auto &[kind, number] : live_objects()) {
        if (state().was_finalised && kind.rfind("aclrt", 0) == 0) continue;
        found("end: " + std::to_string(number) + " " + kind + " not given back");
    }
}

// What the first welcome of this process brought.
struct Served {
    const char *name = std::getenv("NPUCALL_EXEC");
    std::mutex mutex;                       // of what is told
    Connection *first = nullptr;            // stays until the process ends
    uint8_t *memory = nullptr;              // all of the device's, for copies
    uint64_t memory_bytes = 0, addresses = 0, strict = 0, elsewhere = 0;
    std::string soc;

    Served() {
        if (name == nullptr || *name == '\0') {
            std::fputs("npucall exec: start this program with `npucall exec -- PROGRAM`: these "
                       "libraries compute there\n", stderr);
            return;
        }
        first = new Connection(name);
        std::istringstream told(first->welcome().text);
        told >> memory_bytes >> addresses >> strict >> elsewhere >> soc;
        void *mapped = mmap(nullptr, addresses, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                            first->memory(), 0);
        if (mapped != MAP_FAILED) memory = static_cast<uint8_t *>(mapped);
        watch_device_memory();
        std::atexit(tell_what_is_left);
    }
};

Served &served() {
    static auto *one = new Served;
    return *one;
}

Connection &connection() {
    static thread_local Connection own(served().name);
    return own;
}

// A handle that is given must be alive, and what is in its list too.
int check_handles(const Value &value) {
    const Argument &argument = value.argument;
    const ObjectKind kind = object_kind(argument.kind);
    if (kind == ObjectKind::None || argument.handle == nullptr) return 0;
    if (find_object(argument.handle, kind) == nullptr) return misused(argument.handle, kind, 561103);
    const bool scalars = argument.kind == Kind::ScalarList;
    const ObjectKind member = scalars ? ObjectKind::Scalar : ObjectKind::Tensor;
    for (const void *element : value.elements) {
        if (element == nullptr || find_object(element, member) != nullptr) continue;
        return misused(element, member, 561103);
    }
    return 0;
}

}  // namespace

Settings settings_of_environment() {
    const Served &known = served();
    Settings read{};
    read.soc = known.soc;
    read.devices = known.memory == nullptr ? 0 : 1;
    read.memory = known.memory_bytes;
    read.addresses = known.addresses;
    read.watch = known.strict != 0;
    read.pageable_waits = true;
    read.unrun = Unrun::Guarded;
    read.lazy = true;
    return read;
}

int apply_fault(const char *, Deferred &) { return 0; }

bool stall(uint64_t, int64_t) { return true; }

void found(const std::string &line) {
    Served &known = served();
    if (known.first == nullptr) return;
    std::lock_guard<std::mutex> guard(known.mutex);
    known.first->tell(FOUND, line, true);
}

// aclFinalize says itself what of the runtime is left; what is left of all, the end of the process.
void write_report() {}

uint8_t *take_bytes(size_t offset, size_t) { return served().memory + offset; }

void give_bytes_back(uint8_t *data, size_t size) {
    constexpr size_t PAGE = 4096;
    const auto begin = (static_cast<size_t>(data - served().memory) + PAGE - 1) / PAGE * PAGE;
    const auto end = (static_cast<size_t>(data - served().memory) + size) / PAGE * PAGE;
    reach(data, size, true);
    if (begin < end) madvise(served().memory + begin, end - begin, MADV_REMOVE);
}

int plan_call(const Argument *, size_t, const Executor &executor, CachedPlan &plan) {
    for (const Value &value : executor.values) {
        const int status = check_handles(value);
        if (status != 0) return status;
    }
    if (executor.call.size() > MOST_OF_A_CALL) {
        return fail(161002, "call: expected at most %zu bytes that describe it, found %zu",
                    MOST_OF_A_CALL, executor.call.size());
    }
    const Answer answer = connection().ask(PLAN, executor.call);
    if (answer.status != 0) return fail(answer.status, "%s", answer.text.c_str());
    plan = {answer.workspace, answer.launches};
    return 0;
}

Outcome compute(const Kernel &kernel) {
    std::string payload = bytes_of_number<uint32_t>(kernel.saturates ? 1 : 0) +
                          bytes_of_number(static_cast<uint32_t>(kernel.tensors.size()));
    for (const uint8_t *tensor : kernel.tensors) {
        const auto offset = static_cast<uint64_t>(tensor - served().memory);
        payload += bytes_of_number(tensor == nullptr ? UINT64_MAX : offset);
    }
    connection().tell(LAUNCH, payload + kernel.call, false);
    return {};
}

Outcome kernels_over() {
    const Answer answer = connection().ask(WAIT, "");
    return {answer.status, answer.text};
}

Outcome reach(const uint8_t *data, size_t size, bool writes) {
    if (served().elsewhere == 0) return {};
    const std::string range = bytes_of_number(static_cast<uint64_t>(data - served().memory)) +
                              bytes_of_number(static_cast<uint64_t>(size));
    const Answer answer = connection().ask(REACH, range + bytes_of_number(uint64_t{writes}));
    return {answer.status, answer.text};
}

}  // namespace sim
