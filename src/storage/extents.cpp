// SPDX-License-Identifier: Apache-2.0
#include "storage/extents.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "forebay/error.hpp"
#include "storage/claimed_range.hpp"
#include "storage/client.hpp"
#include "storage/host_io.hpp"

namespace forebay::detail {

extents::extents(storage_layout const& layout, storage_options const& options, bool writable,
                 drive::device& first_drive, client& of, host_io& io)
    : home_(layout.size_bytes, layout.drive_count, layout.stripe_bytes),
      read_only_(options.read_only),
      allow_destroy_(options.allow_destroy),
      writable_(writable),
      first_drive_(first_drive),
      client_(of),
      io_(io),
      raw_pairs_(std::make_shared<char>()) {
  auto const read = [this](void* to, std::uint64_t bytes, std::uint64_t at) {
    try {
      io_.read_patiently(to, bytes, at);
    } catch (operation_failed const& error) {
      throw operation_failed("storage: cannot be opened, since its catalogue of extents cannot be read: " +
                             std::string(error.what()));
    }
  };
  set_table_locked(catalogue::load(home_, read, allow_destroy_));
}

bool extents::raw_writable() const {
  std::lock_guard lock(mutex_);
  return raw_writable_locked();
}

/// The commands of a raw queue pair bypass all checks of a storage.
std::shared_ptr<void> extents::admit_raw_pair(driver::drive_identity const& drive) const {
  if (client_.pages() != nullptr) {
    throw refused_input("cache.size_bytes", std::to_string(client_.pages()->options().size_bytes),
                        "a raw queue pair bypasses the cache; open the storage without one");
  }
  std::lock_guard lock(mutex_);
  if (drive.write_protected) return raw_pairs_;  // its controller refuses every write
  if (read_only_) {
    throw refused_input("read_only", "true",
                        "a raw queue pair could write to this drive: open the storage for writing, or one whose drive "
                        "is write protected, as a file is that is opened with read_only");
  }
  if (!raw_writable_locked()) {
    throw refused_input("allow_destroy", "false",
                        "the drive carries a catalogue, and a raw queue pair could write anywhere: set allow_destroy");
  }
  return raw_pairs_;
}

std::vector<extent> extents::list() const {
  std::lock_guard lock(mutex_);
  return table_ ? table_->extents() : std::vector<extent>();
}

extent extents::find(std::string const& name) const {
  std::lock_guard lock(mutex_);
  extent const* const found = table_ ? table_->find(name) : nullptr;
  if (found == nullptr) {
    throw refused_input("extent", name,
                        "no extent has this name; extents() and `forebay drive ls` of the Python package list those");
  }
  return *found;
}

extent extents::create(std::string const& name, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  auto const alone = claim_table();
  catalogue changed = table_to_change_locked(name);
  // Held while the table is written. After that the table itself shows others that the bytes are taken.
  std::unique_ptr<claimed_range> claimed;
  extent const made = changed.create(name, bytes, [&](std::uint64_t first, std::uint64_t n) {
    claimed = std::make_unique<claimed_range>(first_drive_, first, n);
    return claimed->taken_to();
  });
  store_locked(std::move(changed));
  return made;
}

extent extents::stage(std::string const& name, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  auto const alone = claim_table();
  catalogue changed = table_to_change_locked(name);
  // Kept until the extent is published or discarded, or this storage ends: nothing else shows others that the bytes are
  // taken.
  extent const staged =
      changed.stage(name, bytes, [&](std::uint64_t first, std::uint64_t n) { return first_drive_.claim(first, n); });
  set_table_locked(std::move(changed));
  return staged;
}

void extents::publish(extent const& staged, bool replace) {
  std::lock_guard lock(mutex_);
  auto const alone = claim_table();
  catalogue changed = table_to_change_locked(staged.name);
  changed.publish(staged, replace);
  store_locked(std::move(changed));
  unclaim(staged);
}

void extents::discard(extent const& staged) {
  std::lock_guard lock(mutex_);
  if (given_up_table_) return;  // nobody else may write there until a table has been stored
  catalogue changed = table_.value_or(catalogue(home_));
  changed.discard(staged);
  unclaim(staged);
  set_table_locked(changed.is_nothing() ? std::nullopt : std::optional(std::move(changed)));
}

void extents::remove(std::string const& name) {
  std::lock_guard lock(mutex_);
  auto const alone = claim_table();
  catch_up_locked();
  if (!table_) throw refused_input("extent", name, "the drive has no catalogue");
  catalogue changed = *table_;
  changed.remove(name);
  store_locked(std::move(changed));
}

std::string extents::names_in(std::uint64_t first_byte, std::uint64_t end_byte) const {
  std::string names;
  std::lock_guard lock(names_mutex_);
  for (extent const& e : named_) {
    if (e.first_byte >= end_byte || e.first_byte + e.size_bytes <= first_byte) continue;
    names += (names.empty() ? " (of extent '" : ", '") + e.name + "'";
  }
  return names.empty() ? names : names + ")";
}

void extents::set_table_locked(std::optional<catalogue> table) {
  table_ = std::move(table);
  std::lock_guard lock(names_mutex_);
  named_ = table_ ? table_->extents() : std::vector<extent>();
}

/// While the returned claim lives, no other client changes the table, nor looks for bytes. Throws `refused_input` if
/// nothing may be written, `operation_failed` if another client does not finish.
std::unique_ptr<claimed_range> extents::claim_table() const {
  // Checked before it waits for others: this storage could change nothing.
  if (!writable_) throw refused_input("read_only", "true", "open the storage for writing");
  constexpr std::chrono::seconds patience(10);
  auto const until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    auto claimed = std::make_unique<claimed_range>(first_drive_, 0, catalogue::reserved_bytes);
    if (claimed->taken_to() == 0) return claimed;
    if (std::chrono::steady_clock::now() > until) {
      throw operation_failed(
          "storage: another client of the drive is changing the catalogue, and has not ended within " +
          std::to_string(patience.count()) + " s: try again");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}
void extents::unclaim(extent const& e) const {
  first_drive_.unclaim(e.first_byte, catalogue::room_of(e.size_bytes));
}

/// If the table cannot be written it does not become this storage's table: the one on the drive remains.
void extents::store_locked(catalogue changed) {
  // Before, so that a write-back cannot overwrite it; afterwards, so that the next access reads it.
  client_.forget(0, catalogue::reserved_bytes);
  bool begun = false;
  try {
    changed.store(
        [&](void const* from, std::uint64_t n, std::uint64_t at) {
          begun = true;
          io_.write(from, n, at);
        },
        [&] { io_.flush(); });
    client_.forget(0, catalogue::reserved_bytes);
  } catch (...) {
    if (begun) given_up_table_ = std::move(changed);
    throw;
  }
  given_up_table_.reset();
  set_table_locked(std::move(changed));
}

catalogue extents::table_to_change_locked(std::string const& extent) {
  catch_up_locked();
  if (!allow_destroy_ && raw_pairs_.use_count() > 1) {
    throw refused_input("extent", extent,
                        "raw queue pairs could write over a catalogue: destroy them first, or set allow_destroy");
  }
  if (!table_ && !allow_destroy_ && !first_mib_is_blank()) {
    throw refused_input("extent", extent,
                        "the drive holds data but no catalogue: set allow_destroy to put a catalogue over it");
  }
  return table_.value_or(catalogue(home_));
}

/// Another client of a served drive may have stored a table since.
void extents::catch_up_locked() {
  auto stored =
      catalogue::load(home_, [this](void* to, std::uint64_t n, std::uint64_t at) { io_.read(to, n, at); }, true);
  if (!stored) return;
  catalogue table = table_.value_or(catalogue(home_));
  table.catch_up(*stored, given_up_table_);
  set_table_locked(std::move(table));
}

bool extents::first_mib_is_blank() const {
  client_.clean(0, catalogue::reserved_bytes);
  std::vector<char> bytes(catalogue::reserved_bytes);
  io_.read(bytes.data(), bytes.size(), 0);
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
}

}  // namespace forebay::detail
