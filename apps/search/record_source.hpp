// SPDX-License-Identifier: Apache-2.0
//! \file
//! Where a search gets its records: from drives, or from memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/buffer_ref.hpp"
#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::search {

/// Trivially copyable. `Storage` is a `storage_ref` of the records, or a model of its `read_async`.
template <class Storage>
struct drive_records {
  using machine = typename Storage::machine;
  using token_type = typename Storage::token_type;
  static constexpr bool reads = true;

  Storage storage;
  buffer_ref buffer;  ///< a piece for each read that can be in flight
  std::uint64_t record_bytes;

  /// Begins to read a record into a piece, which nothing else uses until the token has ended.
  FOREBAY_DEVICE token_type begin(std::uint64_t piece, std::uint32_t slot) const {
    return storage.read_async(buffer.subspan(piece * record_bytes, record_bytes), slot * record_bytes, record_bytes);
  }
  FOREBAY_DEVICE std::uint32_t const* words(std::uint64_t piece, std::uint32_t) const {
    return reinterpret_cast<std::uint32_t const*>(buffer.data() + piece * record_bytes);
  }
};

/// The form in which a lane keeps a read that it does not wait for yet.
template <class Token>
struct parked_read {
  using type = Token;
  FOREBAY_DEVICE static type park(Token const& token) { return token; }
};
template <class Token>
  requires requires(Token const& token) { token.park(); }
struct parked_read<Token> {
  using type = typename Token::parked;
  FOREBAY_DEVICE static type park(Token const& token) { return token.park(); }
};

/// A read that has ended.
template <class M>
struct ended_read {
  FOREBAY_DEVICE bool ready() const { return true; }
  FOREBAY_DEVICE status wait(std::uint64_t) const { return {}; }
  FOREBAY_DEVICE void detach() const {}
};

/// Records in memory that the device reaches: what drives are compared with.
template <class M>
struct memory_records {
  using machine = M;
  using token_type = ended_read<M>;
  static constexpr bool reads = false;

  std::byte const* data;
  std::uint64_t record_bytes;

  FOREBAY_DEVICE token_type begin(std::uint64_t, std::uint32_t) const { return {}; }
  FOREBAY_DEVICE std::uint32_t const* words(std::uint64_t, std::uint32_t slot) const {
    return reinterpret_cast<std::uint32_t const*>(data + slot * record_bytes);
  }
};

}  // namespace forebay::search
