// Alone, so that releases with the same functions share all other objects. A release's number is
// defined where this is included.
#include "acl/release.h"

namespace sim {

#if SIM_RELEASE == 81
extern const Release this_release{81, "8.1.RC1", 8, 1, "RC1", 13};
#elif SIM_RELEASE == 83
extern const Release this_release{83, "8.3.RC1", 8, 3, "RC1", 15};
#else
extern const Release this_release{90, "9.0.0", 9, 0, "0", 17};
#endif

}  // namespace sim
