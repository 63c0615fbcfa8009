// SPDX-License-Identifier: Apache-2.0
#include "storage/buffers.hpp"

#include <new>
#include <string>
#include <vector>

#include "forebay/error.hpp"
#include "storage/options.hpp"

namespace forebay::detail {
namespace {

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

void require_whole_pages(void const* address, std::size_t bytes) {
  auto const at = reinterpret_cast<std::uintptr_t>(address);
  if (address != nullptr && at % page_bytes == 0 && bytes != 0 && bytes % page_bytes == 0) return;
  throw refused_input("buffer", std::to_string(bytes) + " bytes at address " + std::to_string(at),
                      "register whole pages of 4096 bytes, or use allocate_buffer()");
}

}  // namespace

registered_memory::registered_memory(std::shared_ptr<opened_drives> drives, std::uint64_t whole_pages, bool for_gpu)
    : registered_memory(std::move(drives)) {
  given_ = driver::dma_buffer(drives_->front().source->dma(), whole_pages, for_gpu);
  given_by_ = mapped_in_ = 1;
}

registered_memory::~registered_memory() {
  for (std::size_t i = given_by_; i < mapped_in_; ++i) (*drives_)[i].source->dma().unmap(data_, whole_pages(bytes_));
}

void registered_memory::map(void* address, std::uint64_t bytes, memory::resource& table_memory) {
  data_ = static_cast<std::byte*>(address);
  bytes_ = bytes;
  std::uint64_t const count = whole_pages(bytes) / page_bytes;
  std::vector<std::uint64_t> bus(count);
  for (std::size_t n = 0; n < drives_->size(); ++n) {
    driver::dma_space& dma = (*drives_)[n].source->dma();
    if (n >= mapped_in_) {
      dma.map(address, count * page_bytes);
      ++mapped_in_;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t const at = dma.bus_address(data_ + i * page_bytes);
      if (n > 0 && at != bus[i]) {
        throw operation_failed("storage: two drives give one page different bus addresses; use one storage for each");
      }
      bus[i] = at;
    }
  }
  bool contiguous = true;
  for (std::uint64_t i = 1; i < count; ++i) contiguous = contiguous && bus[i] == bus[0] + i * page_bytes;
  if (contiguous) {
    ref_ = host_ref_ = buffer_ref(data_, bytes, bus[0]);
  } else {
    page_table_ = memory::allocation(table_memory, count * sizeof(std::uint64_t), 128);
    table_memory.copy_in(page_table_.data(), bus.data(), count * sizeof(std::uint64_t));
    ref_ = buffer_ref(data_, bytes, page_table_.as<std::uint64_t>(), 12, 0);
    host_table_ = std::move(bus);
    host_ref_ = buffer_ref(data_, bytes, host_table_.data(), 12, 0);
  }
}

std::unique_ptr<registered_memory> buffer_source::allocate(std::uint64_t bytes, bool for_gpu) const {
  // A drive that another process serves reaches only memory that it allocated itself, so the first drive allocates.
  std::unique_ptr<registered_memory> made(new registered_memory(drives_, whole_pages(bytes), for_gpu));
  made->map(made->given_.data(), bytes, *table_memory_);
  return made;
}

std::unique_ptr<registered_memory> buffer_source::allocate_for_user(std::size_t bytes, bool for_gpu) const {
  if (bytes == 0) throw refused_input("bytes", "0", "a buffer holds at least one byte");
  try {
    if (bytes > ~std::size_t{0} - page_bytes) throw std::bad_alloc();  // whole pages of it have no size
    return allocate(bytes, for_gpu);
  } catch (std::bad_alloc const&) {
    throw refused_input("bytes", std::to_string(bytes), "this machine does not have that much memory; give less");
  }
}

std::unique_ptr<registered_memory> buffer_source::register_for_user(void* address, std::size_t bytes) const {
  require_whole_pages(address, bytes);
  for (auto const& drive : *drives_) drive.source->dma().lend(address, bytes);
  return register_pages(address, bytes);
}

std::unique_ptr<registered_memory> buffer_source::register_pages(void* address, std::size_t bytes) const {
  require_whole_pages(address, bytes);
  std::unique_ptr<registered_memory> made(new registered_memory(drives_));
  made->map(address, bytes, *table_memory_);
  return made;
}

}  // namespace forebay::detail

namespace forebay {

registered_buffer::registered_buffer() = default;
registered_buffer::registered_buffer(std::unique_ptr<parts> p) : parts_(std::move(p)) {}
registered_buffer::registered_buffer(registered_buffer&&) noexcept = default;
registered_buffer& registered_buffer::operator=(registered_buffer&&) noexcept = default;
registered_buffer::~registered_buffer() = default;
std::byte* registered_buffer::data() const {
  return parts_ ? parts_->memory->data() : nullptr;
}
std::size_t registered_buffer::size_bytes() const {
  return parts_ ? parts_->memory->size_bytes() : 0;
}
buffer_ref registered_buffer::ref() const {
  return parts_ ? parts_->memory->ref() : buffer_ref();
}

}  // namespace forebay
