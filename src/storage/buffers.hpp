// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory that commands of a storage may name: allocated or registered with every drive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "forebay/detail/driver/dma_buffer.hpp"
#include "forebay/memory.hpp"
#include "forebay/storage.hpp"
#include "storage/opened_drives.hpp"

namespace forebay::detail {

/// Memory that every drive reaches, at the same bus addresses. It never changes after construction.
class registered_memory {
 public:
  ~registered_memory();
  registered_memory(registered_memory const&) = delete;
  registered_memory& operator=(registered_memory const&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return bytes_; }
  /// For the storage's device.
  buffer_ref ref() const { return ref_; }
  /// The same for threads of the host, which do not reach a table of bus addresses in a GPU's memory.
  buffer_ref host_ref() const { return host_ref_; }

 private:
  friend class buffer_source;
  explicit registered_memory(std::shared_ptr<opened_drives> drives) : drives_(std::move(drives)) {}
  /// The first drive allocates the memory; the other drives must map it.
  registered_memory(std::shared_ptr<opened_drives> drives, std::uint64_t whole_pages, bool for_gpu);
  void map(void* address, std::uint64_t bytes, memory::resource& table_memory);

  std::shared_ptr<opened_drives> drives_;
  driver::dma_buffer given_;       ///< by the first drive; empty where it gave none
  memory::allocation page_table_;  ///< bus addresses, where they are not contiguous
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t mapped_in_ = 0;  ///< how many drives' spaces have it mapped, from the first
  std::size_t given_by_ = 0;   ///< how many of those allocated the memory, and so have it mapped already
  buffer_ref ref_;
  std::vector<std::uint64_t> host_table_;  ///< the same addresses as in `page_table_`
  buffer_ref host_ref_;
};

/// Provides a storage's registered memory. Thread-safe.
class buffer_source {
 public:
  /// `table_memory`: for tables of bus addresses; the threads that use the buffers must reach it. It must outlive the
  /// buffers.
  buffer_source(std::shared_ptr<opened_drives> drives, memory::resource& table_memory)
      : drives_(std::move(drives)), table_memory_(&table_memory) {}

  /// Zeroed. `for_gpu`: only threads of a GPU reach it.
  std::unique_ptr<registered_memory> allocate(std::uint64_t bytes, bool for_gpu = false) const;
  /// The same with a size that the user gave. Throws `refused_input`.
  std::unique_ptr<registered_memory> allocate_for_user(std::size_t bytes, bool for_gpu) const;
  /// Registers memory that the user allocated, and lends it to drives in other processes. Throws `refused_input` unless
  /// it is whole pages that all drives reach.
  std::unique_ptr<registered_memory> register_for_user(void* address, std::size_t bytes) const;
  /// The same, lending nothing: for an allocation that may be freed at any time. What was lent before is reached.
  std::unique_ptr<registered_memory> register_pages(void* address, std::size_t bytes) const;

 private:
  std::shared_ptr<opened_drives> drives_;
  memory::resource* table_memory_;
};

}  // namespace forebay::detail

namespace forebay {

struct registered_buffer::parts {
  explicit parts(std::unique_ptr<detail::registered_memory> registered) : memory(std::move(registered)) {}

  std::unique_ptr<detail::registered_memory> memory;
};

}  // namespace forebay
