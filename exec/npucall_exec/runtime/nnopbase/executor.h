// Executors: what phase one makes and phase two uses up.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "acl/registry.h"
#include "nnopbase/meta.h"
#include "operator_entry.h"

namespace sim {

struct ThreadCache;

// A tensor as phase one saw it. `handle` is null for a null element.
struct Snapshot {
    const void *handle = nullptr;
    TensorView view;
};

// One argument as phase one saw it.
struct Value {
    Argument argument;
    std::string text;                    // of a Text that is not null
    std::vector<Snapshot> tensors;       // one, or those of a list
    std::vector<const void *> elements;  // the handles in a list of any kind
};

struct Executor : Object {
    OperatorEntry entry;
    std::vector<Value> values;
    std::string call;  // operator and arguments as JSON, without addresses
    uint64_t workspace = 0;
    bool launches = true;  // false where there is nothing to compute
    bool repeatable = false;
    bool wrapper = false;  // answered from the thread's cache
    std::atomic<bool> running{false};
    std::string key;  // in the cache; empty is not cached
    std::weak_ptr<ThreadCache> cache;
    uint64_t thread = 0;  // of phase one
    int64_t deterministic = 0;
};

using ExecutorPointer = std::shared_ptr<Executor>;

// The thread's last executor: only it can be made repeatable.
const void *&last_executor();
uint64_t this_thread_number();

// False where a descriptor of the executor is gone or says something else than in phase one; the
// violations say which.
bool check_descriptors(const Executor &executor);

// Puts the launch on the stream. Under the state's lock.
int launch(const Executor &executor, void *workspace, void *stream);

}  // namespace sim
