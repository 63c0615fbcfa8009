// SPDX-License-Identifier: Apache-2.0
#include "support/controller_rig.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#include "forebay/detail/simt/native.hpp"
#include "forebay/status_text.hpp"

namespace forebay::queue_test {

using simt::native;

scattered_pages::scattered_pages(driver::dma_space& from, std::uint32_t count, std::uint64_t seed)
    : memory_(from, std::size_t{count} * page_bytes) {
  for (std::uint32_t i = 0; i < count; ++i) pages_.push_back(memory_.data() + std::size_t{i} * page_bytes);
  std::shuffle(pages_.begin(), pages_.end(), std::mt19937_64(seed));
  for (std::byte* const page : pages_) bus_.push_back(from.bus_address(page));
}

void scattered_pages::fill(std::byte value) const {
  std::memset(memory_.data(), std::to_integer<int>(value), memory_.size_bytes());
}

bool scattered_pages::holds(std::byte value) const {
  return std::all_of(memory_.data(), memory_.data() + memory_.size_bytes(), [&](std::byte b) { return b == value; });
}

rig::rig(target& on, rig_options const& options)
    : on_(on),
      options_(options),
      controller_(std::make_unique<driver::controller>(on.registers(), on.dma(), options.controller)) {
  for (pair_shape const& shape : options_.pairs) {
    driver::queue_options q;
    q.entries = shape.sq_entries;
    q.completion_entries = shape.cq_entries;
    q.submission_memory =
        static_cast<nvme::submission_entry*>(allocate_ring(shape.sq_entries * sizeof(nvme::submission_entry)));
    q.completion_memory =
        static_cast<nvme::completion_entry*>(allocate_ring(shape.cq_entries * sizeof(nvme::completion_entry)));
    rings_.push_back(controller_->create_io_queue_pair(q));
  }
  prp_memory_ = driver::dma_buffer(on.dma(), std::size_t{options_.prp_pages} * page_bytes);
  for (std::uint32_t i = 0; i < options_.prp_pages; ++i) prp_bus_.push_back(prp_memory_.bus_address(i * page_bytes));
  open();
}

rig::~rig() {
  expect_nothing_held();
  queues_.reset();
  rings_.clear();
  controller_.reset();
  for (contiguous const& r : ring_memory_) r.from->deallocate(r.data);
  ring_memory_.clear();
  prp_memory_ = {};
  EXPECT_EQ(on_.stray_pages(), std::vector<std::uint64_t>{}) << "pages that the controller had no business with";
}

/// Null for sizes that fit into a page: the driver's own allocation is contiguous too.
void* rig::allocate_ring(std::size_t bytes) {
  if (bytes <= page_bytes) return nullptr;
  ring_memory_.push_back({&on_.dma(), on_.allocate_contiguous(bytes), bytes});
  return ring_memory_.back().data;
}

void rig::open() {
  std::vector<queue_pair_rings> pairs;
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    driver::io_queue const& q = rings_[i];
    pairs.push_back({q.submission_ring(), q.completion_ring(),
                     options_.pairs[i].deaf ? nowhere_.get() : q.sq_tail_doorbell(), q.cq_head_doorbell(), q.entries(),
                     q.completion_entries(), q.id()});
  }
  io_queues_options o;
  o.records = options_.records;
  o.prp_pages = buffer_ref(prp_memory_.data(), prp_memory_.size_bytes(), prp_bus_.data(), page_shift, 0);
  o.page_bytes = page_bytes;
  o.timeout_ns = options_.timeout_ns;
  o.first_ticket = options_.first_ticket;
  queues_ = std::make_unique<io_queues>(pairs, o, memory::host(), memory::host());
}

void rig::recreate() {
  expect_nothing_held();
  // Including the queues that it still knows: fresh state begins at slot 0 of an empty ring.
  for (driver::io_queue& q : rings_) {
    if (q.live()) controller_->delete_io_queue_pair(q);
  }
  for (contiguous const& r : ring_memory_) std::memset(r.data, 0, r.bytes);
  for (driver::io_queue& q : rings_) controller_->recreate(q);
  for (pair_shape& shape : options_.pairs) shape.deaf = false;
  open();
}

void rig::expect_nothing_held() const {
  auto const queues = ref<native>();
  for (std::uint32_t i = 0; i < queues_->pair_count(); ++i) {
    auto const pair = queues.pair(i);
    while (pair.try_poll(queues.prp_pages(), queues.records())) {
    }
    EXPECT_TRUE(pair.idle()) << "pair " << i;
    EXPECT_EQ(queues_->protocol_errors(i), 0u) << "pair " << i;
  }
  auto const free_in = [](slot_pool const& pool) {
    std::uint32_t free = 0;
    for (std::uint32_t w = 0; w < pool.word_count; ++w)
      free += static_cast<std::uint32_t>(std::popcount(pool.words[w]));
    return free;
  };
  EXPECT_EQ(free_in(queues_->state()->free_records), options_.records);
  EXPECT_EQ(free_in(queues_->state()->prp_pages.free), options_.prp_pages);
}

void expect_good(tally const& seen) {
  EXPECT_NE(seen.requests, 0u);
  EXPECT_EQ(seen.wrong_words, 0u);
  EXPECT_EQ(seen.wrong_statuses, 0u) << "one of them: "
                                     << to_string(status::from_bits(seen.first_wrong_status & ~(1u << 31)));
}

}  // namespace forebay::queue_test
