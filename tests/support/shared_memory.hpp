// SPDX-License-Identifier: Apache-2.0
//! \file
//! The RAM of a virtual machine as a DMA space: pages of a memfd that this process and QEMU both map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "forebay/detail/driver/spaces.hpp"

namespace forebay::test {

/// Lets a GPU reach memory of this process, at the addresses that it has here. Empty functions: no GPU is to reach it.
struct page_locks {
  std::function<void(void* address, std::size_t bytes)> lock = {};
  std::function<void(void* address)> unlock = {};  ///< must not throw; may wait until no kernel runs
};

/// Hands out pages in shuffled order, so that contiguous memory of this process is scattered on the bus and a driver
/// that takes one bus address for many pages is found out. Pages that anybody touched without being given them are
/// listed: QEMU reports success for a transfer to any address.
class shared_memory final : public driver::dma_space {
 public:
  /// `bytes` of RAM of which pages from `first_usable` on are handed out. With `locks`, each area that is handed out is
  /// locked.
  shared_memory(std::uint64_t bytes, std::uint64_t first_usable, std::uint64_t seed, page_locks locks = {});
  shared_memory(shared_memory const&) = delete;
  shared_memory& operator=(shared_memory const&) = delete;
  ~shared_memory() override;

  int file_descriptor() const { return fd_; }
  std::uint64_t size_bytes() const { return bytes_; }

  void* allocate(std::size_t bytes) override;
  /// As `allocate`, in pages that follow each other on the bus, somewhere: for rings beyond one page.
  void* allocate_contiguous(std::size_t bytes);
  /// Frees, and gives the pages back to the operating system, so that they read as zeros and count as untouched. An
  /// area that is locked is zeroed and kept for an allocation of its size, or until memory runs out: to unlock it may
  /// wait for a kernel, which may wait for the thread that deallocates.
  void deallocate(void* address) noexcept override;
  /// Does nothing for memory from `allocate`, which the machine reaches already. Refuses any other.
  void map(void* address, std::size_t bytes) override;
  void unmap(void* address, std::size_t bytes) override;
  std::uint64_t bus_address(void const* address) const override;
  std::size_t page_bytes() const override { return page_size; }

  /// Takes the pages touched so far (firmware, tables) as nobody's fault.
  void accept_touched_pages();
  /// Bus addresses of pages that were touched, that nobody was given and that were not accepted. Of pages that are
  /// kept, those count as touched that are not zero.
  std::vector<std::uint64_t> stray_pages() const;

 private:
  static constexpr std::size_t page_size = 4096;
  struct area {
    std::size_t bytes;
    bool contiguous;                   ///< was asked for
    std::vector<std::uint64_t> pages;  ///< bus address of each page
  };

  /// Of allocations that are larger than `many_pages`, up to `longest_run` pages follow each other.
  static constexpr std::size_t many_pages = 256, longest_run = 8;

  /// What `allocate` and `allocate_contiguous` do. The mutex is held, as for all below.
  void* hand_out(std::size_t bytes, bool contiguous);
  /// Free pages, or none if there are not so many.
  std::vector<std::uint64_t> take_shuffled(std::size_t count);
  std::vector<std::uint64_t> take_run(std::size_t count);
  void* map_pages(std::vector<std::uint64_t> pages, bool contiguous);
  void* take_kept(std::size_t bytes, bool contiguous);
  void return_kept();
  void return_area(std::byte const* address, area const& held);
  /// How many pages from `pages[first]` on follow each other.
  static std::size_t run_at(std::vector<std::uint64_t> const& pages, std::size_t first);
  std::vector<std::uint64_t> touched_pages() const;

  int fd_;
  std::uint64_t bytes_;
  page_locks const locks_;
  mutable std::mutex mutex_;  ///< guards all below
  std::mt19937_64 random_;
  std::set<std::uint64_t> free_;
  std::vector<std::uint64_t>
      shuffled_;  ///< candidates in the order to hand out; those no longer in `free_` are skipped
  std::map<std::byte const*, area> areas_;
  std::multimap<std::size_t, std::pair<std::byte const*, area>> kept_;  ///< by their bytes; mapped and locked
  std::set<std::uint64_t> accepted_;
};

}  // namespace forebay::test
