// SPDX-License-Identifier: Apache-2.0
//! \file
//! Python's lock, for calls that take long and for calls of Python from other threads.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace forebay::python {

[[noreturn]] inline void stay_for_ever() {
  for (;;) pause();
}

/// Releases Python's lock while it lives. A thread that wants the lock back while the interpreter ends blocks here for
/// ever, as Python does from 3.14 on. Earlier versions unwind the thread's stack, through functions that must not be
/// unwound.
class without_lock {
 public:
  without_lock() : state_(PyEval_SaveThread()) {}
  ~without_lock() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      stay_for_ever();
    }
  }
  without_lock(without_lock const&) = delete;
  without_lock& operator=(without_lock const&) = delete;

 private:
  PyThreadState* state_;
};

/// Calls `call`, which calls Python, on a thread that does not hold Python's lock. If the interpreter ends meanwhile
/// the thread stays in here, as above. An unwinding must not reach a guard, which would release a lock that is not
/// held.
template <class Call>
void with_lock(Call&& call) {
  struct guard {
    ~guard() { PyGILState_Release(state); }
    PyGILState_STATE const state;
  };
  try {
    guard const locked{PyGILState_Ensure()};
    try {
      call();
    } catch (abi::__forced_unwind const&) {
      stay_for_ever();
    }
  } catch (abi::__forced_unwind const&) {
    stay_for_ever();
  }
}

}  // namespace forebay::python
