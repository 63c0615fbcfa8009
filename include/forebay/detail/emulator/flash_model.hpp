// SPDX-License-Identifier: Apache-2.0
//! \file
//! Optional: the flash behind the channels of the timing model. Dies that sense, program and erase; buses that they
//! share; a write buffer; a map from logical to physical pages; and garbage collection.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/detail/emulator/timed_command.hpp"
#include "forebay/detail/memory/service_clock.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator {

// Each die is a log of its own. A stretch of the drive as long as one program lies on one die for good. So what a die
// stores never exceeds its share, and the die's own collection keeps it writable. Pages are appended to the die's open
// block; a full program is handed to the die. Once few blocks are free, each page that the host writes first makes
// collection pass one page that is no longer valid, and move the valid pages before it.
//
// Any lane works on any die. What a die appends is under the die's lock, which a lane holds for one stretch, and that
// lane waits for nothing meanwhile. Reads take no lock. All words lie in memory that every unit reaches.

/// The contents of the drive when it is opened.
enum class preconditioning : std::uint8_t {
  fresh,  ///< nothing: no page was ever written
  full,   ///< every page, written once, in order
  random  ///< as `full`, then as many pages at random as there are: the steady state of random writes
};

/// The flash of a profile. A *page* is the unit of the map. What is sensed at once is a whole number of pages, and what
/// is programmed at once is a whole number of those units.
struct flash_parameters {
  std::uint32_t channels = 0;  ///< buses; 0: there is no flash model
  std::uint32_t dies_per_channel = 1;
  std::uint32_t page_bytes = 4096;
  std::uint32_t read_bytes = 16384;     ///< how much a die senses at once
  std::uint32_t program_bytes = 16384;  ///< how much a die programs at once
  std::uint32_t block_bytes = 4 << 20;  ///< how much a die erases at once; less on a drive too small for it
  std::uint64_t read_ps = 0;            ///< of one sensing, before the transfer
  std::uint64_t program_ps = 0;
  std::uint64_t erase_ps = 0;
  std::uint64_t channel_byte_fs = 0;  ///< femtoseconds that a byte occupies a bus
  std::uint64_t buffer_bytes = 0;     ///< room for data written and not yet programmed, in equal parts for all dies
  std::uint32_t spare_ppm = 0;        ///< how much is stored beyond the drive's size, as a part of that size
  preconditioning start = preconditioning::fresh;
};

/// What the flash counts.
struct flash_counters {
  std::uint64_t host_bytes_written = 0;
  std::uint64_t host_pages_written = 0;  ///< a page written in part counts as one
  std::uint64_t pages_programmed = 0;    ///< for the host and for collection
  std::uint64_t pages_migrated = 0;      ///< by collection
  std::uint64_t blocks_erased = 0;

  template <class Visit>
  static constexpr void for_each(Visit&& visit) {
    visit("host_bytes_written", &flash_counters::host_bytes_written);
    visit("host_pages_written", &flash_counters::host_pages_written);
    visit("pages_programmed", &flash_counters::pages_programmed);
    visit("pages_migrated", &flash_counters::pages_migrated);
    visit("blocks_erased", &flash_counters::blocks_erased);
  }
};

/// The layout of a drive's pages; `flash_geometry_of` makes it.
struct flash_geometry {
  std::uint32_t channels = 1;
  std::uint32_t dies = 1;  ///< die d is on channel d % channels
  std::uint32_t page_bytes = 4096;
  std::uint32_t pages_per_read = 1;
  std::uint32_t pages_per_program = 1;
  std::uint32_t pages_per_block = 1;
  std::uint32_t pages_per_die = 0;  ///< logical ones
  std::uint32_t blocks_per_die = 0;
  std::uint32_t buffered_programs = 1;  ///< of each die, the one that is being filled included
  std::uint64_t pages = 0;              ///< of the drive
  std::uint64_t read_ps = 0;
  std::uint64_t program_ps = 0;
  std::uint64_t erase_ps = 0;
  std::uint64_t channel_byte_fs = 0;

