// SPDX-License-Identifier: Apache-2.0
//! \file
//! Abort, queue deletion and controller reset with commands in flight: the operations that a host's recovery depends
//! on.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <deque>
#include <set>
#include <vector>

#include "conformance/fixture.hpp"

namespace forebay::conformance {

namespace {

using nvme::io_opcode;

/// Commands in flight whose buffers are watched.
struct burst {
  std::deque<buffer> data;
  std::vector<std::uint16_t> ids;
};

/// Hands `count` reads of 64 KiB to the controller and does not wait.
burst start_reads(fixture& f, queue_pair& pair, std::uint32_t count) {
  burst b;
  std::uint32_t const blocks = 65536 / f.drive().block_bytes;
  for (std::uint32_t i = 0; i < count; ++i) {
    b.data.emplace_back(f, 65536);
    nvme::submission_entry entry = f.command(io_opcode::read, std::uint64_t{i} * blocks, blocks);
    b.data.back().describe(entry);
    b.ids.push_back(entry.command_id());
    pair.sq.push(entry);
  }
  pair.sq.ring_doorbell();
  return b;
}

/// The controller was told to let go of the buffers: nothing may change in them any more.
void expect_untouched(fixture& f, burst& b) {
  for (buffer const& d : b.data) d.fill(std::byte{0xee});
  f.give_time();
  for (buffer const& d : b.data) EXPECT_TRUE(d.holds(std::byte{0xee})) << "written after the controller let go";
}

/// Takes the completions that are there; each of `b` at most once, with success or one of `statuses`.
std::set<std::uint16_t> drain(fixture& f, completion_ring& cq, burst const& b, nvme::generic_status other) {
  std::set<std::uint16_t> seen;
  std::set<std::uint16_t> const known(b.ids.begin(), b.ids.end());
  while (auto const c = cq.take()) {
    EXPECT_TRUE(known.contains(c->command_id()));
    EXPECT_TRUE(seen.insert(c->command_id()).second) << "command " << c->command_id() << " completed twice";
    if (std::uint16_t const s = f.status(*c); s != 0) f.expect(s, other);
  }
  return seen;
}

}  // namespace

void add_recovery_checks(check_list& list) {
  list.insert(list.end(), {
                              {"aborted_or_not_each_command_completes_once",
                               [](fixture& f) {
                                 queue_pair pair = f.make_pair(1, 32);
                                 burst const b = start_reads(f, pair, 31);
                                 std::set<std::uint16_t> aborted;
                                 for (std::uint16_t const id : b.ids) {
                                   if (f.controller().abort(1, id)) aborted.insert(id);
                                 }
                                 std::set<std::uint16_t> seen;
                                 for (int i = 0; i < 31; ++i) {
                                   nvme::completion_entry const c = pair.cq.wait();
                                   EXPECT_TRUE(seen.insert(c.command_id()).second);
                                   if (aborted.contains(c.command_id())) {
                                     f.expect(f.status(c), nvme::generic_status::command_abort_requested);
                                   } else {
                                     f.expect(f.status(c), 0);
                                   }
                                 }
                                 EXPECT_EQ(seen, std::set<std::uint16_t>(b.ids.begin(), b.ids.end()));
                               }},
                              {"sq_deleted_with_commands_under_way",
                               [](fixture& f) {
                                 for (int life = 0; life < 10; ++life) {
                                   queue_pair pair = f.make_pair(1, 32);
                                   burst b = start_reads(f, pair, 31);
                                   f.expect(f.admin(f.delete_sq(1)), 0);
                                   drain(f, pair.cq, b, nvme::generic_status::command_aborted_due_to_sq_deletion);
                                   expect_untouched(f, b);
                                   EXPECT_FALSE(pair.cq.take().has_value()) << "a completion after the deletion";
                                   f.expect(f.admin(f.delete_cq(1)), 0);
                                 }
                               }},
                              {"driver_deletes_and_recreates_a_busy_queue",
                               [](fixture& f) {
                                 driver::io_queue queue = f.controller().create_io_queue_pair({.entries = 32});
                                 for (int life = 0; life < 10; ++life) {
                                   queue_pair pair = f.pair_of(queue);
                                   burst b = start_reads(f, pair, 20);
                                   f.controller().delete_io_queue_pair(queue);
                                   EXPECT_FALSE(queue.live());
                                   expect_untouched(f, b);
                                   f.controller().recreate(queue);
                                   EXPECT_TRUE(queue.live());
                                   EXPECT_EQ(queue.id(), 1);
                                   queue_pair fresh = f.pair_of(queue);
                                   for (int i = 0; i < 40; ++i)
                                     f.expect(f.status(fresh.run(f.command(io_opcode::flush, 0, 1))), 0);
                                 }
                               }},
                              {"deleting_one_queue_leaves_the_others_alone",
                               [](fixture& f) {
                                 queue_pair doomed = f.make_pair(1, 32);
                                 queue_pair other = f.make_pair(2, 32);
                                 burst b = start_reads(f, doomed, 31);
                                 burst const kept = start_reads(f, other, 31);
                                 f.expect(f.admin(f.delete_sq(1)), 0);
                                 expect_untouched(f, b);
                                 std::set<std::uint16_t> seen;
                                 for (int i = 0; i < 31; ++i) {
                                   nvme::completion_entry const c = other.cq.wait();
                                   f.expect(f.status(c), 0);
                                   seen.insert(c.command_id());
                                 }
                                 EXPECT_EQ(seen.size(), 31u);
                               }},
                              {"reset_with_commands_under_way",
                               [](fixture& f) {
                                 driver::io_queue queue = f.controller().create_io_queue_pair({.entries = 32});
                                 for (int life = 0; life < 10; ++life) {
                                   queue_pair pair = f.pair_of(queue);
                                   burst b = start_reads(f, pair, 31);
                                   f.controller().reset();
                                   EXPECT_FALSE(queue.live());
                                   expect_untouched(f, b);
                                   f.controller().recreate(queue);
                                   queue_pair fresh = f.pair_of(queue);
                                   for (int i = 0; i < 40; ++i)
                                     f.expect(f.status(fresh.run(f.command(io_opcode::flush, 0, 1))), 0);
                                 }
                               }},
                              {"reset_forgets_io_queues",
                               [](fixture& f) {
                                 f.make_pair(1, 4);
                                 f.controller().reset();
                                 f.expect(f.admin(f.delete_sq(1)),
                                          nvme::command_specific_status::invalid_queue_identifier);
                                 f.make_pair(1, 4);
                               }},
                              {"reset_keeps_data",
                               [](fixture& f) {
                                 std::uint32_t const block = f.drive().block_bytes;
                                 buffer const out(f, 4096);
                                 out.fill_pattern(77, 5, block);
                                 f.expect(f.transfer(io_opcode::write, 77, out), 0);
                                 f.expect(f.io(f.command(io_opcode::flush, 0, 1)), 0);
                                 f.bring_up({});
                                 buffer const in(f, 4096);
                                 f.expect(f.transfer(io_opcode::read, 77, in), 0);
                                 EXPECT_TRUE(in.holds_pattern(77, 5, block));
                               }},
                              {"queue_handles_of_before_a_reset_go_quietly",
                               [](fixture& f) {
                                 {
                                   driver::io_queue const stale = f.controller().create_io_queue_pair({.entries = 8});
                                   f.controller().reset();
                                   driver::io_queue const fresh = f.controller().create_io_queue_pair({.entries = 8});
                                   EXPECT_EQ(stale.id(), 1);
                                   EXPECT_EQ(fresh.id(), 2) << "the stale handle still has its id, for recreate()";
                                 }
                                 EXPECT_EQ(f.controller().create_io_queue_pair({.entries = 8}).id(), 1);
                               }},
                              {"queue_is_recreated_only_when_it_is_gone",
                               [](fixture& f) {
                                 driver::io_queue queue = f.controller().create_io_queue_pair({.entries = 8});
                                 EXPECT_THROW(f.controller().recreate(queue), refused_input);
                                 f.controller().delete_io_queue_pair(queue);
                                 EXPECT_THROW(f.controller().delete_io_queue_pair(queue), refused_input);
                                 f.controller().recreate(queue);
                                 EXPECT_TRUE(queue.live());
                               }},
                              {"shutdown_with_commands_under_way",
                               [](fixture& f) {
                                 driver::io_queue const queue = f.controller().create_io_queue_pair({.entries = 32});
                                 queue_pair pair = f.pair_of(queue);
                                 burst b = start_reads(f, pair, 31);
                                 f.controller().shutdown();
                                 for (buffer const& d : b.data) d.fill(std::byte{0xee});
                                 f.controller().reset();
                                 f.give_time();
                                 for (buffer const& d : b.data) EXPECT_TRUE(d.holds(std::byte{0xee}));
                               }},
                          });
}

}  // namespace forebay::conformance
