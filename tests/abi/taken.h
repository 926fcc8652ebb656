// For the type of a function: a function for each parameter that takes them all and keeps that one,
// and one that calls it and keeps the result. Their assembly says where parameters and results are.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

// Defined nowhere: what is stored here cannot be left out.
template <class Type>
struct Kept {
    static volatile Type value;
};

template <bool kept, class Type>
[[gnu::always_inline]] inline void keep(Type value) {
    if constexpr (kept) Kept<Type>::value = value;
}

template <class Result, class... Types>
struct Callee {
    static Result (*volatile function)(Types...);
};

template <class Function, class Numbers>
struct Rows;
template <class Result, class... Types, std::size_t... Numbers>
struct Rows<Result(Types...), std::index_sequence<Numbers...>> {
    template <std::size_t Number>
    static void take(Types... parameters) {
        (keep<Number == Numbers>(parameters), ...);
    }
    static void call() {
        if constexpr (std::is_void_v<Result>) {
            Callee<Result, Types...>::function(Types{}...);
        } else {
            Kept<Result>::value = Callee<Result, Types...>::function(Types{}...);
        }
    }
    static void *const rows[];
};
template <class Result, class... Types, std::size_t... Numbers>
void *const Rows<Result(Types...), std::index_sequence<Numbers...>>::rows[] = {
    reinterpret_cast<void *>(&call), reinterpret_cast<void *>(&take<Numbers>)...};

template <class Function>
struct Taken;
template <class Result, class... Types>
struct Taken<Result(Types...)> : Rows<Result(Types...), std::index_sequence_for<Types...>> {};
