// SPDX-License-Identifier: Apache-2.0
#include "conformance/fixture.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <ostream>
#include <stdexcept>

#include "forebay/detail/nvme/status_text.hpp"

namespace forebay::conformance {

using simt::native;
using simt::order;
using simt::scope;

namespace {

constexpr std::byte guard{0xa5};
constexpr std::size_t prp_page_bytes = 4096;

/// splitmix64: a word that differs for every (salt, lba, position).
std::uint64_t pattern(std::uint64_t salt, std::uint64_t lba, std::uint64_t word) {
  std::uint64_t z = salt * 0x9e3779b97f4a7c15 + lba * 0xbf58476d1ce4e5b9 + word;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

}  // namespace

std::optional<nvme::completion_entry> completion_ring::take() {
  nvme::completion_entry& slot = ring[head];
  nvme::completion_entry entry;
  // Acquire: pairs with the controller's store of the phase tag, after which the rest of the entry and the data are
  // there.
  entry.dw3 = simt::atomic<native, scope::system>(slot.dw3).load(order::acquire);
  if (entry.phase() != phase) return std::nullopt;
  entry.dw0 = slot.dw0;
  entry.dw1 = slot.dw1;
  entry.dw2 = slot.dw2;
  if (++head == entries) {
    head = 0;
    phase ^= 1;
  }
  return entry;
}

nvme::completion_entry completion_ring::wait() {
  std::optional<nvme::completion_entry> entry;
  if (!native::wait_until([&] { return (entry = take()).has_value(); }, native::clock_ns() + patience_ns)) {
    throw std::runtime_error(fmt::format("completion queue {}: nothing at slot {}", id, head));
  }
  release();
  return *entry;
}

void submission_ring::push(nvme::submission_entry const& entry) {
  ring[tail] = entry;
  tail = (tail + 1) % entries;
}

void submission_ring::ring_doorbell() const {
  // Pairs with the controller's read of the doorbell: a controller that sees the tail sees the entries.
  native::fence(scope::system, order::release);
  native::st_mmio(doorbell, tail);
}

nvme::completion_entry queue_pair::run(nvme::submission_entry const& entry) {
  sq.push(entry);
  sq.ring_doorbell();
  nvme::completion_entry const completion = cq.wait();
  if (completion.command_id() != entry.command_id() || completion.sq_id() != sq.id) {
    throw std::runtime_error(fmt::format("command {} of queue {} completed as command {} of queue {}",
                                         entry.command_id(), sq.id, completion.command_id(), completion.sq_id()));
  }
  return completion;
}

std::map<std::uint16_t, std::uint16_t> queue_pair::run_all(std::vector<nvme::submission_entry> const& entries) {
  std::map<std::uint16_t, std::uint16_t> statuses;
  std::set<std::uint16_t> in_flight;
  std::uint32_t const most = std::min(sq.entries, cq.entries) - 1;
  for (std::size_t next = 0; next < entries.size() || !in_flight.empty();) {
    bool pushed = false;
    while (next < entries.size() && in_flight.size() < most) {
      in_flight.insert(entries[next].command_id());
      sq.push(entries[next++]);
      pushed = true;
    }
    if (pushed) sq.ring_doorbell();
    nvme::completion_entry const completion = cq.wait();
    if (in_flight.erase(completion.command_id()) == 0) {
      throw std::runtime_error(fmt::format("command {} completed but was not in flight", completion.command_id()));
    }
    statuses[completion.command_id()] = fixture::status(completion);
  }
  return statuses;
}

buffer::buffer(fixture& in, std::size_t bytes, std::size_t offset_bytes)
    : in_(in), bytes_(bytes), offset_(offset_bytes) {
  std::size_t const count = (offset_bytes + bytes + prp_page_bytes - 1) / prp_page_bytes;
  std::byte* const memory = in.allocate(count * prp_page_bytes);
  std::memset(memory, std::to_integer<int>(guard), count * prp_page_bytes);
  for (std::size_t i = 0; i < count; ++i) pages_.push_back(memory + i * prp_page_bytes);
  std::shuffle(pages_.begin(), pages_.end(), in.random);
}

std::byte& buffer::operator[](std::size_t i) const {
  return pages_[(offset_ + i) / prp_page_bytes][(offset_ + i) % prp_page_bytes];
}

std::uint64_t buffer::bus_address(std::size_t i) const {
  return in_.bus_address(&(*this)[i]);
}

void buffer::fill(std::byte value) const {
  for (std::size_t i = 0; i < bytes_; ++i) (*this)[i] = value;
}

bool buffer::holds(std::byte value) const {
  for (std::size_t i = 0; i < bytes_; ++i) {
    if ((*this)[i] != value) return false;
  }
  return true;
}

void buffer::fill_pattern(std::uint64_t lba, std::uint64_t salt, std::uint32_t block_bytes) const {
  for (std::size_t at = 0; at < bytes_; at += 4) {
    auto const word = static_cast<std::uint32_t>(pattern(salt, lba + at / block_bytes, at % block_bytes));
    std::memcpy(&(*this)[at], &word, 4);
  }
}

bool buffer::holds_pattern(std::uint64_t lba, std::uint64_t salt, std::uint32_t block_bytes) const {
  for (std::size_t at = 0; at < bytes_; at += 4) {
    auto const word = static_cast<std::uint32_t>(pattern(salt, lba + at / block_bytes, at % block_bytes));
    if (std::memcmp(&(*this)[at], &word, 4) != 0) return false;
  }
  return true;
}

bool buffer::guards_intact() const {
  for (std::size_t i = 0; i < offset_; ++i) {
    if (pages_.front()[i] != guard) return false;
  }
  for (std::size_t i = offset_ + bytes_; i < pages_.size() * prp_page_bytes; ++i) {
    if (pages_[i / prp_page_bytes][i % prp_page_bytes] != guard) return false;
  }
  return true;
}

void buffer::describe(nvme::submission_entry& entry, std::size_t list_offset_bytes) const {
  lists_.clear();
  entry.prp1 = bus_address(0);
  entry.prp2 = 0;
  if (pages_.size() == 2) entry.prp2 = in_.bus_address(pages_[1]);
  if (pages_.size() <= 2) return;
  std::size_t constexpr entries_per_page = prp_page_bytes / sizeof(std::uint64_t);
  std::size_t slot = list_offset_bytes / sizeof(std::uint64_t);
  auto const new_list = [&] {
    lists_.push_back(reinterpret_cast<std::uint64_t*>(in_.allocate(prp_page_bytes)));
    return lists_.back();
  };
  std::uint64_t* list = new_list();
  entry.prp2 = in_.bus_address(list + slot);
  for (std::size_t i = 1; i < pages_.size(); ++i) {
    // The last slot of a list page points to the next list page, unless it is the last entry of all.
    if (slot == entries_per_page - 1 && i + 1 < pages_.size()) {
      std::uint64_t* const next = new_list();
      list[slot] = in_.bus_address(next);
      list = next;
      slot = 0;
    }
    list[slot++] = in_.bus_address(pages_[i]);
  }
}

fixture::fixture(target& under_test, std::string_view check_name) : on(under_test), name(check_name) {}

fixture::~fixture() {
  for (leniency const& l : on.leniencies()) {
    if (l.check == name && !leniencies_used_.contains(l.instead) && !testing::Test::HasFailure()) {
      ADD_FAILURE() << "the target no longer needs its leniency: " << l.why;
    }
  }
}

driver::controller& fixture::controller() {
  if (!controller_) bring_up({});
  return *controller_;
}

void fixture::bring_up(driver::controller_options options) {
  options.nsid = on.nsid();
  pair_.reset();
  queue_.reset();
  controller_.reset();
  controller_ = std::make_unique<driver::controller>(registers(), on.dma(), options);
}

std::byte* fixture::allocate(std::size_t bytes) {
  return memory_.emplace_back(on.dma(), bytes).data();
}

void fixture::give_time() {
  for (int i = 0; i < 20; ++i) controller().get_feature(nvme::feature_id::number_of_queues);
}

nvme::submission_entry fixture::create_cq(std::uint32_t id, std::uint32_t entries, std::uint64_t bus_address,
                                          std::uint32_t cdw11) {
  nvme::submission_entry entry;
  entry.cdw0 = nvme::make_cdw0(nvme::admin_opcode::create_io_completion_queue, 0);
  entry.prp1 = bus_address;
  entry.cdw10 = id | (entries - 1) << 16;
  entry.cdw11 = cdw11;
  return entry;
}

nvme::submission_entry fixture::create_sq(std::uint32_t id, std::uint32_t entries, std::uint64_t bus_address,
                                          std::uint32_t cq_id, std::uint32_t flags) {
  nvme::submission_entry entry = create_cq(id, entries, bus_address, flags | cq_id << 16);
  entry.cdw0 = nvme::make_cdw0(nvme::admin_opcode::create_io_submission_queue, 0);
  return entry;
}

nvme::submission_entry fixture::delete_cq(std::uint32_t id) {
  nvme::submission_entry entry;
  entry.cdw0 = nvme::make_cdw0(nvme::admin_opcode::delete_io_completion_queue, 0);
  entry.cdw10 = id;
  return entry;
}

nvme::submission_entry fixture::delete_sq(std::uint32_t id) {
  nvme::submission_entry entry = delete_cq(id);
  entry.cdw0 = nvme::make_cdw0(nvme::admin_opcode::delete_io_submission_queue, 0);
  return entry;
}

completion_ring fixture::make_cq(std::uint16_t id, std::uint32_t entries) {
  completion_ring made;
  made.id = id;
  made.entries = entries;
  made.ring = reinterpret_cast<nvme::completion_entry*>(allocate(entries * sizeof(nvme::completion_entry)));
  made.doorbell = registers().doorbell(nvme::registers::cq_head_doorbell(id, stride()));
  if (std::uint16_t const s = admin(create_cq(id, entries, bus_address(made.ring))); s != 0) {
    throw std::runtime_error(fmt::format("Create I/O Completion Queue {}: {}", id, nvme::status_text(s)));
  }
  return made;
}

submission_ring fixture::make_sq(std::uint16_t id, std::uint32_t entries, std::uint16_t cq_id) {
  submission_ring made;
  made.id = id;
  made.entries = entries;
  made.ring = reinterpret_cast<nvme::submission_entry*>(allocate(entries * sizeof(nvme::submission_entry)));
  made.doorbell = registers().doorbell(nvme::registers::sq_tail_doorbell(id, stride()));
  if (std::uint16_t const s = admin(create_sq(id, entries, bus_address(made.ring), cq_id)); s != 0) {
    throw std::runtime_error(fmt::format("Create I/O Submission Queue {}: {}", id, nvme::status_text(s)));
  }
  return made;
}

queue_pair fixture::make_pair(std::uint16_t id, std::uint32_t sq_entries, std::uint32_t cq_entries) {
  queue_pair made;
  made.cq = make_cq(id, cq_entries != 0 ? cq_entries : sq_entries);
  made.sq = make_sq(id, sq_entries, id);
  return made;
}

queue_pair fixture::pair_of(driver::io_queue const& queue) {
  return {{.id = queue.id(),
           .entries = queue.entries(),
           .ring = queue.submission_ring(),
           .doorbell = queue.sq_tail_doorbell()},
          {.id = queue.id(),
           .entries = queue.completion_entries(),
           .ring = queue.completion_ring(),
           .doorbell = queue.cq_head_doorbell()}};
}

queue_pair& fixture::pair() {
  if (!pair_) {
    queue_ = controller().create_io_queue_pair({.entries = 64});
    pair_ = pair_of(*queue_);
  }
  return *pair_;
}

nvme::submission_entry fixture::command(nvme::io_opcode opcode, std::uint64_t slba, std::uint32_t blocks) {
  next_command_id_ = static_cast<std::uint16_t>(next_command_id_ * 5 + 1);  // a permutation of all 65536
  return nvme::make_io_command(opcode, next_command_id_, drive().nsid, slba, blocks);
}

std::uint16_t fixture::transfer(nvme::io_opcode opcode, std::uint64_t slba, buffer const& data,
                                std::size_t list_offset_bytes) {
  nvme::submission_entry entry =
      command(opcode, slba, static_cast<std::uint32_t>(data.size_bytes() / drive().block_bytes));
  data.describe(entry, list_offset_bytes);
  return io(entry);
}

void fixture::round_trip(std::uint64_t slba, std::uint32_t blocks, std::size_t write_offset, std::size_t read_offset,
                         std::size_t list_offset_bytes) {
  SCOPED_TRACE(fmt::format("lba {} blocks {} offsets {} {} list {}", slba, blocks, write_offset, read_offset,
                           list_offset_bytes));
  std::uint32_t const block = drive().block_bytes;
  std::uint64_t const salt = random();
  buffer const out(*this, std::size_t{blocks} * block, write_offset);
  out.fill_pattern(slba, salt, block);
  expect(transfer(nvme::io_opcode::write, slba, out, list_offset_bytes), 0);
  EXPECT_TRUE(out.holds_pattern(slba, salt, block)) << "a write changed its source";
  buffer const in(*this, std::size_t{blocks} * block, read_offset);
  expect(transfer(nvme::io_opcode::read, slba, in, list_offset_bytes), 0);
  EXPECT_TRUE(in.holds_pattern(slba, salt, block)) << "not what was written";
  EXPECT_TRUE(in.guards_intact()) << "bytes beside the buffer were written";
}

void fixture::expect(std::uint16_t actual, std::uint16_t expected, std::string const& context) {
  if (actual == expected) return;
  for (leniency const& l : on.leniencies()) {
    if (l.check != name || l.instead != actual) continue;
    leniencies_used_.insert(actual);
    fmt::print("leniency: {}: {}\n", name, l.why);
    testing::Test::RecordProperty("leniency", std::string(l.why));
    return;
  }
  ADD_FAILURE() << context << (context.empty() ? "" : ": ")
                << fmt::format("status {:03x}h ({}), expected {:03x}h ({})", actual, nvme::status_text(actual),
                               expected, nvme::status_text(expected));
}

std::vector<check> const& checks() {
  static std::vector<check> const all = [] {
    check_list list;
    add_register_checks(list);
    add_identify_checks(list);
    add_admin_checks(list);
    add_queue_creation_checks(list);
    add_data_checks(list);
    add_command_checks(list);
    add_ring_checks(list);
    add_recovery_checks(list);
    return list;
  }();
  return all;
}

void PrintTo(check const& c, std::ostream* os) {
  *os << c.name;
}

void run(target& on, check const& what) {
  fixture world(on, what.name);
  what.run(world);
  EXPECT_EQ(on.stray_pages(), std::vector<std::uint64_t>{}) << "pages that the controller had no business with";
}

}  // namespace forebay::conformance
