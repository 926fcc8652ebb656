#include "acl/settings.h"

#include <cstdlib>
#include <sstream>

#include "end.h"

namespace sim {

Settings &settings() {
    static auto *current = new Settings(settings_of_environment());
    return *current;
}

void read_settings() { settings() = settings_of_environment(); }

int visible_devices() {
    const char *listed = std::getenv("ASCEND_RT_VISIBLE_DEVICES");
    if (listed == nullptr || *listed == '\0') return settings().devices;
    std::istringstream entries(listed);
    std::string entry;
    int visible = 0;
    // The list ends at the first entry that is no device.
    while (std::getline(entries, entry, ',')) {
        const int device = std::atoi(entry.c_str());
        if (device < 0 || device >= settings().devices) break;
        ++visible;
    }
    return visible;
}

bool is_ascend950() {
    return settings().soc.rfind("Ascend950", 0) == 0 ||
           settings().soc.rfind("Ascend910_95", 0) == 0;
}

}  // namespace sim
