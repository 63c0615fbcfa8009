// SPDX-License-Identifier: Apache-2.0
//! \file
//! A storage behind a cache, as a kernel sees it: one range of bytes, whose pages the cache brings into frames and
//! evicts.
#pragma once

#include <cstdint>
#include <type_traits>

#include "forebay/array_view.hpp"
#include "forebay/cached_write.hpp"
#include "forebay/detail/cache/cache_ref.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/detail/storage/request.hpp"
#include "forebay/drive_arrays.hpp"
#include "forebay/shared_page.hpp"
#include "forebay/status.hpp"
#include "forebay/storage_ref.hpp"
#include "forebay/traits.hpp"

namespace forebay {

/// When a write's token completes.
enum class write_until : std::uint8_t {
  drive,  ///< the drive has the data, though it is perhaps not durable
  cache   ///< every later read sees the data; it reaches the drive when its page is evicted or flushed
};

/// A storage through the cache, for traits that are `cached` or derived from it. Trivially copyable: kernels take it by
/// value. Thread-safe. A window on the storage: offset 0 is the window's first byte. Threads of all kernels that have a
/// ref of the same storage see each other's writes, whichever path each access takes (C6).
template <class M, cached_traits Traits>
class storage_ref<M, Traits> {
 public:
  using machine = M;
  using traits = Traits;
  using cache_type = cache_ref<M, Traits>;
  using read_token = token<M, typename cache_type::queues_type>;
  using write_token = cached_write<cache_type>;
  using page_type = shared_page<cache_type>;
  template <class T>
  using view_type = array_view<T, cache_type>;
  template <class T>
  using drives_type = drive_arrays_view<T, cache_type>;

  storage_ref() = default;
  /// Bytes [first_byte, first_byte + bytes) of the storage; `first_byte` is a multiple of the page. `drives`: how many
  /// drives of equal size lie in the window, one after the other; 0: none.
  FOREBAY_DEVICE storage_ref(cache_type const& cache, std::uint64_t first_byte, std::uint64_t bytes, bool writable,
                             std::uint32_t drives = 0)
      : cache_(cache), first_byte_(first_byte), bytes_(bytes), drives_(drives), writable_(writable) {}

  /// The size of the window.
  FOREBAY_DEVICE std::uint64_t size_bytes() const { return bytes_; }
  /// The size of the cache's pages.
  FOREBAY_DEVICE std::uint32_t page_bytes() const { return 1u << cache_.page_shift(); }

  /// The window from `offset_bytes` on as an array of as many `T` as fit. The array is empty if `offset_bytes` is not a
  /// multiple of the alignment of `T`. Elements of 1, 2, 4, 8 or 16 bytes that are aligned to their size are the
  /// fastest.
  template <class T>
  FOREBAY_DEVICE view_type<T> array(std::uint64_t offset_bytes = 0) const {
    std::uint64_t const room = offset_bytes < bytes_ && offset_bytes % alignof(T) == 0 ? bytes_ - offset_bytes : 0;
    return view_type<T>(cache_, first_byte_ + offset_bytes, room / sizeof(T), writable_);
  }
  /// The same with at most `count` elements.
  template <class T>
  FOREBAY_DEVICE view_type<T> array(std::uint64_t offset_bytes, std::uint64_t count) const {
    view_type<T> const all = array<T>(offset_bytes);
    return all.size() <= count ? all : view_type<T>(cache_, first_byte_ + offset_bytes, count, writable_);
  }

  /// The drives as arrays of their own: `drive_arrays<T>()[drive][i]`. There are none if the drives are striped, or if
  /// the window is an extent. If the drives are striped, `storage::drive_arrays()` throws on the host.
  template <class T>
  FOREBAY_DEVICE drives_type<T> drive_arrays() const {
    return drives_type<T>(cache_, drives_, drives_ != 0 ? bytes_ / drives_ : 0, writable_);
  }

  /// Starts reading the page of byte `offset_bytes` into the cache. Never waits. False if there was no room for it, or
  /// if there is no such byte.
  FOREBAY_DEVICE bool prefetch(std::uint64_t offset_bytes) const {
    return offset_bytes < bytes_ && cache_.prefetch((first_byte_ + offset_bytes) >> cache_.page_shift());
  }

  /// Starts reading `bytes` bytes from `offset_bytes` into the start of `to`. Pages that the cache holds are copied at
  /// once. The others are read directly from the drives and do not enter the cache. Offset and length are multiples of
  /// the drives' block. May wait for room in the queues, and helps meanwhile. The buffer belongs to the request until
  /// its token has been waited for. If a thread writes to these bytes before then, the read may return the old bytes or
  /// the new ones.
  FOREBAY_DEVICE read_token read_async(buffer_ref const& to, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    storage_layout const& layout = cache_.state()->layout;
    status const refusal = transfer_refusal(layout, to, offset_bytes, bytes, bytes_);
    if (!refusal.ok()) return read_token(refusal);
    if (bytes == 0) return read_token(status());

    std::uint64_t const first = first_byte_ + offset_bytes;
    std::uint32_t const shift = cache_.page_shift();
    auto const queues = cache_.queues();
    request<M, typename cache_type::queues_type> r(queues, layout);
    // A page lies on one drive, and one command can carry it.
    auto const pages = static_cast<std::uint32_t>(((first + bytes - 1) >> shift) - (first >> shift) + 1);
    if (!r.open(pages)) return read_token(fault::no_record);
    bool sent = true;
    for (std::uint64_t done = 0, n = 0; sent && done < bytes; done += n) {
      std::uint64_t const at = first + done;
      n = bytes_in_page(at, bytes - done);
      bool const copied = cache_.use_if_held(at >> shift, [&](std::uint32_t frame) {
        M::copy(to.data() + done, cache_.frame_data(frame) + (at & (page_bytes() - 1)), n);
      });
      if (!copied) sent = r.transfer(nvme::io_opcode::read, to.subspan(done, n), at, n);
    }
    r.complete_unsent();
    return r.to_token();
  }

