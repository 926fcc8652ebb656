// The Python of the process under test, which computes the kernels.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "acl/report.h"
#include "end.h"
#include "simulation.h"

#ifndef SIM_KERNELS_PATH
#define SIM_KERNELS_PATH "."
#endif

namespace sim {
namespace {

// A package of its own name, so that nothing of the process under test gets in the way.
constexpr const char *LOADER = R"(
import importlib.util, sys, traceback, types

def run(description):
    try:
        kernels.run(description)
    except BaseException:
        text = traceback.format_exc()
        sys.stderr.write(text)
        return text
    return ""

def load(folder):
    if "npucall_simulator" not in sys.modules:
        package = types.ModuleType("npucall_simulator")
        package.__path__ = [folder]
        sys.modules["npucall_simulator"] = package
    if importlib.util.find_spec("npucall_exec") is None:  # in the image of a server
        sys.path.append(folder + "/../../exec")
    return importlib.import_module("npucall_simulator.kernels")
)";

// The functions of Python's C interface, found in the process. Objects are void pointers.
struct Python {
    int (*is_initialized)();
    int (*ensure)();
    void (*release)(int);
    void *(*new_dict)();
    void *(*builtins)();
    int (*set_item)(void *, const char *, void *);
    void *(*get_item)(void *, const char *);
    void *(*run_text)(const char *, int, void *, void *);
    void *(*decode)(const char *, ssize_t, const char *);
    const char *(*text_of)(void *);
    void *(*call_objects)(void *, ...);
    void (*decrement)(void *);
    void (*print_error)();
    bool found = true;

    template <class Function>
    void look_up(Function &function, const char *name) {
        function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
        found = found && function != nullptr;
    }

    Python() {
        look_up(is_initialized, "Py_IsInitialized");
        look_up(ensure, "PyGILState_Ensure");
        look_up(release, "PyGILState_Release");
        look_up(new_dict, "PyDict_New");
        look_up(builtins, "PyEval_GetBuiltins");
        look_up(set_item, "PyDict_SetItemString");
        look_up(get_item, "PyDict_GetItemString");
        look_up(run_text, "PyRun_String");
        look_up(decode, "PyUnicode_DecodeUTF8");
        look_up(text_of, "PyUnicode_AsUTF8");
        look_up(call_objects, "PyObject_CallFunctionObjArgs");
        look_up(decrement, "Py_DecRef");
        look_up(print_error, "PyErr_Print");
    }
};

Python &python() {
    static auto *one = new Python;
    return *one;
}

// Takes the reference to a result; "" and an error on stderr if there is none.
void *checked(void *result) {
    if (result == nullptr) python().print_error();
    return result;
}

// The dictionary of the loader, with kernels.py in it; null where it cannot be imported.
void *loader() {
    constexpr int STATEMENTS = 257;  // Py_file_input
    Python &py = python();
    static void *names = nullptr;
    if (names != nullptr) return names;
    const char *folder = std::getenv("NPUCALL_SIM_KERNELS_PATH");
    const std::string load = std::string("kernels = load(") +
                             quoted(folder == nullptr ? SIM_KERNELS_PATH : folder) + ")";
    void *made = py.new_dict();
    py.set_item(made, "__builtins__", py.builtins());
    if (checked(py.run_text(LOADER, STATEMENTS, made, made)) == nullptr) return nullptr;
    if (checked(py.run_text(load.c_str(), STATEMENTS, made, made)) == nullptr) return nullptr;
    names = made;
    return names;
}

std::string run_with_lock(const std::string &description) {
    Python &py = python();
    void *names = loader();
    if (names == nullptr) return "kernels.py cannot be imported";
    void *text = py.decode(description.data(), static_cast<ssize_t>(description.size()), "replace");
    void *result = checked(py.call_objects(py.get_item(names, "run"), text, nullptr));
    py.decrement(text);
    if (result == nullptr) return "kernels.py failed";
    const char *traceback = py.text_of(result);
    const std::string failure = traceback == nullptr ? "kernels.py failed" : traceback;
    py.decrement(result);
    return failure;
}

std::string run_python(const std::string &description) {
    Python &py = python();
    if (!py.found || py.is_initialized() == 0) return "no Python is in this process";
    const int state = py.ensure();
    std::string failure = run_with_lock(description);
    py.release(state);
    return failure;
}

}  // namespace

Outcome compute(const Kernel &kernel) {
    if (!simulation().python) return {};
    const std::string addresses = json_list(kernel.tensors, [](const uint8_t *tensor) {
        return std::to_string(reinterpret_cast<uintptr_t>(tensor));
    });
    const std::string failure = run_python(
        "{\"call\": " + kernel.call + ", \"soc\": " + quoted(settings().soc) +
        ", \"saturates\": " + (kernel.saturates ? "true" : "false") + ", \"addresses\": " +
        addresses + "}");
    return failure.empty() ? Outcome{} : Outcome{507015, failure};
}

}  // namespace sim