  FOREBAY_DEVICE constexpr std::uint64_t stretch_bytes() const { return std::uint64_t{pages_per_program} * page_bytes; }
  FOREBAY_DEVICE constexpr std::uint64_t bus_ps(std::uint64_t bytes) const { return bytes * channel_byte_fs / 1000; }
  /// How long a lone read of that many bytes takes.
  FOREBAY_DEVICE constexpr std::uint64_t lone_read_ps(std::uint64_t bytes) const {
    return read_ps + bus_ps(bytes < stretch_bytes() ? bytes : stretch_bytes());
  }
};

/// The words of one die. All but `free_blocks` are zero while nothing has been written.
struct alignas(128) flash_die {
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  std::uint64_t next_free_ps = 0;  ///< its clock: every lane advances it
  std::uint32_t lock = 0;
  /// The first place of the program that is being filled, whose pages are still in the buffer. It is written under the
  /// lock and may be read at any time.
  std::uint32_t staged = none;
  // Under the lock:
  std::uint32_t open_block = none;
  std::uint32_t open_pages = 0;  ///< pages appended to the open block
  std::uint32_t first_free = 0;  ///< index in the ring of free blocks
  std::uint32_t free_blocks = 0;
  std::uint32_t victim = none;         ///< the block that is being collected
  std::uint32_t scanned = 0;           ///< how many of its pages were passed or moved
  std::uint32_t sensed = none;         ///< what was sensed last for it
  std::uint64_t victims = 0;           ///< chosen so far
  std::uint64_t programs = 0;          ///< handed to the die so far
  alignas(128) flash_counters counts;  ///< written under the lock, read at any time
};

/// The shared state of the flash, and what commands do to it. One for a drive.
template <class M>
class flash_model {
 public:
  using team = simt::team<M>;

  /// How many blocks are compared to find one with few valid pages. Ten at random come close to all (Van Houdt: A mean
  /// field model for a class of garbage collection algorithms in flash-based solid state drives, SIGMETRICS 2013).
  static constexpr std::uint32_t victim_choices = 64;
  /// Collection runs while no more blocks than this are free.
  static constexpr std::uint32_t reserve_blocks = 1;
  /// Stands for the number of valid pages of a free block.
  static constexpr std::uint32_t is_free = ~std::uint32_t{0};

  /// Arrays, in the order in which they lie in memory. The last two are the large ones, and are zero while nothing has
  /// been written.
  struct arrays {
    flash_die* dies = nullptr;
    std::uint64_t* bus_free_ps = nullptr;   ///< by channel
    std::uint64_t* program_done = nullptr;  ///< `buffered_programs` of each die: when the last ones end
    std::uint32_t* free_ring = nullptr;     ///< `blocks_per_die` of each die
    std::uint32_t* valid_pages = nullptr;   ///< of each block, or `is_free`
    std::uint32_t* map = nullptr;           ///< by logical page of each die: its place + 1; 0: not mapped
    std::uint32_t* holds = nullptr;         ///< by place: which logical page of the die was appended there
  };

  flash_model() = default;
  flash_model(flash_geometry const& geometry, arrays const& at) : geometry_(geometry), at_(at) {}

  FOREBAY_DEVICE flash_geometry const& geometry() const { return geometry_; }
  arrays const& memory() const { return at_; }

  /// Raises the target of each command that arrived at `arrival_ps` to the time at which the flash is done with it.
  /// Write Zeroes unmaps its pages. All lanes call it; `batch` is theirs, as in `timing_model::assign`. A batch has the
  /// effect that its commands would have one by one.
  FOREBAY_COLD static void assign(flash_model const* self, team lanes, timed_command* batch, std::uint32_t count,
                                  std::uint64_t arrival_ps) {
    for (std::uint32_t i = 0; i < count; ++i) {
      timed_command& command = batch[i];
      if (!command.charged || command.bytes == 0) continue;
      std::uint64_t finish_ps = 0;
      self->for_own_stretches(lanes, command.offset_bytes, command.bytes, [&](stretch const& part) {
        std::uint64_t const done_ps = self->apply(command.op, part, arrival_ps);
        if (done_ps > finish_ps) finish_ps = done_ps;
      });
      // Relaxed: the lanes synchronise before they read it.
      if (finish_ps != 0) {
        simt::atomic<M, simt::scope::block>(command.target_ps).fetch_max(finish_ps, simt::order::relaxed);
      }
    }
    lanes.sync();
  }

