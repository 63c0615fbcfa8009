// SPDX-License-Identifier: Apache-2.0
//! \file
//! Creation and deletion of I/O queues (sections 5.3 to 5.6), by hand and through the driver.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "conformance/fixture.hpp"

namespace forebay::conformance {

namespace {

using enum nvme::command_specific_status;
using nvme::generic_status;

constexpr std::uint32_t interrupts = nvme::queue_physically_contiguous | nvme::queue_interrupts_enabled;

std::uint64_t page(fixture& f) {
  return f.bus_address(f.allocate(4096));
}

}  // namespace

void add_queue_creation_checks(check_list& list) {
  list.insert(
      list.end(),
      {
          {"create_cq_refuses_bad_ids",
           [](fixture& f) {
             f.expect(f.admin(f.create_cq(0, 4, page(f))), invalid_queue_identifier, "id 0");
             nvme::number_of_queues const granted{f.controller().get_feature(nvme::feature_id::number_of_queues)};
             f.expect(f.admin(f.create_cq(granted.completion_queues() + 1, 4, page(f))), invalid_queue_identifier,
                      "beyond the granted");
             f.expect(f.admin(f.create_cq(0xffff, 4, page(f))), invalid_queue_identifier, "id ffff");
           }},
          {"create_cq_refuses_an_id_in_use",
           [](fixture& f) {
             f.make_cq(1, 4);
             f.expect(f.admin(f.create_cq(1, 4, page(f))), invalid_queue_identifier);
           }},
          {"create_cq_refuses_bad_sizes",
           [](fixture& f) {
             f.expect(f.admin(f.create_cq(1, 1, page(f))), invalid_queue_size, "one entry");
             if (std::uint32_t const most = f.drive().max_queue_entries; most < 65536) {
               f.expect(f.admin(f.create_cq(1, most + 1, page(f))), invalid_queue_size, "beyond MQES");
             }
           }},
          {"create_cq_refuses_a_misaligned_ring",
           [](fixture& f) { f.expect(f.admin(f.create_cq(1, 4, page(f) + 64)), generic_status::prp_offset_invalid); }},
          {"create_cq_refuses_an_unknown_interrupt_vector",
           [](fixture& f) {
             f.expect(f.admin(f.create_cq(1, 4, page(f), interrupts | std::uint32_t{0xfff0} << 16)),
                      invalid_interrupt_vector);
           }},
          {"create_cq_refuses_scattered_rings_where_contiguous_ones_are_required",
           [](fixture& f) {
             ASSERT_TRUE(f.controller().capabilities().contiguous_queues_required());
             f.expect(f.admin(f.create_cq(1, 4, page(f), 0)), generic_status::invalid_field_in_command);
           }},
          {"create_sq_refuses_bad_ids",
           [](fixture& f) {
             f.make_cq(1, 4);
             f.expect(f.admin(f.create_sq(0, 4, page(f), 1)), invalid_queue_identifier, "id 0");
             nvme::number_of_queues const granted{f.controller().get_feature(nvme::feature_id::number_of_queues)};
             f.expect(f.admin(f.create_sq(granted.submission_queues() + 1, 4, page(f), 1)), invalid_queue_identifier,
                      "beyond the granted");
           }},
          {"create_sq_refuses_an_id_in_use",
           [](fixture& f) {
             f.make_pair(1, 4);
             f.expect(f.admin(f.create_sq(1, 4, page(f), 1)), invalid_queue_identifier);
           }},
          {"create_sq_refuses_bad_sizes",
           [](fixture& f) {
             f.make_cq(1, 4);
             f.expect(f.admin(f.create_sq(1, 1, page(f), 1)), invalid_queue_size, "one entry");
             if (std::uint32_t const most = f.drive().max_queue_entries; most < 65536) {
               f.expect(f.admin(f.create_sq(1, most + 1, page(f), 1)), invalid_queue_size, "beyond MQES");
             }
           }},
          {"create_sq_refuses_a_misaligned_ring",
           [](fixture& f) {
             f.make_cq(1, 4);
             f.expect(f.admin(f.create_sq(1, 4, page(f) + 64, 1)), generic_status::prp_offset_invalid);
           }},
          {"create_sq_refuses_a_missing_cq",
           [](fixture& f) {
             f.expect(f.admin(f.create_sq(1, 4, page(f), 1)), completion_queue_invalid, "not created");
             f.expect(f.admin(f.create_sq(1, 4, page(f), 0)), completion_queue_invalid, "the admin queue's");
           }},
          {"create_sq_refuses_scattered_rings_where_contiguous_ones_are_required",
           [](fixture& f) {
             ASSERT_TRUE(f.controller().capabilities().contiguous_queues_required());
             f.make_cq(1, 4);
             f.expect(f.admin(f.create_sq(1, 4, page(f), 1, 0)), generic_status::invalid_field_in_command);
           }},
          {"delete_refuses_unknown_queues",
           [](fixture& f) {
             f.expect(f.admin(f.delete_sq(1)), invalid_queue_identifier, "SQ not created");
             f.expect(f.admin(f.delete_cq(1)), invalid_queue_identifier, "CQ not created");
             f.expect(f.admin(f.delete_sq(0)), invalid_queue_identifier, "admin SQ");
             f.expect(f.admin(f.delete_cq(0)), invalid_queue_identifier, "admin CQ");
             f.make_pair(1, 4);
             f.expect(f.admin(f.delete_sq(1)), 0);
             f.expect(f.admin(f.delete_sq(1)), invalid_queue_identifier, "SQ twice");
           }},
          {"delete_cq_in_use_is_refused",
           [](fixture& f) {
             queue_pair pair = f.make_pair(1, 4);
             f.expect(f.admin(f.delete_cq(1)), invalid_queue_deletion);
             f.expect(f.status(pair.run(f.command(nvme::io_opcode::flush, 0, 1))), 0, "the pair still works");
             f.expect(f.admin(f.delete_sq(1)), 0);
             f.expect(f.admin(f.delete_cq(1)), 0);
           }},
          {"delete_cq_waits_for_the_last_of_its_sqs",
           [](fixture& f) {
             f.make_cq(1, 8);
             f.make_sq(1, 4, 1);
             f.make_sq(2, 4, 1);
             f.expect(f.admin(f.delete_sq(1)), 0);
             f.expect(f.admin(f.delete_cq(1)), invalid_queue_deletion);
             f.expect(f.admin(f.delete_sq(2)), 0);
             f.expect(f.admin(f.delete_cq(1)), 0);
           }},
          {"deleted_ids_can_be_created_again",
           [](fixture& f) {
             for (int life = 0; life < 5; ++life) {
               queue_pair pair = f.make_pair(3, 4 + static_cast<std::uint32_t>(life));
               for (int i = 0; i < 5; ++i) f.expect(f.status(pair.run(f.command(nvme::io_opcode::flush, 0, 1))), 0);
               f.expect(f.admin(f.delete_sq(3)), 0);
               f.expect(f.admin(f.delete_cq(3)), 0);
             }
           }},
          {"every_granted_queue_works",
           [](fixture& f) {
             std::vector<driver::io_queue> queues;
             for (std::uint32_t i = 0; i < f.drive().io_queue_pairs; ++i) {
               queues.push_back(f.controller().create_io_queue_pair({.entries = 8}));
             }
             EXPECT_THROW(f.controller().create_io_queue_pair(), operation_failed);
             std::vector<queue_pair> pairs;
             for (driver::io_queue const& q : queues) pairs.push_back(f.pair_of(q));
             std::uint32_t const block = f.drive().block_bytes;
             auto const transfer = [&](std::size_t queue, nvme::io_opcode opcode, std::uint64_t lba,
                                       buffer const& data) {
               nvme::submission_entry entry = f.command(opcode, lba, 1);
               data.describe(entry);
               f.expect(f.status(pairs[queue].run(entry)), 0, "queue " + std::to_string(pairs[queue].sq.id));
             };
             for (std::size_t i = 0; i < pairs.size(); ++i) {
               buffer const data(f, block);
               data.fill_pattern(i, 9, block);
               transfer(i, nvme::io_opcode::write, i, data);
             }
             for (std::size_t i = 0; i < pairs.size(); ++i) {
               buffer const data(f, block);
               transfer(pairs.size() - 1 - i, nvme::io_opcode::read, i, data);
               EXPECT_TRUE(data.holds_pattern(i, 9, block)) << "written by another queue";
             }
           }},
          {"driver_queues_come_and_go",
           [](fixture& f) {
             for (int i = 0; i < 30; ++i) {
               driver::io_queue queue = f.controller().create_io_queue_pair({.entries = 16});
               EXPECT_EQ(queue.id(), 1) << "the lowest free id";
               driver::io_queue const moved = std::move(queue);
               EXPECT_TRUE(moved.live());
               EXPECT_FALSE(queue.live());
               f.expect(f.status(f.pair_of(moved).run(f.command(nvme::io_opcode::flush, 0, 1))), 0);
             }
           }},
          {"driver_refuses_sizes_that_the_controller_cannot_have",
           [](fixture& f) {
             driver::controller& c = f.controller();
             EXPECT_THROW(c.create_io_queue_pair({.entries = 0}), refused_input);
             EXPECT_THROW(c.create_io_queue_pair({.entries = 1}), refused_input);
             EXPECT_THROW(c.create_io_queue_pair({.entries = f.drive().max_queue_entries + 1}), refused_input);
             EXPECT_THROW(c.create_io_queue_pair({.entries = 4, .completion_entries = 1}), refused_input);
             auto* const middle = reinterpret_cast<nvme::submission_entry*>(f.allocate(4096) + 64);
             EXPECT_THROW(c.create_io_queue_pair({.entries = 4, .submission_memory = middle}), refused_input);
             EXPECT_EQ(c.create_io_queue_pair({.entries = 4}).id(), 1) << "a refused queue keeps no id";
           }},
          {"driver_queue_in_memory_of_the_caller",
           [](fixture& f) {
             auto* const sq = reinterpret_cast<nvme::submission_entry*>(f.allocate(4096));
             auto* const cq = reinterpret_cast<nvme::completion_entry*>(f.allocate(4096));
             driver::io_queue const queue = f.controller().create_io_queue_pair(
                 {.entries = 64, .completion_entries = 256, .submission_memory = sq, .completion_memory = cq});
             EXPECT_EQ(queue.submission_ring(), sq);
             EXPECT_EQ(queue.completion_ring(), cq);
             queue_pair pair = f.pair_of(queue);
             for (int i = 0; i < 300; ++i) f.expect(f.status(pair.run(f.command(nvme::io_opcode::flush, 0, 1))), 0);
           }},
      });
}

}  // namespace forebay::conformance
