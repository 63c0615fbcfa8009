// SPDX-License-Identifier: Apache-2.0
//! \file
//! A library that a program loads at run time, so that the program can be built, packed and started without it.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "forebay/error.hpp"

namespace forebay::apps {

/// Stays loaded to the end of the process: GPU libraries leave threads behind. Throws `operation_failed`.
class shared_library {
 public:
  /// Looks where the loader does (LD_LIBRARY_PATH, /etc/ld.so.conf), then in the toolkit's usual places, then in
  /// `folders`.
  explicit shared_library(std::string const& name, std::vector<std::string> const& folders = {})
      : name_(name), handle_(::dlopen(name.c_str(), RTLD_NOW)) {
    if (handle_ != nullptr) return;
    std::string const first_cause = ::dlerror();
    std::vector<std::string> places{"/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64"};
    places.insert(places.end(), folders.begin(), folders.end());
    for (std::string const& place : places) {
      handle_ = ::dlopen((place + "/" + name).c_str(), RTLD_NOW);
      if (handle_ != nullptr) return;
    }
    throw operation_failed(first_cause + ": install CUDA 13's libraries, or name their folder in LD_LIBRARY_PATH");
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
