// SPDX-License-Identifier: Apache-2.0
//! \file
//! An array in external memory, with the interface of an array on drives. Its elements lie in plain memory, and each
//! access takes the time that a model of external memory says.
#pragma once

#include <cstddef>
#include <cstdint>

#include "forebay/external_memory.hpp"
#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::apps {

/// Loads of a thread that have begun, one for each sector of a range, so that all of it crosses the link and is then
/// near. `Most`: so many are in flight.
template <class M, std::uint32_t Most>
class sector_loads {
 public:
  /// Of [begin, end): of every `lanes`-th sector from number `lane` on. First finishes those that do not fit.
  FOREBAY_DEVICE void start(std::byte const* begin, std::byte const* end, std::uint32_t lane, std::uint32_t lanes) {
    auto const first = reinterpret_cast<std::uintptr_t>(begin) / sector_bytes;
    auto const stop = (reinterpret_cast<std::uintptr_t>(end) + sector_bytes - 1) / sector_bytes;
    FOREBAY_ROLLED for (std::uintptr_t sector = first + lane; sector < stop; sector += Most * lanes) {
      finish();
      FOREBAY_UNROLL for (std::uint32_t j = 0; j < Most; ++j) {
        std::uintptr_t const at = sector + j * lanes;
        // The first may begin before the range does.
        if (at < stop) values_[j] = M::start_load(at == first ? begin : begin + (at * sector_bytes - address(begin)));
      }
    }
  }
  FOREBAY_DEVICE void finish() {
    std::uint32_t all = 0;
    FOREBAY_UNROLL for (std::uint32_t j = 0; j < Most; ++j) all ^= values_[j];
    M::finish_loads(all);
  }

 private:
  /// What a GPU reads at least.
  static constexpr std::uintptr_t sector_bytes = 32;
  FOREBAY_DEVICE static std::uintptr_t address(std::byte const* at) { return reinterpret_cast<std::uintptr_t>(at); }

  std::uint32_t values_[Most] = {};
};

/// Trivially copyable: kernels take it by value. `Memory` is a `memory::external_memory_ref`. There is no cache: what
/// is read twice takes its time twice. Whatever is read, a cursor reads each sector of its blocks while it waits.
template <class T, class Memory>
class external_view {
 public:
  using machine = typename Memory::machine;
  using value_type = T;

  /// Holds a run of whole requests at a time. That of a thread makes all of them. `WholeWarp`: all lanes of the warp
  /// share one cursor. They call its functions together, with the same arguments, and make one request each. Must not
  /// outlive the view.
  template <bool WholeWarp>
  class cursor {
   public:
    FOREBAY_DEVICE cursor(external_view const& view, std::uint32_t requests)
        : view_(view), port_(view.memory_.at()), requests_(requests) {
      if constexpr (WholeWarp) {
        std::uint32_t const lanes = simt::count_bits(machine::this_warp().mask());
        if (requests_ > lanes) requests_ = lanes;
      }
      if (requests_ == 0) requests_ = 1;
    }
    cursor(cursor const&) = delete;
    cursor& operator=(cursor const&) = delete;

    /// Brings element `i` within reach, and as many after it as the cursor holds. Waits until they are there.
    FOREBAY_DEVICE status seek(std::uint64_t i) { return seek(i, view_.size_); }
    /// The same for a caller that next needs the elements [i, stop): reads no block behind them.
    FOREBAY_DEVICE status seek(std::uint64_t i, std::uint64_t stop) {
      if (i - first_ < end_ - first_) return {};
      if (i >= view_.size_) return fault::out_of_range;
      if (i - ahead_.first < ahead_.end - ahead_.first) {
        port_.wait(ahead_read_);
        show(ahead_);
        ahead_ = {};
        return {};
      }
      run const wanted = run_of(i, stop);
      if (i - wanted.first >= wanted.end - wanted.first) return fault::bad_alignment;
      data_of_read data(view_);
      if constexpr (WholeWarp) {
        port_.load_together(machine::this_warp(), wanted.address, wanted.bytes, requests_, data);
      } else {
        port_.load(wanted.address, wanted.bytes, data);
      }
      show(wanted);
      return {};
    }
    /// Starts to read what `seek(i, stop)` would, and returns when the data have come, which is before their time. That
    /// seek then waits for the rest of the time only. The cursor keeps one such run beside the one within reach, so a
    /// second call gives the first run up. False if there is no such element, or if it lies in two runs.
    FOREBAY_DEVICE bool prefetch(std::uint64_t i, std::uint64_t stop) {
      if (i - first_ < end_ - first_ || i - ahead_.first < ahead_.end - ahead_.first) return true;
      if (i >= view_.size_) return false;
      run const wanted = run_of(i, stop);
      if (i - wanted.first >= wanted.end - wanted.first) return false;
      data_of_read data(view_);
      if constexpr (WholeWarp) {
        ahead_read_ = port_.issue_together(machine::this_warp(), wanted.address, wanted.bytes, requests_, data);
      } else {
        ahead_read_ = port_.issue(wanted.address, wanted.bytes, data);
      }
      ahead_ = wanted;
      return true;
    }
    /// The elements [first(), end()) are within reach: those that lie wholly in the blocks that were read.
    FOREBAY_DEVICE std::uint64_t first() const { return first_; }
    FOREBAY_DEVICE std::uint64_t end() const { return end_; }
    /// Element `i`, which must be within reach.
    FOREBAY_DEVICE T const& operator[](std::uint64_t i) const { return view_.data_[i]; }
    /// Forgets what is within reach.
    FOREBAY_DEVICE void release() { first_ = end_ = 0; }

