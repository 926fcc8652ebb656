// Stands between Python and CANN: passes calls on, and adds up the time until they return.
//
// The arguments of every function that it is used for are integers and pointers, twelve at most. In
// the calling conventions of x86-64 and AArch64 such a call can be passed on without knowing how
// many there are: whoever takes fewer does not look at the rest.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

// Of all functions and threads.
extern "C" std::atomic<int64_t> clock_total;
std::atomic<int64_t> clock_total{0};

namespace {

constexpr int SLOTS = 128;
using Word = std::intptr_t;
using Function = Word (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

struct Slot {
    Function function = nullptr;
    std::atomic<int64_t> calls{0}, nanoseconds{0};
};

Slot slots[SLOTS];
int64_t now() {
    const auto time = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

template <int Index>
Word pass_on(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j, Word k,
             Word l) {
    Slot &slot = slots[Index];
    const int64_t start = now();
    const Word result = slot.function(a, b, c, d, e, f, g, h, i, j, k, l);
    const int64_t spent = now() - start;
    slot.calls += 1;
    slot.nanoseconds += spent;
    clock_total += spent;
    return result;
}

template <int... Indices>
Function function_of(int index, std::integer_sequence<int, Indices...>) {
    static constexpr Function all[] = {pass_on<Indices>...};
    return all[index];
}

}  // namespace

extern "C" {

// What to call instead of `function`, so that its time is added up under `index`.
void *clock_of(int index, void *function) {
    slots[index].function = reinterpret_cast<Function>(function);
    return reinterpret_cast<void *>(function_of(index, std::make_integer_sequence<int, SLOTS>{}));
}

int64_t clock_calls(int index) { return slots[index].calls; }
int64_t clock_nanoseconds(int index) { return slots[index].nanoseconds; }

// A C function that costs nothing.
int clock_nothing() { return 0; }
}
