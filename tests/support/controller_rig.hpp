// SPDX-License-Identifier: Apache-2.0
//! \file
//! The queue layer on a whole controller: the controller under test, and the kernels that drive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/driver/dma_buffer.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/status.hpp"
#include "forebay/token.hpp"

namespace forebay::queue_test {

inline constexpr std::uint32_t page_shift = 12;
inline constexpr std::uint32_t page_bytes = 1 << page_shift;
/// No wait of a test ends before this time, except by success.
inline constexpr std::uint64_t patience_ns = 60'000'000'000;

struct target_options {
  std::uint32_t mdts = 7;         ///< largest command: 4 KiB << mdts
  bool holds_first_read = false;  ///< the first read of the first queue stays with the drive until `let_go()`
};

/// A controller under test with one namespace, whose content the tests destroy.
class target {
 public:
  virtual ~target() = default;
  virtual driver::register_space& registers() = 0;
  virtual driver::dma_space& dma() = 0;
  /// Zeroed memory of `dma()`, contiguous on the bus. Freed by `dma().deallocate`.
  virtual void* allocate_contiguous(std::size_t bytes) = 0;
  /// Must be called before the read that `target_options::holds_first_read` speaks of.
  virtual void hold_next_read() = 0;
  /// Ends the read that is held. Returns the status with which it ends.
  virtual status let_go(driver::controller& controller, std::uint16_t queue_id, std::uint16_t command_id) = 0;
  /// Bus addresses of pages that the controller touched and that nobody gave it, where that can be known.
  virtual std::vector<std::uint64_t> stray_pages() { return {}; }
};

/// Pages in any order, as lanes and commands see them.
struct page_list {
  std::byte* const* pages = nullptr;
  std::uint64_t const* bus = nullptr;
  std::uint32_t count = 0;

  page_list slice(std::uint32_t first, std::uint32_t n) const { return {pages + first, bus + first, n}; }
  std::uint32_t& word(std::uint64_t at_bytes) const {
    return *reinterpret_cast<std::uint32_t*>(pages[at_bytes >> page_shift] + (at_bytes & (page_bytes - 1)));
  }
  buffer_ref ref(std::uint64_t offset_bytes, std::uint64_t bytes) const {
    return buffer_ref(pages[0], std::uint64_t{count} * page_bytes, bus, page_shift, 0).subspan(offset_bytes, bytes);
  }
};

/// DMA memory whose pages do not follow each other on the bus, nor in the order of their addresses.
class scattered_pages {
 public:
  scattered_pages(driver::dma_space& from, std::uint32_t count, std::uint64_t seed);
  page_list list() const { return {pages_.data(), bus_.data(), static_cast<std::uint32_t>(pages_.size())}; }
  void fill(std::byte value) const;
  bool holds(std::byte value) const;

 private:
  driver::dma_buffer memory_;
  std::vector<std::byte*> pages_;
  std::vector<std::uint64_t> bus_;
};

struct pair_shape {
  std::uint32_t sq_entries = 32;
  std::uint32_t cq_entries = 32;
  bool deaf = false;  ///< doorbells of new entries go nowhere: the controller never hears of them
};

struct rig_options {
  std::vector<pair_shape> pairs;
  std::uint32_t records = 4096;
  std::uint32_t prp_pages = 8;
  std::uint64_t first_ticket = 0;
  std::uint64_t timeout_ns = patience_ns;  ///< after which recovery aborts a command, if somebody asks
  driver::controller_options controller = {};
};

/// A driver, its queues and the state that drives them. When it is destroyed, no command may be in flight, and no
/// resource missing.
class rig {
 public:
  rig(target& on, rig_options const& options);
  ~rig();
  rig(rig const&) = delete;
  rig& operator=(rig const&) = delete;

  driver::controller& controller() { return *controller_; }
  driver::drive_identity const& drive() { return controller_->identity(); }
  driver::io_queue& ring(std::size_t i) { return rings_[i]; }
  io_queues& queues() { return *queues_; }
  template <class M>
  io_queues_ref<M> ref() const {
    return queues_->ref<M>();
  }
  pair_range all() const { return {0, queues_->pair_count()}; }

  /// After queues were deleted or the controller was reset: makes the controller know them all again, none of them
  /// deaf, and starts afresh.
  void recreate();
  /// Every command has completed, and every credit, record and list page has come back.
  void expect_nothing_held() const;

 private:
  struct contiguous {
    driver::dma_space* from;
    void* data;
    std::size_t bytes;
  };
  void* allocate_ring(std::size_t bytes);
  void open();

