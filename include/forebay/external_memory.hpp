// SPDX-License-Identifier: Apache-2.0
//! \file
//! A model of external memory, such as memory behind a link or fast drives: when a read of it is done. It holds no
//! data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "forebay/detail/memory/cycle_rate.hpp"
#include "forebay/detail/memory/external_state.hpp"
#include "forebay/detail/memory/service_clock.hpp"
#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/memory.hpp"

namespace forebay::memory {

/// Where the data lie whose reads an external memory times.
enum class external_mode : std::uint8_t {
  device,  ///< in memory that is faster than what is modelled, most often the GPU's own
  pinned,  ///< in page-locked host memory: reads cross this machine's link, and are done at the model's time or later
};

/// What an external memory can do. The defaults of latency and limit are those that a GPU has for host memory behind a
/// PCI Express 4 link (arXiv 2312.03113).
struct external_memory_options {
  external_mode mode = external_mode::device;  ///< where the data lie
  double latency_us = 1.2;                     ///< how long a request takes that is alone; 0 to 1,000,000
  std::uint32_t alignment_bytes = 32;          ///< reads are of whole blocks of this size: a power of two, 16 to 4096
  double iops = 0;                             ///< requests that each device completes in a second; 0: any number
  std::uint32_t outstanding = 768;      ///< requests that may be in flight to all devices, up to 2^20; 0: any number
  double link_bytes_per_second = 0;     ///< what the link carries, 1e6 to 1e13; 0: any amount, or what this one does
  std::uint32_t devices = 1;            ///< 1 to 1024; consecutive stretches of the memory lie on consecutive devices
  std::uint32_t request_max_bytes = 0;  ///< a multiple of the alignment, up to 1 MiB; 0: a request is one block
  bool lines = false;                   ///< requests end at multiples of `request_max_bytes`, as those of a GPU do
  /// Independent parts, each with an equal share of the rates and of the limit. Each thread uses one. With one part,
  /// thousands of threads of a GPU would wait for one word. 1 to 1024, and no more than may be in flight; 0: 16 for the
  /// threads of a GPU, or as many as may be in flight if these are fewer, and 1 for those of the host.
  std::uint32_t shards = 0;
  double late_after_us = 0.25;  ///< a load that returns later than this after its time is late; 0 to 1,000,000
  /// A wait ends so much before its time, 0 to 1,000: what the program then takes to have the data in its registers.
  /// None: 0.32 for the threads of a GPU, as an H100 takes, and 0 for those of the host.
  std::optional<double> lead_us = {};

  /// Reads `key=value` pairs with commas between them: `mode`, `latency_us`, `alignment`, `iops`, `outstanding`,
  /// `link`, `devices`, `request_max`, `lines`, `shards`, `lead_us`. `mode` is `device` or `pinned`. `link` is a name
  /// such as `gen4x16`, or what arrives, such as `24G`; `lines` is `on` or `off`. `none` means that there is no such
  /// limit. Throws `refused_input`, as `validate` does.
  static external_memory_options parse(std::string_view text);
  /// Throws `refused_input`, with the key as the field, for an option that is out of range.
  void validate() const;
  /// How many requests a read makes at most that lies within one of the pages of `page_bytes` bytes, a power of two,
  /// that the memory is divided into.
  std::uint32_t requests_of_page(std::uint64_t page_bytes) const;
};

/// What an external memory counted.
struct external_memory_counts {
  std::uint64_t late = 0;      ///< loads that returned too late: then the memory was slower than its options say
  std::uint64_t loads = 0;     ///< calls that read anything; this and what follows only if the refs count
  std::uint64_t requests = 0;  ///< in how many requests
  std::uint64_t bytes = 0;     ///< of whole blocks
};

/// A read in flight, or none. It belongs to the thread that made it.
struct external_memory_handle {
  std::uint64_t done_ps = 0;  ///< when it is done, in picoseconds since the first thread came; 0: there is no read
  std::uint64_t cycles = 0;   ///< the same by the clock of the thread's multiprocessor, less the lead; 0: unknown
};

/// The data of a read that nobody wants to be touched: the caller reads them after its wait.
struct no_external_data {
  /// Does nothing, like `finish`.
  FOREBAY_DEVICE void start(std::uint64_t /*begin*/, std::uint64_t /*end*/) const {}
  /// Returns at once.
  FOREBAY_DEVICE void finish() const {}
};

/// The requests that a read of a range makes: whole blocks, cut where a request would be too long.
class external_memory_requests {
 public:
  /// Of the blocks [begin, end), cut every `max` bytes from `base` on.
  FOREBAY_DEVICE external_memory_requests(std::uint64_t base, std::uint64_t begin, std::uint64_t end, std::uint64_t max)
      : base_(base), begin_(begin), end_(end), max_(max) {}
  /// Where the read begins and ends.
  FOREBAY_DEVICE std::uint64_t begin() const { return begin_; }
  FOREBAY_DEVICE std::uint64_t end() const { return end_; }
  /// How many there are.
  FOREBAY_DEVICE std::uint32_t count() const {
    std::uint32_t n = 0;
    while (has(n)) ++n;
    return n;
  }
  /// Whether there is a request `i`; where it begins, and where it ends.
  FOREBAY_DEVICE bool has(std::uint32_t i) const { return base_ + i * max_ < end_; }
  FOREBAY_DEVICE std::uint64_t begin(std::uint32_t i) const { return i == 0 ? begin_ : base_ + i * max_; }
  FOREBAY_DEVICE std::uint64_t end(std::uint32_t i) const {
    std::uint64_t const cut = base_ + (i + std::uint64_t{1}) * max_;
    return cut < end_ ? cut : end_;
  }

