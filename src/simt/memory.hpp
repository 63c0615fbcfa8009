// SPDX-License-Identifier: Apache-2.0
//! \file
//! The weak memory models of scheduled runs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "forebay/detail/simt/lane.hpp"
#include "forebay/detail/simt/run.hpp"
#include "lanes.hpp"

namespace forebay::simt::detail {

inline bool releases(order o) {
  return o == order::release || o == order::acq_rel || o == order::seq_cst;
}

/// The functions of the run that a memory model calls.
class memory_host {
 public:
  virtual std::uint32_t choice(std::uint32_t n) = 0;
  virtual void changed(void const* address) = 0;
  /// A violation by the current lane, which then calls `stop`.
  virtual void report(std::string what, location where) = 0;
  [[noreturn]] virtual void stop() = 0;
  virtual std::string name(std::uint32_t lane) = 0;

 protected:
  ~memory_host() = default;
};

/// The place of a lane in the hierarchy of scopes. An agent is alone in its block; `device` is its domain, which no
/// lane belongs to.
struct scope_position {
  std::uint32_t device = 0;
  std::uint32_t block = 0;
};

/// Holds the values that lanes see. Addresses are natural: one access lies in one granule of 8 bytes.
class memory {
 public:
  virtual ~memory() = default;
  virtual std::uint64_t load(lane& l, void const* address, std::uint32_t bytes, order o, scope s, location where) = 0;
  virtual void store(lane& l, void* address, std::uint32_t bytes, std::uint64_t value, order o, scope s,
                     location where) = 0;
  /// A read-modify-write: between these two calls the caller changes memory itself.
  virtual void modify_begin(lane& l, void* address, std::uint32_t bytes, order o, scope s, location where) = 0;
  virtual void modify_end(lane& l, void* address, std::uint32_t bytes, std::uint64_t value, bool stored, order o,
                          scope s) = 0;
  virtual std::uint64_t plain_load(lane& l, void const* address, std::uint32_t bytes, location where) = 0;
  virtual void plain_store(lane& l, void* address, std::uint32_t bytes, std::uint64_t value, location where) = 0;
  virtual void fence(lane& l, order o, scope s) = 0;
  /// All members have arrived at a barrier.
  virtual void synchronised(std::span<lane* const> members) = 0;
  /// `l` learns that every lane of the grid has ended.
  virtual void grid_ended(lane& l) = 0;
  /// The value that `l` would read now.
  virtual std::uint64_t visible(lane const& l, void const* address, std::uint32_t bytes) const = 0;
  /// A load that may race. The lane's later loads show what the writer of the value had seen.
  virtual std::uint64_t speculative_load(lane& l, void const* address, std::uint32_t bytes) {
    return visible(l, address, bytes);
  }
  /// Lets one held-back store of any lane become visible. False if there is none.
  virtual bool advance() { return false; }
  /// Lets all held-back stores become visible.
  void settle() {
    while (advance()) {
    }
  }
  /// Called at each step: a held-back store may become visible.
  virtual void step() {}
};

/// Reads the `bytes` bytes at `address`, zero-extended.
std::uint64_t read_bytes(void const* address, std::uint32_t bytes);
void write_bytes(void* address, std::uint32_t bytes, std::uint64_t value);

std::unique_ptr<memory> make_store_buffers(memory_host& host, std::uint32_t lanes);
/// `positions` by lane id.
std::unique_ptr<memory> make_clocks(memory_host& host, std::vector<scope_position> positions, bool stale_reads);

}  // namespace forebay::simt::detail
