#include "nnopbase/snapshot.h"

#include <sys/uio.h>
#include <unistd.h>

#include "acl/call.h"
#include "acl/report.h"

namespace sim {
namespace {

std::string json_of_integer(int64_t number) { return std::to_string(number); }

template <class Array, class Text>
std::string json_of_array(const void *handle, ObjectKind kind, Text text) {
    const auto array = find<Array>(handle, kind);
    return array == nullptr ? "null" : json_list(array->values, text);
}

std::string json_of_tensor(const Snapshot &tensor) {
    if (tensor.handle == nullptr) return "null";
    const TensorView &view = tensor.view;
    return "{\"dtype\": " + std::to_string(view.dtype) +
           ", \"shape\": " + json_list(view.shape, json_of_integer) +
           ", \"strides\": " + json_list(view.strides, json_of_integer) +
           ", \"storage_shape\": " + json_list(view.storage_shape, json_of_integer) +
           ", \"offset\": " + std::to_string(view.offset) +
           ", \"format\": " + std::to_string(view.format) + "}";
}

std::string json_of_value(const Value &value) {
    const Argument &argument = value.argument;
    const bool null = argument.handle == nullptr;
    switch (argument.kind) {
        case Kind::Tensor:
            return json_of_tensor(value.tensors[0]);
        case Kind::TensorList:
            return null ? "null" : json_list(value.tensors, json_of_tensor);
        case Kind::Scalar:
            return json_of_scalar(argument.handle);
        case Kind::ScalarList:
            return null ? "null" : json_list(value.elements, json_of_scalar);
        case Kind::IntArray:
            return json_of_array<IntArray>(argument.handle, ObjectKind::IntArray, json_of_integer);
        case Kind::FloatArray:
            return json_of_array<FloatArray>(argument.handle, ObjectKind::FloatArray,
                                             json_of_number);
        case Kind::BoolArray:
            return json_of_array<BoolArray>(
                argument.handle, ObjectKind::BoolArray,
                [](uint8_t byte) { return std::string(byte != 0 ? "true" : "false"); });
        case Kind::Integer:
        case Kind::DataType:
            return std::to_string(argument.integer);
        case Kind::Boolean:
            return argument.integer != 0 ? "true" : "false";
        case Kind::Real:
            return json_of_number(argument.real);
        case Kind::Text:
            return argument.text == nullptr ? "null" : quoted(value.text);
    }
    return "null";
}

std::string json_of_argument(const Value &value) {
    static constexpr const char *KINDS[] = {
        "Tensor",    "TensorList", "Scalar", "ScalarList", "IntArray", "FloatArray",
        "BoolArray", "Integer",    "Real",   "Text",       "Boolean",  "DataType"};
    const Argument &argument = value.argument;
    return std::string("{\"name\": \"") + argument.name + "\", \"kind\": \"" +
           KINDS[static_cast<int>(argument.kind)] +
           "\", \"output\": " + (argument.output ? "true" : "false") +
           ", \"value\": " + json_of_value(value) + "}";
}

// False where the text is gone or another. The kernel reads it, as its memory may be freed.
bool is_unchanged(const char *text, const std::string &before) {
    std::string after(before.size() + 1, '\0');
    iovec to{after.data(), after.size()};
    iovec from{const_cast<char *>(text), after.size()};
    const ssize_t read = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    if (read < 0 && errno != EFAULT) return true;  // not allowed here
    return read == static_cast<ssize_t>(after.size()) &&
           after.compare(0, after.size(), before.c_str(), after.size()) == 0;
}

bool check_tensors(const Value &value, bool may_move) {
    for (const Snapshot &tensor : value.tensors) {
        if (tensor.handle == nullptr) continue;
        const TensorView now = view_of(tensor.handle);
        if (now.null) {
            violate("%s was destroyed between the phases", value.argument.name);
            return false;
        }
        if (!may_move && now.address != tensor.view.address) {
            violate("%s was given another address between the phases", value.argument.name);
            return false;
        }
    }
    return true;
}

bool check_value(const Value &value, bool may_move) {
    const Argument &argument = value.argument;
    const ObjectKind kind = object_kind(argument.kind);
    if (kind != ObjectKind::None && argument.handle != nullptr &&
        find_object(argument.handle, kind) == nullptr) {
        violate("%s was destroyed between the phases", argument.name);
        return false;
    }
    if (argument.kind == Kind::ScalarList) {
        for (const void *element : value.elements) {
            if (element == nullptr || find_object(element, ObjectKind::Scalar) != nullptr) continue;
            violate("an element of %s was destroyed between the phases", argument.name);
            return false;
        }
    }
    if (argument.kind == Kind::Text && argument.text != nullptr &&
        !is_unchanged(argument.text, value.text)) {
        violate("the text of %s was changed or freed between the phases", argument.name);
        return false;
    }
    return check_tensors(value, may_move);
}

}  // namespace

std::vector<Value> snapshot_of(const Argument *arguments, size_t count) {
    std::vector<Value> values;
    for (size_t i = 0; i < count; ++i) {
        Value value;
        value.argument = arguments[i];
        if (arguments[i].text != nullptr) value.text = arguments[i].text;
        if (arguments[i].kind == Kind::Tensor) {
            value.tensors.push_back({arguments[i].handle, view_of(arguments[i].handle)});
        }
        const auto list = find<List>(arguments[i].handle, object_kind(arguments[i].kind));
        if (arguments[i].kind == Kind::TensorList || arguments[i].kind == Kind::ScalarList) {
            if (list != nullptr) value.elements = list->elements;
        }
        if (arguments[i].kind == Kind::TensorList) {
            for (const void *element : value.elements) {
                value.tensors.push_back({element, view_of(element)});
            }
        }
        values.push_back(std::move(value));
    }
    return values;
}

std::string describe_call(const OperatorEntry &entry, const std::vector<Value> &values) {
    return std::string("{\"operator\": \"") + entry.name + "\", \"package\": \"" + entry.package +
           "\", \"arguments\": " + json_list(values, json_of_argument) + "}";
}

bool check_descriptors(const Executor &executor) {
    bool unchanged = true;
    for (const Value &value : executor.values) {
        unchanged = check_value(value, executor.repeatable) && unchanged;
    }
    return unchanged;
}

}  // namespace sim
