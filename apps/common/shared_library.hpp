// SPDX-License-Identifier: Apache-2.0
//! \file
//! A library that a program loads at run time, so that the program can be built, packed and started without it.
#pragma once

#include <dlfcn.h>

#include <string>

#include "forebay/error.hpp"

namespace forebay::apps {

/// Stays loaded to the end of the process: GPU libraries leave threads behind. Throws `operation_failed`.
class shared_library {
 public:
  /// Looks where the loader does (LD_LIBRARY_PATH, /etc/ld.so.conf), then in the toolkit's usual place.
  explicit shared_library(std::string const& name) : name_(name), handle_(::dlopen(name.c_str(), RTLD_NOW)) {
    std::string const first_cause = handle_ == nullptr ? ::dlerror() : "";
    if (handle_ == nullptr) handle_ = ::dlopen(("/usr/local/cuda/lib64/" + name).c_str(), RTLD_NOW);
    if (handle_ == nullptr) {
      throw operation_failed(first_cause + ": install CUDA 13's libraries, or name their folder in LD_LIBRARY_PATH");
    }
  }

  /// `Function` is the function's type, as the library's header declares it.
  template <class Function>
  Function* get(char const* function) const {
    void* const address = ::dlsym(handle_, function);
    if (address == nullptr) throw operation_failed(name_ + " has no function " + function);
    return reinterpret_cast<Function*>(address);
  }

 private:
  std::string name_;
  void* handle_;
};

}  // namespace forebay::apps
