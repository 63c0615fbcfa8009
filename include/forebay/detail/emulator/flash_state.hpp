// SPDX-License-Identifier: Apache-2.0
//! \file
//! Host side of the flash model: its layout, its memory, and the drive's contents when it is opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stop_token>
#include <vector>

#include "forebay/detail/emulator/flash_model.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/memory.hpp"

namespace forebay::emulator {

/// The layout of a drive of `drive_bytes`. If the spare space of a die is less than sixteen blocks, the drive has
/// smaller blocks, each of which is erased in less time, so that its spare space is what the parameters say. Throws
/// `refused_input` for a drive that is too small even for this, and for parameters that do not fit each other.
flash_geometry flash_geometry_of(flash_parameters const& parameters, std::uint64_t drive_bytes);

/// Writes what `start` says to flash that has not been written, all dies in parallel. The result depends on the
/// geometry and `seed` alone. Clocks and counters are 0 afterwards. Throws `operation_failed` once `cancel` says so.
void precondition(flash_model<simt::native> const& fresh, preconditioning start, std::uint64_t seed,
                  std::stop_token const& cancel = {});

/// Memory for the state of a drive's flash. Throws `refused_input` if there is not enough memory.
memory::allocation flash_memory(memory::resource& from, std::size_t bytes, preconditioning start,
                                std::uint64_t drive_bytes);

/// Owns the state of a flash model of machine `M`, in memory that the drive's units reach: 4 bytes for each logical
/// page and 4 for each place.
template <class M>
class flash_state {
 public:
  flash_state(flash_parameters const& parameters, std::uint64_t drive_bytes, std::uint64_t seed, memory::resource& from,
              std::stop_token const& cancel = {})
      : geometry_(flash_geometry_of(parameters, drive_bytes)),
        from_(from),
        memory_(flash_memory(from, layout(nullptr).end, parameters.start, drive_bytes)) {
    bool const near = from.kind() != memory::kind::device;
    memory::allocation apart;
    if (!near) apart = flash_memory(memory::host(), layout(nullptr).end, parameters.start, drive_bytes);
    std::byte* const image = (near ? memory_ : apart).template as<std::byte>();
    begin(layout(image));
    precondition({geometry_, arrays_of<simt::native>(layout(image))}, parameters.start, seed, cancel);
    new (image) flash_model<M>(geometry_, arrays_of<M>(layout(memory_.as<std::byte>())));
    if (near) return;
    placed const at = layout(nullptr);
    std::size_t const bytes = parameters.start == preconditioning::fresh ? at.map : at.end;
    constexpr std::size_t piece = std::size_t{64} << 20;
    for (std::size_t i = 0; i < bytes; i += piece) {
      from.copy_in(memory_.as<std::byte>() + i, image + i, bytes - i < piece ? bytes - i : piece);
    }
  }

  flash_model<M> const* model() const { return memory_.template as<flash_model<M>>(); }
  flash_geometry const& geometry() const { return geometry_; }

  /// Adds up what the dies counted; they may be written to meanwhile. `Host` is the machine of the calling thread.
  template <class Host>
  void collect(flash_counters& sum) const {
    std::vector<flash_die> copies;
    flash_die* dies = reinterpret_cast<flash_die*>(memory_.as<std::byte>() + layout(nullptr).dies);
    if (from_.kind() == memory::kind::device) {
      copies.resize(geometry_.dies);
      from_.copy_out(copies.data(), dies, copies.size() * sizeof copies[0]);
      dies = copies.data();
    }
    for (std::uint32_t d = 0; d < geometry_.dies; ++d) {
      flash_counters::for_each([&](char const*, std::uint64_t flash_counters::* counter) {
        // Relaxed: pairs with nothing; see `flash_model::add`.
        sum.*counter += simt::atomic<Host, simt::scope::system>(dies[d].counts.*counter).load(simt::order::relaxed);
      });
    }
  }

 private:
  /// Where each array begins, in bytes from `base`.
  struct placed {
    std::byte* base = nullptr;
    std::size_t dies = 0, bus = 0, done = 0, ring = 0, valid = 0, map = 0, holds = 0, end = 0;
  };

  placed layout(std::byte* base) const {
    flash_geometry const& g = geometry_;
    std::size_t at = 0;
    auto const take = [&](std::size_t count, std::size_t bytes) {
      std::size_t const begin = at;
      at = (at + count * bytes + 127) / 128 * 128;
      return begin;
    };
    placed out;
    out.base = base;
    take(1, sizeof(flash_model<M>));
    std::size_t const blocks = std::size_t{g.dies} * g.blocks_per_die;
    out.dies = take(g.dies, sizeof(flash_die));
    out.bus = take(g.channels, sizeof(std::uint64_t));
    out.done = take(std::size_t{g.dies} * g.buffered_programs, sizeof(std::uint64_t));
    out.ring = take(blocks, sizeof(std::uint32_t));
    out.valid = take(blocks, sizeof(std::uint32_t));
    out.map = take(std::size_t{g.dies} * g.pages_per_die, sizeof(std::uint32_t));
    out.holds = take(blocks * g.pages_per_block, sizeof(std::uint32_t));
    out.end = at;
    return out;
  }

  template <class Machine>
  static typename flash_model<Machine>::arrays arrays_of(placed const& at) {
    auto const words = [&](std::size_t begin) { return reinterpret_cast<std::uint32_t*>(at.base + begin); };
    auto const clocks = [&](std::size_t begin) { return reinterpret_cast<std::uint64_t*>(at.base + begin); };
    return {.dies = reinterpret_cast<flash_die*>(at.base + at.dies),
            .bus_free_ps = clocks(at.bus),
            .program_done = clocks(at.done),
            .free_ring = words(at.ring),
            .valid_pages = words(at.valid),
            .map = words(at.map),
            .holds = words(at.holds)};
  }

  /// Makes all blocks free; the rest is zero already.
  void begin(placed const& image) const {
    auto const at = arrays_of<simt::native>(image);
    for (std::uint32_t d = 0; d < geometry_.dies; ++d) {
      at.dies[d] = {};  // nvcc knows no placement of a type with an alignment of its own
      at.dies[d].free_blocks = geometry_.blocks_per_die;
      for (std::uint32_t b = 0; b < geometry_.blocks_per_die; ++b) {
        at.free_ring[std::size_t{d} * geometry_.blocks_per_die + b] = b;
        at.valid_pages[std::size_t{d} * geometry_.blocks_per_die + b] = flash_model<M>::is_free;
      }
    }
  }

  flash_geometry const geometry_;
  memory::resource& from_;
  memory::allocation memory_;
};

}  // namespace forebay::emulator
