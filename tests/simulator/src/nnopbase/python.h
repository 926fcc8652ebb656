// The Python of the process under test, which computes the kernels.
#pragma once

#include <string>

namespace sim {

// Empty, or why the kernel failed.
std::string run_python(const std::string &description);

}  // namespace sim
