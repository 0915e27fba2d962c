// Repeated kernel launches in which only the stream and some addresses change; see launch_plan.py.
//
// This file calls the driver and cuSPARSELt's product directly, because a call through ctypes takes as long as a small
// kernel. It uses Python's stable interface only, so that one library serves every Python from 3.10 on.

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

namespace {

// CUlaunchConfig of the driver's header.
struct Config {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    void *stream;
    void *attributes;
    unsigned attribute_count;
};
constexpr Py_ssize_t kAttributeBytes = 72;
// Required alignment of tensor maps, in bytes.
constexpr std::size_t kAlignment = 64;

using Entry = int (*)(const Config *, void *, void **, void **);
// cuTensorMapReplaceAddress.
using Move = int (*)(void *, void *);
// cusparseLtMatmul.
using Matmul = int (*)(const void *, const void *, const void *, const void *, const void *, const void *,
                       const void *, void *, void *, void **, std::int32_t);
constexpr std::size_t kMatmulPointers = 9;
// cusparseLtMatmulDescSetAttribute.
using SetAttribute = int (*)(const void *, void *, int, const void *, std::size_t);

// Where to write an address: number of the address, bytes to add to it, and byte of the arguments' memory.
struct Place {
    std::size_t at;
    Py_ssize_t address;
    std::int64_t shift;
    bool in_map;
};

struct Step {
    // Kernel to launch; null for a product of cuSPARSELt.
    void *function = nullptr;
    Config config{};
    std::vector<unsigned char> attributes;
    std::vector<unsigned char> memory;
    std::vector<void *> arguments;
    std::vector<Place> places;
    // Memory of the kernel's arguments, or the pointers for cuSPARSELt.
    unsigned char *start = nullptr;
    Matmul matmul = nullptr;
    void *pointers[kMatmulPointers] = {};
    // Where cuSPARSELt's descriptor reads the bias address; other steps may change it. Null without a bias.
    std::uint64_t *current_bias = nullptr;
    std::uint64_t bias = 0;
    SetAttribute set_attribute = nullptr;
    void *descriptor = nullptr;
    int attribute = 0;
};

struct State {
    Entry entry = nullptr;
    Move move = nullptr;
    // Pointers, because a step holds addresses of its own memory and must not move.
    std::vector<std::unique_ptr<Step>> steps;
    std::vector<std::uint64_t> given;
    Py_ssize_t addresses = 0;
};

// Return the status of the driver, or the negative status of cuSPARSELt.
int run_step(const State &state, Step &step, void *stream) {
    for (const Place &place : step.places) {
        const std::uint64_t value =
            state.given[static_cast<std::size_t>(place.address)] + static_cast<std::uint64_t>(place.shift);
        if (place.in_map) {
            const int status =
                state.move(step.start + place.at, reinterpret_cast<void *>(static_cast<std::uintptr_t>(value)));
            if (status != 0) return status;
        } else {
            std::memcpy(step.start + place.at, &value, sizeof value);
        }
    }
    step.config.stream = stream;
    if (step.matmul != nullptr) {
        void **given = step.pointers;
        if (step.current_bias != nullptr && *step.current_bias != step.bias) {
            *step.current_bias = step.bias;
            const int status = step.set_attribute(given[0], step.descriptor, step.attribute, step.current_bias,
                                                  sizeof step.bias);
            if (status != 0) return -status;
        }
        return -step.matmul(given[0], given[1], given[2], given[3], given[4], given[5], given[6], given[7], given[8],
                            &step.config.stream, 1);
    }
    return state.entry(&step.config, step.function, step.arguments.data(), nullptr);
}

// Hold the interpreter's lock throughout: threads share the memory of the arguments, and launches of other threads
// must not come between the steps.
PyObject *launch(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    auto *held = static_cast<State *>(PyCapsule_GetPointer(self, nullptr));
    if (held == nullptr) return nullptr;
    State &state = *held;
    if (count != state.addresses + 1) {
        PyErr_Format(PyExc_TypeError, "a launch takes a stream and %zd addresses, got %zd arguments",
                     state.addresses, count);
        return nullptr;
    }
    const unsigned long long stream = PyLong_AsUnsignedLongLong(given[0]);
    if (stream == static_cast<unsigned long long>(-1) && PyErr_Occurred()) return nullptr;
    for (Py_ssize_t i = 0; i < state.addresses; ++i) {
        const unsigned long long address = PyLong_AsUnsignedLongLong(given[1 + i]);
        if (address == static_cast<unsigned long long>(-1) && PyErr_Occurred()) return nullptr;
        state.given[static_cast<std::size_t>(i)] = address;
    }
    int status = 0;
    for (const auto &step : state.steps) {
        status = run_step(state, *step, reinterpret_cast<void *>(static_cast<std::uintptr_t>(stream)));
        if (status != 0) break;
    }
    return PyLong_FromLong(status);
}

bool read_sizes(PyObject *given, unsigned (&sizes)[3]) {
    return PyArg_ParseTuple(given, "III", &sizes[0], &sizes[1], &sizes[2]) != 0;
}

bool read_arguments(PyObject *given, Step &step) {
    const Py_ssize_t count = PyTuple_Size(given);
    std::vector<std::size_t> starts;
    std::size_t total = 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *one = PyTuple_GetItem(given, i);
        if (!PyBytes_Check(one)) {
            PyErr_SetString(PyExc_TypeError, "arguments of a kernel are bytes");
            return false;
        }
        starts.push_back(total);
        total += (static_cast<std::size_t>(PyBytes_Size(one)) + kAlignment - 1) / kAlignment * kAlignment;
    }
    step.memory.resize(total + kAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(step.memory.data());
    step.start = step.memory.data() + (kAlignment - address % kAlignment) % kAlignment;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *one = PyTuple_GetItem(given, i);
        unsigned char *to = step.start + starts[static_cast<std::size_t>(i)];
        std::memcpy(to, PyBytes_AsString(one), static_cast<std::size_t>(PyBytes_Size(one)));
        step.arguments.push_back(to);
    }
    return true;
}

