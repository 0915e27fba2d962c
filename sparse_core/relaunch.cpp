// A kernel launch with everything fixed but its stream and some addresses; see relaunch.py.
//
// One call of the driver and nothing else: what ctypes does for a launch takes as long as a small kernel.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace {

// As in the driver's header.
struct Config {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    void *stream;
    void *attributes;
    unsigned attribute_count;
};
constexpr Py_ssize_t kAttributeBytes = 72;
// Tensor maps want this.
constexpr std::size_t kAlignment = 64;

using Entry = int (*)(const Config *, void *, void **, void **);

// Where an address goes: plus a number of bytes, at a byte of the memory of the arguments.
struct Place {
    std::size_t at;
    Py_ssize_t address;
    std::int64_t more;
};

struct State {
    Entry entry = nullptr;
    void *function = nullptr;
    Config config{};
    std::vector<unsigned char> attributes;
    std::vector<unsigned char> memory;
    std::vector<void *> arguments;
    std::vector<Place> places;
    unsigned char *start = nullptr;
    Py_ssize_t addresses = 0;
    // Where all arguments are one piece of memory: its begin and size, and what tells the driver so.
    std::size_t packed_bytes = 0;
    void *packed[5] = {};
};

struct Launcher {
    PyObject_HEAD
    vectorcallfunc call;
    State *state;
};

// The interpreter's lock is held throughout, so that threads can share the memory of the arguments.
PyObject *launch(PyObject *self, PyObject *const *given, std::size_t flagged, PyObject *names) {
    State &state = *reinterpret_cast<Launcher *>(self)->state;
    const Py_ssize_t count = PyVectorcall_NARGS(flagged);
    if (count != state.addresses + 1 || (names != nullptr && PyTuple_GET_SIZE(names) != 0)) {
        PyErr_Format(PyExc_TypeError, "a launch takes a stream and %zd addresses, got %zd arguments",
                     state.addresses, count);
        return nullptr;
    }
    const unsigned long long stream = PyLong_AsUnsignedLongLong(given[0]);
    if (stream == static_cast<unsigned long long>(-1) && PyErr_Occurred()) return nullptr;
    for (const Place &place : state.places) {
        const unsigned long long address = PyLong_AsUnsignedLongLong(given[1 + place.address]);
        if (address == static_cast<unsigned long long>(-1) && PyErr_Occurred()) return nullptr;
        const std::uint64_t value = address + static_cast<std::uint64_t>(place.more);
        std::memcpy(state.start + place.at, &value, sizeof value);
    }
    state.config.stream = reinterpret_cast<void *>(static_cast<std::uintptr_t>(stream));
    void **apart = state.packed_bytes == 0 ? state.arguments.data() : nullptr;
    void **together = state.packed_bytes == 0 ? nullptr : state.packed;
    return PyLong_FromLong(state.entry(&state.config, state.function, apart, together));
}

bool read_sizes(PyObject *given, unsigned (&sizes)[3]) {
    return PyArg_ParseTuple(given, "III", &sizes[0], &sizes[1], &sizes[2]) != 0;
}

bool read_arguments(PyObject *given, State &state) {
    const Py_ssize_t count = PyTuple_GET_SIZE(given);
    std::vector<std::size_t> starts;
    std::size_t total = 0;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *one = PyTuple_GET_ITEM(given, i);
        if (!PyBytes_Check(one)) {
            PyErr_SetString(PyExc_TypeError, "arguments of a kernel are bytes");
            return false;
        }
        starts.push_back(total);
        total += (static_cast<std::size_t>(PyBytes_GET_SIZE(one)) + kAlignment - 1) / kAlignment * kAlignment;
    }
    state.memory.resize(total + kAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(state.memory.data());
    state.start = state.memory.data() + (kAlignment - address % kAlignment) % kAlignment;
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject *one = PyTuple_GET_ITEM(given, i);
        unsigned char *to = state.start + starts[static_cast<std::size_t>(i)];
        std::memcpy(to, PyBytes_AS_STRING(one), static_cast<std::size_t>(PyBytes_GET_SIZE(one)));
        state.arguments.push_back(to);
    }
    return true;
}

