// What the simulator alone has.
#pragma once

#include <string>

#include "acl_types.h"

namespace sim {

struct Simulation {
    bool python = true;  // kernels compute
    bool abort = false;  // the first violation ends the process
    std::string report;  // path of the report at exit; empty is none
};

SIM_EXPORT Simulation &simulation();

void clear_violations();

std::string live_objects_json();
std::string violations_json();
std::string counters_json();

}  // namespace sim