 private:
  std::uint64_t base_, begin_, end_, max_;
};

/// An external memory as threads of machine `M` see it. Trivially copyable; thread-safe. `Counts`: it counts loads,
/// requests and bytes, which takes a few atomic additions for each load.
///
/// A read of a range is cut into requests. Each begins when its device, the link and one of the slots for requests in
/// flight are free, and is done the latency later. No thread ever waits for another: a slot is the time from which it
/// is free, so the limit holds however many threads there are. Only the wait for a time that was set takes time. A read
/// whose data come later than that time, because they cross a slower link, is late.
///
/// `Data` starts to read the bytes [begin, end) of the memory in `start(begin, end)`, and `finish()` returns when they
/// have come. Both happen while the read is in flight, so that the time which it takes is within the latency.
template <class M, bool Counts = false>
class external_memory_ref {
 public:
  using machine = M;

  external_memory_ref() = default;
  /// `external_memory::ref` calls this.
  external_memory_ref(external_timing const& timing, external_layout const& layout, std::byte* state)
      : timing_(timing), layout_(layout), state_(state) {}

  /// The requests of a read of `bytes` bytes, which may be 0, from `address` on.
  FOREBAY_DEVICE external_memory_requests split(std::uint64_t address, std::uint64_t bytes) const {
    std::uint64_t const mask = timing_.alignment_bytes - 1;
    std::uint64_t const begin = address & ~mask;
    std::uint64_t const end = bytes == 0 ? begin : (address + bytes + mask) & ~mask;
    std::uint64_t const base = timing_.lines != 0 ? begin & ~std::uint64_t{timing_.request_max_bytes - 1} : begin;
    // With lines, a range of no bytes could begin behind the first cut.
    return {bytes == 0 ? end : base, begin, end, timing_.request_max_bytes};
  }

  /// Where one thread's reads go in: it has found its shard and the beginning of time. Must not outlive the ref.
  class port {
   public:
    /// `external_memory_ref::at` calls this.
    FOREBAY_DEVICE port(external_memory_ref const& memory, std::uint32_t shard)
        : memory_(memory),
          shard_(memory.layout_.shard(memory.state_, shard)),
          slots_(memory.timing_.slots + (shard < memory.timing_.slots_more ? 1 : 0)),
          begin_ns_(memory.begin_ns()),
          rate_(external_layout::cycles(memory.state_)) {}

    /// Starts to read a range. The calling thread makes all of its requests, in their order. Returns when the data have
    /// come, which does not wait for the time of the read.
    template <class Data = no_external_data>
    FOREBAY_DEVICE external_memory_handle issue(std::uint64_t address, std::uint64_t bytes,
                                                Data&& data = Data()) const {
      moment const now = rate_.look();
      external_memory_requests const requests = memory_.split(address, bytes);
      std::uint32_t const count = requests.count();
      if (count == 0) return {};
      add_up(count, requests.end() - requests.begin());
      data.start(requests.begin(), requests.end());
      external_memory_handle const read = handle_of(now, book(requests, count, since_begin_ps(now.ns)));
      data.finish();
      return read;
    }

