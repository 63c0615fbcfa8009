// SPDX-License-Identifier: Apache-2.0
//! \file
//! Commands that break the rules of NVMe, most of them in one place only, for the controller fuzzer to submit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "emulator/fuzz_arena.hpp"
#include "emulator/fuzz_drive.hpp"
#include "emulator/fuzz_input.hpp"
#include "forebay/detail/nvme/command.hpp"

namespace forebay::emulator::testing {

/// Makes commands for a drive, and the addresses, lists and ranges in the arena that they name.
class hostile_commands {
 public:
  explicit hostile_commands(chosen_drive const& drive) : drive_(drive) {}

  /// In a strict input each pool has one purpose.
  arena::pool const& any_or(arena::pool const& usual, choices& pick) const {
    return drive_.strict || !pick.rarely(64) ? usual : arena::pools[pick.below(std::size(arena::pools))];
  }

  /// Mostly the start of a page, at times beside the pool, off by a few bytes, or nowhere.
  static std::uint64_t address(arena::pool const& in, choices& pick) {
    std::uint32_t const kind = pick.below(32);
    std::uint64_t const start = memory().of(in, pick.below(in.pages));
    switch (kind) {
      case 1:
        return start + pick.below(1024) * 4;
      case 2:
        return start + 4096 - 8 * (1 + pick.below(4));
      case 3:
        return start + pick.byte();
      case 4:
        return memory().address(in.first + in.pages);
      case 5:
        return memory().address(in.first + in.pages - 1);
      case 6:
        return memory().address(in.first - 1);
      case 7:
        return pick.one_of<std::uint64_t>({0, page, ~std::uint64_t{0}, ~std::uint64_t{4095}, std::uint64_t{1} << 63,
                                           (std::uint64_t{1} << 47) - page});
      case 8:
        return start | std::uint64_t{pick.byte()} << 56;
      default:
        return start;
    }
  }

  nvme::submission_entry io_command(choices& pick) const {
    bool const strict = drive_.strict;
    nvme::submission_entry e;
    io_opcode opcode =
        pick.one_of({io_opcode::read, io_opcode::write, io_opcode::read, io_opcode::write, io_opcode::compare,
                     io_opcode::flush, io_opcode::write_zeroes, io_opcode::dataset_management});
    if (strict && opcode == io_opcode::dataset_management) opcode = io_opcode::write;
    std::uint64_t const blocks = drive_.facts.blocks;
    std::uint64_t const most = drive_.facts.max_transfer_bytes() / drive_.facts.block_bytes;
    std::uint64_t count = 1 + pick.below(8);
    switch (pick.below(8)) {
      case 1:
        count = 4096 / drive_.facts.block_bytes * (1 + pick.below(16));
        break;
      case 2:
        count = most;
        break;
      case 3:
        count = most + 1 + (pick.rarely(128) ? pick.word<std::uint16_t>() : 0);
        break;
      case 4:
        count = pick.one_of<std::uint64_t>({blocks, blocks - reserved_blocks, 65536, 3});
        break;
      default:
        break;
    }
    count = std::min<std::uint64_t>(count, 65536);
    std::uint64_t const room = blocks - reserved_blocks;
    std::uint64_t slba = reserved_blocks + pick.word<std::uint16_t>() % room;
    if (slba + count > blocks && count <= room && !pick.rarely(24)) slba = blocks - count;
    if (pick.rarely(12)) {
      slba = pick.one_of<std::uint64_t>({blocks, blocks - 1, blocks + 1, ~std::uint64_t{0} - reserved_blocks,
                                         0xffffffff, std::uint64_t{1} << 63 | 256});
    }
    e = nvme::make_io_command(opcode, static_cast<std::uint16_t>(pick.byte() << 8 | static_cast<int>(opcode)), 1, slba,
                              static_cast<std::uint32_t>(count));
    if (opcode == io_opcode::dataset_management) {
      e.cdw10 = pick.one_of<std::uint32_t>({0, 1, 15, 255});
      e.cdw11 = pick.rarely(64) ? pick.byte() : nvme::cdw11_attribute_deallocate;
    }
    std::uint64_t length = count * drive_.facts.block_bytes;
    if (opcode == io_opcode::dataset_management) {
      e.prp1 = strict ? memory().of(arena::lists, 15) : ranges(pick, (e.cdw10 & 0xff) + 1);
      e.prp2 = address(arena::data, pick);
    } else {
      e.prp1 = address(any_or_data(pick), pick);
      std::uint64_t const in_first = page - e.prp1 % page;
      std::uint64_t const rest = length > in_first ? (length - in_first + page - 1) / page : 0;
      e.prp2 = rest > 1 && rest < 3000 && !pick.rarely(16) ? make_list(pick, rest) : address(any_or_data(pick), pick);
    }
    if (pick.rarely(16)) e.nsid = pick.one_of({0u, 2u, ~0u, 0xfffffffeu, 0x01000000u});
    if (pick.rarely(10)) e.cdw0 ^= std::uint32_t{1} << (8 + pick.below(8));
    if (pick.rarely(10)) e.cdw0 = (e.cdw0 & ~0xffu) | pick.byte();
    if (pick.rarely(16)) e.cdw12 ^= std::uint32_t{1} << (16 + pick.below(16));
    if (pick.rarely(8)) {
      auto* const dwords = reinterpret_cast<std::uint32_t*>(&e);
      std::uint32_t const which = pick.below(16);
      dwords[which] ^= pick.word<std::uint32_t>();
    }
    if (strict) {
      // No mixture of pieces of commands writes the first blocks: neither by an opcode that reads its ranges from
      // memory, nor by a first block that is among them.
      if (e.opcode() == static_cast<std::uint8_t>(io_opcode::dataset_management)) e.cdw0 ^= 0x40;
      if (e.cdw10 < reserved_blocks) e.cdw10 |= reserved_blocks;
    }
    return e;
  }