  target& on_;
  rig_options options_;
  std::unique_ptr<driver::controller> controller_;
  std::vector<contiguous> ring_memory_;
  std::vector<driver::io_queue> rings_;
  driver::dma_buffer prp_memory_;
  std::vector<std::uint64_t> prp_bus_;
  std::unique_ptr<std::uint32_t> nowhere_ = std::make_unique<std::uint32_t>(0);
  std::unique_ptr<io_queues> queues_;
};

/// What the lanes found, counted by atomics.
struct tally {
  std::uint32_t requests = 0;
  std::uint32_t cancelled = 0;
  std::uint32_t wrong_words = 0;
  std::uint32_t wrong_statuses = 0;
  std::uint32_t first_wrong_status = 0;
};
void expect_good(tally const& seen);

/// The word at byte `at_bytes` of the drive in life `salt`.
inline std::uint32_t stamp(std::uint64_t at_bytes, std::uint64_t salt) {
  std::uint64_t const z = (at_bytes + salt * 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9;
  return static_cast<std::uint32_t>((z ^ z >> 29) * 0x94d049bb133111eb >> 32);
}

/// The means with which every lane makes its requests.
template <class M>
struct client {
  io_queues_ref<M> queues;
  pair_range pairs;
  driver::drive_identity const* drive;
  tally* seen;

  io_command command(nvme::io_opcode opcode, std::uint64_t slba, std::uint32_t blocks, page_list const& data,
                     std::uint64_t offset_bytes) const {
    std::uint64_t const bytes = std::uint64_t{blocks} * drive->block_bytes;
    return {opcode, drive->nsid, slba, blocks, bytes, data.ref(offset_bytes, bytes)};
  }
  io_command flush() const { return {nvme::io_opcode::flush, drive->nsid, 0, 0, 0, {}}; }

  /// One request of `count` commands, the first of them to pair `home` of the range.
  token<M> start(std::uint32_t home, io_command const* commands, std::uint32_t count = 1) const {
    count_up(seen->requests);
    std::uint32_t const record = queues.records().try_open(count);
    if (record == slot_pool::none) return token<M>(fault::no_record);
    home %= pairs.count;
    for (std::uint32_t i = 0; i < count; ++i) {
      status const sent = queues.submit(pairs, home, commands[i], record, M::clock_ns() + patience_ns);
      if (!sent.ok()) queues.records().complete(record, sent);
    }
    return token<M>(queues, record, pairs);
  }

  /// Waits; whether the request succeeded. Only `wanted` and, where it may be, cancellation are right.
  bool finish(token<M>& request, status wanted = {}, bool may_be_cancelled = false) const {
    status const got = request.wait(M::clock_ns() + patience_ns);
    if (may_be_cancelled && got.kind() == fault::cancelled) {
      count_up(seen->cancelled);
      return false;
    }
    if (got.kind() != fault::none || got.nvme_status_code() != wanted.nvme_status_code() ||
        got.nvme_status_code_type() != wanted.nvme_status_code_type()) {
      count_up(seen->wrong_statuses);
      // Relaxed, like all counts: read when the lanes have ended.
      simt::atomic<M>(seen->first_wrong_status).fetch_max(got.bits() | 1u << 31, simt::order::relaxed);
    }
    return got.ok();
  }

  void fill(page_list const& data, std::uint64_t offset_bytes, std::uint64_t slba, std::uint64_t bytes,
            std::uint64_t salt) const {
    for (std::uint64_t at = 0; at < bytes; at += 4) {
      M::st(&data.word(offset_bytes + at), stamp(slba * drive->block_bytes + at, salt));
    }
  }
  void expect(page_list const& data, std::uint64_t offset_bytes, std::uint64_t slba, std::uint64_t bytes,
              std::uint64_t salt) const {
    std::uint32_t wrong = 0;
    for (std::uint64_t at = 0; at < bytes; at += 4) {
      wrong += M::ld(&data.word(offset_bytes + at)) != stamp(slba * drive->block_bytes + at, salt);
    }
    if (wrong != 0) count_up(seen->wrong_words, wrong);
  }
  /// The same word everywhere in [from, to).
  void paint(page_list const& data, std::uint64_t from, std::uint64_t to, std::uint32_t paint) const {
    for (; from < to; from += 4) M::st(&data.word(from), paint);
  }
  void expect_paint(page_list const& data, std::uint64_t from, std::uint64_t to, std::uint32_t paint) const {
    std::uint32_t wrong = 0;
    for (; from < to; from += 4) wrong += M::ld(&data.word(from)) != paint;
    if (wrong != 0) count_up(seen->wrong_words, wrong);
  }

  static void count_up(std::uint32_t& word, std::uint32_t by = 1) {
    // Relaxed: a count.
    simt::atomic<M>(word).fetch_add(by, simt::order::relaxed);
  }
};

inline constexpr std::uint32_t guard_word = 0xa5a5a5a5;

/// Lanes share out the sizes from `first_blocks` to `last_blocks`: each is written from one offset within a page and
/// read to another, between guards.
template <class M>
struct every_size {
  client<M> with;
  page_list data;  ///< two areas of `pages_per_area()` for every lane
  std::uint32_t lanes;
  std::uint32_t first_blocks;
  std::uint32_t last_blocks;

  static std::uint32_t pages_per_area(std::uint64_t bytes) {
    return static_cast<std::uint32_t>(bytes / page_bytes) + 2;
  }

  void operator()(std::uint32_t lane) const {
    constexpr std::uint32_t offsets[] = {0, 4, 512, 2048, 4092, 3584};
    std::uint32_t const block = with.drive->block_bytes;
    std::uint32_t const area = pages_per_area(std::uint64_t{last_blocks} * block);
    page_list const out = data.slice(lane * 2 * area, area);
    page_list const in = data.slice((lane * 2 + 1) * area, area);
    std::uint64_t const slba = std::uint64_t{lane} * last_blocks;
    for (std::uint32_t blocks = first_blocks + lane; blocks <= last_blocks; blocks += lanes) {
      std::uint64_t const bytes = std::uint64_t{blocks} * block;
      std::uint64_t const from = offsets[blocks % 6];
      std::uint64_t const to = offsets[blocks / 6 % 6];
      std::uint64_t const end = (to + bytes + page_bytes - 1) / page_bytes * page_bytes;
      with.fill(out, from, slba, bytes, blocks);
      io_command const write = with.command(nvme::io_opcode::write, slba, blocks, out, from);
      token<M> request = with.start(blocks, &write);
      with.paint(in, 0, end, guard_word);
      with.finish(request);
      io_command const read = with.command(nvme::io_opcode::read, slba, blocks, in, to);
      request = with.start(blocks + 1, &read);
      with.finish(request);
      with.expect_paint(in, 0, to, guard_word);
      with.expect(in, to, slba, bytes, blocks);
      with.expect_paint(in, to + bytes, end, guard_word);
    }
  }
};

/// Rounds in which every lane writes to blocks of its own, several requests at once, and reads them back.
template <class M>
struct traffic {
  static constexpr std::uint32_t max_in_flight = 32;
  static constexpr std::uint32_t pages_per_request = 4;

  client<M> with;
  page_list data;  ///< `pages_per_lane()` for every lane
  std::uint64_t seed = 1;
  std::uint32_t rounds = 1;
  std::uint32_t in_flight = 1;    ///< requests of a lane at once
  std::uint32_t max_blocks = 1;   ///< of a request
  bool errors = false;            ///< requests that must fail go along
  bool may_be_cancelled = false;  ///< somebody takes queues away meanwhile
  std::uint32_t* stop = nullptr;  ///< go on until it is set, and then for one round more

  std::uint32_t pages_per_lane() const { return (in_flight + 1) * pages_per_request; }

  void operator()(std::uint32_t lane) const {
    page_list const mine = data.slice(lane * pages_per_lane(), pages_per_lane());
    for (std::uint32_t round = 0;; ++round) {
      // Acquire pairs with the release of the thread that sets `stop`, so that the last round finds what was done
      // before.
      bool const last = stop != nullptr ? simt::atomic<M>(*stop).load(simt::order::acquire) != 0 : round + 1 == rounds;
      one_round(lane, round, mine);
      if (last) return;
    }
  }

 private:
  struct transfer {
    std::uint32_t blocks;
    std::uint32_t offset_bytes;
    std::uint64_t slba;
  };
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  std::uint64_t draw(std::uint32_t lane, std::uint32_t round, std::uint32_t k) const {
    return mix(seed + mix(lane + 1) + mix((std::uint64_t{round} << 32) + k));
  }
  transfer plan(std::uint32_t lane, std::uint32_t k, std::uint64_t random) const {
    return {static_cast<std::uint32_t>(1 + random % max_blocks), static_cast<std::uint32_t>(random >> 32 & 1023) * 4,
            (std::uint64_t{lane} * in_flight + k) * max_blocks};
  }

  void one_round(std::uint32_t lane, std::uint32_t round, page_list const& mine) const {
    token<M> requests[max_in_flight];
    bool written[max_in_flight];
    auto const area = [&](std::uint32_t k) { return mine.slice(k * pages_per_request, pages_per_request); };
    // Waited for in the order of their start, and the other way round.
    auto const turn = [&](std::uint32_t k) { return round % 2 == 0 ? k : in_flight - 1 - k; };
    for (std::uint32_t k = 0; k < in_flight; ++k) {
      std::uint64_t const random = draw(lane, round, k);
      transfer const t = plan(lane, k, random);
      with.fill(area(k), t.offset_bytes, t.slba, t.blocks * with.drive->block_bytes, random);
      io_command const c = with.command(nvme::io_opcode::write, t.slba, t.blocks, area(k), t.offset_bytes);
      requests[k] = with.start(static_cast<std::uint32_t>(random >> 48), &c);
    }
    if (errors) fail_on_purpose(lane + round, area(in_flight));
    for (std::uint32_t k = 0; k < in_flight; ++k) {
      written[turn(k)] = with.finish(requests[turn(k)], {}, may_be_cancelled);
    }
    if (round % 8 == 0) {
      io_command const c = with.flush();
      token<M> flushed = with.start(lane + round, &c);
      with.finish(flushed, {}, may_be_cancelled);
    }
    for (std::uint32_t k = 0; k < in_flight; ++k) {
      transfer t = plan(lane, k, draw(lane, round, k));
      t.offset_bytes = page_bytes - 4 - t.offset_bytes;
      with.paint(area(k), t.offset_bytes, t.offset_bytes + t.blocks * with.drive->block_bytes, guard_word);
      io_command const c = with.command(nvme::io_opcode::read, t.slba, t.blocks, area(k), t.offset_bytes);
      requests[k] = with.start(lane + k, &c);
    }
    for (std::uint32_t i = 0; i < in_flight; ++i) {
      std::uint32_t const k = turn(i);
      bool const read = with.finish(requests[k], {}, may_be_cancelled);
      if (!read || !written[k]) continue;
      std::uint64_t const random = draw(lane, round, k);
      transfer const t = plan(lane, k, random);
      with.expect(area(k), page_bytes - 4 - t.offset_bytes, t.slba, t.blocks * with.drive->block_bytes, random);
    }
  }

  /// Every request gets its own status, whatever the others got; a request of several commands the first failure.
  void fail_on_purpose(std::uint32_t home, page_list const& area) const {
    constexpr std::uint32_t painted = pages_per_request * page_bytes;
    auto const out_of_range = status::from_nvme(nvme::status_field(nvme::generic_status::lba_out_of_range));
    auto const bad_opcode = status::from_nvme(nvme::status_field(nvme::generic_status::invalid_command_opcode));
    std::uint64_t const end = with.drive->blocks;
    with.paint(area, 0, painted, guard_word);
    io_command const outside = with.command(nvme::io_opcode::read, end, 1, area, 4);
    io_command const straddling = with.command(nvme::io_opcode::read, end - 1, 2, area, 0);
    io_command const unknown = with.command(static_cast<nvme::io_opcode>(0x7f), 0, 1, area, 0);
    io_command const three[] = {with.flush(), straddling, with.flush()};
    token<M> first = with.start(home, &outside);
    token<M> second = with.start(home, &unknown);
    token<M> third = with.start(home, three, 3);
    with.finish(second, bad_opcode);
    with.finish(first, out_of_range);
    with.finish(third, out_of_range);
    with.expect_paint(area, 0, painted, guard_word);
  }
};

/// Starts one request and leaves it in flight.
template <class M>
struct start_one {
  client<M> with;
  io_command command;
  std::uint32_t* record;

  void operator()(std::uint32_t /*lane*/) const {
    std::uint32_t home = 0;
    *record = with.queues.records().try_open(1);
    status const sent = with.queues.submit(with.pairs, home, command, *record, M::clock_ns() + patience_ns);
    if (!sent.ok()) with.queues.records().complete(*record, sent);
  }
};

/// Waits for such a request.
template <class M>
struct wait_for_one {
  client<M> with;
  std::uint32_t record;
  std::uint64_t for_ns;
  status* result;

  void operator()(std::uint32_t /*lane*/) const {
    *result = token<M>(with.queues, record, with.pairs).wait(M::clock_ns() + for_ns);
  }
};

}  // namespace forebay::queue_test
