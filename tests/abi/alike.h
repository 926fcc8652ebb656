// Whether two declarations of a C function agree: `alike<Theirs, Ours>()`.
#pragma once

#include <tuple>
#include <type_traits>

// What a pointer that ctypes calls c_void_p leads to: memory, or an object that only CANN knows.
struct Opaque;

template <class Theirs, class Ours>
constexpr bool alike();

template <class Type, class = void>
constexpr bool is_known = false;
template <class Type>
constexpr bool is_known<Type, std::void_t<decltype(sizeof(Type))>> = true;

template <class Type>
constexpr bool is_opaque = std::is_void_v<Type> || (std::is_class_v<Type> && !is_known<Type>);

// An enum is an int to C; enums of two headers are alike.
template <class Theirs, class Ours>
constexpr bool alike_enums() {
    constexpr bool fit = std::is_enum_v<Ours> || std::is_same_v<Ours, int>;
    return std::is_enum_v<Theirs> && fit && sizeof(Theirs) == sizeof(Ours);
}

template <class Theirs, class Ours>
constexpr bool alike_classes() {
    if constexpr (is_known<Theirs> && is_known<Ours>) {
        return sizeof(Theirs) == sizeof(Ours) && alignof(Theirs) == alignof(Ours);
    }
    return false;
}

template <class... Theirs, class... Ours>
constexpr bool alike_lists(std::tuple<Theirs...> *, std::tuple<Ours...> *) {
    if constexpr (sizeof...(Theirs) == sizeof...(Ours)) return (alike<Theirs, Ours>() && ...);
    return false;
}

template <class Theirs, class Ours>
struct Functions;
template <class TheirResult, class OurResult, class... Theirs, class... Ours>
struct Functions<TheirResult(Theirs...), OurResult(Ours...)> {
    static constexpr bool alike_functions =
        alike<TheirResult, OurResult>() &&
        alike_lists(static_cast<std::tuple<Theirs...> *>(nullptr),
                    static_cast<std::tuple<Ours...> *>(nullptr));
};

// const is no matter of the binary interface; the sign, the size and the depth of pointers are.
template <class ConstTheirs, class ConstOurs>
constexpr bool alike() {
    using Theirs = std::remove_cv_t<ConstTheirs>;
    using Ours = std::remove_cv_t<ConstOurs>;
    if constexpr (std::is_same_v<Theirs, Ours>) {
        return true;
    } else if constexpr (std::is_same_v<Ours, Opaque>) {
        return is_opaque<Theirs>;
    } else if constexpr (std::is_function_v<Theirs> && std::is_function_v<Ours>) {
        return Functions<Theirs, Ours>::alike_functions;
    } else if constexpr (std::is_pointer_v<Theirs> && std::is_pointer_v<Ours>) {
        return alike<std::remove_pointer_t<Theirs>, std::remove_pointer_t<Ours>>();
    } else if constexpr (std::is_class_v<Theirs> && std::is_class_v<Ours>) {
        return alike_classes<Theirs, Ours>();
    } else {
        return alike_enums<Theirs, Ours>();
    }
}