  /// Forgets what the pages hold that lie wholly in the range. All lanes call it.
  FOREBAY_COLD static void unmap(flash_model const* self, team lanes, std::uint64_t offset_bytes, std::uint64_t bytes) {
    if (bytes == 0) return;
    self->for_own_stretches(lanes, offset_bytes, bytes,
                            [&](stretch const& part) { (void)self->apply(operation::other, part, 0); });
  }

 private:
  /// The part of a command that lies on one die.
  struct stretch {
    std::uint32_t die = 0;
    std::uint32_t first_page = 0;   ///< logical page of the die at which the stretch begins
    std::uint32_t begin_bytes = 0;  ///< within the stretch
    std::uint32_t end_bytes = 0;
  };

  /// Calls `visit` for the stretches on channels that the calling lane keeps, in order.
  template <class Visit>
  FOREBAY_DEVICE void for_own_stretches(team const& lanes, std::uint64_t offset_bytes, std::uint64_t bytes,
                                        Visit&& visit) const {
    std::uint64_t const length = geometry_.stretch_bytes();
    std::uint64_t const first = offset_bytes / length;
    std::uint64_t const end = offset_bytes + bytes;
    std::uint64_t const last = (end - 1) / length;
    for (std::uint64_t s = first; s <= last; ++s) {
      auto const die = static_cast<std::uint32_t>(s % geometry_.dies);
      if (die % geometry_.channels % lanes.count() != lanes.rank()) continue;
      visit(stretch{
          .die = die,
          .first_page = static_cast<std::uint32_t>(s / geometry_.dies) * geometry_.pages_per_program,
          .begin_bytes = s == first ? static_cast<std::uint32_t>(offset_bytes - first * length) : 0,
          .end_bytes = static_cast<std::uint32_t>(s == last ? end - last * length : length),
      });
    }
  }

  /// When the flash is done with a part of a command.
  FOREBAY_DEVICE std::uint64_t apply(operation op, stretch const& part, std::uint64_t arrival_ps) const {
    if (op == operation::read) return read(part, arrival_ps);
    flash_die& die = at_.dies[part.die];
    std::uint32_t const page_bytes = geometry_.page_bytes;
    std::uint64_t finish_ps = arrival_ps;
    take(die);
    if (op == operation::write) {
      std::uint32_t const end = (part.end_bytes + page_bytes - 1) / page_bytes;
      for (std::uint32_t p = part.begin_bytes / page_bytes; p < end; ++p) {
        std::uint32_t const bytes = overlap(part, p);
        std::uint64_t const accepted_ps = write(part.die, part.first_page + p, bytes != page_bytes, arrival_ps);
        if (accepted_ps > finish_ps) finish_ps = accepted_ps;
        add(die.counts.host_bytes_written, bytes);
        add(die.counts.host_pages_written, 1);
      }
    } else {
      std::uint32_t const end = part.end_bytes / page_bytes;
      for (std::uint32_t p = (part.begin_bytes + page_bytes - 1) / page_bytes; p < end; ++p) {
        set_map(part.die, part.first_page + p, 0);
      }
    }
    give(die);
    return finish_ps;
  }

  /// How many bytes of page `p` of its stretch a part covers.
  FOREBAY_DEVICE std::uint32_t overlap(stretch const& part, std::uint32_t p) const {
    std::uint32_t const from = p * geometry_.page_bytes, to = from + geometry_.page_bytes;
    return (part.end_bytes < to ? part.end_bytes : to) - (part.begin_bytes > from ? part.begin_bytes : from);
  }

  FOREBAY_DEVICE std::uint64_t read(stretch const& part, std::uint64_t arrival_ps) const {
    std::uint32_t const page_bytes = geometry_.page_bytes;
    std::uint32_t const end = (part.end_bytes + page_bytes - 1) / page_bytes;
    std::uint64_t sensings = 0, bytes = 0, last = ~std::uint64_t{0};
    for (std::uint32_t p = part.begin_bytes / page_bytes; p < end; ++p) {
      std::uint32_t const place = place_of(part.die, part.first_page + p);
      if (place != flash_die::none && is_staged(part.die, place)) continue;  // the buffer has it
      // A page that was never written is sensed all the same.
      std::uint64_t const sensed = place != flash_die::none
                                       ? place / geometry_.pages_per_read
                                       : never_written + (part.first_page + p) / geometry_.pages_per_read;
      if (sensed != last) ++sensings;
      last = sensed;
      bytes += overlap(part, p);
    }
    return sensings == 0 ? arrival_ps : occupy(part.die, arrival_ps, arrival_ps, sensings * geometry_.read_ps, bytes);
  }

