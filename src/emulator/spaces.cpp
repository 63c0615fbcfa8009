// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/spaces.hpp"

#include <string>
#include <utility>

#include "forebay/detail/nvme/registers.hpp"
#include "forebay/error.hpp"

namespace forebay::emulator {
namespace {

namespace registers = nvme::registers;

std::size_t register_bytes(std::uint32_t max_queues) {
  return registers::sq_tail_doorbell(max_queues + 1, 0);
}

bool host_writable(std::uint32_t offset_bytes) {
  switch (offset_bytes) {
    case registers::intms:
    case registers::intmc:
    case registers::cc:
    case registers::aqa:
    case registers::asq:
    case registers::asq + 4:
    case registers::acq:
    case registers::acq + 4:
      return true;
    default:
      return offset_bytes >= registers::doorbell_base;
  }
}

}  // namespace

register_file::register_file(std::uint32_t max_queues, memory::resource& from, std::function<void()> written,
                             memory::resource* gpu_memory)
    : max_queues_(max_queues), memory_(from, register_bytes(max_queues), 4096), written_(std::move(written)) {
  if (gpu_memory != nullptr) gpu_doorbells_ = memory::allocation(*gpu_memory, register_bytes(max_queues), 4096);
}

std::uint32_t register_file::read32(std::uint32_t offset_bytes) {
  if (offset_bytes % 4 != 0 || offset_bytes >= memory_.size_bytes()) return 0;
  return get(offset_bytes);
}

void register_file::write32(std::uint32_t offset_bytes, std::uint32_t value) {
  if (offset_bytes % 4 != 0 || offset_bytes >= memory_.size_bytes() || !host_writable(offset_bytes)) return;
  if (offset_bytes == registers::intms) {
    set(registers::intmc, get(registers::intmc) | value);
    set(registers::intms, get(registers::intms) | value);
  } else if (offset_bytes == registers::intmc) {
    set(registers::intmc, get(registers::intmc) & ~value);
    set(registers::intms, get(registers::intms) & ~value);
  } else {
    set(offset_bytes, value);
    if (offset_bytes >= registers::sq_tail_doorbell(1, 0)) watch(offset_bytes);
  }
  written_();
}

void register_file::check_doorbell(std::uint32_t offset_bytes) const {
  if (offset_bytes < registers::doorbell_base || offset_bytes % 4 != 0 || offset_bytes >= memory_.size_bytes()) {
    throw refused_input("doorbell offset", std::to_string(offset_bytes),
                        "the controller has doorbells from 4096 to " + std::to_string(memory_.size_bytes() - 4));
  }
}

std::uint32_t* register_file::doorbell(std::uint32_t offset_bytes) {
  check_doorbell(offset_bytes);
  watch(offset_bytes);
  return &word(offset_bytes);
}

std::uint32_t* register_file::doorbell_for_gpu(std::uint32_t offset_bytes) {
  check_doorbell(offset_bytes);
  return gpu_doorbells_.data() == nullptr ? &word(offset_bytes) : gpu_word(offset_bytes);
}

std::uint32_t* register_file::fresh_doorbell(std::uint32_t offset_bytes) {
  set(offset_bytes, 0);
  if (gpu_doorbells_.data() == nullptr) return &word(offset_bytes);
  std::lock_guard const lock(relay_mutex_);
  for (relayed_doorbell& r : relayed_) {
    if (r.offset_bytes == offset_bytes) r.last = 0;
  }
  std::uint32_t const zero = 0;
  gpu_doorbells_.from().copy_in(gpu_word(offset_bytes), &zero, sizeof zero);
  return gpu_word(offset_bytes);
}

void register_file::watch(std::uint32_t offset_bytes) {
  if (gpu_doorbells_.data() == nullptr) return;
  std::lock_guard const lock(relay_mutex_);
  for (relayed_doorbell const& r : relayed_) {
    if (r.offset_bytes == offset_bytes) return;
  }
  relayed_.push_back({offset_bytes, 0});
}

bool register_file::relay() {
  if (gpu_doorbells_.data() == nullptr) return false;
  std::lock_guard const lock(relay_mutex_);
  bool any = false;
  for (relayed_doorbell& r : relayed_) {
    // What the host wrote before it rang the doorbell is in host memory, where the units find it.
    std::uint32_t const value = get(r.offset_bytes);
    if (value == r.last) continue;
    gpu_doorbells_.from().copy_in(gpu_word(r.offset_bytes), &value, sizeof value);
    r.last = value;
    any = true;
  }
  return any;
}

std::uint32_t register_file::get(std::uint32_t offset_bytes) {
  // Acquire: pairs with the release in `set`; what the writer did before is visible, as across a bus.
  return simt::atomic<simt::native, simt::scope::system>(word(offset_bytes)).load(simt::order::acquire);
}

void register_file::set(std::uint32_t offset_bytes, std::uint32_t value) {
  // Release: pairs with the acquire in `get` and with the units' acquire of doorbells.
  simt::atomic<simt::native, simt::scope::system>(word(offset_bytes)).store(value, simt::order::release);
}

void register_file::clear_doorbells() {
  for (std::uint32_t at = registers::doorbell_base; at < memory_.size_bytes(); at += 4) set(at, 0);
  if (gpu_doorbells_.data() == nullptr) return;
  std::lock_guard const lock(relay_mutex_);
  for (relayed_doorbell& r : relayed_) r.last = 0;
  std::vector<std::byte> const zeros(gpu_doorbells_.size_bytes());
  gpu_doorbells_.from().copy_in(gpu_doorbells_.data(), zeros.data(), zeros.size());
}

dma_space::~dma_space() {
  // With what the client mapped and left so.
  if (told_ != nullptr) told_->remove_memory(this);
  for (auto const& [address, block] : allocations_) {
    remove(address, block.bytes);
    block.from->deallocate(address);
  }
}

void* dma_space::allocate(std::size_t bytes, memory::resource& from) {
  std::size_t const whole =
      bytes == 0 ? dma_page_bytes : (bytes + dma_page_bytes - 1) / dma_page_bytes * dma_page_bytes;
  if (whole < bytes) throw operation_failed("cannot allocate " + std::to_string(bytes) + " bytes");
  void* const address = from.allocate(whole, dma_page_bytes);
  std::lock_guard const lock(mutex_);
  try {
    allocations_.emplace(address, owned_block{whole, &from});
    add(address, whole, from.kind() != memory::kind::device);
  } catch (...) {
    allocations_.erase(address);
    from.deallocate(address);
    throw;
  }
  return address;
}

void dma_space::deallocate(void* address) noexcept {
  if (address == nullptr) return;
  std::lock_guard const lock(mutex_);
  auto const found = allocations_.find(address);
  if (found == allocations_.end()) return;
  remove(address, found->second.bytes);
  found->second.from->deallocate(address);
  allocations_.erase(found);
}

void dma_space::clear(void* address, std::size_t bytes) {
  memory::resource* from = &from_;
  {
    std::lock_guard const lock(mutex_);
    if (auto const found = allocations_.find(address); found != allocations_.end()) from = found->second.from;
  }
  std::vector<std::byte> const zeros(bytes);
  from->copy_in(address, zeros.data(), bytes);
}

void dma_space::map(void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % dma_page_bytes != 0 || bytes % dma_page_bytes != 0) {
    throw refused_input("mapped memory",
                        std::to_string(reinterpret_cast<std::uintptr_t>(address)) + "+" + std::to_string(bytes),
                        "address and size must be multiples of 4096");
  }
  add(address, bytes, of_host_ == nullptr || memory::host_reaches(address));
}

void dma_space::unmap(void* address, std::size_t bytes) {
  remove(address, bytes);
}

void dma_space::add(void const* address, std::size_t bytes, bool host_reaches) {
  regions_.add(address, bytes);
  try {
    if (of_host_ != nullptr && host_reaches) of_host_->add(address, bytes);
    if (told_ != nullptr) told_->add_memory(this, address, bytes);
  } catch (...) {
    remove(address, bytes);
    throw;
  }
}

void dma_space::remove(void const* address, std::size_t bytes) {
  regions_.remove(address, bytes);
  if (of_host_ != nullptr) of_host_->remove_if_added(address, bytes);
  if (told_ != nullptr) told_->remove_memory(this, address, bytes);
}

}  // namespace forebay::emulator
