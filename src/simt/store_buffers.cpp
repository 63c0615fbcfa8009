// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <vector>

#include "memory.hpp"

namespace forebay::simt::detail {

std::uint64_t read_bytes(void const* address, std::uint32_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, address, bytes);
  return value;
}
void write_bytes(void* address, std::uint32_t bytes, std::uint64_t value) {
  std::memcpy(address, &value, bytes);
}

namespace {

constexpr std::size_t capacity = 8;

/// Partial store order. A lane's stores wait in a buffer and reach memory in any order, with three exceptions: stores
/// that overlap stay in order, a release waits for all older stores, and no store passes a release fence. (Total store
/// order would hide a missing release.) The lane reads its own buffer first.
class store_buffers final : public memory {
 public:
  store_buffers(memory_host& host, std::uint32_t lanes) : host_(host), buffers_(lanes) {}

  std::uint64_t load(lane& l, void const* address, std::uint32_t bytes, order, scope, location) override {
    return visible(l, address, bytes);
  }
  void store(lane& l, void* address, std::uint32_t bytes, std::uint64_t value, order o, scope, location) override {
    push(l, {address, bytes, value, releases(o), buffers_[l.id].epoch});
    if (o == order::seq_cst) flush(l);
  }
  void modify_begin(lane& l, void* address, std::uint32_t bytes, order o, scope, location) override {
    if (releases(o)) return flush(l);
    auto& pending = buffers_[l.id].pending;
    entry const self{address, bytes, 0, false, buffers_[l.id].epoch};
    auto blocks = [&](entry const& e) { return overlap(e, self) || e.epoch < self.epoch; };
    while (std::any_of(pending.begin(), pending.end(), blocks)) drain(l.id, false);
  }
  void modify_end(lane&, void*, std::uint32_t, std::uint64_t, bool, order, scope) override {}
  std::uint64_t plain_load(lane& l, void const* address, std::uint32_t bytes, location) override {
    return visible(l, address, bytes);
  }
  void plain_store(lane& l, void* address, std::uint32_t bytes, std::uint64_t value, location) override {
    push(l, {address, bytes, value, false, buffers_[l.id].epoch});
  }
  void fence(lane& l, order o, scope) override {
    if (o == order::seq_cst) return flush(l);
    if (releases(o)) ++buffers_[l.id].epoch;
  }
  void synchronised(std::span<lane* const> members) override {
    for (auto* l : members) flush(*l);
  }
  void grid_ended(lane&) override { settle(); }

  std::uint64_t visible(lane const& l, void const* address, std::uint32_t bytes) const override {
    std::uint64_t value = read_bytes(address, bytes);
    auto const start = reinterpret_cast<std::uintptr_t>(address);
    for (auto const& e : buffers_[l.id].pending) {
      auto const base = reinterpret_cast<std::uintptr_t>(e.address);
      for (std::uint32_t k = 0; k < e.bytes; ++k)
        if (base + k >= start && base + k < start + bytes)
          reinterpret_cast<std::byte*>(&value)[base + k - start] = static_cast<std::byte>(e.value >> (8 * k));
    }
    return value;
  }

  bool advance() override {
    if (held_ == 0) return false;
    auto const lanes = static_cast<std::uint32_t>(buffers_.size());
    std::uint32_t lane = host_.choice(lanes);
    while (!drain(lane, true)) lane = (lane + 1) % lanes;
    return true;
  }
  void step() override {
    if (held_ != 0 && host_.choice(4) == 0) advance();
  }

 private:
  struct entry {
    void* address;
    std::uint32_t bytes;
    std::uint64_t value;
    bool release;
    std::uint32_t epoch;  // release fences before it
  };
  struct buffer {
    std::vector<entry> pending;  // oldest first
    std::uint32_t epoch = 0;
  };

  static bool overlap(entry const& a, entry const& b) {
    auto const x = reinterpret_cast<std::uintptr_t>(a.address);
    auto const y = reinterpret_cast<std::uintptr_t>(b.address);
    return x < y + b.bytes && y < x + a.bytes;
  }
  void push(lane& l, entry const& e) {
    if (buffers_[l.id].pending.size() == capacity) drain(l.id, true);
    buffers_[l.id].pending.push_back(e);
    ++held_;
  }
  void flush(lane& l) {
    while (drain(l.id, false)) {
    }
  }
  /// Lets one store of lane `id` reach memory: the oldest, or any that may go first.
  bool drain(std::uint32_t id, bool any) {
    auto& pending = buffers_[id].pending;
    if (pending.empty()) return false;
    std::uint32_t eligible[capacity] = {};
    std::uint32_t n = 0;
    for (std::uint32_t i = 0; i < pending.size(); ++i) {
      bool free = true;
      for (std::uint32_t j = 0; j < i && free; ++j)
        free = !overlap(pending[j], pending[i]) && !pending[i].release && pending[j].epoch == pending[i].epoch;
      if (free) eligible[n++] = i;
    }
    std::uint32_t const k = any && n > 1 ? eligible[host_.choice(n)] : 0;
    entry const e = pending[k];
    pending.erase(pending.begin() + k);
    --held_;
    write_bytes(e.address, e.bytes, e.value);
    host_.changed(e.address);
    return true;
  }

  memory_host& host_;
  std::vector<buffer> buffers_;
  std::size_t held_ = 0;
};

}  // namespace

std::unique_ptr<memory> make_store_buffers(memory_host& host, std::uint32_t lanes) {
  return std::make_unique<store_buffers>(host, lanes);
}

}  // namespace forebay::simt::detail
