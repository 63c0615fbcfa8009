// SPDX-License-Identifier: Apache-2.0
//! \file
//! The kinds of memory, beside the cache's own frames, in which code may keep pages; chosen at compile time.
#pragma once

#include <concepts>
#include <cstdint>

#include "forebay/detail/cache/no_policy.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// Why a thread shares a buffer as a page.
enum class sharing_use : std::uint8_t {
  read,      ///< the page is to be read into the buffer
  overwrite  ///< the buffer holds the new bytes of the whole page
};

/// Decides which buffers of users become frames of pages:
///
/// ```
/// struct some_sharing {
///   static constexpr bool enabled = true;
///   // Whether a buffer shall be the frame of `page`, which no frame holds yet; else a frame of the cache is.
///   template <class M>
///   static bool joins(std::uint64_t page, sharing_use use);
/// };
/// ```
///
/// `joins` runs in any thread. It holds no lock and does not wait.
template <class S, class M>
concept sharing_policy = requires(std::uint64_t page, sharing_use use) {
  { S::enabled } -> std::convertible_to<bool>;
  { S::template joins<M>(page, use) } -> std::same_as<bool>;
};

/// No user's buffer becomes a frame. Costs nothing.
struct no_sharing {
  static constexpr bool enabled = false;
  template <class M>
  FOREBAY_DEVICE static bool joins(std::uint64_t, sharing_use) {
    return false;
  }
};
/// Every shared buffer becomes its page's frame, if no frame holds the page.
struct share_all {
  static constexpr bool enabled = true;
  template <class M>
  FOREBAY_DEVICE static bool joins(std::uint64_t, sharing_use) {
    return true;
  }
};
/// Only buffers that overwrite a page become its frame. Pages that are read go through the cache, where they outlive
/// the buffer.
struct share_overwrites {
  static constexpr bool enabled = true;
  template <class M>
  FOREBAY_DEVICE static bool joins(std::uint64_t, sharing_use use) {
    return use == sharing_use::overwrite;
  }
};

/// Every drive reads and writes the cache's frames where they lie. Costs nothing.
struct direct_frames {
  static constexpr bool staged = false;  ///< whether pages pass through staging pages
};
/// Frames lie in memory that a drive may not reach, such as a GPU's. Pages pass through pinned staging pages: a page
/// that was read is copied to its frame, and a page that is written back is copied from it first.
struct staged_frames {
  static constexpr bool staged = true;  ///< whether pages pass through staging pages
  /// C6: whether a page is copied to its frame before other threads may use the frame. Tests replace it by a wrong one.
  static constexpr bool copies_before_valid = true;
};

/// The pools that code is compiled for. `Sharing` decides on users' buffers. `HostPolicy` chooses the page that leaves
/// the host pool; `replacement::no_policy`: there is no host pool. `Frames` says how pages get into the cache's frames:
/// `direct_frames`, or `staged_frames` where the storage has `cache_options::staging_pages`.
template <class Sharing = no_sharing, class HostPolicy = replacement::no_policy, class Frames = direct_frames>
struct frame_pools {
  using sharing = Sharing;
  using host_policy = HostPolicy;
  using frames = Frames;
  static constexpr bool has_users = Sharing::enabled;  ///< whether buffers of users may be frames
  /// Whether there is a host pool.
  static constexpr bool has_host = !std::same_as<HostPolicy, replacement::no_policy>;
};

}  // namespace forebay
