// The end of a thread that made a phase one: what the libraries keep for it is destroyed then.
#pragma once

#include "acl/device.h"

namespace sim {

// The context must be there until the calling thread has ended, which takes a while; unless it is
// the main thread, whose end is that of the process. Under the state's lock.
void outlive_this_thread(const ContextPointer &context);

}  // namespace sim
