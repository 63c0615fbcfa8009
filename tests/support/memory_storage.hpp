// SPDX-License-Identifier: Apache-2.0
//! \file
//! A model of `storage_ref` over plain memory: completes the commands of the applications in an order, after a number
//! of looks, and with a status that a test chooses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "forebay/machine.hpp"
#include "forebay/status.hpp"

namespace forebay::testing {

struct memory_buffer {
  std::byte* first = nullptr;
  std::uint64_t bytes = 0;
  std::byte* data() const { return first; }
  std::uint64_t size_bytes() const { return bytes; }
  memory_buffer subspan(std::uint64_t offset_bytes, std::uint64_t count) const { return {first + offset_bytes, count}; }
};

/// One request as the drive saw it.
struct memory_request {
  bool is_write;
  std::uint64_t offset_bytes;
  std::uint64_t bytes;
  bool is_flush = false;
};

struct memory_drive {
  std::vector<std::byte> contents;
  std::vector<memory_request> requests;
  std::size_t in_flight = 0;
  std::size_t most_in_flight = 0;
  /// For the request with this number: how often `ready()` first says no, and the outcome. No data moves unless it is
  /// ok.
  std::function<std::uint32_t(std::size_t)> looks = [](std::size_t) { return 0u; };
  std::function<status(std::size_t)> outcome = [](std::size_t) { return status(); };
  std::function<void(memory_request const&, std::span<std::byte>)> tamper = [](auto const&, auto) {};
};

class memory_token {
 public:
  memory_token() = default;
  memory_token(memory_drive& drive, std::uint32_t looks, status outcome)
      : drive_(&drive), looks_(looks), outcome_(outcome) {}
  bool ready(std::uint32_t = 1) const { return looks_ == 0 || (looks_ != never && --looks_ == 0); }
  status wait() {
    --drive_->in_flight;
    return outcome_;
  }
  status wait(std::uint64_t) { return looks_ == never ? status(fault::timed_out) : wait(); }
  void detach() { --drive_->in_flight; }
  static constexpr std::uint32_t never = ~0u;

 private:
  memory_drive* drive_ = nullptr;
  mutable std::uint32_t looks_ = 0;
  status outcome_;
};

class memory_storage_ref {
 public:
  using machine = simt::native;
  explicit memory_storage_ref(memory_drive& drive) : drive_(&drive) {}
  memory_token read_async(memory_buffer buffer, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    return start({false, offset_bytes, bytes}, buffer);
  }
  memory_token write_async(memory_buffer buffer, std::uint64_t offset_bytes, std::uint64_t bytes) const {
    return start({true, offset_bytes, bytes}, buffer);
  }
  memory_token flush_async() const {
    return start({.is_write = false, .offset_bytes = 0, .bytes = 0, .is_flush = true}, {});
  }

 private:
  memory_token start(memory_request request, memory_buffer buffer) const {
    std::size_t const number = drive_->requests.size();
    drive_->requests.push_back(request);
    ++drive_->in_flight;
    if (drive_->in_flight > drive_->most_in_flight) drive_->most_in_flight = drive_->in_flight;
    bool const inside = request.bytes <= buffer.size_bytes() && request.bytes <= drive_->contents.size() &&
                        request.offset_bytes <= drive_->contents.size() - request.bytes;
    status const outcome = inside ? drive_->outcome(number) : status(fault::out_of_range);
    if (outcome.ok() && !request.is_flush) {
      std::byte* const at = drive_->contents.data() + request.offset_bytes;
      std::memcpy(request.is_write ? at : buffer.data(), request.is_write ? buffer.data() : at, request.bytes);
      if (!request.is_write) drive_->tamper(request, {buffer.data(), request.bytes});
    }
    return {*drive_, drive_->looks(number), outcome};
  }
  memory_drive* drive_;
};

}  // namespace forebay::testing
