// SPDX-License-Identifier: Apache-2.0
//! \file
//! The storage that both extension modules know.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "forebay/error.hpp"
#include "forebay/storage.hpp"
#include "python_lock.hpp"

namespace forebay::python {

using field_names = std::initializer_list<std::pair<std::string_view, char const*>>;

/// Names the field as Python's argument is named, if C++ has another name for it.
[[noreturn]] inline void rethrow_renamed(refused_input const& refused, field_names const& names) {
  for (auto const& [cpp, python] : names) {
    if (refused.field() == cpp) throw refused_input(python, refused.value(), refused.remedy());
  }
  throw refused;
}

/// A storage that Python may close while other threads use it: it is destroyed only after they have finished.
class shared_storage {
 public:
  shared_storage(std::vector<std::string> uris, std::string device, bool read_only, bool allow_destroy,
                 std::uint32_t queues, std::uint32_t queue_depth, std::uint64_t cache_bytes, std::uint32_t page_bytes,
                 std::stop_source const& cancel) {
    without_lock const unlocked;
    try {
      storage_options options{.drives = std::move(uris),
                              .device = std::move(device),
                              .queues = {.per_drive = queues, .depth = queue_depth},
                              .read_only = read_only,
                              .allow_destroy = allow_destroy,
                              .cancel = cancel.get_token()};
      options.cache.size_bytes = cache_bytes;
      if (page_bytes != 0) options.cache.page_bytes = page_bytes;
      storage_ = std::make_unique<storage>(options);
    } catch (refused_input const& refused) {
      rethrow_renamed(refused, {{"queues.depth", "queue_depth"},
                                {"queues.per_drive", "queues_per_drive"},
                                {"drives", "uris"},
                                {"cache.size_bytes", "cache_bytes"},
                                {"cache.page_bytes", "page_bytes"}});
    }
  }
  shared_storage(shared_storage const&) = delete;
  shared_storage& operator=(shared_storage const&) = delete;
  ~shared_storage() {
    if (is_forked()) {
      static_cast<void>(storage_.release());  // its threads are not there to be joined
    } else if (storage_) {
      without_lock const unlocked;  // a daemon may take long to answer
      storage_.reset();
    }
  }

  /// Calls `use(storage&)` without Python's lock and returns its result. Throws `operation_failed` once closed, and in
  /// a process that was forked from the one that opened it: neither the drives' threads nor the thread that may hold
  /// the mutex exist in the fork.
  template <class Use>
  auto with(Use&& use) {
    if (is_forked()) {
      throw operation_failed("the storage was opened by process " + std::to_string(opened_by_) +
                             ", of which this one is a fork: open it here, in a DataLoader in worker_init_fn, or start "
                             "processes by 'spawn'");
    }
    without_lock const unlocked;
    std::shared_lock const in_use(mutex_);
    if (!storage_) throw operation_failed("the storage is closed: open it again");
    return use(*storage_);
  }
  void close() {
    if (is_forked()) return;
    without_lock const unlocked;
    std::unique_lock const alone(mutex_);
    storage_.reset();
  }

 private:
  bool is_forked() const { return getpid() != opened_by_; }

  pid_t const opened_by_ = getpid();
  std::shared_mutex mutex_;
  std::unique_ptr<storage> storage_;
};

}  // namespace forebay::python
