// SPDX-License-Identifier: Apache-2.0
//! \file
//! An engine with a drive of bytes, rings and a buffer, and a client that fills and drains the rings by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "emulator/fake_medium.hpp"
#include "forebay/detail/emulator/engine.hpp"

namespace forebay::emulator::testing {

/// Native, with a clock that the test sets.
struct clocked : simt::native {
  static inline thread_local std::uint64_t now_ns = 0;
  static std::uint64_t clock_ns() { return now_ns; }
};

/// A queue's rings in plain memory, and its client's view.
struct client_queue {
  std::uint32_t id = 0;
  std::uint32_t cq_id = 0;
  std::vector<nvme::submission_entry> sq;
  std::uint32_t tail_doorbell = 0;
  std::uint32_t tail = 0;

  void submit(nvme::submission_entry const& entry) {
    sq[tail] = entry;
    tail = tail + 1 == sq.size() ? 0 : tail + 1;
  }
  void ring() { std::atomic_ref(tail_doorbell).store(tail, std::memory_order_release); }  // pairs with the unit's poll
};

struct client_completions {
  std::uint32_t id = 0;
  std::vector<nvme::completion_entry> cq;
  std::uint32_t head_doorbell = 0;
  std::uint32_t head = 0;
  std::uint32_t phase = 1;

  /// The next completion, consumed; the doorbell is rung by `ring`.
  std::optional<nvme::completion_entry> take() {
    // Acquire: pairs with the engine's release of the same word.
    std::uint32_t const dw3 = std::atomic_ref(cq[head].dw3).load(std::memory_order_acquire);
    if ((dw3 >> 16 & 1) != phase) return std::nullopt;
    nvme::completion_entry const entry = cq[head];
    if (++head == cq.size()) {
      head = 0;
      phase ^= 1;
    }
    return entry;
  }
  void ring() { std::atomic_ref(head_doorbell).store(head, std::memory_order_release); }  // pairs with `look_at_head`
};

template <class M = clocked>
class rig {
 public:
  static constexpr std::uint64_t page = 4096;

  explicit rig(engine_options const& options = {}, std::uint64_t drive_bytes = 1 << 20,
               std::uint64_t buffer_bytes = 4 << 20, std::uint32_t block_bytes = 512, sync_words* sync = nullptr)
      : store_(memory::host(), drive_bytes, page),
        buffer_(memory::host(), buffer_bytes, page),
        regions_(memory::host(), 10) {
    clocked::now_ns = 0;
    regions_.add(buffer_.data(), buffer_.size_bytes());
    drive_ = {store_.as<std::byte>(), drive_bytes, block_bytes, sync};
    engine_.emplace(options, drive_);
  }

  /// A drive whose bytes, which still lie in `store()`, are in a fake medium.
  rig(engine_options const& options, fake_behaviour const& how, std::uint64_t drive_bytes = 1 << 20,
      std::uint64_t buffer_bytes = 4 << 20)
      : store_(memory::host(), drive_bytes, page),
        buffer_(memory::host(), buffer_bytes, page),
        regions_(memory::host(), 10),
        medium_(std::in_place, store_.as<std::byte>(), how) {
    clocked::now_ns = 0;
    regions_.add(buffer_.data(), buffer_.size_bytes());
    drive_ = {.bytes = drive_bytes, .block_bytes = 512, .pieces = &*medium_};
    engine_.emplace(options, drive_);
  }

  fake_medium<M>& medium() { return *medium_; }
  engine<M>& units() { return *engine_; }
  dma_regions& regions() { return regions_; }
  std::byte* store() { return store_.as<std::byte>(); }
  std::byte* buffer(std::uint64_t offset = 0) { return buffer_.as<std::byte>() + offset; }
  std::uint64_t address(std::uint64_t offset = 0) { return reinterpret_cast<std::uint64_t>(buffer(offset)); }

  std::unique_ptr<client_completions> completions(std::uint32_t id, std::uint32_t entries) {
    auto queue = std::make_unique<client_completions>();
    queue->id = id;
    queue->cq.resize(entries);
    engine_->attach_completion_queue({id - 1, queue->cq.data(), entries, &queue->head_doorbell});
    return queue;
  }
  std::unique_ptr<client_queue> queue(std::uint32_t id, std::uint32_t entries, std::uint32_t cq_id,
                                      std::uint32_t page_bytes = page) {
    auto queue = std::make_unique<client_queue>();
    queue->id = id;
    queue->cq_id = cq_id;
    queue->sq.resize(entries);
    engine_->attach_submission_queue({.slot = id - 1,
                                      .id = static_cast<std::uint16_t>(id),
                                      .entries = queue->sq.data(),
                                      .size = entries,
                                      .tail_doorbell = &queue->tail_doorbell,
                                      .cq_slot = cq_id - 1,
                                      .page_bytes = page_bytes,
                                      .regions = regions_.table()});
    return queue;
  }

  counters counts() {
    auto const sum = std::make_unique<statistics>();
    engine_->collect(*sum);
    return sum->commands;
  }

 private:
  memory::allocation store_;
  memory::allocation buffer_;
  dma_regions regions_;
  media drive_;
  std::optional<fake_medium<M>> medium_;
  std::optional<engine<M>> engine_;
};

inline nvme::submission_entry command(nvme::io_opcode opcode, std::uint16_t id, std::uint64_t lba, std::uint32_t blocks,
                                      std::uint64_t prp1 = 0, std::uint64_t prp2 = 0) {
  nvme::submission_entry entry = nvme::make_io_command(opcode, id, 1, lba, blocks);
  entry.prp1 = prp1;
  entry.prp2 = prp2;
  return entry;
}

/// Status code type and code of a completion, without the retry bits.
inline std::uint16_t code_of(nvme::completion_entry const& entry) {
  return static_cast<std::uint16_t>(entry.status_field() & nvme::status_code_mask);
}

}  // namespace forebay::emulator::testing