   private:
    friend external_view;

    /// Elements of consecutive requests, and the bytes of the memory that these read.
    struct run {
      std::uint64_t first = 0;
      std::uint64_t end = 0;
      std::uint64_t address = 0;
      std::uint64_t bytes = 0;
    };

    FOREBAY_DEVICE run run_of(std::uint64_t i, std::uint64_t stop) const {
      if (stop <= i) stop = i + 1;
      if (stop > view_.size_) stop = view_.size_;
      auto const requests = view_.memory_.split(view_.address_of(i), (stop - i) * sizeof(T));
      std::uint64_t const begin = requests.begin(0), end = requests.end(requests_ - 1);
      run found;
      found.address = begin;
      found.bytes = end - begin;
      found.first = begin > view_.address_ ? (begin - view_.address_ + sizeof(T) - 1) / sizeof(T) : 0;
      found.end = (end - view_.address_) / sizeof(T);
      if (found.end > view_.size_) found.end = view_.size_;
      return found;
    }
    /// Reads what lies at the bytes of a read. The lanes of a warp take turns, so that neighbours read neighbours.
    class data_of_read {
     public:
      FOREBAY_DEVICE explicit data_of_read(external_view const& view) : view_(view) {}
      FOREBAY_DEVICE void start(std::uint64_t begin, std::uint64_t end) {
        // The first block and the last may reach beyond the array.
        std::uint64_t const first = view_.address_, stop = first + view_.size_ * sizeof(T);
        begin = begin > first ? begin - first : 0;
        end = (end < stop ? end : stop) - first;
        auto const* const bytes = reinterpret_cast<std::byte const*>(view_.data_);
        std::uint32_t const lane = WholeWarp ? machine::this_warp().thread_rank() : 0;
        std::uint32_t const lanes = WholeWarp ? simt::count_bits(machine::this_warp().mask()) : 1;
        loads_.start(bytes + begin, bytes + end, lane, lanes);
      }
      FOREBAY_DEVICE void finish() { loads_.finish(); }

     private:
      external_view const& view_;
      // 128 bytes for each lane of a warp, and 256 of a thread alone.
      sector_loads<machine, WholeWarp ? 4 : 8> loads_;
    };
    FOREBAY_DEVICE void show(run const& there) {
      // Each lane has waited for its own request.
      if constexpr (WholeWarp) machine::this_warp().sync();
      first_ = there.first;
      end_ = there.end;
    }

    external_view const& view_;
    typename Memory::port port_;
    std::uint32_t requests_;
    std::uint64_t first_ = 0;
    std::uint64_t end_ = 0;
    run ahead_;
    memory::external_memory_handle ahead_read_;
  };

  external_view() = default;
  /// The elements from `data` on, which lie from byte `address` of the external memory on. The cursor of a thread holds
  /// up to `thread_requests` requests. If it is to hold a page of the view, give it as many as
  /// `external_memory_options::requests_of_page` says, and an address that is a multiple of the page.
  FOREBAY_DEVICE external_view(T const* data, std::uint64_t size, Memory const& memory, std::uint64_t address = 0,
                               std::uint32_t thread_requests = 1)
      : data_(data), size_(size), address_(address), memory_(memory), thread_requests_(thread_requests) {}

  FOREBAY_DEVICE std::uint64_t size() const { return size_; }
  /// Element `i`. Each access is a read of its own.
  FOREBAY_DEVICE T operator[](std::uint64_t i) const {
    typename cursor<false>::data_of_read data(*this);
    memory_.at().load(address_of(i), sizeof(T), data);
    return data_[i];
  }
  /// A cursor of one thread, over as many requests at a time as the view was made for.
  FOREBAY_DEVICE cursor<false> thread_page() const& { return {*this, thread_requests_}; }
  /// A cursor of the warp that the calling thread belongs to, over one request at a time.
  FOREBAY_DEVICE cursor<true> warp_page() const& { return {*this, 1}; }
  /// The same over up to `requests` requests, which the lanes make together: 1 to 32; more count as 32.
  FOREBAY_DEVICE cursor<true> warp_pages(std::uint32_t requests) const& { return {*this, requests}; }
  void thread_page() const&& = delete;
  void warp_page() const&& = delete;
  void warp_pages(std::uint32_t requests) const&& = delete;

  /// Nothing holds what is read ahead, except a cursor: use `cursor::prefetch`.
  FOREBAY_DEVICE bool touch(std::uint64_t) const { return false; }
  FOREBAY_DEVICE bool prefetch(std::uint64_t) const { return false; }
  FOREBAY_DEVICE bool await_prefetches(std::uint64_t) const { return true; }
  FOREBAY_DEVICE std::uint64_t prefetch_distance_max() const { return 0; }

 private:
  FOREBAY_DEVICE std::uint64_t address_of(std::uint64_t i) const { return address_ + i * sizeof(T); }

  T const* data_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t address_ = 0;
  Memory memory_;
  std::uint32_t thread_requests_ = 1;
};

}  // namespace forebay::apps
