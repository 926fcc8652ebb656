#include "nnopbase/snapshot.h"

#include <sys/uio.h>
#include <unistd.h>

#include "acl/call.h"
#include "acl/report.h"

namespace sim {
namespace {

template <class Array, class Text>
std::string json_of_array(const void *handle, ObjectKind kind, Text text) {
    const auto array = find<Array>(handle, kind);
    if (array == nullptr) return "null";
    std::string json = "[";
    for (const auto value : array->values) json += (json.size() > 1 ? ", " : "") + text(value);
    return json + "]";
}

std::string json_of_scalar_list(const std::vector<const void *> &elements) {
    std::string json = "[";
    for (const void *element : elements) {
        json += (json.size() > 1 ? ", " : "") + json_of_scalar(element);
    }
    return json + "]";
}

std::string json_of_value(const Value &value) {
    const Argument &argument = value.argument;
    switch (argument.kind) {
        case Kind::Scalar:
            return json_of_scalar(argument.handle);
        case Kind::ScalarList:
            return argument.handle == nullptr ? "null" : json_of_scalar_list(value.elements);
        case Kind::IntArray:
            return json_of_array<IntArray>(argument.handle, ObjectKind::IntArray,
                                           [](int64_t number) { return std::to_string(number); });
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
        default:
            return argument.handle == nullptr ? "null" : "";  // tensors: when they are launched
    }
}

std::string json_of(const std::vector<int64_t> &numbers) {
    std::string text = "[";
    for (const int64_t number : numbers)
        text += (text.size() > 1 ? ", " : "") + std::to_string(number);
    return text + "]";
}

std::string describe(const Snapshot &tensor) {
    if (tensor.handle == nullptr) return "null";
    const TensorView &view = tensor.view;
    return "{\"dtype\": " + std::to_string(view.dtype) + ", \"shape\": " + json_of(view.shape) +
           ", \"strides\": " + json_of(view.strides) +
           ", \"storage_shape\": " + json_of(view.storage_shape) +
           ", \"offset\": " + std::to_string(view.offset) +
           ", \"format\": " + std::to_string(view.format) + "}";
}

std::string describe_list(const Value &value) {
    std::string json = "[";
    for (const Snapshot &tensor : value.tensors) {
        json += (json.size() > 1 ? ", " : "") + describe(tensor);
    }
    return json + "]";
}

std::string describe(const Value &value) {
    static constexpr const char *KINDS[] = {
        "Tensor",    "TensorList", "Scalar", "ScalarList", "IntArray", "FloatArray",
        "BoolArray", "Integer",    "Real",   "Text",       "Boolean",  "DataType"};
    const Argument &argument = value.argument;
    std::string json = std::string("{\"name\": \"") + argument.name + "\", \"kind\": \"" +
                       KINDS[static_cast<int>(argument.kind)] +
                       "\", \"output\": " + (argument.output ? "true" : "false") + ", \"value\": ";
    const bool null = argument.handle == nullptr;
    if (argument.kind == Kind::Tensor) {
        json += null ? "null" : describe(value.tensors[0]);
    } else if (argument.kind == Kind::TensorList) {
        json += null ? "null" : describe_list(value);
    } else {
        json += value.json;
    }
    return json + "}";
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
        value.json = json_of_value(value);
        values.push_back(std::move(value));
    }
    return values;
}

std::string describe_call(const Executor &executor) {
    std::string arguments;
    for (const Value &value : executor.values) {
        arguments += (arguments.empty() ? "" : ", ") + describe(value);
    }
    return std::string("{\"operator\": \"") + executor.entry.name + "\", \"package\": \"" +
           executor.entry.package + "\", \"arguments\": [" + arguments + "]}";
}

bool check_descriptors(const Executor &executor) {
    bool unchanged = true;
    for (const Value &value : executor.values) {
        unchanged = check_value(value, executor.repeatable) && unchanged;
    }
    return unchanged;
}

}  // namespace sim
