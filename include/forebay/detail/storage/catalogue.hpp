// SPDX-License-Identifier: Apache-2.0
//! \file
//! Named extents: which part of a storage each one occupies.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "forebay/extent.hpp"

namespace forebay {

/// The storage to which a catalogue belongs. On other drives, or on the same drives striped differently, the bytes mean
/// something else.
struct catalogue_home {
  catalogue_home(std::uint64_t storage_bytes, std::uint32_t drive_count = 1, std::uint64_t stripe = 0)
      : bytes(storage_bytes), drives(drive_count), stripe_bytes(drive_count > 1 ? stripe : 0) {}
  std::uint64_t bytes;
  std::uint32_t drives;
  std::uint64_t stripe_bytes;  ///< 0 with one drive
};

/// The table of extents in the first MiB of a storage. There are two copies, each with version, sequence number and
/// checksum, which are written in turn, so that a crash while one is written leaves the other. A catalogue is a value:
/// loaded, changed, stored. docs/reference/catalogue.md has the format, and says what survives which accident.
class catalogue {
 public:
  static constexpr std::uint64_t reserved_bytes = 1 << 20;
  static constexpr std::uint64_t copy_bytes = reserved_bytes / 2;
  /// Extents begin at multiples of this.
  static constexpr std::uint64_t alignment_bytes = 1 << 20;

  /// Reads or writes `bytes` bytes of the storage at an offset.
  using reader = std::function<void(void* to, std::uint64_t bytes, std::uint64_t offset_bytes)>;
  using writer = std::function<void(void const* from, std::uint64_t bytes, std::uint64_t offset_bytes)>;
  /// Makes all writes durable that any program has made before.
  using flusher = std::function<void()>;

  /// Claims bytes of the storage against its other clients. Returns 0, or the end of another client's claim that is in
  /// the way.
  using claimer = std::function<std::uint64_t(std::uint64_t first_byte, std::uint64_t bytes)>;

  /// An empty table.
  explicit catalogue(catalogue_home const& home) : home_(home) {}
  /// The newer valid copy, or nothing if the storage has no catalogue. Throws `operation_failed` if the newest whole
  /// copy has an unknown version or belongs to other drives, and, unless `damaged_is_none`, if there was a catalogue
  /// and neither copy is valid.
  static std::optional<catalogue> load(catalogue_home const& home, reader const& read, bool damaged_is_none = false);
  /// Takes over `stored`, which has just been loaded, since another program may have stored it after this table was
  /// loaded. What is staged stays staged, except for bytes that have been taken meanwhile. `given_up` is a table whose
  /// `store` has failed. If `stored` is what that wrote, the extents stay as they are here, and the next `store`
  /// overwrites it.
  void catch_up(catalogue const& stored, std::optional<catalogue> const& given_up = std::nullopt);
  /// Writes the older copy, and both the first time; flushes before each write and after the last one. If there are
  /// more extents than a copy holds, throws `refused_input` and writes nothing.
  void store(writer const& write, flusher const& flush);

  std::vector<extent> const& extents() const { return extents_; }
  /// Null if there is no such extent.
  extent const* find(std::string_view name) const;
  /// Takes the first gap that is large enough, and that `claim` grants up to the next multiple of 1 MiB. Throws
  /// `refused_input` for a name that is in use, empty, over 255 bytes, not in UTF-8 or has control characters, for size
  /// 0, and if no gap is left.
  extent const& create(std::string const& name, std::uint64_t bytes, claimer const& claim = {});
  /// Takes a gap for an extent that is to be written before any other client sees it. `store` does not write it, so
  /// that it does not exist for others until it is published. Throws as `create` does, but the name may be in use.
  extent stage(std::string const& name, std::uint64_t bytes, claimer const& claim = {});
  /// Puts a staged extent into the table; with `replace`, in place of the extent of its name. Throws `refused_input` if
  /// it is not staged, or if the name is in use and `replace` is not set.
  void publish(extent const& staged, bool replace);
  /// How many bytes an extent has to itself.
  static std::uint64_t room_of(std::uint64_t bytes) {
    return (bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  }
  /// Frees the bytes of a staged extent. Throws `refused_input` if it is not staged.
  void discard(extent const& staged);
  /// Whether the catalogue is empty: no extent, none staged, and no copy on a drive.
  bool is_nothing() const { return sequence_ == 0 && extents_.empty() && staged_.empty(); }
  /// Throws `refused_input` if there is no such extent.
  void remove(std::string const& name);

 private:
  /// Appends the extents of one copy; false if they cannot be this storage's.
  bool parse(std::string_view text);

  std::string text() const;
  void mark(writer const& write, flusher const& flush);
  void write_copy(std::string const& text, writer const& write);
  extent find_gap(std::string const& name, std::uint64_t bytes, claimer const& claim) const;
  extent const& insert(extent const& made);

  catalogue_home home_;
  std::uint64_t sequence_ = 0;
  std::uint64_t stamp_ = 0;  ///< identifies the `store` that wrote it; 0: written by a program that knew of no stamps
  std::vector<extent> extents_;  ///< by first byte
  std::vector<extent> staged_;
};

}  // namespace forebay