  std::uint32_t queue_size(choices& pick) const {
    return pick.rarely(48) ? pick.one_of({1u, 65536u, drive_.options.max_queue_entries + 1, 1025u, 1024u, 513u})
                           : pick.one_of({16u, 2u, 3u, 7u, 65u, 64u, 257u, 20u});
  }

  nvme::submission_entry admin_command(choices& pick, std::uint32_t queues) const {
    nvme::submission_entry e;
    auto const opcode =
        pick.one_of({admin_opcode::identify, admin_opcode::create_io_completion_queue,
                     admin_opcode::create_io_submission_queue, admin_opcode::delete_io_submission_queue,
                     admin_opcode::delete_io_completion_queue, admin_opcode::get_log_page, admin_opcode::get_features,
                     admin_opcode::set_features, admin_opcode::abort, admin_opcode::asynchronous_event_request,
                     admin_opcode::create_io_submission_queue, admin_opcode::get_log_page});
    e.cdw0 = nvme::make_cdw0(opcode, static_cast<std::uint16_t>(pick.byte() << 8 | static_cast<int>(opcode)));
    e.prp1 = address(any_or_data(pick), pick);
    e.prp2 = address(any_or_data(pick), pick);
    std::uint32_t const id = queue_id(pick, queues);
    switch (opcode) {
      case admin_opcode::identify:
        e.nsid = pick.one_of({1u, 0u, ~0u, 2u, 0xfffffffeu});
        e.cdw10 = pick.rarely(16) ? pick.word<std::uint32_t>() : pick.below(5);
        break;
      case admin_opcode::create_io_completion_queue:
      case admin_opcode::create_io_submission_queue: {
        bool const is_cq = opcode == admin_opcode::create_io_completion_queue;
        e.cdw10 = id | (queue_size(pick) - 1) << 16;
        e.cdw11 = (pick.rarely(16) ? pick.byte() : 1u) | (is_cq ? pick.below(8) : queue_id(pick, queues)) << 16;
        e.prp1 = address(any_or(is_cq ? arena::completion_queues : arena::submission_queues, pick), pick);
        break;
      }
      case admin_opcode::delete_io_completion_queue:
      case admin_opcode::delete_io_submission_queue:
        e.cdw10 = id;
        break;
      case admin_opcode::abort:
        e.cdw10 = id | static_cast<std::uint32_t>(pick.byte() << 8 | pick.one_of({1, 2, 5, 0x0c})) << 16;
        break;
      case admin_opcode::get_log_page: {
        std::uint32_t const dwords = pick.one_of({128u, 1024u, 1u, 16u, 4096u, 262144u, 262145u, 0x10000u, 0u});
        e.nsid = pick.one_of({~0u, 0u, 1u, 2u});
        e.cdw10 = pick.one_of({1u, 2u, 3u, 5u, 4u, 0x81u}) | ((dwords - 1) & 0xffff) << 16 |
                  (pick.rarely(64) ? 1u << 15 : 0u);
        e.cdw11 = (dwords - 1) >> 16;
        std::uint64_t const offset = pick.one_of<std::uint64_t>(
            {0, 4, 512, 4096, 4092, 2, 64 * 64, 64 * 64 + 4, ~std::uint64_t{3}, std::uint64_t{1} << 32, 511});
        e.cdw12 = static_cast<std::uint32_t>(offset);
        e.cdw13 = static_cast<std::uint32_t>(offset >> 32);
        if (dwords > 2048 && dwords < 300000) e.prp2 = make_list(pick, dwords / 1024);
        break;
      }
      case admin_opcode::set_features:
      case admin_opcode::get_features:
        e.cdw10 = pick.below(18) | (pick.rarely(32) ? pick.word<std::uint32_t>() : 0);
        e.cdw11 = pick.word<std::uint16_t>();
        break;
      default:
        break;
    }
    if (pick.rarely(12)) e.cdw0 = (e.cdw0 & ~0xffu) | pick.byte();
    if (pick.rarely(8)) e.cdw0 ^= std::uint32_t{1} << (8 + pick.below(8));
    if (!drive_.strict && pick.rarely(16)) {
      auto* const dwords = reinterpret_cast<std::uint32_t*>(&e);
      std::uint32_t const which = pick.below(16);
      dwords[which] ^= pick.word<std::uint32_t>();
    }
    if (drive_.strict && e.opcode() == static_cast<std::uint8_t>(opcode)) return e;
    // Data that one command moves must not land in memory that was to be another client's queue.
    if (drive_.strict) e.prp1 = e.prp2 = address(arena::data, pick);
    return e;
  }

