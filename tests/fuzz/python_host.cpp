// SPDX-License-Identifier: Apache-2.0
//! \file
//! Runs a target of readers.py under libFuzzer, from the root of the sources. The lines of the package that it reaches
//! are what libFuzzer looks for.
#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

namespace {

/// libFuzzer looks for new values in this section.
__attribute__((section("__libfuzzer_extra_counters"))) std::uint8_t reached[1 << 14];

/// Counts steps from line to line. Other packages than this one are not looked at.
int count_line(PyObject*, PyFrameObject* frame, int what, PyObject*) {
  static std::uint32_t before = 0;
  if (what != PyTrace_LINE) return 0;
  PyCodeObject* const code = PyFrame_GetCode(frame);
  char const* const file = PyUnicode_AsUTF8(code->co_filename);
  if (file != nullptr && std::strstr(file, "/forebay/") != nullptr) {
    auto const line = static_cast<std::uint32_t>(PyFrame_GetLineNumber(frame)) * 31 +
                      static_cast<std::uint32_t>(std::strlen(file)) * 1009;
    ++reached[(line ^ before) % sizeof reached];
    before = line * 2;
  }
  Py_DECREF(code);
  return 0;
}

[[noreturn]] void fail() {
  PyErr_Print();
  std::fflush(stderr);
  std::abort();
}

PyObject* start() {
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.install_signal_handlers = 0;
  // Its environment has NumPy.
  std::string const python = std::filesystem::current_path() / ".venv/bin/python";
  PyConfig_SetBytesString(&config, &config.executable, python.c_str());
  if (PyStatus_Exception(Py_InitializeFromConfig(&config))) std::abort();
  PyConfig_Clear(&config);
  // The readers need no extension module, and the packages' own __init__ would load it.
  constexpr char prepare[] = R"(
import sys, types
for name in ("forebay", "forebay.graph"):
    package = types.ModuleType(name)
    package.__path__ = ["python/" + name.replace(".", "/")]
    sys.modules[name] = package
sys.path.insert(0, "tests/fuzz")
)";
  if (PyRun_SimpleString(prepare) != 0) fail();
  PyObject* const readers = PyImport_ImportModule("readers");
  PyObject* const target = readers == nullptr ? nullptr : PyObject_GetAttrString(readers, FOREBAY_PYTHON_TARGET);
  if (target == nullptr) fail();
  PyEval_SetTrace(count_line, nullptr);
  return target;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static PyObject* const target = start();
  PyObject* const input = PyBytes_FromStringAndSize(reinterpret_cast<char const*>(data), static_cast<Py_ssize_t>(size));
  PyObject* const result = PyObject_CallOneArg(target, input);
  if (result == nullptr) fail();
  Py_DECREF(input);
  Py_DECREF(result);
  return 0;
}