    /// The same for all lanes of `warp` together, with the same arguments: lane i makes request i of the first `most`,
    /// which are at most as many as the lanes. Lanes without a request get no read.
    template <class Data = no_external_data>
    FOREBAY_DEVICE external_memory_handle issue_together(typename M::warp const& warp, std::uint64_t address,
                                                         std::uint64_t bytes, std::uint32_t most,
                                                         Data&& data = Data()) const {
      moment const now = rate_.look();
      external_memory_requests const requests = memory_.split(address, bytes);
      if (!requests.has(0)) return {};
      std::uint32_t const lane = warp.thread_rank();
      bool const mine = lane < most && requests.has(lane);
      if (mine) add_up(1, requests.end(lane) - requests.begin(lane));
      data.start(requests.begin(), requests.end(most - 1));
      external_memory_handle read;
      if (mine) {
        external_memory_requests const one(requests.begin(lane), requests.begin(lane), requests.end(lane),
                                           memory_.timing_.request_max_bytes);
        read = handle_of(now, book(one, 1, since_begin_ps(now.ns)));
      }
      data.finish();
      return read;
    }

    /// Waits until a read that was issued ahead is done. It is late if the wait itself takes too long. A caller that
    /// comes after the read is done has lost nothing.
    FOREBAY_DEVICE void wait(external_memory_handle read) const {
      if (read.done_ps != 0) settle(read, rate_.look());
    }

    /// Reads a range that the caller needs now: `issue` and `wait` in one. It is late if it returns too late for any
    /// reason: a thread that is held up in `issue` would wait no more, and would see a slower memory.
    template <class Data = no_external_data>
    FOREBAY_DEVICE void load(std::uint64_t address, std::uint64_t bytes, Data&& data = Data()) const {
      external_memory_handle const read = issue(address, bytes, data);
      if (read.done_ps != 0) settle(read, {});
    }
    template <class Data = no_external_data>
    FOREBAY_DEVICE void load_together(typename M::warp const& warp, std::uint64_t address, std::uint64_t bytes,
                                      std::uint32_t most, Data&& data = Data()) const {
      external_memory_handle const read = issue_together(warp, address, bytes, most, data);
      if (read.done_ps != 0) settle(read, {});
    }

   private:
    /// Requests of one thread that go in at once. Their charges for the slowest link fit 64 bits.
    static constexpr std::uint32_t batch_max = 16;
    /// Those whose accesses are in flight together.
    static constexpr std::uint32_t group = 4;
    /// A thread that the GPU put aside waits no longer than this for a count of cycles that is another now.
    static constexpr std::uint64_t astray_ns = 4096;

    /// Over a longer wait the error of the rate would be more than that of the common clock, which brings it near
    /// first.
    static constexpr std::uint64_t exact_max_ps = 100'000'000;
    /// A thread does not rest so close to the end: a rest may take 128 ns, 256 cycles of a GPU of 2 GHz.
    static constexpr std::int64_t near_cycles = 384;

    // --- Booking: no thread waits for another. ---

    /// Books the requests, which come at `now_ps`; returns when the last is done.
    FOREBAY_DEVICE std::uint64_t book(external_memory_requests const& requests, std::uint32_t count,
                                      std::uint64_t now_ps) const {
      std::uint64_t last_ps = 0;
      FOREBAY_ROLLED for (std::uint32_t first = 0; first < count; first += batch_max) {
        std::uint32_t const end = count - first < batch_max ? count : first + batch_max;
        std::uint64_t const done_ps = book(requests, first, end, now_ps);
        if (done_ps > last_ps) last_ps = done_ps;
      }
      return last_ps;
    }

    FOREBAY_DEVICE std::uint64_t book(external_memory_requests const& requests, std::uint32_t first, std::uint32_t end,
                                      std::uint64_t now_ps) const {
      external_timing const& timing = memory_.timing_;
      std::uint64_t const link_ps = book_link(requests, first, end, now_ps);
      std::uint32_t slot = 0;
      if (slots_ != 0) {
        // Relaxed: only the numbers count. After 2^32 tickets the slots begin anew, which costs at most one wait.
        slot = static_cast<std::uint32_t>(
            simt::global_atomic<M>(shard_.tickets).fetch_add(end - first, simt::order::relaxed));
        slot %= slots_;
      }
      std::uint64_t last_ps = 0;
      // Nothing here uses the result of an access before the accesses of the whole group have begun.
      FOREBAY_ROLLED for (std::uint32_t i = first; i < end; i += group) {
        std::uint64_t start_ps[group];
        FOREBAY_UNROLL for (std::uint32_t j = 0; j < group; ++j) {
          start_ps[j] = i + j < end ? book_device(requests, i + j, now_ps) : 0;
        }
        FOREBAY_UNROLL for (std::uint32_t j = 0; j < group; ++j) {
          if (i + j >= end) continue;
          std::uint64_t const on_link_ps = link_ps + on_link(requests, first, i + j);
          if (on_link_ps > start_ps[j]) start_ps[j] = on_link_ps;
          if (slots_ == 0) continue;
          // The slot comes last: how long it is occupied depends on when the request begins. Link and device are
          // booked from the present on, so that a request that waits for a slot takes nothing from those that need not.
          start_ps[j] = advance<M>(memory_.layout_.slot_clocks(shard_)[slot], start_ps[j], timing.latency_ps);
          if (++slot == slots_) slot = 0;
        }
        FOREBAY_UNROLL for (std::uint32_t j = 0; j < group; ++j) {
          if (start_ps[j] > last_ps) last_ps = start_ps[j];
        }
      }
      return last_ps + timing.latency_ps;
    }

