// What phase one of some operators checks beyond the descriptors.
#include "checks.h"

#include <algorithm>
#include <optional>
#include <string>

namespace sim {
namespace {

using Shape = std::vector<int64_t>;

std::vector<TensorView> tensors_of(const Argument *arguments, size_t count) {
    std::vector<TensorView> tensors;
    for (size_t i = 0; i < count; ++i) {
        if (arguments[i].kind == Kind::Tensor) tensors.push_back(view_of(arguments[i].handle));
    }
    return tensors;
}

// Empty where the shapes do not broadcast.
std::optional<Shape> broadcast(const Shape &first, const Shape &second) {
    const Shape &longer = first.size() >= second.size() ? first : second;
    const Shape &shorter = first.size() >= second.size() ? second : first;
    Shape result = longer;
    const size_t gap = longer.size() - shorter.size();
    for (size_t i = 0; i < shorter.size(); ++i) {
        int64_t &extent = result[gap + i];
        if (extent == 1) extent = shorter[i];
        else if (shorter[i] != 1 && shorter[i] != extent) return std::nullopt;
    }
    return result;
}

std::string text_of(const Shape &shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); ++i) {
        text += (i ? "," : "") + std::to_string(shape[i]);
    }
    return text + "]";
}

// Keeps the text of a refusal until the thread's next.
const char *refuse(std::string text) {
    thread_local std::string kept;
    kept = std::move(text);
    return kept.c_str();
}

const char *expect_shape(const Argument &argument, const Shape &found, const Shape &expected) {
    if (found == expected) return nullptr;
    return refuse(std::string(argument.name) + ": expected shape " + text_of(expected) +
                  ", found " + text_of(found) + ".");
}

const char *refuse_pair(const Argument *arguments, const Shape &first, const Shape &second,
                        const char *what) {
    return refuse(std::string(arguments[0].name) + " and " + arguments[1].name + ": shapes " +
                  text_of(first) + " and " + text_of(second) + " " + what + ".");
}

}  // namespace

const char *check_broadcast(const Argument *arguments, size_t count) {
    const auto tensors = tensors_of(arguments, count);
    const auto shape = broadcast(tensors[0].shape, tensors[1].shape);
    if (!shape) {
        return refuse_pair(arguments, tensors[0].shape, tensors[1].shape, "do not broadcast");
    }
    return expect_shape(arguments[count - 1], tensors.back().shape, *shape);
}

const char *check_broadcast_into_first(const Argument *arguments, size_t count) {
    const auto tensors = tensors_of(arguments, count);
    const auto shape = broadcast(tensors[0].shape, tensors[1].shape);
    if (!shape || *shape != tensors[0].shape) {
        return refuse_pair(arguments, tensors[0].shape, tensors[1].shape,
                           "do not broadcast to the first");
    }
    return nullptr;
}

const char *check_mm(const Argument *arguments, size_t count) {
    const auto tensors = tensors_of(arguments, count);
    const Shape &first = tensors[0].shape, &second = tensors[1].shape;
    if (first.size() != 2 || second.size() != 2) {
        return refuse_pair(arguments, first, second, "are not those of matrices");
    }
    if (first[1] != second[0]) {
        return refuse_pair(arguments, first, second, "cannot be multiplied");
    }
    return expect_shape(arguments[2], tensors[2].shape, {first[0], second[1]});
}

const char *check_cumsum(const Argument *arguments, size_t count) {
    const auto tensors = tensors_of(arguments, count);
    const int64_t asked = arguments[2].integer;
    if (tensors[1].dtype != asked) {
        return refuse("out: expected dtype " + std::to_string(asked) + ", found " +
                      std::to_string(tensors[1].dtype) + ".");
    }
    return expect_shape(arguments[count - 1], tensors[1].shape, tensors[0].shape);
}

const char *check_same_shape(const Argument *arguments, size_t count) {
    const auto tensors = tensors_of(arguments, count);
    if (tensors.front().dtype != tensors.back().dtype) {
        return refuse("out: expected dtype " + std::to_string(tensors.front().dtype) +
                      ", found " + std::to_string(tensors.back().dtype) + ".");
    }
    return expect_shape(arguments[count - 1], tensors.back().shape, tensors.front().shape);
}

}  // namespace sim
