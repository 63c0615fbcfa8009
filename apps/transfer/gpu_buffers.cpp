// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/gpu_buffers.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "apps/transfer/device_memory.hpp"
#include "apps/transfer/host_data.hpp"
#include "forebay/error.hpp"

namespace forebay::transfer {
namespace {

using memory::check_cuda;

constexpr std::uint64_t page_bytes = 2 << 20;
std::uint64_t rounded(std::uint64_t bytes, std::uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// Ordinary memory, touched, so that no page fault is measured later.
std::byte* make_pageable(std::uint64_t bytes) {
  void* const address = ::mmap(nullptr, rounded(bytes, page_bytes), PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (address == MAP_FAILED) throw operation_failed(fmt::format("the host has no {} bytes of memory left", bytes));
  return static_cast<std::byte*>(address);
}

/// Notes how long the host is at work. What it notes is few: a chunk or a buffer each.
class host_stopwatch {
 public:
  explicit host_stopwatch(std::vector<activity>& noted) : noted_(noted), begin_ns_(now_ns()) {}
  host_stopwatch(host_stopwatch const&) = delete;
  host_stopwatch& operator=(host_stopwatch const&) = delete;
  ~host_stopwatch() { noted_.push_back({activity_kind::host, {begin_ns_, now_ns()}}); }

 private:
  static std::int64_t now_ns() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  std::vector<activity>& noted_;
  std::int64_t const begin_ns_;
};

/// Copies of ordinary memory through two page-locked chunks in turn.
class chunk_ring {
 public:
  /// Its copies on the host go into `noted`.
  chunk_ring(cudaStream_t stream, std::vector<activity>& noted) : stream_(stream), noted_(noted) {
    try {
      for (slot& s : slots_) {
        check_cuda(cudaHostAlloc(reinterpret_cast<void**>(&s.bytes), chunk_bytes, cudaHostAllocDefault),
                   "cudaHostAlloc");
        check_cuda(cudaEventCreateWithFlags(&s.free, cudaEventDisableTiming), "cudaEventCreate");
      }
    } catch (...) {
      free_slots();
      throw;
    }
  }
  chunk_ring(chunk_ring const&) = delete;
  chunk_ring& operator=(chunk_ring const&) = delete;
  ~chunk_ring() { free_slots(); }
  void in(std::byte* device, std::byte const* host, std::uint64_t bytes) {
    for_chunks(bytes, [&](slot& s, std::uint64_t at, std::uint64_t n) {
      check_cuda(cudaEventSynchronize(s.free), "cudaEventSynchronize");
      copy_on_threads(s.bytes, host + at, n);
      check_cuda(cudaMemcpyAsync(device + at, s.bytes, n, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
      check_cuda(cudaEventRecord(s.free, stream_), "cudaEventRecord");
    });
  }
  /// Returns when the bytes are there.
  void out(std::byte* host, std::byte const* device, std::uint64_t bytes) {
    std::uint64_t before = 0, before_bytes = 0;
    slot* last = nullptr;
    auto const unload = [&] {
      if (last == nullptr) return;
      check_cuda(cudaEventSynchronize(last->free), "cudaEventSynchronize");
      copy_on_threads(host + before, last->bytes, before_bytes);
    };
    for_chunks(bytes, [&](slot& s, std::uint64_t at, std::uint64_t n) {
      check_cuda(cudaMemcpyAsync(s.bytes, device + at, n, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
      check_cuda(cudaEventRecord(s.free, stream_), "cudaEventRecord");
      unload();
      last = &s;
      before = at;
      before_bytes = n;
    });
    unload();
  }

 private:
  static constexpr std::uint64_t chunk_bytes = 32 << 20;
  struct slot {
    std::byte* bytes = nullptr;
    cudaEvent_t free = nullptr;
  };
  void free_slots() {
    for (slot const& s : slots_) {
      if (s.free != nullptr) cudaEventDestroy(s.free);
      if (s.bytes != nullptr) cudaFreeHost(s.bytes);
    }
  }
  template <class Visit>
  void for_chunks(std::uint64_t bytes, Visit&& visit) {
    for (std::uint64_t at = 0; at < bytes; at += chunk_bytes) {
      visit(slots_[next_], at, std::min(chunk_bytes, bytes - at));
      next_ ^= 1;
    }
  }
  void copy_on_threads(std::byte* to, std::byte const* from, std::uint64_t bytes) {
    host_stopwatch const noting(noted_);
    in_parallel(bytes, 4 << 20,
                [&](std::uint64_t begin, std::uint64_t end) { std::memcpy(to + begin, from + begin, end - begin); });
  }

  cudaStream_t stream_;
  std::vector<activity>& noted_;
  slot slots_[2];
  unsigned next_ = 0;
};

}  // namespace

class gpu_buffers::implementation {
 public:
  implementation(std::vector<buffer> buffers, transfer_kind transfer, allocation_kind allocation, int ordinal)
      : buffers_(std::move(buffers)),
        transfer_(transfer),
        allocation_(allocation),
        host_(buffers_.size(), nullptr),
        device_(buffers_.size(), nullptr),
        ordinal_(ordinal),
        here_(ordinal),
        stream_(ordinal),
        beside_(ordinal) {
    refuse_what_cannot_be();
    // Chunks are made anew each time, or a run would measure no more than how long mapping takes.
    from_ = make_device_memory(allocation, ordinal, allocation == allocation_kind::pool ? keep_all : 0);
    if (transfer == transfer_kind::pinned_chunked) {
      while_page_locking([&] { ring_.emplace(stream_.get(), host_work_); });
    }
    try {
      make_host_buffers();
    } catch (...) {
      free_host_buffers();
      throw;
    }
  }
  ~implementation() {
    cudaDeviceSynchronize();
    try {
      release();
    } catch (operation_failed const&) {
      // The GPU has failed, and its memory goes with the process.
    }
    free_host_buffers();
  }

  void allocate() {
    host_work_.clear();
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (is_managed(transfer_) && buffers_[i].use != buffer_use::scratch) {
        void* address = nullptr;
        check_cuda(cudaMallocManaged(&address, buffers_[i].bytes, cudaMemAttachGlobal), "cudaMallocManaged");
        device_[i] = host_[i] = static_cast<std::byte*>(address);
      } else if (is_on_device(i)) {
        device_[i] = from_->make(buffers_[i].bytes, stream_.get());
      } else {
        device_[i] = host_[i];
      }
    }
  }
  void to_device() {
    switch (transfer_) {
      case transfer_kind::pageable:
      case transfer_kind::pinned:
        for_moved(&goes_in, [&](std::size_t i) {
          check_cuda(cudaMemcpyAsync(device_[i], host_[i], buffers_[i].bytes, cudaMemcpyHostToDevice, stream_.get()),
                     "cudaMemcpyAsync");
        });
        break;
      case transfer_kind::pinned_chunked:
        for_moved(&goes_in, [&](std::size_t i) { ring_->in(device_[i], host_[i], buffers_[i].bytes); });
        break;
      case transfer_kind::batch:
        copy_together(&goes_in, true);
        break;
      case transfer_kind::managed_prefetch:
      case transfer_kind::managed_prefetch_overlapped: {
        bool const overlaps = transfer_ == transfer_kind::managed_prefetch_overlapped;
        prefetch(&goes_in, {cudaMemLocationTypeDevice, {ordinal_}}, overlaps ? beside_.get() : stream_.get());
        if (!overlaps) stream_.synchronize();
        break;
      }
      case transfer_kind::managed_fault:
      case transfer_kind::mapped:
      case transfer_kind::system:
        break;
    }
  }
  void to_host() {
    switch (transfer_) {
      case transfer_kind::pageable:
      case transfer_kind::pinned:
        for_moved(&goes_out, [&](std::size_t i) {
          check_cuda(cudaMemcpyAsync(host_[i], device_[i], buffers_[i].bytes, cudaMemcpyDeviceToHost, stream_.get()),
                     "cudaMemcpyAsync");
        });
        break;
      case transfer_kind::pinned_chunked:
        for_moved(&goes_out, [&](std::size_t i) { ring_->out(host_[i], device_[i], buffers_[i].bytes); });
        break;
      case transfer_kind::batch:
        copy_together(&goes_out, false);
        break;
      case transfer_kind::managed_prefetch:
      case transfer_kind::managed_prefetch_overlapped:
        prefetch(&goes_out, {cudaMemLocationTypeHost, {0}}, stream_.get());
        break;
      case transfer_kind::managed_fault:
      case transfer_kind::mapped:
      case transfer_kind::system:
        break;
    }
  }
  void finish() {
    stream_.synchronize();
    beside_.synchronize();
    if (transfer_ != transfer_kind::managed_fault) return;
    // The host's own faults are the transfer back.
    for_moved(&goes_out, [&](std::size_t i) {
      host_stopwatch const noting(host_work_);
      std::uint64_t sum = 0;
      for (std::uint64_t at = 0; at < buffers_[i].bytes; at += 4096) {
        sum += std::to_integer<std::uint64_t>(static_cast<std::byte const volatile*>(host_[i])[at]);
      }
      touched_ += sum;
    });
  }
  /// Also after an `allocate` that failed half way. Frees all that it can, and then throws what went wrong first.
  void release() {
    std::exception_ptr first;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      try {
        release(i);
      } catch (operation_failed const&) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
  }
  void fetch_scratch() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].use != buffer_use::scratch) continue;
      if (host_[i] == nullptr) host_[i] = make_pageable(buffers_[i].bytes);
      check_cuda(cudaMemcpy(host_[i], device_[i], buffers_[i].bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    }
  }
  views host() const { return views(host_); }
  views device() const { return views(device_); }
  memory::cuda_stream const& stream() const { return stream_; }
  double page_locking_seconds() const { return page_locking_seconds_; }
  std::vector<activity> const& host_work() const { return host_work_; }

 private:
  void release(std::size_t i) {
    std::byte* const address = std::exchange(device_[i], nullptr);
    if (address == nullptr) return;
    if (is_managed(transfer_) && buffers_[i].use != buffer_use::scratch) {
      host_[i] = nullptr;
      check_cuda(cudaFree(address), "cudaFree");
    } else if (is_on_device(i)) {
      from_->free(address, stream_.get());
    }
  }
  bool is_on_device(std::size_t i) const { return buffers_[i].use == buffer_use::scratch || !is_in_place(transfer_); }
  bool is_page_locked() const {
    return transfer_ == transfer_kind::pinned || transfer_ == transfer_kind::batch ||
           transfer_ == transfer_kind::mapped;
  }

  void refuse_what_cannot_be() const {
    auto const attribute = [&](cudaDeviceAttr which) {
      int value = 0;
      check_cuda(cudaDeviceGetAttribute(&value, which, ordinal_), "cudaDeviceGetAttribute");
      return value;
    };
    std::string const name(transfer_names[static_cast<int>(transfer_)]);
    if (transfer_ == transfer_kind::system && attribute(cudaDevAttrPageableMemoryAccess) == 0) {
      throw refused_input("--mode", name, "this GPU cannot reach ordinary memory (pageableMemoryAccess is 0)");
    }
    if (is_managed(transfer_) && attribute(cudaDevAttrConcurrentManagedAccess) == 0) {
      throw refused_input("--mode", name, "this GPU moves no pages on demand (concurrentManagedAccess is 0)");
    }
    if (!has_device_memory(allocation_, ordinal_)) {
      throw refused_input("--mode", std::string(allocation_names[static_cast<int>(allocation_)]),
                          "this GPU has no memory of this kind: take another allocation");
    }
    std::uint64_t needed = 0;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      bool const is_made = is_on_device(i);
      if (is_managed(transfer_) || is_made) {
        needed += footprint_bytes(is_made ? allocation_ : allocation_kind::malloc, buffers_[i].bytes);
      }
    }
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    // Managed memory beyond what is free can hang the GPU, not only this program.
    std::uint64_t const kept_free = is_managed(transfer_) ? free / 16 : std::size_t{256} << 20;
    if (needed + kept_free > free) {
      throw refused_input("--size", fmt::format("{} bytes of buffers", needed),
                          fmt::format("the GPU has {} bytes free: choose a smaller size", free));
    }
  }
  void make_host_buffers() {
    if (is_managed(transfer_)) return;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].use == buffer_use::scratch) continue;
      if (!is_page_locked()) {
        host_[i] = make_pageable(buffers_[i].bytes);
        continue;
      }
      unsigned const how = transfer_ == transfer_kind::mapped ? cudaHostAllocMapped : cudaHostAllocDefault;
      while_page_locking([&] {
        check_cuda(cudaHostAlloc(reinterpret_cast<void**>(&host_[i]), buffers_[i].bytes, how),
                   fmt::format("cudaHostAlloc of {} bytes", buffers_[i].bytes));
      });
    }
  }
  template <class Lock>
  void while_page_locking(Lock&& lock) {
    auto const begin = std::chrono::steady_clock::now();
    lock();
    page_locking_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  void free_host_buffers() {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (host_[i] == nullptr) continue;
      if (is_page_locked() && buffers_[i].use != buffer_use::scratch) {
        cudaFreeHost(host_[i]);
      } else {
        ::munmap(host_[i], rounded(buffers_[i].bytes, page_bytes));
      }
      host_[i] = nullptr;
    }
  }
  template <class Visit>
  void for_moved(bool (*moves)(buffer const&), Visit&& visit) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (moves(buffers_[i])) visit(i);
    }
  }
  void prefetch(bool (*moves)(buffer const&), cudaMemLocation to, cudaStream_t stream) {
    for_moved(moves, [&](std::size_t i) {
      check_cuda(cudaMemPrefetchAsync(host_[i], buffers_[i].bytes, to, 0, stream), "cudaMemPrefetchAsync");
    });
  }
  void copy_together(bool (*moves)(buffer const&), bool in) {
    std::vector<void*> to;
    std::vector<void const*> from;
    std::vector<std::size_t> sizes;
    for_moved(moves, [&](std::size_t i) {
      to.push_back(in ? device_[i] : host_[i]);
      from.push_back(in ? host_[i] : device_[i]);
      sizes.push_back(buffers_[i].bytes);
    });
    if (to.empty()) return;
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    std::size_t first = 0;
    check_cuda(
        cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), to.size(), &attributes, &first, 1, stream_.get()),
        "cudaMemcpyBatchAsync");
  }

  std::vector<buffer> buffers_;
  transfer_kind transfer_;
  allocation_kind allocation_;
  std::vector<std::byte*> host_;
  std::vector<std::byte*> device_;
  int ordinal_;
  memory::current_device const here_;
  memory::cuda_stream stream_;
  memory::cuda_stream beside_;  ///< prefetches here while kernels run in the other
  std::unique_ptr<device_memory> from_;
  std::optional<chunk_ring> ring_;
  double page_locking_seconds_ = 0;
  std::vector<activity> host_work_;
  std::uint64_t touched_ = 0;  ///< keeps the reads that move pages
};

gpu_buffers::gpu_buffers(std::vector<buffer> buffers, transfer_kind transfer, allocation_kind allocation, int ordinal)
    : here_(std::make_unique<implementation>(std::move(buffers), transfer, allocation, ordinal)) {}
gpu_buffers::~gpu_buffers() = default;
void gpu_buffers::allocate() {
  here_->allocate();
}
views gpu_buffers::host() const {
  return here_->host();
}
void gpu_buffers::to_device() {
  here_->to_device();
}
views gpu_buffers::device() const {
  return here_->device();
}
void gpu_buffers::to_host() {
  here_->to_host();
}
void gpu_buffers::finish() {
  here_->finish();
}
void gpu_buffers::release() {
  here_->release();
}
void gpu_buffers::fetch_scratch() {
  here_->fetch_scratch();
}
memory::cuda_stream const& gpu_buffers::stream() const {
  return here_->stream();
}
double gpu_buffers::page_locking_seconds() const {
  return here_->page_locking_seconds();
}
std::vector<activity> const& gpu_buffers::host_work() const {
  return here_->host_work();
}

}  // namespace forebay::transfer
