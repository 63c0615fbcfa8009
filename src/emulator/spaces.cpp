// SPDX-License-Identifier: Apache-2.0
#include "forebay/emulator/spaces.hpp"

#include <string>
#include <utility>

#include "forebay/error.hpp"
#include "forebay/nvme/registers.hpp"

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

register_file::register_file(std::uint32_t max_queues, memory::resource& from, std::function<void()> written)
    : max_queues_(max_queues), memory_(from, register_bytes(max_queues), 4096), written_(std::move(written)) {}

std::uint32_t register_file::read32(std::uint32_t offset_bytes) {
  if (offset_bytes % 4 != 0 || offset_bytes >= memory_.bytes()) return 0;
  return get(offset_bytes);
}

void register_file::write32(std::uint32_t offset_bytes, std::uint32_t value) {
  if (offset_bytes % 4 != 0 || offset_bytes >= memory_.bytes() || !host_writable(offset_bytes)) return;
  if (offset_bytes == registers::intms) {
    set(registers::intmc, get(registers::intmc) | value);
    set(registers::intms, get(registers::intms) | value);
  } else if (offset_bytes == registers::intmc) {
    set(registers::intmc, get(registers::intmc) & ~value);
    set(registers::intms, get(registers::intms) & ~value);
  } else {
    set(offset_bytes, value);
  }
  written_();
}

std::uint32_t* register_file::doorbell(std::uint32_t offset_bytes) {
  if (offset_bytes < registers::doorbell_base || offset_bytes % 4 != 0 || offset_bytes >= memory_.bytes()) {
    throw refused_input("doorbell offset", std::to_string(offset_bytes),
                        "the controller has doorbells from 4096 to " + std::to_string(memory_.bytes() - 4));
  }
  return &word(offset_bytes);
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
  for (std::uint32_t at = registers::doorbell_base; at < memory_.bytes(); at += 4) set(at, 0);
}

dma_space::~dma_space() {
  for (auto const& [address, bytes] : allocations_) {
    regions_.remove(address, bytes);
    from_.deallocate(address);
  }
}

void* dma_space::allocate(std::size_t bytes) {
  std::size_t const whole =
      bytes == 0 ? dma_page_bytes : (bytes + dma_page_bytes - 1) / dma_page_bytes * dma_page_bytes;
  void* const address = from_.allocate(whole, dma_page_bytes);
  std::lock_guard const lock(mutex_);
  try {
    allocations_.emplace(address, whole);
    regions_.add(address, whole);
  } catch (...) {
    allocations_.erase(address);
    from_.deallocate(address);
    throw;
  }
  return address;
}

void dma_space::deallocate(void* address) noexcept {
  if (address == nullptr) return;
  std::lock_guard const lock(mutex_);
  auto const found = allocations_.find(address);
  if (found == allocations_.end()) return;
  regions_.remove(address, found->second);
  from_.deallocate(address);
  allocations_.erase(found);
}

void dma_space::map(void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % dma_page_bytes != 0 || bytes % dma_page_bytes != 0) {
    throw refused_input("mapped memory",
                        std::to_string(reinterpret_cast<std::uintptr_t>(address)) + "+" + std::to_string(bytes),
                        "address and size must be multiples of 4096");
  }
  regions_.add(address, bytes);
}

void dma_space::unmap(void* address, std::size_t bytes) {
  regions_.remove(address, bytes);
}

}  // namespace forebay::emulator