  /// Starts writing `bytes` bytes from the start of `from` at `offset_bytes`; both may be any number. The bytes are
  /// copied to the cache, so the caller may use the buffer again as soon as the call returns. With `write_until::drive`
  /// they also begin to go to the drives, and the token says when they are there. Waits if room has to be made for a
  /// page, or if a page that is written in part has to be read first.
  FOREBAY_DEVICE write_token write_async(buffer_ref const& from, std::uint64_t offset_bytes, std::uint64_t bytes,
                                         write_until until = write_until::drive) const {
    if (!writable_) return write_token(fault::read_only);
    if (from.data() == nullptr) return write_token(fault::not_registered);
    if (bytes > from.size_bytes() || offset_bytes > bytes_ || bytes > bytes_ - offset_bytes) {
      return write_token(fault::out_of_range);
    }
    std::uint64_t const first = first_byte_ + offset_bytes;
    std::uint32_t const shift = cache_.page_shift();
    for (std::uint64_t done = 0, n = 0; done < bytes; done += n) {
      std::uint64_t const at = first + done;
      n = bytes_in_page(at, bytes - done);
      page_pin const pinned =
          cache_.pin(at >> shift, n == page_bytes() ? access::overwrite : access::write, when_full::wait);
      if (!pinned.outcome.ok()) return write_token(pinned.outcome);
      M::copy(cache_.frame_data(pinned.frame) + (at & (page_bytes() - 1)), from.data() + done, n);
      if (n == page_bytes()) cache_.publish(pinned.frame);
      cache_.unpin(pinned.frame);
      if (until == write_until::drive) cache_.start_cleaning(pinned.frame);
    }
    if (until == write_until::cache || bytes == 0) return write_token(status());
    return write_token(cache_, first >> shift, ((first + bytes - 1) >> shift) + 1);
  }

  /// Starts the read and waits up to the storage's default time. After `timed_out` the request goes on, detached: the
  /// buffer belongs to it until the storage has been flushed or destroyed.
  FOREBAY_DEVICE status read(buffer_ref const& to, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    return read_async(to, offset_bytes, bytes).wait_once();
  }
  /// The same for a write. When it returns, with any status, the buffer is the caller's. After a failure the cache may
  /// hold a part of the data, and writes it back later.
  FOREBAY_DEVICE status write(buffer_ref const& from, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    return write_async(from, offset_bytes, bytes).wait();
  }

  /// Makes `buffer`, a page of registered memory, the frame of the page at `offset_bytes`. If a frame holds that page
  /// already, `shared_page::data()` points to that frame instead. For `sharing_use::read` the page is read into the
  /// buffer, and wait() says when that is done. For `sharing_use::overwrite` the buffer holds the page's new bytes,
  /// which every thread sees from now on. `offset_bytes` is a multiple of the page. The storage's last page cannot be
  /// shared if it is a short one. The buffer is aligned to 512 bytes. It belongs to the storage until it has been taken
  /// back.
  FOREBAY_DEVICE page_type share(buffer_ref const& buffer, std::uint64_t offset_bytes, sharing_use use) const {
    auto const refused = [&](fault why) { return page_type(cache_, 0, {{~0u, why}, 0}, false); };
    if (use == sharing_use::overwrite && !writable_) return refused(fault::read_only);
    if (buffer.data() == nullptr) return refused(fault::not_registered);
    // Other threads reach the page through views, whose elements are aligned to up to 512 bytes.
    std::uint64_t const unaligned = (page_bytes() < 512 ? page_bytes() : 512) - 1;
    if (offset_bytes % page_bytes() != 0 ||
        ((reinterpret_cast<std::uintptr_t>(buffer.data()) | buffer.bus_address(0)) & unaligned) != 0) {
      return refused(fault::bad_alignment);
    }
    if (buffer.size_bytes() < page_bytes() || offset_bytes > bytes_ || page_bytes() > bytes_ - offset_bytes) {
      return refused(fault::out_of_range);
    }
    std::uint64_t const page = (first_byte_ + offset_bytes) >> cache_.page_shift();
    page_share const shared = cache_.share(page, buffer, use);
    if (use == sharing_use::overwrite && shared.ticket == 0 && shared.pinned.outcome.ok()) {
      M::copy(cache_.frame_data(shared.pinned.frame), buffer.data(), page_bytes());
      cache_.publish(shared.pinned.frame);
    }
    return page_type(cache_, page, shared, writable_);
  }

  /// The page directory itself, for code of the library.
  FOREBAY_DEVICE cache_type const& cache() const { return cache_; }

 private:
  /// How many of `left` bytes from byte `at` on lie in the page of `at`.
  FOREBAY_DEVICE std::uint64_t bytes_in_page(std::uint64_t at, std::uint64_t left) const {
    std::uint64_t const room = page_bytes() - (at & (page_bytes() - 1));
    return left < room ? left : room;
  }

  cache_type cache_;
  std::uint64_t first_byte_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint32_t drives_ = 0;
  bool writable_ = false;
};

}  // namespace forebay