  // A die, by one that holds its lock ---------------------------------------------------------------------------------

  /// Takes a page of the host into the buffer; returns the time at which that is done.
  FOREBAY_DEVICE std::uint64_t write(std::uint32_t d, std::uint32_t page, bool in_part,
                                     std::uint64_t arrival_ps) const {
    flash_die& die = at_.dies[d];
    std::uint32_t const place = place_of(d, page);
    if (place != flash_die::none) {
      if (is_staged(d, place)) return accepted_ps(d, arrival_ps);  // overwrites what the buffer has of it
      // The rest of the page is read, so that it can be written with the new part.
      if (in_part) (void)occupy(d, arrival_ps, arrival_ps, geometry_.read_ps, geometry_.page_bytes);
    }
    if (M::ld(&die.free_blocks) <= reserve_blocks) collect(d, arrival_ps);
    std::uint64_t const when_ps = accepted_ps(d, arrival_ps);
    append(d, page, arrival_ps);
    return when_ps;
  }

  /// The time at which the program that is being filled gets its part of the buffer: when the program that had it
  /// before has ended.
  FOREBAY_DEVICE std::uint64_t accepted_ps(std::uint32_t d, std::uint64_t arrival_ps) const {
    std::uint64_t const free_ps = M::ld(&program_done(d, M::ld(&at_.dies[d].programs)));
    return free_ps > arrival_ps ? free_ps : arrival_ps;
  }

  /// Appends a page to the die's log, and hands the program to the die once it is full.
  FOREBAY_DEVICE void append(std::uint32_t d, std::uint32_t page, std::uint64_t arrival_ps) const {
    flash_die& die = at_.dies[d];
    std::uint32_t block = M::ld(&die.open_block);
    std::uint32_t filled = M::ld(&die.open_pages);
    if (block == flash_die::none) {
      block = open_block(d);
      filled = 0;
    }
    std::uint32_t const place = block * geometry_.pages_per_block + filled++;
    M::st(&at_.holds[std::size_t{d} * places() + place], page);
    set_map(d, page, place + 1);
    M::st(&die.open_pages, filled);
    if (filled % geometry_.pages_per_program != 0) return;

    std::uint64_t const number = M::ld(&die.programs);
    std::uint64_t const from_ps = accepted_ps(d, arrival_ps);
    M::st(&program_done(d, number), occupy(d, from_ps, arrival_ps, geometry_.program_ps, geometry_.stretch_bytes()));
    M::st(&die.programs, number + 1);
    add(die.counts.pages_programmed, geometry_.pages_per_program);
    bool const is_full = filled == geometry_.pages_per_block;
    if (is_full) M::st(&die.open_block, flash_die::none);
    set_staged(die, is_full ? flash_die::none : place + 1);
  }

  /// Opens the block that has been free for longest.
  FOREBAY_DEVICE std::uint32_t open_block(std::uint32_t d) const {
    flash_die& die = at_.dies[d];
    std::uint32_t const free = M::ld(&die.free_blocks);
    std::uint32_t const first = M::ld(&die.first_free);
    M::check(free != 0, "a die of the flash model has a free block");
    std::uint32_t const block = M::ld(&free_ring(d, first));
    M::st(&die.first_free, first + 1 < geometry_.blocks_per_die ? first + 1 : 0);
    M::st(&die.free_blocks, free - 1);
    M::st(&valid_pages(d, block), 0);
    M::st(&die.open_block, block);
    set_staged(die, block * geometry_.pages_per_block);
    return block;
  }

