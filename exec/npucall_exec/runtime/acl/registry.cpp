#include "acl/registry.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "acl/call.h"

namespace sim {
namespace {

constexpr size_t SPACE = size_t{1} << 34;
constexpr size_t STEP = 16;

struct Registry {
    std::mutex mutex;
    uintptr_t first = 0;
    std::vector<ObjectKind> given;  // the kind of every handle, by its number
    std::unordered_map<uintptr_t, std::shared_ptr<Object>> live;

    Registry() {
        void *space =
            mmap(nullptr, SPACE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (space == MAP_FAILED) {
            std::perror("address space for handles");
            std::abort();
        }
        first = reinterpret_cast<uintptr_t>(space) + STEP;
    }

    ObjectKind kind_given(uintptr_t address) const {
        if (address < first || (address - first) % STEP != 0) return ObjectKind::None;
        const size_t number = (address - first) / STEP;
        return number < given.size() ? given[number] : ObjectKind::None;
    }
};

Registry &registry() {
    static auto *one = new Registry;
    return *one;
}

uintptr_t address_of(const void *handle) { return reinterpret_cast<uintptr_t>(handle); }

}  // namespace

const char *name_of(ObjectKind kind) {
    static const char *const names[] = {
        "nothing",      "aclrtContext",  "aclrtStream",   "aclrtEvent",
        "aclTensor",    "aclScalar",     "aclIntArray",   "aclFloatArray",
        "aclBoolArray", "aclTensorList", "aclScalarList", "aclOpExecutor",
    };
    return names[static_cast<size_t>(kind)];
}

void *add_object(const std::shared_ptr<Object> &object) {
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.mutex);
    const uintptr_t address = all.first + all.given.size() * STEP;
    all.given.push_back(object->kind);
    object->handle = reinterpret_cast<void *>(address);
    all.live.emplace(address, object);
    return object->handle;
}

std::shared_ptr<Object> find_object(const void *handle, ObjectKind kind) {
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.mutex);
    const auto found = all.live.find(address_of(handle));
    if (found == all.live.end() || found->second->kind != kind) return nullptr;
    return found->second;
}

bool remove_object(const void *handle, ObjectKind kind) {
    Registry &all = registry();
    std::shared_ptr<Object> last;
    std::lock_guard<std::mutex> guard(all.mutex);
    const auto found = all.live.find(address_of(handle));
    if (found == all.live.end() || found->second->kind != kind) return false;
    last = found->second;
    all.live.erase(found);
    return true;
}

std::string description_of(const void *handle) {
    if (handle == nullptr) return "NULL";
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.mutex);
    const uintptr_t address = address_of(handle);
    const ObjectKind kind = all.kind_given(address);
    char digits[32];
    std::snprintf(digits, sizeof digits, " (%p)", handle);
    if (kind == ObjectKind::None) return std::string("a pointer that is no handle") + digits;
    const char *state = all.live.count(address) != 0 ? "a live " : "a destroyed ";
    return std::string(state) + name_of(kind) + digits;
}

int misused(const void *handle, ObjectKind expected, int status) {
    const std::string found = description_of(handle);
    violate("a live %s is expected, this is %s", name_of(expected), found.c_str());
    return fail(status, "a live %s is expected, this is %s", name_of(expected), found.c_str());
}

std::map<std::string, uint64_t> live_handles() {
    Registry &all = registry();
    std::lock_guard<std::mutex> guard(all.mutex);
    std::map<std::string, uint64_t> counts;
    for (const auto &[address, object] : all.live) {
        if (object->counted) ++counts[name_of(object->kind)];
    }
    return counts;
}

void forget_all_objects() {
    Registry &all = registry();
    std::unordered_map<uintptr_t, std::shared_ptr<Object>> dying;
    std::lock_guard<std::mutex> guard(all.mutex);
    dying.swap(all.live);
}

}  // namespace sim
