// What the caller still holds, and how it is told.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "acl_types.h"

namespace sim {

// What the caller has not given back, by kind: "aclTensor", "aclrtMalloc", "aclrtSetDevice", ...
// Under the state's lock.
std::map<std::string, uint64_t> live_objects();

// A JSON string, with its quotes.
SIM_EXPORT std::string quoted(const std::string &text);

// A JSON list of what `text` makes of each item.
template <class Items, class Text>
std::string json_list(const Items &items, Text text) {
    std::string json = "[";
    for (const auto &item : items) json += (json.size() > 1 ? ", " : "") + text(item);
    return json + "]";
}

}  // namespace sim