    /// Books the link for the requests [first, end); returns when it begins with them. They follow one another.
    FOREBAY_DEVICE std::uint64_t book_link(external_memory_requests const& requests, std::uint32_t first,
                                           std::uint32_t end, std::uint64_t now_ps) const {
      if (memory_.timing_.link_byte_fs == 0) return now_ps;
      return advance<M>(shard_.link_free_ps, now_ps, on_link(requests, first, end - 1, true));
    }
    /// How long the link takes for the requests from `first` to `i`, of which the last counts too if `whole` says so.
    FOREBAY_DEVICE std::uint64_t on_link(external_memory_requests const& requests, std::uint32_t first, std::uint32_t i,
                                         bool whole = false) const {
      std::uint64_t const end = whole ? requests.end(i) : requests.begin(i);
      return (end - requests.begin(first)) * memory_.timing_.link_byte_fs / 1000;
    }
    /// Books the device of a request; returns when it begins.
    FOREBAY_DEVICE std::uint64_t book_device(external_memory_requests const& requests, std::uint32_t i,
                                             std::uint64_t now_ps) const {
      external_timing const& timing = memory_.timing_;
      if (timing.request_ps == 0) return now_ps;
      // 32 bits are enough: after 2^32 stretches the devices begin anew.
      std::uint32_t const device =
          timing.devices == 1 ? 0
                              : static_cast<std::uint32_t>(requests.begin(i) >> timing.device_shift) % timing.devices;
      return advance<M>(external_layout::device_clocks(shard_)[device], now_ps, timing.request_ps);
    }

    // --- Waits ---

    /// Of a read that comes `now` and is done at `done_ps`.
    FOREBAY_DEVICE external_memory_handle handle_of(moment now, std::uint64_t done_ps) const {
      // 0 means that there is no read.
      external_memory_handle read{done_ps != 0 ? done_ps : 1, 0};
      float const per_ps = rate_.cycles_per_ps();
      if (per_ps != 0) {
        std::uint64_t const come_ps = since_begin_ps(now.ns) + memory_.timing_.lead_ps;
        std::uint64_t const left_ps = done_ps > come_ps ? done_ps - come_ps : 0;
        if (left_ps > exact_max_ps) return read;
        read.cycles = now.cycles + static_cast<std::uint64_t>(static_cast<float>(left_ps) * per_ps);
      }
      return read;
    }

    /// Waits, and counts the read if the caller goes on too late: after the read is done and after `asked`.
    FOREBAY_DEVICE void settle(external_memory_handle read, moment asked) const {
      external_timing const& timing = memory_.timing_;
      std::uint64_t due_ns = ns_of(read.done_ps);
      if constexpr (M::counts_cycles) {
        if (rate_.cycles_per_ps() != 0) {
          std::uint64_t const seen = wait_exactly(read, due_ns);
          std::uint64_t const since = asked.cycles > read.cycles ? asked.cycles : read.cycles;
          auto const allowed = static_cast<float>(timing.late_after_ns * 1000 + timing.lead_ps);
          if (static_cast<float>(seen - since) > allowed * rate_.cycles_per_ps()) add(shard_.late, 1);
          return;
        }
      }
      std::uint64_t const end_ns =
          ns_of(read.done_ps > timing.lead_ps ? read.done_ps - timing.lead_ps : std::uint64_t{0});
      // The time at which this lane saw that the wait is over: after the wait, those of its warp have waited for each
      // other, as they would if their data came one after the other.
      std::uint64_t seen_ns = 0;
      auto const over = [&] {
        seen_ns = M::clock_ns();
        return seen_ns >= end_ns;
      };
      if (!M::wait_until(over, end_ns)) seen_ns = M::clock_ns();
      if (asked.ns > due_ns) due_ns = asked.ns;
      if (seen_ns > due_ns + timing.late_after_ns) add(shard_.late, 1);
    }

