// SPDX-License-Identifier: Apache-2.0
//! \file
//! Host owner of the state behind `cache_ref`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "forebay/cache_options.hpp"
#include "forebay/clock.hpp"
#include "forebay/detail/cache/cache_ref.hpp"
#include "forebay/detail/cache/no_policy.hpp"
#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/frame_pools.hpp"
#include "forebay/memory.hpp"
#include "forebay/policy.hpp"
#include "forebay/replacement_policy.hpp"

namespace forebay {

/// Move-only. The caller owns the memory of the pages' bytes. The cache's own bookkeeping lies in `state_memory`: 17
/// bytes for each frame with `clock`, 19 with `s3_fifo`; 4 more where frames are staged.
class cache {
 public:
  /// Throws `refused_input` for a size that no page has.
  static void check_page(std::uint32_t page_bytes);
  /// Throws `refused_input` for an option that is out of range, or that does not fit the drives.
  static void check(cache_options const& options, storage_layout const& layout);

  /// After check(). `frames`: `frame_memory_bytes()` long; `host_memory`: of the host pool; `staging`:
  /// `staging_bytes()` long. All arguments must outlive the cache.
  cache(cache_options const& options, storage_layout const& layout, io_queues const& queues, buffer_ref frames,
        memory::resource& state_memory, memory::resource& host_memory, buffer_ref staging = {});

  /// Throws `refused_input` where the cache was made for another policy or other pools, or where only one of the two,
  /// cache and traits, counts.
  template <class M, cached_traits Traits>
  cache_ref<M, Traits> ref() const {
    using pools = typename Traits::pools;
    static_assert(sharing_policy<typename pools::sharing, M>);
    check_ref(replacement_policy::of<typename Traits::policy>(), Traits::counted, pools::has_users,
              pools::has_host ? replacement_policy::of<typename pools::host_policy>() : replacement_policy{},
              pools::frames::staged);
    return make_ref<cache_ref<M, Traits>>();
  }
  /// For what works on frames without asking the policy: `clean`, `invalidate`, `take_back`.
  template <class M>
  cache_ref<M, policy_free<>> frames_ref() const {
    return make_ref<cache_ref<M, policy_free<>>>();
  }
  cache_core* core() const { return state_; }
  /// Throws `refused_input` unless the frames are staged, or are not, as traits say.
  void check_frames(bool staged) const;
  cache_options const& options() const { return options_; }
  std::uint32_t frame_count() const { return host_copy_.frames; }

  /// Of all stripes together; all zero where nothing is counted.
  cache_counters counted() const;
  void reset_counters();
  /// The first status with which a page could not be written back, or an element not be read or written; success: none.
  status first_error() const;
  std::uint64_t failed_write_backs() const;
  /// Accesses and write-backs that failed since the last call. Thread-safe; kernels may run: this call or the next one
  /// reports what fails during the call.
  access_errors take_errors();

 private:
  template <class Ref>
  Ref make_ref() const {
    return Ref(state_, host_copy_.words, host_copy_.fingerprints, host_copy_.frame_memory.data(), host_copy_.mapping,
               host_copy_.page_shift);
  }
  void check_ref(replacement_policy const& policy, bool counted, bool shares, replacement_policy const& host_policy,
                 bool staged) const;
  cache_core core_copy() const;

  cache_options options_;
  memory::allocation memory_;
  memory::allocation host_frames_;
  cache_state host_copy_;  ///< as the host made it; its pointers are those of the state in device memory
  cache_state* state_ = nullptr;
  std::unique_ptr<std::mutex> errors_mutex_ = std::make_unique<std::mutex>();
  std::uint64_t errors_told_ = 0;
};

}  // namespace forebay