bool read_places(PyObject *given, PyObject *arguments, State &state, Step &step) {
    for (Py_ssize_t i = 0; i < PyTuple_Size(given); ++i) {
        Py_ssize_t argument = 0, offset = 0, address = 0;
        long long shift = 0;
        int in_map = 0;
        if (!PyArg_ParseTuple(PyTuple_GetItem(given, i), "nnnLp", &argument, &offset, &address, &shift, &in_map)) {
            return false;
        }
        if (in_map && state.move == nullptr) {
            PyErr_SetString(PyExc_ValueError, "no function that moves tensor maps");
            return false;
        }
        const bool fits = argument >= 0 && argument < PyTuple_Size(arguments) && offset >= 0 && address >= 0 &&
                          offset + 8 <= PyBytes_Size(PyTuple_GetItem(arguments, argument));
        if (!fits) {
            PyErr_SetString(PyExc_ValueError, "a place lies outside the arguments");
            return false;
        }
        auto *base = static_cast<unsigned char *>(step.arguments[static_cast<std::size_t>(argument)]);
        step.places.push_back({static_cast<std::size_t>(base - step.start + offset), address, shift, in_map != 0});
        if (address >= state.addresses) state.addresses = address + 1;
    }
    return true;
}

bool read_matmul(PyObject *given, State &state, Step &step) {
    unsigned long long function = 0;
    PyObject *pointers = nullptr, *places = nullptr, *bias = nullptr;
    if (!PyArg_ParseTuple(given, "KO!O!O!", &function, &PyTuple_Type, &pointers, &PyTuple_Type, &places, &PyTuple_Type,
                          &bias)) {
        return false;
    }
    if (PyTuple_Size(bias) != 0) {
        unsigned long long set_attribute = 0, descriptor = 0, current = 0, address = 0;
        if (!PyArg_ParseTuple(bias, "KKiKK", &set_attribute, &descriptor, &step.attribute, &current, &address)) {
            return false;
        }
        step.set_attribute = reinterpret_cast<SetAttribute>(static_cast<std::uintptr_t>(set_attribute));
        step.descriptor = reinterpret_cast<void *>(static_cast<std::uintptr_t>(descriptor));
        step.current_bias = reinterpret_cast<std::uint64_t *>(static_cast<std::uintptr_t>(current));
        step.bias = address;
    }
    if (function == 0 || PyTuple_Size(pointers) != static_cast<Py_ssize_t>(kMatmulPointers)) {
        PyErr_Format(PyExc_ValueError, "a product of the library takes a function and %zu pointers", kMatmulPointers);
        return false;
    }
    step.matmul = reinterpret_cast<Matmul>(static_cast<std::uintptr_t>(function));
    step.start = reinterpret_cast<unsigned char *>(step.pointers);
    for (Py_ssize_t i = 0; i < PyTuple_Size(pointers); ++i) {
        const unsigned long long pointer = PyLong_AsUnsignedLongLong(PyTuple_GetItem(pointers, i));
        if (pointer == static_cast<unsigned long long>(-1) && PyErr_Occurred()) return false;
        step.pointers[i] = reinterpret_cast<void *>(static_cast<std::uintptr_t>(pointer));
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(places); ++i) {
        Py_ssize_t pointer = 0, address = 0;
        if (!PyArg_ParseTuple(PyTuple_GetItem(places, i), "nn", &pointer, &address)) return false;
        if (pointer < 0 || pointer >= PyTuple_Size(pointers) || address < 0) {
            PyErr_SetString(PyExc_ValueError, "a place lies outside the pointers");
            return false;
        }
        step.places.push_back({static_cast<std::size_t>(pointer) * sizeof(void *), address, 0, false});
        if (address >= state.addresses) state.addresses = address + 1;
    }
    return true;
}

