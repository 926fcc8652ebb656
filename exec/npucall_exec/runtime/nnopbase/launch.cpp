// What phase two puts on a stream.
#include <cstring>

#include "acl/counters.h"
#include "acl/device.h"
#include "acl/memory.h"
#include "acl/settings.h"
#include "acl/stream.h"
#include "end.h"
#include "nnopbase/executor.h"

namespace sim {
namespace {

// A tensor that aclnnInplaceZero fills. That kernel is written here, and computes also where others
// are told not to: the device relies on it to keep callers apart.
struct Zeroed {
    uint8_t *data = nullptr;
    size_t item = 0;  // bytes of an element
    TensorView view;
};

// Everything that a kernel needs; nothing of it belongs to the caller any more.
struct Launch {
    Kernel kernel;
    AllocationPointer workspace;
    uint8_t *workspace_data = nullptr;
    uint64_t workspace_size = 0;
    bool deterministic = false;
    bool faulty = false;  // it would touch memory that is not its own
    std::vector<Zeroed> zeroed;
};

// Kernels may touch up to 32 bytes behind the last one.
uint64_t touched_bytes(const TensorView &view) {
    const uint64_t padded = (storage_bytes(view) + 31) / 32 * 32;
    return is_ascend950() ? padded : padded + 32;
}

class Builder {
  public:
    Builder(int device, bool zeroes) : device_(device), zeroes_(zeroes) {}

    std::vector<Access> accesses;
    Launch launch;

    void add_workspace(void *workspace, uint64_t size) {
        if (size == 0) return;
        launch.workspace = require_device_bytes(workspace, size, size, device_, "workspace");
        if (launch.workspace == nullptr) {
            launch.faulty = true;
            return;
        }
        const auto begin = reinterpret_cast<uintptr_t>(workspace);
        launch.workspace_data = launch.workspace->at(begin);
        launch.workspace_size = size;
        accesses.push_back({launch.workspace, begin, begin + size, true});
    }

    // Where the kernel finds the tensors of an argument.
    void add(const Value &value) {
        for (const Snapshot &tensor : value.tensors) {
            if (tensor.handle == nullptr) continue;
            launch.kernel.tensors.push_back(find_data(value.argument, tensor.view));
        }
    }

  private:
    int device_;
    bool zeroes_;

    // The storage; null where there is none.
    const uint8_t *find_data(const Argument &argument, const TensorView &view) {
        if (is_empty(view)) return nullptr;
        const AllocationPointer allocation = require_device_bytes(
            view.address, storage_bytes(view), touched_bytes(view), device_, argument.name);
        if (allocation == nullptr) {
            launch.faulty = true;
            return nullptr;
        }
        const auto begin = reinterpret_cast<uintptr_t>(view.address);
        if (begin % 32 != 0)
            violate("%s: %p is not on a multiple of 32", argument.name, view.address);
        accesses.push_back({allocation, begin, begin + storage_bytes(view), argument.output});
        if (zeroes_) launch.zeroed.push_back({allocation->at(begin), bytes_of(view.dtype, 1), view});
        return allocation->at(begin);
    }
};

void spoil(const Launch &launch) {
    if (launch.workspace_size != 0) std::memset(launch.workspace_data, 0x5A, launch.workspace_size);
}

void fill_with_zeros(const Zeroed &zeroed, size_t axis, int64_t offset) {
    const TensorView &view = zeroed.view;
    if (axis == view.shape.size()) {
        std::memset(zeroed.data + static_cast<size_t>(offset) * zeroed.item, 0, zeroed.item);
        return;
    }
    const auto length = static_cast<size_t>(view.shape[axis]);
    if (axis + 1 == view.shape.size() && view.strides[axis] == 1) {
        std::memset(zeroed.data + static_cast<size_t>(offset) * zeroed.item, 0,
                    length * zeroed.item);
        return;
    }
    for (int64_t i = 0; i < view.shape[axis]; ++i) {
        fill_with_zeros(zeroed, axis + 1, offset + i * view.strides[axis]);
    }
}

// Fills what is to be zeros here; all else an end of the runtime computes.
Outcome computed(const Launch &launch) {
    if (launch.zeroed.empty()) return compute(launch.kernel);
    for (const Zeroed &zeroed : launch.zeroed) {
        const Outcome outcome = reach(zeroed.data, storage_bytes(zeroed.view), true);
        if (outcome.status != 0) return outcome;
        fill_with_zeros(zeroed, 0, zeroed.view.offset);
    }
    return {};
}

Outcome run(const Launch &launch) {
    if (launch.faulty) return {507015, "the kernel touched memory that is not its own"};
    spoil(launch);
    const Outcome outcome = computed(launch);
    spoil(launch);
    Lock lock(state().mutex);
    ++counters().launches;
    if (launch.deterministic) ++counters().deterministic_launches;
    return outcome;
}

}  // namespace

int launch(const Executor &executor, void *workspace, void *handle) {
    ContextPointer context;
    StreamPointer stream;
    int status = require_context(context);
    if (status == 0) status = require_stream(handle, context, stream);
    if (status != 0 || !executor.launches) return status;
    Builder builder(context->device, std::strcmp(executor.entry.name, "aclnnInplaceZero") == 0);
    builder.add_workspace(workspace, executor.workspace);
    for (const Value &value : executor.values) builder.add(value);
    builder.launch.kernel.call = executor.call;
    builder.launch.kernel.saturates = stream->saturates;
    builder.launch.deterministic = executor.deterministic != 0;
    auto launch = std::make_shared<Launch>(builder.launch);
    const bool is_kernel = launch->zeroed.empty();  // what fills memory is no caller's kernel
    return submit(
        stream, executor.entry.name, builder.accesses, [launch] { return run(*launch); }, is_kernel);
}

}  // namespace sim
