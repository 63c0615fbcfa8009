// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/dma_regions.hpp"

#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "forebay/error.hpp"

namespace forebay::emulator {
namespace {

constexpr std::uint64_t pages_per_granule = dma_region_table::granule_bytes / dma_page_bytes;

std::string describe(void const* address, std::size_t bytes) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(address)) + "+" + std::to_string(bytes);
}

}  // namespace

dma_regions::dma_regions(memory::resource& table_memory, std::uint32_t log2_granules) {
  bool const near = table_memory.kind() != memory::kind::device;
  memory_ = memory::allocation(near ? table_memory : memory::host(), dma_region_table::bytes(log2_granules), 64);
  table_ = unit_table_ = dma_region_table(memory_.data(), log2_granules);
  if (near) return;
  unit_memory_ = memory::allocation(table_memory, dma_region_table::bytes(log2_granules), 64);
  unit_table_ = dma_region_table(unit_memory_.data(), log2_granules);
}

void dma_regions::mirror(touched_slots const& touched) {
  if (unit_memory_.data() == nullptr) return;
  memory::resource& to = unit_memory_.from();
  bool const all = std::exchange(unit_table_stale_, true) || touched.count > touched.slots.size();
  if (all) {
    to.copy_in(unit_memory_.data(), memory_.data(), memory_.size_bytes());
  } else {
    constexpr std::size_t words = dma_region_table::words_per_granule;
    for (std::uint32_t const slot : std::span(touched.slots).first(touched.count)) {
      to.copy_in(unit_table_.bits() + slot * words, table_.bits() + slot * words, words * sizeof(std::uint64_t));
      to.copy_in(unit_table_.keys() + slot, table_.keys() + slot, sizeof(std::uint64_t));
    }
  }
  unit_table_stale_ = false;
}

void dma_regions::add(void const* address, std::size_t bytes) {
  auto const start = reinterpret_cast<std::uint64_t>(address);
  if (bytes == 0 || start + bytes < start) {
    throw refused_input("registered region", describe(address, bytes), "give a range of at least one byte");
  }
  std::lock_guard const lock(mutex_);
  range const pages{start / dma_page_bytes, (start + bytes + dma_page_bytes - 1) / dma_page_bytes};
  check_room(pages);
  // First, because if there were no memory for it later, what is set now would stay set.
  ranges_.push_back(pages);
  try {
    set(pages, true);
  } catch (operation_failed const&) {
    ranges_.pop_back();
    clear_uncovered(pages);
    throw;
  }
}

void dma_regions::remove(void const* address, std::size_t bytes) {
  if (remove_if_added(address, bytes)) return;
  throw refused_input("registered region", describe(address, bytes), "unmap exactly a range that was mapped");
}

bool dma_regions::remove_if_added(void const* address, std::size_t bytes) noexcept {
  auto const start = reinterpret_cast<std::uint64_t>(address);
  range const pages{start / dma_page_bytes, (start + bytes + dma_page_bytes - 1) / dma_page_bytes};
  std::lock_guard const lock(mutex_);
  auto const found = std::find_if(ranges_.begin(), ranges_.end(), [&](range const& r) {
    return r.first_page == pages.first_page && r.end_page == pages.end_page;
  });
  if (found == ranges_.end()) return false;
  ranges_.erase(found);
  clear_uncovered(pages);
  return true;
}

void dma_regions::clear_uncovered(range pages) {
  // Stretches that other registrations cover too stay registered throughout, since commands in flight use them.
  for (std::uint64_t page = pages.first_page; page < pages.end_page;) {
    std::uint64_t covered_until = page, next_covered = pages.end_page;
    for (range const& other : ranges_) {
      if (other.first_page <= page) covered_until = std::max(covered_until, other.end_page);
      if (other.first_page > page) next_covered = std::min(next_covered, other.first_page);
    }
    try {
      if (covered_until == page) set({page, next_covered}, false);
    } catch (std::exception const&) {
      // The host's table is right. The GPU's copy is wrong until the next change reaches it. Usually the GPU has
      // failed, and then runs no engine that would read the table. A caller that is freeing memory could do nothing
      // about it.
    }
    page = covered_until == page ? next_covered : covered_until;
  }
}

