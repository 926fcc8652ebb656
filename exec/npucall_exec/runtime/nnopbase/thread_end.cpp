#include "nnopbase/thread_end.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "acl/call.h"
#include "acl/settings.h"

namespace sim {
namespace {

bool is_main_thread() { return syscall(SYS_gettid) == getpid(); }

// One for each thread. Its destructor runs when Python takes the thread for ended already.
struct ThreadEnd {
    uint64_t epoch = 0;
    const void *context = nullptr;  // of its last phase one

    ~ThreadEnd() {
        if (epoch != sim::epoch() || is_main_thread()) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(settings().thread_end_ms));
        if (epoch != sim::epoch()) return;
        this_thread().function = "end of a thread";
        Lock lock(state().mutex);
        if (state().was_finalised && state().initialised == 0) {
            violate("CANN was finalised before");
        } else if (find<Context>(context, ObjectKind::Context) == nullptr) {
            violate("the context of its phase ones was released before");
        }
    }
};

}  // namespace

void outlive_this_thread(const ContextPointer &context) {
    static thread_local ThreadEnd end;
    end.epoch = epoch();
    end.context = context->handle;
}

}  // namespace sim
