// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a storage does with its catalogue of extents.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/queue/storage_layout.hpp"
#include "forebay/detail/storage/catalogue.hpp"
#include "forebay/extent.hpp"
#include "forebay/storage.hpp"

namespace forebay::detail {

class claimed_range;
class client;
class host_io;

/// The table, loaded when it is made, and the rules that follow from there being one. Thread-safe: a mutex guards the
/// table, and is held until a change of it has been stored. So a change waits for drives, and a reader of the table
/// waits for the change. Against other clients of a served drive it claims the table, and the bytes of extents that are
/// being made.
class extents {
 public:
  /// `writable`: neither the options nor a drive forbid it. `first_drive`, `of` and `io` must outlive it; no other
  /// thread may use `io` yet. Throws `operation_failed` where the catalogue cannot be read, or is of other drives.
  extents(storage_layout const& layout, storage_options const& options, bool writable, drive::device& first_drive,
          client& of, host_io& io);

  /// Whether writes may go anywhere, not only into extents.
  bool raw_writable() const;
  /// A raw queue pair keeps the result while it lives. As long as one is kept, no catalogue is made that the pair could
  /// write over. Throws `refused_input` if a raw pair of this drive is not allowed.
  std::shared_ptr<void> admit_raw_pair(driver::drive_identity const& drive) const;

  // As the members of `storage` of the same names say.

  std::vector<extent> list() const;
  extent find(std::string const& name) const;
  extent create(std::string const& name, std::uint64_t bytes);
  extent stage(std::string const& name, std::uint64_t bytes);
  /// Publishes a staged extent. The data that was written to it must be durable.
  void publish(extent const& staged, bool replace);
  void discard(extent const& staged);
  void remove(std::string const& name);

  /// Which extents have bytes of [first_byte, end_byte), in words. Does not take the table's mutex: a member that holds
  /// it may have come here through the client.
  std::string names_in(std::uint64_t first_byte, std::uint64_t end_byte) const;

 private:
  bool raw_writable_locked() const { return writable_ && (!table_ || allow_destroy_); }
  void set_table_locked(std::optional<catalogue> table);
  std::unique_ptr<claimed_range> claim_table() const;
  /// Releases the claim on the bytes of an extent that is being written.
  void unclaim(extent const& e) const;
  void store_locked(catalogue changed);
  catalogue table_to_change_locked(std::string const& extent);
  void catch_up_locked();
  bool first_mib_is_blank() const;

  catalogue_home home_;
  bool read_only_;
  bool allow_destroy_;
  bool writable_;
  drive::device& first_drive_;
  client& client_;
  host_io& io_;
  std::shared_ptr<void> raw_pairs_;  ///< each raw queue pair holds a copy, so the use count tells their number
  mutable std::mutex mutex_;         ///< guards what follows
  std::optional<catalogue> table_;
  /// The table that the last attempt would have stored, if it failed. It may lie on the drive, and name bytes that are
  /// only staged here.
  std::optional<catalogue> given_up_table_;
  mutable std::mutex names_mutex_;
  std::vector<extent> named_;  ///< those of the table
};

}  // namespace forebay::detail