  /// Passes one page that is not valid, and moves the valid pages before it. Erases the block after the block's last
  /// page.
  ///
  /// So free places never run out. Let P be the pages of a block and S the places that can be appended to. A host page
  /// takes one of them and passes one, so S + `scanned` never falls below 2P - 1, its value when the last block but
  /// `reserve_blocks` was opened for a page; and `scanned` is at most P. The loop ends, because a die has so many
  /// blocks (`flash_geometry_of`) that among those that are neither free nor open, at least one has a page that is not
  /// valid.
  FOREBAY_DEVICE void collect(std::uint32_t d, std::uint64_t arrival_ps) const {
    flash_die& die = at_.dies[d];
    std::uint32_t const per_block = geometry_.pages_per_block;
    do {
      std::uint32_t block = M::ld(&die.victim);
      std::uint32_t scanned = M::ld(&die.scanned);
      if (block == flash_die::none) {
        block = choose_victim(d);
        scanned = 0;
        M::st(&die.victim, block);
        M::st(&die.sensed, flash_die::none);
      }
      while (scanned < per_block) {
        std::uint32_t const place = block * per_block + scanned++;
        M::st(&die.scanned, scanned);
        std::uint32_t const page = M::ld(&at_.holds[std::size_t{d} * places() + place]);
        if (place_of(d, page) != place) return;
        std::uint32_t const senses = place / geometry_.pages_per_read;
        bool const is_sensed = M::ld(&die.sensed) == senses;
        (void)occupy(d, arrival_ps, arrival_ps, is_sensed ? 0 : geometry_.read_ps, geometry_.page_bytes);
        M::st(&die.sensed, senses);
        append(d, page, arrival_ps);
        add(die.counts.pages_migrated, 1);
      }
      erase(d, block, arrival_ps);
    } while (M::ld(&die.free_blocks) <= reserve_blocks);
  }

  FOREBAY_DEVICE void erase(std::uint32_t d, std::uint32_t block, std::uint64_t arrival_ps) const {
    flash_die& die = at_.dies[d];
    (void)occupy(d, arrival_ps, arrival_ps, geometry_.erase_ps, 0);
    std::uint32_t const free = M::ld(&die.free_blocks);
    std::uint32_t const last = M::ld(&die.first_free) + free;
    M::st(&free_ring(d, last < geometry_.blocks_per_die ? last : last - geometry_.blocks_per_die), block);
    M::st(&die.free_blocks, free + 1);
    M::st(&valid_pages(d, block), is_free);
    M::st(&die.victim, flash_die::none);
    add(die.counts.blocks_erased, 1);
  }

  /// The block with the fewest valid pages among some. If none of these has a page that is not valid, the one among all
  /// blocks.
  FOREBAY_DEVICE std::uint32_t choose_victim(std::uint32_t d) const {
    flash_die& die = at_.dies[d];
    std::uint32_t const blocks = geometry_.blocks_per_die;
    std::uint32_t const open = M::ld(&die.open_block);
    std::uint64_t const number = M::ld(&die.victims);
    M::st(&die.victims, number + 1);
    std::uint32_t best = flash_die::none;
    std::uint32_t fewest = geometry_.pages_per_block;
    auto const look_at = [&](std::uint32_t block) {
      std::uint32_t const valid = M::ld(&valid_pages(d, block));
      if (valid >= fewest || block == open) return;
      fewest = valid;
      best = block;
    };
    if (blocks > victim_choices) {
      for (std::uint32_t i = 0; i < victim_choices; ++i) {
        look_at(static_cast<std::uint32_t>(mix((number * victim_choices + i) ^ std::uint64_t{d} << 48) % blocks));
      }
    }
    if (best == flash_die::none) {
      for (std::uint32_t block = 0; block < blocks; ++block) look_at(block);
    }
    M::check(best != flash_die::none, "a die of the flash model has a block worth collecting");
    return best;
  }

  /// Maps a page to `mapped`, its place + 1, or to no place (0).
  FOREBAY_DEVICE void set_map(std::uint32_t d, std::uint32_t page, std::uint32_t mapped) const {
    auto const word = simt::atomic<M, simt::scope::device>(at_.map[std::size_t{d} * geometry_.pages_per_die + page]);
    // Relaxed, both: the lock orders it for its holders; for a read, the old place and the new one are both right.
    std::uint32_t const before = word.load(simt::order::relaxed);
    word.store(mapped, simt::order::relaxed);
    if (before != 0) move_valid(d, before - 1, ~std::uint32_t{0});
    if (mapped != 0) move_valid(d, mapped - 1, 1);
  }
  FOREBAY_DEVICE void move_valid(std::uint32_t d, std::uint32_t place, std::uint32_t by) const {
    std::uint32_t& valid = valid_pages(d, place / geometry_.pages_per_block);
    M::st(&valid, M::ld(&valid) + by);
  }