bool dma_regions::is_empty(std::uint32_t slot) const {
  constexpr std::size_t words = dma_region_table::words_per_granule;
  std::uint64_t const* const bits = table_.bits() + slot * words;
  return std::all_of(bits, bits + words, [](std::uint64_t w) { return w == 0; });
}

void dma_regions::check_room(range pages) const {
  std::uint32_t const most = (std::uint32_t{1} << table_.log2_granules()) - 1;
  std::uint64_t const first = pages.first_page / pages_per_granule;
  std::uint64_t const end = (pages.end_page - 1) / pages_per_granule + 1;
  std::uint64_t more = end - first;
  if (more <= most) {
    for (std::uint64_t granule = first; granule < end; ++granule) {
      std::uint32_t const slot = table_.find<simt::native>(granule);
      if (slot != dma_region_table::none && !is_empty(slot)) --more;
    }
    if (more <= most - granules_) return;
  }
  throw operation_failed("registered memory: " + std::to_string((end - first) * dma_region_table::granule_bytes) +
                         " bytes more do not fit into the table of " + std::to_string(most) +
                         " distinct stretches of 2 MiB, of which " + std::to_string(most - granules_) +
                         " are free; register less at a time");
}

std::uint32_t dma_regions::find_or_insert(std::uint64_t granule) {
  if (std::uint32_t const known = table_.find<simt::native>(granule); known != dma_region_table::none) return known;
  std::uint32_t const slots = std::uint32_t{1} << table_.log2_granules();
  std::uint32_t slot = table_.home(granule);
  while (table_.keys()[slot] != 0 && !is_empty(slot)) slot = (slot + 1) & (slots - 1);  // `check_room` knows of one
  // Relaxed: see dma_region_table::contains. A search for the granule that was here is a search for memory that is no
  // longer registered. Only a client that unregisters memory under its own commands causes one, and this table has no
  // memory but that client's.
  simt::atomic<simt::native, simt::scope::system>(table_.keys()[slot]).store(granule + 1, simt::order::relaxed);
  return slot;
}

void dma_regions::free_slots(std::uint32_t slot, touched_slots& touched) {
  std::uint32_t const slots = std::uint32_t{1} << table_.log2_granules();
  // Only an empty slot ends a search, so a slot may become empty only if the next one is.
  while (table_.keys()[(slot + 1) & (slots - 1)] == 0 && table_.keys()[slot] != 0 && is_empty(slot)) {
    // Relaxed: see dma_region_table::contains.
    simt::atomic<simt::native, simt::scope::system>(table_.keys()[slot]).store(0, simt::order::relaxed);
    touched.add(slot);
    slot = (slot - 1) & (slots - 1);
  }
}

void dma_regions::set(range pages, bool value) {
  touched_slots touched;
  for (std::uint64_t page = pages.first_page; page < pages.end_page;) {
    std::uint64_t const in_granule = page % pages_per_granule;
    std::uint64_t const count = std::min<std::uint64_t>(pages.end_page - page, 64 - in_granule % 64);
    std::uint64_t const granule = page / pages_per_granule;
    std::uint32_t const slot = value ? find_or_insert(granule) : table_.find<simt::native>(granule);
    if (slot == dma_region_table::none) {
      page += count;
      continue;
    }
    touched.add(slot);
    bool const was_empty = is_empty(slot);
    std::uint64_t const mask = dma_region_table::mask(in_granule % 64, count);
    auto const word = simt::atomic<simt::native, simt::scope::system>(
        table_.bits()[slot * dma_region_table::words_per_granule + in_granule / 64]);
    // Relaxed: see dma_region_table::contains.
    if (value) {
      word.fetch_or(mask, simt::order::relaxed);
    } else {
      word.fetch_and(~mask, simt::order::relaxed);
    }
    if (was_empty && value) ++granules_;
    if (!was_empty && is_empty(slot)) {
      --granules_;
      free_slots(slot, touched);
    }
    page += count;
  }
  mirror(touched);
}

}  // namespace forebay::emulator
