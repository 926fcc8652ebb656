#include "socket/touched.h"

#include <unistd.h>

#include <csignal>

#include "acl/memory.h"

namespace sim {
namespace {

struct sigaction before;

void say(int number, siginfo_t *info, void *context) {
    if (is_device_address(info->si_addr)) {
        constexpr char TEXT[] =
            "npucall exec: the host touched device memory: copy it with aclrtMemcpy\n";
        [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, TEXT, sizeof TEXT - 1);
    }
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        sigaction(SIGSEGV, &before, nullptr);  // it faults again
    }
}

}  // namespace

void watch_device_memory() {
    struct sigaction own {};
    own.sa_sigaction = say;
    own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &own, &before);
}

}  // namespace sim
