// SPDX-License-Identifier: Apache-2.0
//! \file
//! Which memory a drive may touch: a bitmap of 4 KiB pages that units look up without a lock, and its owner on the
//! host.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {

/// Granularity of DMA registration.
inline constexpr std::uint64_t dma_page_bytes = 4096;

/// The units' view: a hash table from a 2 MiB granule of addresses to one bit for each page of it. A granule stays in
/// its slot as long as one of its pages is registered, so a look-up never meets an entry that moves. Trivially
/// copyable.
class dma_region_table {
 public:
  static constexpr std::uint64_t granule_bytes = std::uint64_t{2} << 20;
  static constexpr std::uint32_t words_per_granule = granule_bytes / dma_page_bytes / 64;

  dma_region_table() = default;
  /// `memory`: at least `bytes(log2_granules)`, aligned to 64 and zeroed.
  dma_region_table(void* memory, std::uint32_t log2_granules)
      : place_(reinterpret_cast<std::uint64_t>(memory) | log2_granules) {}
  static constexpr std::size_t bytes(std::uint32_t log2_granules) {
    return (key_words(log2_granules) + (std::size_t{words_per_granule} << log2_granules)) * sizeof(std::uint64_t);
  }

  /// Whether every page that [address, address + bytes) touches is registered. True for an empty range.
  template <class M>
  FOREBAY_DEVICE bool contains(std::uint64_t address, std::uint64_t bytes) const {
    if (bytes == 0) return true;
    std::uint64_t const last = address + bytes - 1;
    if (last < address) return false;
    for (std::uint64_t page = address / dma_page_bytes; page <= last / dma_page_bytes;) {
      std::uint32_t const slot = find<M>(page / (granule_bytes / dma_page_bytes));
      if (slot == none) return false;
      std::uint64_t const page_in_granule = page % (granule_bytes / dma_page_bytes);
      std::uint64_t const left = last / dma_page_bytes - page + 1;
      std::uint64_t const in_word = 64 - page_in_granule % 64;
      std::uint64_t const count = left < in_word ? left : in_word;
      std::uint64_t const wanted = mask(page_in_granule % 64, count);
      // Relaxed: the client that rang the doorbell of a command on this memory had registered the memory first. The
      // unit's acquire of the doorbell orders this load after that registration.
      std::uint64_t const found =
          simt::atomic<M, simt::scope::system>(bits()[slot * words_per_granule + page_in_granule / 64])
              .load(simt::order::relaxed);
      if ((found & wanted) != wanted) return false;
      page += count;
    }
    return true;
  }

 private:
  friend class dma_regions;
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// `count` (1 to 64) ones from bit `first` on.
  FOREBAY_DEVICE static constexpr std::uint64_t mask(std::uint64_t first, std::uint64_t count) {
    return ~std::uint64_t{0} >> (64 - count) << first;
  }
  FOREBAY_DEVICE std::uint32_t home(std::uint64_t granule) const {
    return static_cast<std::uint32_t>(granule * 0x9e3779b97f4a7c15u >> (64 - log2_granules()));
  }
  template <class M>
  FOREBAY_DEVICE std::uint32_t find(std::uint64_t granule) const {
    std::uint32_t const slots = std::uint32_t{1} << log2_granules();
    std::uint32_t slot = home(granule);
    for (std::uint32_t probes = 0; probes < slots; ++probes, slot = (slot + 1) & (slots - 1)) {
      // Relaxed, for the reason given in `contains`.
      std::uint64_t const key = simt::atomic<M, simt::scope::system>(keys()[slot]).load(simt::order::relaxed);
      if (key == granule + 1) return slot;
      if (key == 0) return none;
    }
    return none;
  }

  static constexpr std::size_t key_words(std::uint32_t log2_granules) {
    return log2_granules < 3 ? 8 : std::size_t{1} << log2_granules;
  }
  FOREBAY_DEVICE std::uint32_t log2_granules() const { return static_cast<std::uint32_t>(place_ & 63); }
  /// granule + 1; 0 marks a free slot.
  FOREBAY_DEVICE std::uint64_t* keys() const { return reinterpret_cast<std::uint64_t*>(place_ & ~std::uint64_t{63}); }
  FOREBAY_DEVICE std::uint64_t* bits() const {
    std::uint32_t const log2 = log2_granules();
    return keys() + (std::uint64_t{1} << (log2 < 3 ? 3 : log2));
  }

  /// The address of the keys, which the bits follow. The bits of the address that are 0 by alignment hold the
  /// logarithm: units on a GPU keep one of these for each queue in shared memory, and each further word cost them
  /// registers.
  std::uint64_t place_ = 1;
};

/// The host's side: owns the table and counts overlapping registrations. Thread-safe.
class dma_regions {
 public:
  /// `log2_granules`: less than 2^n distinct granules of 2 MiB can be registered at a time.
  explicit dma_regions(memory::resource& table_memory = memory::host(), std::uint32_t log2_granules = 16);

  /// Registers [address, address + bytes), widened to whole 4 KiB pages. Throws `refused_input` for an empty or
  /// wrapping range, and `operation_failed` if the table has no room for all of it; then nothing has changed.
  void add(void const* address, std::size_t bytes);
  /// Undoes one `add` of the same range; pages that another registration covers stay. Throws `refused_input` for a
  /// range that was not added, and nothing else, so code that frees memory may call it.
  void remove(void const* address, std::size_t bytes);
  /// The same, but returns false instead of throwing `refused_input`.
  bool remove_if_added(void const* address, std::size_t bytes) noexcept;

  /// For the units.
  dma_region_table table() const { return unit_table_; }
  /// For the host, with the same content.
  dma_region_table host_table() const { return table_; }

 private:
  struct range {
    std::uint64_t first_page;
    std::uint64_t end_page;
  };
  /// The slots that one call touches. It has no memory of its own: a range must be removable even if no memory is left.
  struct touched_slots {
    std::array<std::uint32_t, 64> slots;
    std::size_t count = 0;  ///< more than there are places for: perhaps all slots
    void add(std::uint32_t slot) {
      if (count != 0 && count <= slots.size() && slots[count - 1] == slot) return;
      if (count < slots.size()) slots[count] = slot;
      ++count;
    }
  };
  bool is_empty(std::uint32_t slot) const;
  void check_room(range pages) const;
  std::uint32_t find_or_insert(std::uint64_t granule);
  void set(range pages, bool value);
  /// Frees the slots of granules without a registered page, from `slot` on backwards, as long as no other granule is
  /// looked for past them.
  void free_slots(std::uint32_t slot, touched_slots& touched);
  /// Clears those of `pages` that no range covers.
  void clear_uncovered(range pages);

  std::mutex mutex_;
  /// Copies slots of the table to where the units look them up, if the host writes them in a different place.
  void mirror(touched_slots const& touched);

  memory::allocation memory_;
  memory::allocation unit_memory_;  ///< of a GPU; empty where the units share the host's table
  dma_region_table table_;
  dma_region_table unit_table_;
  bool unit_table_stale_ = false;  ///< a copy failed
  std::uint32_t granules_ = 0;     ///< how many have a registered page
  std::vector<range> ranges_;
};

}  // namespace forebay::emulator
