// The host touches memory of the device.
#pragma once

namespace sim {

// From now on a sentence comes before the segmentation fault, which others may handle.
void watch_device_memory();

}  // namespace sim