bool read_places(PyObject *given, PyObject *arguments, State &state) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given); ++i) {
        Py_ssize_t argument = 0, offset = 0, address = 0;
        long long more = 0;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(given, i), "nnnL", &argument, &offset, &address, &more)) return false;
        const bool fits = argument >= 0 && argument < PyTuple_GET_SIZE(arguments) && offset >= 0 && address >= 0 &&
                          offset + 8 <= PyBytes_GET_SIZE(PyTuple_GET_ITEM(arguments, argument));
        if (!fits) {
            PyErr_SetString(PyExc_ValueError, "a place lies outside the arguments");
            return false;
        }
        auto *base = static_cast<unsigned char *>(state.arguments[static_cast<std::size_t>(argument)]);
        state.places.push_back({static_cast<std::size_t>(base - state.start + offset), address, more});
        if (address >= state.addresses) state.addresses = address + 1;
    }
    return true;
}

PyObject *create(PyTypeObject *type, PyObject *given, PyObject *) {
    unsigned long long entry = 0, function = 0;
    PyObject *grid = nullptr, *block = nullptr, *attributes = nullptr, *arguments = nullptr, *places = nullptr;
    unsigned shared_bytes = 0;
    int packed = 0;
    if (!PyArg_ParseTuple(given, "KKO!O!ISO!pO!", &entry, &function, &PyTuple_Type, &grid, &PyTuple_Type, &block,
                          &shared_bytes, &attributes, &PyTuple_Type, &arguments, &packed, &PyTuple_Type, &places)) {
        return nullptr;
    }
    if (packed && PyTuple_GET_SIZE(arguments) != 1) {
        PyErr_SetString(PyExc_ValueError, "packed arguments are one piece");
        return nullptr;
    }
    if (entry == 0 || PyBytes_GET_SIZE(attributes) % kAttributeBytes != 0) {
        PyErr_SetString(PyExc_ValueError, "no driver, or attributes that are none");
        return nullptr;
    }
    auto *self = reinterpret_cast<Launcher *>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->call = launch;
    self->state = new (std::nothrow) State();
    if (self->state == nullptr) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    State &state = *self->state;
    try {
        state.entry = reinterpret_cast<Entry>(static_cast<std::uintptr_t>(entry));
        state.function = reinterpret_cast<void *>(static_cast<std::uintptr_t>(function));
        state.config.shared_bytes = shared_bytes;
        const char *bytes = PyBytes_AS_STRING(attributes);
        state.attributes.assign(bytes, bytes + PyBytes_GET_SIZE(attributes));
        state.config.attributes = state.attributes.empty() ? nullptr : state.attributes.data();
        state.config.attribute_count = static_cast<unsigned>(PyBytes_GET_SIZE(attributes) / kAttributeBytes);
        if (read_sizes(grid, state.config.grid) && read_sizes(block, state.config.block) &&
            read_arguments(arguments, state) && read_places(places, arguments, state)) {
            if (packed) {
                state.packed_bytes = static_cast<std::size_t>(PyBytes_GET_SIZE(PyTuple_GET_ITEM(arguments, 0)));
                // CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE and _END.
                state.packed[0] = reinterpret_cast<void *>(static_cast<std::uintptr_t>(1));
                state.packed[1] = state.start;
                state.packed[2] = reinterpret_cast<void *>(static_cast<std::uintptr_t>(2));
                state.packed[3] = &state.packed_bytes;
            }
            return reinterpret_cast<PyObject *>(self);
        }
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
    }
    Py_DECREF(self);
    return nullptr;
}

void destroy(PyObject *self) {
    delete reinterpret_cast<Launcher *>(self)->state;
    Py_TYPE(self)->tp_free(self);
}

PyTypeObject launcher_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "relaunch", "Kernel launches, repeated.", -1, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_relaunch() {
    launcher_type.tp_name = "relaunch.Launcher";
    launcher_type.tp_basicsize = sizeof(Launcher);
    launcher_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
    launcher_type.tp_vectorcall_offset = offsetof(Launcher, call);
    launcher_type.tp_call = PyVectorcall_Call;
    launcher_type.tp_new = create;
    launcher_type.tp_dealloc = destroy;
    launcher_type.tp_doc = "A launch: called with a stream and addresses it gives the driver's status.";
    if (PyType_Ready(&launcher_type) < 0) return nullptr;
    PyObject *made = PyModule_Create(&module);
    if (made == nullptr) return nullptr;
    if (PyModule_AddObjectRef(made, "Launcher", reinterpret_cast<PyObject *>(&launcher_type)) < 0) {
        Py_DECREF(made);
        return nullptr;
    }
    return made;
}