  static std::uint32_t queue_id(choices& pick, std::uint32_t queues) {
    return pick.rarely(24) ? pick.one_of({0u, queues + 1, 0xffffu, 0x100u}) : 1 + pick.below(queues);
  }

 private:
  using admin_opcode = nvme::admin_opcode;
  using io_opcode = nvme::io_opcode;

  /// Fills a list that names `entries` pages of data, and returns where it begins.
  std::uint64_t make_list(choices& pick, std::uint64_t entries) const {
    std::uint64_t const start = memory().of(arena::lists, pick.below(14));
    std::uint64_t const begin = pick.rarely(64) ? start + page - 8 * (1 + pick.below(8)) : start;
    std::uint64_t at = begin;
    bool const spoils = pick.rarely(64);
    std::uint32_t const first = pick.below(64);
    for (std::uint64_t i = 0; i < entries; ++i) {
      // The last word of a page names the next page of the list, if there is more than one entry to come.
      if (at % page == page - 8 && i + 1 < entries) {
        std::uint64_t const next = memory().of(arena::lists, pick.below(16));
        memory().store(at, spoils && pick.rarely(64) ? address(arena::lists, pick) : next);
        at = next;
      }
      std::uint64_t const entry = spoils && pick.rarely(32)
                                      ? address(arena::data, pick)
                                      : memory().of(arena::data, first + static_cast<std::uint32_t>(i));
      memory().store(at, entry);
      at += 8;
    }
    return begin;
  }

  arena::pool const& any_or_data(choices& pick) const {
    return drive_.strict || !pick.rarely(16) ? arena::data : arena::pools[pick.below(std::size(arena::pools))];
  }

  /// Ranges of Dataset Management.
  std::uint64_t ranges(choices& pick, std::uint32_t count) const {
    std::uint64_t const at = memory().of(arena::lists, pick.below(16), pick.rarely(48) ? pick.below(1024) * 4 : 0);
    std::uint64_t const blocks = drive_.facts.blocks;
    std::uint64_t first = 0, length = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      // The rest is like the eighth, so that long lists are valid too.
      if (i < 8) {
        first = pick.rarely(24) ? pick.one_of<std::uint64_t>({blocks, ~std::uint64_t{0}, blocks + 1})
                                : pick.word<std::uint16_t>() % blocks;
        length = pick.one_of<std::uint32_t>({1, 0, 8, 64, static_cast<std::uint32_t>(blocks), ~std::uint32_t{0}, 100});
        if (!pick.rarely(32) && first < blocks) length = std::min(length, blocks - first);
      }
      memory().store(at / 8 * 8 + 16 * i, length << 32);
      memory().store(at / 8 * 8 + 16 * i + 8, first);
    }
    return at;
  }

  chosen_drive const& drive_;
};

}  // namespace forebay::emulator::testing