  // Words -------------------------------------------------------------------------------------------------------------

  FOREBAY_DEVICE void take(flash_die& die) const {
    // A lane holds it, and waits for nothing meanwhile. Plain threads make their steps within the predicate of a wait;
    // fibers must not.
    (void)M::wait_until(
        [&] {
          std::uint32_t open = 0;
          // Acquire: pairs with the release in `give`, so that the die is as the last holder left it.
          return simt::atomic<M, simt::scope::device>(die.lock).compare_exchange(open, 1, simt::order::acquire);
        },
        simt::no_deadline);
  }
  FOREBAY_DEVICE void give(flash_die& die) const {
    // Release: pairs with the acquire in `take`.
    simt::atomic<M, simt::scope::device>(die.lock).store(0, simt::order::release);
  }

  /// Gives the die `die_ps` of work from `from_ps` on, and then a transfer. The bus gets its work from the arrival on:
  /// a bus held for a die that is busy for long would be lost to the other dies. Returns when both are done.
  FOREBAY_DEVICE std::uint64_t occupy(std::uint32_t d, std::uint64_t from_ps, std::uint64_t arrival_ps,
                                      std::uint64_t die_ps, std::uint64_t bytes) const {
    std::uint64_t const bus_ps = geometry_.bus_ps(bytes);
    std::uint64_t const done_ps =
        memory::advance<M>(at_.dies[d].next_free_ps, from_ps, die_ps + bus_ps) + die_ps + bus_ps;
    if (bus_ps == 0) return done_ps;
    std::uint64_t const moved_ps =
        memory::advance<M>(at_.bus_free_ps[d % geometry_.channels], arrival_ps, bus_ps) + bus_ps;
    return moved_ps > done_ps ? moved_ps : done_ps;
  }

  /// The place of a page, or `flash_die::none`.
  FOREBAY_DEVICE std::uint32_t place_of(std::uint32_t d, std::uint32_t page) const {
    // Relaxed: as in `set_map`.
    return simt::atomic<M, simt::scope::device>(at_.map[std::size_t{d} * geometry_.pages_per_die + page])
               .load(simt::order::relaxed) -
           1;
  }
  /// Whether a place belongs to the program that is being filled.
  FOREBAY_DEVICE bool is_staged(std::uint32_t d, std::uint32_t place) const {
    // Relaxed: the lock orders it for its holders; a read that sees the value of a moment before or after is timed by
    // that value.
    std::uint32_t const staged = simt::atomic<M, simt::scope::device>(at_.dies[d].staged).load(simt::order::relaxed);
    return staged != flash_die::none && place - staged < geometry_.pages_per_program;
  }
  FOREBAY_DEVICE void set_staged(flash_die& die, std::uint32_t staged) const {
    // Relaxed: as in `is_staged`.
    simt::atomic<M, simt::scope::device>(die.staged).store(staged, simt::order::relaxed);
  }
  /// The caller holds the lock.
  FOREBAY_DEVICE void add(std::uint64_t& counter, std::uint64_t n) const {
    // Relaxed: the lock orders the writers; readers take the value that is there.
    auto const word = simt::atomic<M, simt::scope::device>(counter);
    word.store(word.load(simt::order::relaxed) + n, simt::order::relaxed);
  }
  FOREBAY_DEVICE std::uint32_t places() const { return geometry_.blocks_per_die * geometry_.pages_per_block; }
  FOREBAY_DEVICE std::uint64_t& program_done(std::uint32_t d, std::uint64_t number) const {
    return at_.program_done[std::size_t{d} * geometry_.buffered_programs + number % geometry_.buffered_programs];
  }
  FOREBAY_DEVICE std::uint32_t& free_ring(std::uint32_t d, std::uint32_t i) const {
    return at_.free_ring[std::size_t{d} * geometry_.blocks_per_die + i];
  }
  FOREBAY_DEVICE std::uint32_t& valid_pages(std::uint32_t d, std::uint32_t block) const {
    return at_.valid_pages[std::size_t{d} * geometry_.blocks_per_die + block];
  }

  static constexpr std::uint64_t never_written = std::uint64_t{1} << 32;

  flash_geometry geometry_;
  arrays at_;
};

}  // namespace forebay::emulator
