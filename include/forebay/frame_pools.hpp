// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which kinds of memory a cache's pages may lie in beside its own frames, as far as code is compiled for them.
#pragma once

#include <concepts>
#include <cstdint>

#include "forebay/detail/cache/no_policy.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

/// What a page that is shared from a user's buffer is wanted for.
enum class sharing_use : std::uint8_t {
  read,      ///< the page is to be read into the buffer
  overwrite  ///< the buffer holds what the whole page shall be
};

/// Decides which buffers of users become pages' frames:
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
/// `joins` runs in any thread, holds no lock, and does not wait.
template <class S, class M>
concept sharing_policy = requires(std::uint64_t page, sharing_use use) {
  { S::enabled } -> std::convertible_to<bool>;
  { S::template joins<M>(page, use) } -> std::same_as<bool>;
};

/// No user's buffer is ever a frame. Costs nothing.
struct no_sharing {
  static constexpr bool enabled = false;
  template <class M>
  FOREBAY_DEVICE static bool joins(std::uint64_t, sharing_use) {
    return false;
  }
};
/// Every buffer that is shared becomes its page's frame, if no frame holds the page.
struct share_all {
  static constexpr bool enabled = true;
  template <class M>
  FOREBAY_DEVICE static bool joins(std::uint64_t, sharing_use) {
    return true;
  }
};
/// Only what is to be written stays in the user's buffer; what is read goes through the cache, where it outlives the
/// buffer.
struct share_overwrites {
  static constexpr bool enabled = true;
  template <class M>
  FOREBAY_DEVICE static bool joins(std::uint64_t, sharing_use use) {
    return use == sharing_use::overwrite;
  }
};

/// The pools that code is compiled for. `Sharing`: of users' buffers. `HostPolicy`: which page leaves the host pool;
/// `replacement::no_policy`: there is none.
template <class Sharing = no_sharing, class HostPolicy = replacement::no_policy>
struct frame_pools {
  using sharing = Sharing;
  using host_policy = HostPolicy;
  static constexpr bool has_users = Sharing::enabled;
  static constexpr bool has_host = !std::same_as<HostPolicy, replacement::no_policy>;
};

}  // namespace forebay
