// SPDX-License-Identifier: Apache-2.0
//! \file
//! Rings, doorbells, phase tags and command ids (section 4.1), with many commands in flight.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "conformance/fixture.hpp"

namespace forebay::conformance {

namespace {

using nvme::io_opcode;
using simt::native;

/// Blocks 0 to `count` get the pattern `salt`.
void prepare(fixture& f, std::uint32_t count, std::uint64_t salt) {
  buffer const data(f, std::size_t{count} * f.drive().block_bytes);
  data.fill_pattern(0, salt, f.drive().block_bytes);
  f.expect(f.transfer(io_opcode::write, 0, data), 0);
}

/// Reads one block with each of `count` commands through `pair`, command id `i * factor`, and checks every byte.
void read_many(fixture& f, queue_pair& pair, std::uint32_t count, std::uint32_t factor = 1) {
  std::uint32_t constexpr span = 64;
  std::uint32_t const block = f.drive().block_bytes;
  std::vector<buffer> data;
  std::vector<nvme::submission_entry> entries;
  for (std::uint32_t i = 0; i < count; ++i) {
    data.emplace_back(f, block);
    nvme::submission_entry entry = f.command(io_opcode::read, i % span, 1);
    entry.set_command_id(static_cast<std::uint16_t>(i * factor));
    data.back().describe(entry);
    entries.push_back(entry);
  }
  auto const statuses = pair.run_all(entries);
  EXPECT_EQ(statuses.size(), count);
  for (auto const& [id, status] : statuses) f.expect(status, 0, fmt::format("command {}", id));
  for (std::uint32_t i = 0; i < count; ++i) EXPECT_TRUE(data[i].holds_pattern(i % span, 61, block)) << "command " << i;
}

void wrap(fixture& f, std::uint32_t sq_entries, std::uint32_t cq_entries) {
  prepare(f, 64, 61);
  queue_pair pair = f.make_pair(2, sq_entries, cq_entries);
  read_many(f, pair, 5 * std::max(sq_entries, cq_entries) + 3);
}

void wrap_alone(fixture& f, std::uint32_t entries) {
  prepare(f, 64, 61);
  queue_pair pair = f.make_pair(2, entries);
  for (std::uint32_t i = 0; i < 4 * entries + 1; ++i) read_many(f, pair, 1, 1);
}

}  // namespace

void add_ring_checks(check_list& list) {
  list.insert(
      list.end(),
      {
          {"ring_wrap_at_depth_2", [](fixture& f) { wrap(f, 2, 2); }},
          {"ring_wrap_at_depth_3", [](fixture& f) { wrap(f, 3, 3); }},
          {"ring_wrap_at_depth_4", [](fixture& f) { wrap(f, 4, 4); }},
          {"ring_wrap_at_depth_31", [](fixture& f) { wrap(f, 31, 31); }},
          {"ring_wrap_at_depth_32", [](fixture& f) { wrap(f, 32, 32); }},
          {"ring_wrap_one_command_at_a_time", [](fixture& f) { wrap_alone(f, 3); }},
          {"ring_wrap_with_a_deeper_cq", [](fixture& f) { wrap(f, 4, 7); }},
          {"ring_wrap_with_a_deeper_sq", [](fixture& f) { wrap(f, 16, 5); }},
          {"phase_tag_inverts_each_lap",
           [](fixture& f) {
             queue_pair pair = f.make_pair(1, 4);
             for (std::uint32_t lap = 0; lap < 5; ++lap) {
               for (std::uint32_t i = 0; i < 4; ++i) pair.run(f.command(io_opcode::flush, 0, 1));
               for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(pair.cq.ring[i].phase(), 1 ^ (lap & 1)) << "lap " << lap;
             }
           }},
          {"sq_head_follows_each_command",
           [](fixture& f) {
             queue_pair pair = f.make_pair(1, 5);
             for (std::uint32_t i = 0; i < 23; ++i) {
               nvme::completion_entry const c = pair.run(f.command(io_opcode::flush, 0, 1));
               EXPECT_EQ(c.sq_head(), (i + 1) % 5);
               EXPECT_EQ(c.sq_id(), 1);
             }
           }},
          {"sq_head_never_goes_back",
           [](fixture& f) {
             prepare(f, 64, 61);
             queue_pair pair = f.make_pair(2, 16);
             std::uint32_t consumed = 0;
             for (std::uint32_t round = 0; round < 20; ++round) {
               std::uint32_t const submitted = (round + 1) * 15;
               std::deque<buffer> data;
               for (int i = 0; i < 15; ++i) {
                 data.emplace_back(f, f.drive().block_bytes);
                 nvme::submission_entry entry = f.command(io_opcode::read, static_cast<std::uint64_t>(i), 1);
                 data.back().describe(entry);
                 pair.sq.push(entry);
               }
               pair.sq.ring_doorbell();
               for (int i = 0; i < 15; ++i) {
                 std::uint32_t const head = pair.cq.wait().sq_head();
                 ASSERT_LT(head, 16u);
                 // Both are taken modulo the ring; what lies between them was consumed.
                 std::uint32_t const advance = (head + 16 - consumed % 16) % 16;
                 consumed += advance;
                 ASSERT_LE(consumed, submitted);
               }
               EXPECT_EQ(consumed, submitted) << "all completed, so all were consumed";
             }
           }},
          {"command_ids_are_echoed",
           [](fixture& f) {
             queue_pair pair = f.make_pair(1, 8);
             for (std::uint16_t const id :
                  std::initializer_list<std::uint16_t>{0x0000, 0x0001, 0x00ff, 0x0100, 0x7fff, 0x8000, 0xfffe}) {
               nvme::submission_entry entry = f.command(io_opcode::flush, 0, 1);
               entry.set_command_id(id);
               EXPECT_EQ(pair.run(entry).command_id(), id);
             }
           }},
          {"command_ids_need_not_be_slots",
           [](fixture& f) {
             prepare(f, 64, 61);
             queue_pair pair = f.make_pair(2, 8);
             read_many(f, pair, 100, 0x1235);
           }},
          {"entries_wait_for_the_doorbell",
           [](fixture& f) {
             queue_pair pair = f.make_pair(1, 8);
             for (int i = 0; i < 4; ++i) pair.sq.push(f.command(io_opcode::flush, 0, 1));
             f.give_time();
             EXPECT_FALSE(pair.cq.take().has_value()) << "a command ran that was not handed over";
             pair.sq.ring_doorbell();
             for (int i = 0; i < 4; ++i) EXPECT_EQ(pair.cq.wait().status_field(), 0);
           }},
          {"doorbell_hands_over_only_what_lies_before_it",
           [](fixture& f) {
             queue_pair pair = f.make_pair(1, 8);
             submission_ring ahead = pair.sq;
             for (int i = 0; i < 2; ++i) pair.sq.push(f.command(io_opcode::flush, 0, 1));
             ahead = pair.sq;
             for (int i = 0; i < 2; ++i) ahead.push(f.command(io_opcode::flush, 0, 1));
             pair.sq.ring_doorbell();
             for (int i = 0; i < 2; ++i) EXPECT_EQ(pair.cq.wait().status_field(), 0);
             f.give_time();
             EXPECT_FALSE(pair.cq.take().has_value());
             ahead.ring_doorbell();
             for (int i = 0; i < 2; ++i) EXPECT_EQ(pair.cq.wait().status_field(), 0);
           }},
          {"one_doorbell_for_a_full_ring",
           [](fixture& f) {
             queue_pair pair = f.make_pair(1, 32);
             for (int i = 0; i < 31; ++i) pair.sq.push(f.command(io_opcode::flush, 0, 1));
             pair.sq.ring_doorbell();
             for (int i = 0; i < 31; ++i) EXPECT_EQ(pair.cq.wait().status_field(), 0);
             EXPECT_FALSE(pair.cq.take().has_value());
           }},
          {"doorbells_as_register_writes",
           [](fixture& f) {
             queue_pair pair = f.make_pair(1, 4);
             for (std::uint32_t i = 0; i < 9; ++i) {
               pair.sq.push(f.command(io_opcode::flush, 0, 1));
               native::fence(simt::scope::system, simt::order::release);  // pairs with the controller's doorbell read
               f.registers().write32(nvme::registers::sq_tail_doorbell(1, f.stride()), pair.sq.tail);
               std::optional<nvme::completion_entry> seen;
               ASSERT_TRUE(native::wait_until([&] { return (seen = pair.cq.take()).has_value(); },
                                              native::clock_ns() + patience_ns));
               EXPECT_EQ(seen->status_field(), 0);
               f.registers().write32(nvme::registers::cq_head_doorbell(1, f.stride()), pair.cq.head);
             }
           }},
          {"full_cq_holds_completions_back",
           [](fixture& f) {
             queue_pair pair = f.make_pair(1, 16, 4);
             for (int i = 0; i < 8; ++i) pair.sq.push(f.command(io_opcode::flush, 0, 1));
             pair.sq.ring_doorbell();
             completion_ring& cq = pair.cq;
             std::vector<nvme::completion_entry> taken;
             auto const take_three = [&] {
               return native::wait_until(
                   [&] {
                     if (auto c = cq.take()) taken.push_back(*c);
                     return taken.size() == 3;
                   },
                   native::clock_ns() + patience_ns);
             };
             ASSERT_TRUE(take_three());
             f.give_time();
             EXPECT_FALSE(cq.take().has_value()) << "posted into a full queue";
             // One entry given back makes room for one.
             native::st_mmio(cq.doorbell, 1);
             ASSERT_TRUE(native::wait_until(
                 [&] {
                   if (auto c = cq.take()) taken.push_back(*c);
                   return taken.size() == 4;
                 },
                 native::clock_ns() + patience_ns));
             f.give_time();
             EXPECT_FALSE(cq.take().has_value()) << "one entry was given back";
             cq.release();
             while (taken.size() < 8) taken.push_back(cq.wait());
             std::set<std::uint16_t> ids;
             for (nvme::completion_entry const& c : taken) {
               EXPECT_EQ(c.status_field(), 0);
               ids.insert(c.command_id());
             }
             EXPECT_EQ(ids.size(), 8u);
           }},
          {"several_sqs_share_a_cq",
           [](fixture& f) {
             completion_ring cq = f.make_cq(1, 64);
             std::vector<submission_ring> sqs;
             for (std::uint16_t id = 1; id <= 4; ++id) sqs.push_back(f.make_sq(id, 16, 1));
             std::set<std::pair<std::uint16_t, std::uint16_t>> in_flight;
             for (submission_ring& sq : sqs) {
               for (std::uint16_t i = 0; i < 15; ++i) {
                 nvme::submission_entry entry = f.command(io_opcode::flush, 0, 1);
                 entry.set_command_id(i);  // unique only within its SQ
                 sq.push(entry);
                 in_flight.insert({sq.id, i});
               }
             }
             for (submission_ring const& sq : sqs) sq.ring_doorbell();
             while (!in_flight.empty()) {
               nvme::completion_entry const c = cq.wait();
               EXPECT_EQ(c.status_field(), 0);
               ASSERT_EQ(in_flight.erase({c.sq_id(), c.command_id()}), 1u)
                   << "SQ " << c.sq_id() << " id " << c.command_id();
             }
           }},
          {"sq_on_a_cq_of_another_id",
           [](fixture& f) {
             queue_pair pair;
             pair.cq = f.make_cq(5, 8);
             pair.sq = f.make_sq(2, 8, 5);
             prepare(f, 64, 61);
             read_many(f, pair, 30);
           }},
          {"many_commands_complete_once_each_in_any_order",
           [](fixture& f) {
             prepare(f, 64, 61);
             queue_pair pair = f.make_pair(2, 64);
             read_many(f, pair, 1000, 0x2f);
           }},
          {"queues_run_side_by_side",
           [](fixture& f) {
             // A model of the drive: what each block was last written with. Blocks belong to one queue each.
             std::uint32_t constexpr queues = 6, depth = 16, blocks_per_queue = 512, largest = 40;
             std::uint32_t const block = f.drive().block_bytes;
             struct operation {
               bool write;
               std::uint64_t lba, salt;
               std::unique_ptr<buffer> data;
             };
             struct lane {
               queue_pair pair;
               std::map<std::uint16_t, operation> in_flight;
               std::vector<std::uint64_t> salts = std::vector<std::uint64_t>(blocks_per_queue, 0);
               int left = 120;
               std::uint64_t base = 0;
             };
             std::vector<lane> lanes(queues);
             for (std::uint16_t q = 0; q < queues; ++q) {
               lanes[q].pair = f.make_pair(static_cast<std::uint16_t>(q + 1), depth);
               lanes[q].base = 8192 + q * blocks_per_queue;
             }
             auto const submit = [&](lane& l) {
               // Cells of `largest` blocks: never two commands of which one writes on the same cell.
               std::uint64_t const cell = f.random() % (blocks_per_queue / largest);
               for (auto const& [id, o] : l.in_flight) {
                 if ((o.lba - l.base) / largest == cell) return;
               }
               auto const blocks = static_cast<std::uint32_t>(1 + f.random() % largest);
               operation o;
               o.lba = l.base + cell * largest;
               o.write = l.salts[cell] == 0 || f.random() % 2 == 0;
               o.data =
                   std::make_unique<buffer>(f, std::size_t{o.write ? largest : blocks} * block, 512 * (f.random() % 8));
               if (o.write) l.salts[cell] = 1 + f.random() % 1000;
               o.salt = l.salts[cell];
               if (o.write) o.data->fill_pattern(o.lba, o.salt, block);
               nvme::submission_entry entry =
                   f.command(o.write ? io_opcode::write : io_opcode::read, o.lba, o.write ? largest : blocks);
               o.data->describe(entry);
               l.pair.sq.push(entry);
               l.in_flight.emplace(entry.command_id(), std::move(o));
               --l.left;
             };
             std::uint64_t const deadline = native::clock_ns() + patience_ns;
             bool const finished = native::wait_until(
                 [&] {
                   bool busy = false;
                   for (lane& l : lanes) {
                     std::uint32_t const tail = l.pair.sq.tail;
                     while (l.left > 0 && l.in_flight.size() < depth - 1 && f.random() % 4 != 0) submit(l);
                     if (l.pair.sq.tail != tail) l.pair.sq.ring_doorbell();
                     while (auto const c = l.pair.cq.take()) {
                       l.pair.cq.release();
                       auto const found = l.in_flight.find(c->command_id());
                       if (found == l.in_flight.end()) throw std::runtime_error("completion of no command in flight");
                       f.expect(f.status(*c), 0);
                       operation const& o = found->second;
                       EXPECT_TRUE(o.data->holds_pattern(o.lba, o.salt, block)) << "lba " << o.lba;
                       EXPECT_TRUE(o.data->guards_intact());
                       l.in_flight.erase(found);
                     }
                     busy |= l.left > 0 || !l.in_flight.empty();
                   }
                   return !busy;
                 },
                 deadline);
             EXPECT_TRUE(finished);
           }},
      });
}

}  // namespace forebay::conformance
