// Numbers of 16 bits.
#include <cmath>
#include <cstring>

#include "acl_types.h"

SIM_API float aclFloat16ToFloat(aclFloat16 value) {
    const int exponent = (value >> 10) & 0x1F;
    const float fraction = static_cast<float>(value & 0x3FF);
    float size = 0;
    if (exponent == 0x1F) {
        size = fraction == 0 ? INFINITY : NAN;
    } else {
        size = std::ldexp(exponent == 0 ? fraction : fraction + 1024, exponent == 0 ? -24 : exponent - 25);
    }
    return (value & 0x8000) != 0 ? -size : size;
}

// Rounds to the nearest, to even between two.
SIM_API aclFloat16 aclFloatToFloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
    const float size = std::fabs(value);
    if (size == 0) return sign;
    if (std::isnan(value)) return sign | 0x7E00;
    if (size >= 65520.0F) return sign | 0x7C00;
    int exponent = 0;
    std::frexp(size, &exponent);  // size < 2^exponent
    const int unit = exponent < -13 ? -24 : exponent - 11;
    const auto counted = static_cast<uint32_t>(std::nearbyint(std::ldexp(size, -unit)));
    // What rounds up to the next power of two has the next exponent by itself.
    return static_cast<uint16_t>(sign | (counted + (static_cast<uint32_t>(unit + 24) << 10)));
}
