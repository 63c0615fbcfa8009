// SPDX-License-Identifier: Apache-2.0
//! \file
//! The storage that both extension modules know.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "forebay/clock.hpp"
#include "forebay/error.hpp"
#include "forebay/replacement_policy.hpp"
#include "forebay/s3_fifo.hpp"
#include "forebay/storage.hpp"
#include "python_lock.hpp"

namespace forebay::python {

using field_names = std::span<std::pair<std::string_view, char const*> const>;

/// Names the field as Python's argument is named, if C++ has another name for it.
[[noreturn]] inline void rethrow_renamed(refused_input const& refused, field_names const& names) {
  for (auto const& [cpp, python] : names) {
    if (refused.field() == cpp) throw refused_input(python, refused.value(), refused.remedy());
  }
  throw refused;
}

/// The options that Python gives by keyword; 0, or an empty string, where it gives none.
struct keyword_options {
  std::uint32_t queues_per_drive = 0;
  std::uint32_t queue_depth = 0;
  std::uint32_t requests = 0;
  std::uint32_t prp_list_pages = 0;
  std::uint64_t stripe_bytes = 0;
  std::uint64_t timeout_ns = 0;
  std::uint64_t flush_timeout_ns = 0;
  std::uint64_t cache_bytes = 0;
  std::uint32_t page_bytes = 0;
  std::uint32_t overflow_frames = 0;
  std::string cache_policy;
  std::uint64_t cache_host_bytes = 0;
  std::uint32_t cache_staging_pages = 0;
  bool cache_statistics = false;
};

inline replacement_policy policy_named(std::string const& name) {
  if (name == "clock") return replacement_policy::of<replacement::clock>();
  if (name == "s3_fifo") return replacement_policy::of<replacement::s3_fifo>();
  throw refused_input("cache_policy", name, "give 'clock' or 's3_fifo'");
}

/// The names of the options in C++ and in Python.
inline constexpr std::pair<std::string_view, char const*> option_names[] = {
    {"queues.per_drive", "queues_per_drive"},
    {"queues.depth", "queue_depth"},
    {"queues.records", "requests"},
    {"queues.prp_list_pages", "prp_list_pages"},
    {"timeout_ns", "timeout_s"},
    {"flush_timeout_ns", "flush_timeout_s"},
    {"drives", "uris"},
    {"cache.size_bytes", "cache_bytes"},
    {"cache.page_bytes", "page_bytes"},
    {"cache.overflow_frames", "cache_overflow_frames"},
    {"cache.host_size_bytes", "cache_host_bytes"},
    {"cache.staging_pages", "cache_staging_pages"},
    {"cache.statistics", "cache_statistics"}};

/// A storage that Python may close while other threads use it: it is destroyed only after they have finished.
class shared_storage {
 public:
  shared_storage(std::vector<std::string> uris, std::string device, bool read_only, bool allow_destroy,
                 keyword_options const& given, std::stop_source const& cancel) {
    without_lock const unlocked;
    try {
      storage_options options{.drives = std::move(uris),
                              .device = std::move(device),
                              .queues = {.per_drive = given.queues_per_drive,
                                         .depth = given.queue_depth,
                                         .records = given.requests,
                                         .prp_list_pages = given.prp_list_pages},
                              .stripe_bytes = given.stripe_bytes,
                              .timeout_ns = given.timeout_ns,
                              .flush_timeout_ns = given.flush_timeout_ns,
                              .read_only = read_only,
                              .allow_destroy = allow_destroy,
                              .cancel = cancel.get_token()};
      options.cache.size_bytes = given.cache_bytes;
      if (given.page_bytes != 0) options.cache.page_bytes = given.page_bytes;
      options.cache.overflow_frames = given.overflow_frames;
      options.cache.policy = policy_named(given.cache_policy);
      options.cache.host_size_bytes = given.cache_host_bytes;
      options.cache.staging_pages = given.cache_staging_pages;
      options.cache.statistics = given.cache_statistics;
      storage_ = std::make_unique<storage>(options);
    } catch (refused_input const& refused) {
      rethrow_renamed(refused, option_names);
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
