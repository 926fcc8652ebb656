// For the type of a function: one that records its parameters and answers a value of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

constexpr std::size_t most = 64;

struct Record {
    std::uint64_t count;
    std::uint64_t sizes[most];
    std::uint64_t values[most];  // the bytes of a parameter, and zeros
};
extern "C" Record npucall_record;

template <class Type>
void record(Type value) {
    std::uint64_t place = npucall_record.count++;
    npucall_record.sizes[place] = sizeof(Type);
    npucall_record.values[place] = 0;
    std::memcpy(&npucall_record.values[place], &value, sizeof(Type));
}

template <class Type>
Type answer() {
    if constexpr (std::is_pointer_v<Type>) {
        return reinterpret_cast<Type>(0x5A5A5A5A00000001);
    } else if constexpr (std::is_floating_point_v<Type>) {
        return Type(-2.5);
    } else {
        return Type(-7);
    }
}

template <class Function>
struct Recorder;
template <class Result, class... Types>
struct Recorder<Result(Types...)> {
    static Result function(Types... parameters) {
        npucall_record.count = 0;
        (record<Types>(parameters), ...);
        if constexpr (!std::is_void_v<Result>) return answer<Result>();
    }
};
