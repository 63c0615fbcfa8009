// SPDX-License-Identifier: Apache-2.0
//! \file
//! An object of C++ that Python's threads use one at a time.
#pragma once

#include <nanobind/nanobind.h>

#include <concepts>
#include <mutex>
#include <optional>
#include <utility>

#include "python_lock.hpp"
#include "shared_storage.hpp"

namespace nb = nanobind;

namespace forebay::python {

/// Owns a `T` and, if it reads drives, keeps their storage for as long.
template <class T>
class [[gnu::visibility("hidden")]] used_in_turn {  // as what nanobind has
 public:
  /// `make(storage)` makes the object.
  template <class Make>
  used_in_turn(nb::object storage, Make&& make)
      : owner_(std::move(storage)), drives_(nb::cast<shared_storage*>(owner_)) {
    drives_->with([&](forebay::storage& s) { object_.emplace(make(s)); });
  }
  /// `make()` makes one that reads no drives.
  template <std::invocable Make>
  explicit used_in_turn(Make&& make) {
    without_lock const unlocked;
    object_.emplace(make());
  }

  /// Calls `use(object)` without Python's lock, while the storage stays open.
  template <class Use>
  auto with(Use&& use) {
    auto const alone = [&] {
      std::lock_guard const lock(mutex_);
      return use(*object_);
    };
    if (drives_ != nullptr) return drives_->with([&](forebay::storage&) { return alone(); });
    without_lock const unlocked;
    return alone();
  }

 private:
  nb::object owner_;
  shared_storage* drives_ = nullptr;
  std::mutex mutex_;
  std::optional<T> object_;
};

}  // namespace forebay::python
