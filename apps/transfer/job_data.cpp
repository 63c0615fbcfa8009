// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/job_data.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "apps/common/random.hpp"
#include "apps/transfer/host_data.hpp"

namespace forebay::transfer {
namespace {

constexpr std::uint64_t part_bytes = 1 << 20;

/// Of at most `part_bytes`. Four sums, because one would wait for itself at each word.
std::uint64_t hash_of_part(std::byte const* at, std::uint64_t bytes) {
  std::uint64_t sums[4] = {1, 2, 3, 4};
  std::uint64_t done = 0;
  for (unsigned lane = 0; done < bytes; lane = (lane + 1) % 4) {
    std::uint64_t word = 0;
    std::uint64_t const length = std::min<std::uint64_t>(sizeof word, bytes - done);
    std::memcpy(&word, at + done, length);
    sums[lane] = (sums[lane] ^ word) * 0x9e3779b97f4a7c15u;
    sums[lane] ^= sums[lane] >> 32;
    done += length;
  }
  return apps::mix64(sums[0] + apps::mix64(sums[1] + apps::mix64(sums[2] + apps::mix64(sums[3]))));
}

}  // namespace

job_data::job_data(workload const& work, std::uint64_t seed, allocator make)
    : work_(work), seed_(seed), make_(std::move(make)), buffers_(work.buffers()) {}

void job_data::prepare(std::uint32_t places) {
  while (outputs_.size() < places) {
    std::vector<std::shared_ptr<std::byte>> place(buffers_.size());
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].use != buffer_use::in) place[i] = make_(buffers_[i].bytes);
    }
    outputs_.push_back(std::move(place));
  }
  if (!inputs_.empty()) return;
  std::vector<std::shared_ptr<std::byte>> inputs(buffers_.size());
  std::vector<std::byte*> addresses;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (goes_in(buffers_[i])) inputs[i] = make_(buffers_[i].bytes);
    addresses.push_back(buffers_[i].use == buffer_use::out ? output(0, i) : inputs[i].get());
  }
  work_.init(seed_, views(addresses));
  inputs_ = std::move(inputs);
}

void job_data::forget(std::uint32_t place) {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (!goes_out(buffers_[i])) continue;
    std::byte* const all = output(place, i);
    in_parallel(buffers_[i].bytes, 4 << 20,
                [&](std::uint64_t begin, std::uint64_t end) { std::memset(all + begin, 0xff, end - begin); });
  }
}

std::string job_data::mismatch(std::uint32_t place, bool to_the_bit) {
  std::uint64_t const hash = hash_of(place);
  if (right_ == hash) return "";
  std::vector<std::byte*> addresses;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    addresses.push_back(buffers_[i].use == buffer_use::in ? inputs_[i].get() : output(place, i));
  }
  ++compared_;
  std::string wrong = work_.mismatch(seed_, views(addresses));
  if (!wrong.empty()) return wrong;
  if (!right_) {
    right_ = hash;
  } else if (to_the_bit) {
    return "the results differ from those of another job";
  }
  return "";
}

std::uint64_t job_data::hash_of(std::uint32_t place) const {
  std::uint64_t of_all = 0;
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    if (!goes_out(buffers_[i])) continue;
    std::byte const* const all = output(place, i);
    std::uint64_t const bytes = buffers_[i].bytes;
    std::atomic<std::uint64_t> sum{0};
    in_parallel((bytes + part_bytes - 1) / part_bytes, 4, [&](std::uint64_t begin, std::uint64_t end) {
      std::uint64_t mine = 0;
      for (std::uint64_t part = begin; part < end; ++part) {
        std::uint64_t const at = part * part_bytes;
        mine += apps::mix64(hash_of_part(all + at, std::min(part_bytes, bytes - at)) + part);
      }
      sum.fetch_add(mine, std::memory_order_relaxed);  // the threads' ends order it before the load
    });
    of_all = apps::mix64(of_all ^ sum.load(std::memory_order_relaxed));  // after the threads' ends
  }
  return of_all;
}

}  // namespace forebay::transfer
