// SPDX-License-Identifier: Apache-2.0
//! \file
//! Rings that a test writes itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/memory.hpp"
#include "forebay/token.hpp"

namespace forebay::test {

/// One queue pair whose controller is the test.
struct hand_driven {
  using native = simt::native;

  std::uint32_t const entries;
  std::vector<nvme::submission_entry> sq{entries};
  std::vector<nvme::completion_entry> cq{entries};
  std::uint32_t sq_doorbell = 0;
  std::uint32_t cq_doorbell = 0;
  alignas(4096) std::array<std::byte, 2 * 4096> lists{};
  alignas(4096) std::array<std::byte, 4 * 4096> data{};
  std::uint32_t posted = 0;
  io_queues queues;

  static constexpr command_limits patient{10'000'000'000, 60'000'000'000};
  /// Every command is old enough to be aborted.
  static constexpr command_limits hasty{1, 1};

  explicit hand_driven(std::uint32_t records = 8, command_limits const& limits = patient, std::uint32_t ring = 4)
      : entries(ring),
        queues(std::array{queue_pair_rings{sq.data(), cq.data(), &sq_doorbell, &cq_doorbell, entries, entries, 1}},
               options(records, limits), memory::host(), memory::host()) {}

  io_queues_options options(std::uint32_t records, command_limits const& limits) {
    io_queues_options o;
    o.records = records;
    o.timeout_ns = limits.timeout_ns;
    o.flush_timeout_ns = limits.flush_timeout_ns;
    o.prp_pages = buffer_ref(lists.data(), lists.size(), reinterpret_cast<std::uint64_t>(lists.data()));
    return o;
  }
  io_queues_ref<native> ref() const { return queues.ref<native>(); }
  bool poll() const { return ref().pair(0).try_poll(ref().prp_pages(), ref().records()); }
  status submit(std::uint32_t record, io_command const& command = {}) const {
    std::uint32_t home = 0;
    return ref().submit({0, 1}, home, command, record, native::clock_ns());
  }
  void complete(std::uint16_t id, std::uint16_t sq_head, std::uint16_t status_field = 0) {
    nvme::completion_entry& entry = cq[posted % entries];
    entry.dw2 = nvme::completion_entry::make_dw2(sq_head, 1);
    entry.dw3 = nvme::completion_entry::make_dw3(id, (posted / entries % 2) ^ 1, status_field);
    ++posted;
  }
  token<native> token_of(std::uint32_t record) const { return {ref(), record, {0, 1}}; }
};

}  // namespace forebay::test