    /// Waits by the clock of the thread's multiprocessor. Returns what it then was. All lanes of a warp wait in one
    /// loop, whose end each notes for itself: behind a loop they would go on together, so a second one would begin
    /// late.
    FOREBAY_DEVICE std::uint64_t wait_exactly(external_memory_handle& read, std::uint64_t due_ns) const {
      for (;;) {
        std::uint64_t const now = M::cycles();
        std::int64_t left = near_cycles;
        if (read.cycles != 0) {
          left = static_cast<std::int64_t>(read.cycles - now);
          if (left <= 0) return now;
          // The GPU may have put the thread aside, and the count be another now.
          if (left >= near_cycles && M::clock_ns() >= due_ns + astray_ns) return now;
        } else if (M::clock_ns() + exact_max_ps / 4000 >= due_ns) {
          read = handle_of(rate_.look(), read.done_ps);
        }
        M::rest_unless_near(left < near_cycles);
      }
    }

    FOREBAY_DEVICE std::uint64_t ns_of(std::uint64_t ps) const { return begin_ns_ + (ps + 999) / 1000; }
    FOREBAY_DEVICE std::uint64_t since_begin_ps(std::uint64_t ns) const {
      // The clock of another multiprocessor may be behind that of the one whose thread came first.
      return ns > begin_ns_ ? (ns - begin_ns_) * 1000 : 0;
    }
    FOREBAY_DEVICE void add_up(std::uint32_t requests, std::uint64_t bytes) const {
      if constexpr (Counts) {
        add(shard_.loads, 1);
        add(shard_.requests, requests);
        add(shard_.bytes, bytes);
      }
    }
    FOREBAY_DEVICE static void add(std::uint64_t& counter, std::uint64_t n) {
      // Relaxed: the host reads counters after the grid; they order nothing.
      simt::global_atomic<M>(counter).fetch_add(n, simt::order::relaxed);
    }

    external_memory_ref const& memory_;
    external_shard& shard_;
    std::uint32_t slots_;
    std::uint64_t begin_ns_;
    mutable cycle_rate<M> rate_;  ///< what it learns changes no result
  };

  /// The calling thread's port. Threads of a warp have the same shard.
  FOREBAY_DEVICE port at() const { return at((M::thread_rank() / 32 + M::grid_id()) % timing_.shards); }
  /// The port of a shard, which is below `external_memory_options::shards`.
  FOREBAY_DEVICE port at(std::uint32_t shard) const { return port(*this, shard); }

 private:
  /// The time of the thread that came first. Clocks are relative to it, because picoseconds since 1970 do not fit.
  FOREBAY_DEVICE std::uint64_t begin_ns() const {
    auto const word = simt::atomic<M>(external_layout::begin(state_));
    // Relaxed, both: the word is written once, and nothing else depends on it.
    std::uint64_t known = word.load(simt::order::relaxed);
    if (known == 0) {
      std::uint64_t const mine = M::clock_ns() + 1;
      if (word.compare_exchange(known, mine, simt::order::relaxed)) known = mine;
    }
    return known - 1;
  }

  external_timing timing_;
  external_layout layout_;
  std::byte* state_ = nullptr;
};

/// Owns the state of an external memory, which outlives every kernel that uses it. The state belongs to one machine at
/// a time: clocks of different machines are unrelated. Times are kept for 213 days.
class external_memory {
 public:
  /// With its state in `where`, which the threads reach. Throws `refused_input` as `validate` does, and what
  /// `resource::allocate` throws.
  external_memory(external_memory_options const& options, resource& where);

  /// The memory as threads of machine `M` see it.
  template <class M, bool Counts = false>
  external_memory_ref<M, Counts> ref() const {
    return {timing_, layout_, state_.as<std::byte>()};
  }
  /// What it was made of.
  external_memory_options const& options() const { return options_; }
  /// What was counted since it was made or since the last `reset`. Complete once the kernels have ended.
  external_memory_counts counts() const;
  /// Forgets counts and times, and the machine. No thread uses the memory meanwhile.
  void reset();

 private:
  external_memory_options options_;
  external_timing timing_;
  external_layout layout_;
  allocation state_;
};

}  // namespace forebay::memory
