// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory that a drive daemon shares with its clients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "channel.hpp"
#include "forebay/detail/memory/shared.hpp"
#include "forebay/memory.hpp"

namespace forebay::drive::served {

/// Of host memory: chunks are whole pages, and drives cut them at pages.
inline constexpr std::size_t page_bytes = 4096;

/// Where a chunk is: in host memory, which is page-locked where a GPU is to reach it, or in a GPU's.
struct chunk_place {
  memory::kind kind = memory::kind::host;
  int gpu = 0;                ///< of GPU memory
  bool locked_there = false;  ///< of host memory: its pages must stay where they are, for a GPU or for a real drive
  std::size_t page_bytes = served::page_bytes;  ///< of host memory: 4096, or that of the huge pages that it consists of
  bool operator==(chunk_place const&) const = default;
};

/// A stretch of memory that any process with its file can map. Its file cannot be truncated while it is mapped. In host
/// memory there is a guard page before it and one behind it: an access past its end hits those, and not a neighbour.
class chunk {
 public:
  /// Makes one, zeroed. Throws `operation_failed`.
  explicit chunk(std::size_t bytes, chunk_place const& where = {});
  /// Maps one that another process, or an earlier one, made.
  chunk(open_file made, std::size_t bytes, chunk_place const& where = {});
  ~chunk();
  chunk(chunk const&) = delete;
  chunk& operator=(chunk const&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return bytes_; }
  /// Only the clients that were given the chunk know its key. A request that names the key may use the chunk.
  std::uint64_t key() const { return key_; }
  void renew_key();
  int file() const { return file_.get(); }
  chunk_place const& where() const { return where_; }
  bool contains(std::uint64_t address, std::uint64_t bytes) const {
    auto const first = reinterpret_cast<std::uint64_t>(data_);
    return address >= first && bytes <= bytes_ && address - first <= bytes_ - bytes;
  }
  /// Zeroes whole pages. Gives back the memory of those pages that no GPU reaches.
  void drop(std::byte* from, std::size_t bytes) noexcept;

 private:
  void map();
  bool huge() const { return where_.page_bytes > served::page_bytes; }

  open_file file_;
  std::size_t bytes_;
  chunk_place where_;
  std::uint64_t key_;
  std::unique_ptr<memory::shared_device_memory> on_gpu_;
  std::byte* data_ = nullptr;
};

/// How much of its machine a daemon lets clients take.
struct client_limits {
  std::uint64_t bytes = 0;      ///< of host memory, each; 0: half of the machine's
  std::uint64_t all_bytes = 0;  ///< all of them together; 0: three quarters of it
  std::size_t chunks = 256;     ///< each: so many files that both have open
  std::size_t connections = 512;
  std::size_t connections_of_process = 128;
  std::size_t drives = 64;  ///< that the daemon has open
};

/// All chunks of a daemon's clients, so that one client's drives can share them. Outlives them. Thread-safe.
class chunk_register {
 public:
  explicit chunk_register(client_limits const& limits);

  client_limits const& limits() const { return limits_; }
  /// Zeroed. A chunk that a GPU reaches comes back here when its last holder releases it, and serves the next request
  /// for the same size: to take it from the GPU would wait for the engine's kernel, which does not end.
  std::shared_ptr<chunk> make(std::size_t bytes, chunk_place const& where);
  /// The one with this key that holds all of [address, address + bytes); null where there is none.
  std::shared_ptr<chunk> find(std::uint64_t address, std::uint64_t bytes, std::uint64_t key);

 private:
  client_limits limits_;
  std::mutex mutex_;
  std::uint64_t host_bytes_ = 0;  ///< of the chunks that somebody has, and of spare ones
  std::vector<std::weak_ptr<chunk>> chunks_;
  std::vector<std::unique_ptr<chunk>> spare_;
};

/// How much one client has. Used only by the thread that answers that client.
struct client_share {
  std::uint64_t host_bytes = 0;
  std::size_t chunks = 0;  ///< with the allocations that it lends

  /// Throws `operation_failed` unless it may have one more.
  void require_one_more_chunk(client_limits const& limits) const;
};

/// One client's memory allocator: it cuts chunks into whole pages.
class chunk_arena final : public memory::resource {
 public:
  /// `share` is counted up to the limits of `all`; `operation_failed` where they are reached. `made`, if given, is
  /// called for each new chunk before any of it is used.
  chunk_arena(chunk_register& all, client_share& share, chunk_place const& where = {},
              std::function<void(std::shared_ptr<chunk>)> made = {})
      : all_(all), share_(share), where_(where), made_(std::move(made)) {}

  memory::kind kind() const override { return where_.kind; }
  void* allocate(std::size_t bytes, std::size_t alignment_bytes) override;
  void deallocate(void* address) noexcept override;
  void copy_in(void* to, void const* from_host, std::size_t bytes) override;
  void copy_out(void* to_host, void const* from, std::size_t bytes) override;

  /// Chunks that were made since the last call, which the client must map.
  std::vector<std::shared_ptr<chunk>> take_new();

 private:
  void* take(std::size_t bytes, std::size_t alignment_bytes);

  std::size_t usual_bytes() const;
  std::shared_ptr<chunk> make_chunk(std::size_t bytes);

  chunk_register& all_;
  client_share& share_;
  chunk_place const where_;
  std::function<void(std::shared_ptr<chunk>)> const made_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<chunk>> chunks_;
  std::size_t told_ = 0;                        ///< chunks that the client knows
  std::map<std::uintptr_t, std::size_t> free_;  ///< stretches of one chunk each, by address
  std::unordered_map<std::uintptr_t, std::size_t> used_;
};

}  // namespace forebay::drive::served