bool read_kernel(PyObject *given, State &state, Step &step) {
    unsigned long long function = 0;
    PyObject *grid = nullptr, *block = nullptr, *attributes = nullptr, *arguments = nullptr, *places = nullptr;
    unsigned shared_bytes = 0;
    if (!PyArg_ParseTuple(given, "KO!O!ISO!O!", &function, &PyTuple_Type, &grid, &PyTuple_Type, &block, &shared_bytes,
                          &attributes, &PyTuple_Type, &arguments, &PyTuple_Type, &places)) {
        return false;
    }
    if (state.entry == nullptr || PyBytes_Size(attributes) % kAttributeBytes != 0) {
        PyErr_SetString(PyExc_ValueError, "no driver, or attributes that are none");
        return false;
    }
    step.function = reinterpret_cast<void *>(static_cast<std::uintptr_t>(function));
    step.config.shared_bytes = shared_bytes;
    const char *bytes = PyBytes_AsString(attributes);
    step.attributes.assign(bytes, bytes + PyBytes_Size(attributes));
    step.config.attributes = step.attributes.empty() ? nullptr : step.attributes.data();
    step.config.attribute_count = static_cast<unsigned>(PyBytes_Size(attributes) / kAttributeBytes);
    return read_sizes(grid, step.config.grid) && read_sizes(block, step.config.block) &&
           read_arguments(arguments, step) && read_places(places, arguments, state, step);
}

// Read a step: a tuple of seven for a kernel, of four for a product of cuSPARSELt.
bool read_step(PyObject *given, State &state) {
    if (!PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "a step is a tuple");
        return false;
    }
    state.steps.push_back(std::make_unique<Step>());
    Step &step = *state.steps.back();
    return PyTuple_Size(given) == 4 ? read_matmul(given, state, step) : read_kernel(given, state, step);
}

void destroy(PyObject *capsule) { delete static_cast<State *>(PyCapsule_GetPointer(capsule, nullptr)); }

PyMethodDef launch_definition = {
    "launch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(launch)), METH_FASTCALL,
    "Launch with a stream and addresses, and return the driver's status."};

// Return a function bound to the steps. Calls of such functions build no tuple of arguments.
PyObject *make_launcher(PyObject *, PyObject *given) {
    unsigned long long entry = 0, move = 0;
    PyObject *steps = nullptr;
    if (!PyArg_ParseTuple(given, "KKO!", &entry, &move, &PyTuple_Type, &steps)) return nullptr;
    auto *made = new (std::nothrow) State();
    PyObject *capsule = made == nullptr ? PyErr_NoMemory() : PyCapsule_New(made, nullptr, destroy);
    if (capsule == nullptr) {
        delete made;
        return nullptr;
    }
    State &state = *made;
    PyObject *function = nullptr;
    try {
        state.entry = reinterpret_cast<Entry>(static_cast<std::uintptr_t>(entry));
        state.move = reinterpret_cast<Move>(static_cast<std::uintptr_t>(move));
        bool read = true;
        for (Py_ssize_t i = 0; read && i < PyTuple_Size(steps); ++i) {
            read = read_step(PyTuple_GetItem(steps, i), state);
        }
        state.given.resize(static_cast<std::size_t>(state.addresses));
        if (read) function = PyCFunction_NewEx(&launch_definition, capsule, nullptr);
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
    }
    Py_DecRef(capsule);  // The function holds it.
    return function;
}

PyMethodDef functions[] = {{"make_launcher", make_launcher, METH_VARARGS, "Return a function that runs the steps."},
                           {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "launch_plan", "Kernel launches with addresses that change.", -1,
                      functions};

}  // namespace

PyMODINIT_FUNC PyInit_launch_plan() { return PyModule_Create(&module); }
