// aclInit and its counterparts, versions, error texts.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "acl/call.h"
#include "acl/device.h"
#include "acl/release.h"
#include "acl/report.h"
#include "acl/settings.h"
#include "end.h"

using namespace sim;

namespace {

constexpr bool IS_NEW = SIM_GENERATION >= 90;
constexpr const char *DRIVER_VERSION = "25.5.0";

struct PackageVersion {
    char version[128], major[64], minor[64], release[64], patch[64], reserved[128];
};

void forget_configuration() {
    state().initialised = 0;
    state().was_finalised = true;
}

// Everything of the caller must be gone by then.
void check_nothing_lives() {
    for (const auto &[kind, number] : live_objects()) {
        if (kind.rfind("aclrt", 0) != 0) continue;
        violate("%llu %s not released", static_cast<unsigned long long>(number), kind.c_str());
    }
}

int finalised() {
    check_nothing_lives();
    forget_configuration();
    return 0;
}

}  // namespace

SIM_API aclError aclInit(const char *path) {
    return call("aclInit", [&] {
        std::string configuration;
        if (path != nullptr) {
            std::ifstream file(path);
            if (!file) return fail(100003, "no file %s", path);
            std::ostringstream text;
            text << file.rdbuf();
            configuration = text.str();
        }
        Lock lock(state().mutex);
        if (settings().devices == 0) return fail(500000, "no SoC was found");
        State &all = state();
        if (all.initialised > 0 || (!IS_NEW && all.was_initialised)) {
            if (IS_NEW && configuration != all.configuration) {
                return fail(100000, "the configuration differs from that of the first aclInit");
            }
            if (IS_NEW) ++all.initialised;
            return fail(100002, "aclInit was called before");
        }
        all.initialised = 1;
        all.was_initialised = true;
        all.configuration = configuration;
        return 0;
    });
}

SIM_API aclError aclFinalize() {
    const int status = destroying_call("aclFinalize", [] {
        Lock lock(state().mutex);
        if (state().was_finalised && state().initialised == 0) {
            return fail(100037, "aclFinalize was called before");
        }
        return finalised();
    });
    write_report();
    return status;
}

#if SIM_GENERATION >= 90
SIM_API aclError aclFinalizeReference(uint64_t *count) {
    const int status = destroying_call("aclFinalizeReference", [&] {
        Lock lock(state().mutex);
        if (state().initialised == 0) return fail(100037, "there is no aclInit left to undo");
        const uint64_t left = state().initialised - 1;
        if (left == 0) {
            finalised();
        } else {
            state().initialised = left;
        }
        if (count != nullptr) *count = left;
        return 0;
    });
    write_report();
    return status;
}

SIM_API aclError aclsysGetVersionStr(char *package, char *version) {
    return call("aclsysGetVersionStr", [&] {
        if (package == nullptr || version == nullptr) return fail(100000, "NULL");
        const bool outside = !std::strcmp(package, "driver") || !std::strcmp(package, "firmware");
        std::snprintf(version, 128, "%s", outside ? DRIVER_VERSION : this_release.cann);
        return 0;
    });
}

SIM_API aclError aclsysGetVersionNum(char *package, int32_t *version) {
    return call("aclsysGetVersionNum", [&] {
        if (package == nullptr || version == nullptr) return fail(100000, "NULL");
        *version = 90000000;
        return 0;
    });
}
#endif

SIM_API aclError aclrtGetVersion(int32_t *major, int32_t *minor, int32_t *patch) {
    return call("aclrtGetVersion", [&] {
        if (major == nullptr || minor == nullptr || patch == nullptr) return fail(100000, "NULL");
        *major = 1;
        *minor = this_release.runtime;
        *patch = 0;
        return 0;
    });
}

SIM_API aclError aclsysGetCANNVersion(int name, PackageVersion *version) {
    return call("aclsysGetCANNVersion", [&] {
        if (version == nullptr) return fail(100000, "version is NULL");
        if (name < 0 || name > 7) return fail(100000, "%d names no package", name);
        std::memset(version, 0, sizeof *version);
        const bool is_driver = name == 7;
        std::snprintf(version->version, sizeof version->version, "%s",
                      is_driver ? DRIVER_VERSION : this_release.cann);
        if (is_driver) return 0;
        std::snprintf(version->major, sizeof version->major, "%d", this_release.major);
        std::snprintf(version->minor, sizeof version->minor, "%d", this_release.minor);
        std::snprintf(version->release, sizeof version->release, "%s", this_release.candidate);
        return 0;
    });
}

SIM_API const char *aclGetRecentErrMsg() {
    return pointer_call("aclGetRecentErrMsg", []() -> const char * {
        Thread &thread = this_thread();
        // The old text is overwritten so that a kept pointer shows.
        for (char &letter : thread.returned) letter = '#';
        thread.returned.swap(thread.text);
        thread.text.clear();
        // It asks the device too, which this one's driver does not support.
        thread.last_error = 207000;
        return thread.returned.empty() ? nullptr : thread.returned.c_str();
    });
}

SIM_API aclError aclrtPeekAtLastError(int level) {
    Call current("aclrtPeekAtLastError");
    if (current.fault() != 0) return current.fault();
    return level == 0 ? this_thread().last_error : 100000;
}

SIM_API aclError aclrtGetLastError(int level) {
    Call current("aclrtGetLastError");
    if (current.fault() != 0) return current.fault();
    if (level != 0) return 100000;
    const int status = this_thread().last_error;
    this_thread().last_error = 0;
    return status;
}

SIM_API size_t aclDataTypeSize(aclDataType type) {
    Call current("aclDataTypeSize");
    if (current.fault() != 0) return 0;
    switch (static_cast<int>(type)) {
        case ACL_DT_UNDEFINED:
        case ACL_STRING:
            return 0;
        case ACL_INT8:
        case ACL_UINT8:
        case ACL_BOOL:
        case ACL_INT4:
        case ACL_UINT1:
        case ACL_HIFLOAT8:
        case ACL_FLOAT8_E5M2:
        case ACL_FLOAT8_E4M3FN:
        case ACL_FLOAT8_E8M0:
            return 1;
        case ACL_FLOAT16:
        case ACL_BF16:
        case ACL_INT16:
        case ACL_UINT16:
            return 2;
        case ACL_FLOAT:
        case ACL_INT32:
        case ACL_UINT32:
        case ACL_COMPLEX32:
            return 4;
        case ACL_COMPLEX128:
            return 16;
        default:
            return 8;  // for every value that it does not list, as the real one
    }
}
