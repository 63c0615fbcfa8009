// SPDX-License-Identifier: Apache-2.0
//! \file
//! Inputs of the controller fuzzer: strings of bytes that are read as choices, how they are mutated, and where they are
//! kept.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay::emulator::testing {

using fuzz_input = std::vector<std::uint8_t>;

/// Where choices come from: the bytes of an input and then zeros, or a seed and no end.
class choices {
 public:
  explicit choices(fuzz_input const& bytes) : bytes_(&bytes) {}
  explicit choices(std::uint64_t seed) : state_(seed) {}

  bool done() const { return bytes_ != nullptr && at_ >= bytes_->size(); }
  std::uint8_t byte() {
    if (bytes_ != nullptr) return at_ < bytes_->size() ? (*bytes_)[at_++] : std::uint8_t{0};
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = (state_ ^ state_ >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return static_cast<std::uint8_t>(z >> 56);
  }
  template <class T>
  T word() {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | static_cast<T>(T{byte()} << 8 * i));
    return value;
  }
  /// One of 0 to `n` - 1; one byte where that is enough.
  std::uint32_t below(std::uint32_t n) { return n <= 256 ? byte() % n : word<std::uint16_t>() % n; }
  /// True for `n` of 256 bytes, among which 0 is not: once an input has ended, it chooses the usual case.
  bool rarely(std::uint32_t n) { return byte() >= 256 - n; }
  template <class T, std::size_t N>
  T one_of(T const (&values)[N]) {
    return values[below(N)];
  }

 private:
  fuzz_input const* bytes_ = nullptr;
  std::size_t at_ = 0;
  std::uint64_t state_ = 0;
};

inline constexpr std::size_t longest_input = 384;

/// An input like one of `parents`, with a few bytes changed, put in, taken out, or taken from another.
inline fuzz_input mutate(std::vector<fuzz_input> const& parents, choices& pick) {
  auto const any = [&](std::size_t n) { return n == 0 ? std::size_t{0} : pick.word<std::uint32_t>() % n; };
  fuzz_input child = parents.empty() ? fuzz_input{} : parents[any(parents.size())];
  auto const fresh = [&](std::size_t n) {
    fuzz_input bytes(n);
    for (auto& b : bytes) b = pick.byte();
    return bytes;
  };
  auto const insert = [&](fuzz_input const& bytes) {
    child.insert(child.begin() + static_cast<std::ptrdiff_t>(any(child.size() + 1)), bytes.begin(), bytes.end());
  };
  if (child.empty() || pick.rarely(8)) return fresh(16 + any(longest_input - 16));
  std::uint32_t const steps = 1 + pick.below(6);
  for (std::uint32_t step = 0; step < steps && !child.empty(); ++step) {
    std::size_t const at = any(child.size());
    std::size_t const length = std::min(child.size() - at, 1 + any(24));
    auto const begin = child.begin() + static_cast<std::ptrdiff_t>(at);
    auto const end = begin + static_cast<std::ptrdiff_t>(length);
    switch (pick.below(8)) {
      case 0:
        child[at] ^= static_cast<std::uint8_t>(1u << pick.below(8));
        break;
      case 1:
        child[at] = pick.byte();
        break;
      case 2:
        child[at] = static_cast<std::uint8_t>(child[at] + pick.below(9) - 4);
        break;
      case 3:
        insert(fresh(1 + any(24)));
        break;
      case 4:
        child.erase(begin, end);
        break;
      case 5:
        insert(fuzz_input(begin, end));
        break;
      case 6: {
        fuzz_input const& other = parents[any(parents.size())];
        if (other.empty()) break;
        std::size_t const from = any(other.size());
        child.resize(at);
        child.insert(child.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
        break;
      }
      default: {
        fuzz_input const more = fresh(1 + any(24));
        child.insert(child.end(), more.begin(), more.end());
        break;
      }
    }
  }
  if (child.size() > longest_input) child.resize(longest_input);
  return child;
}

inline fuzz_input read_input(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_input(std::filesystem::path const& path, fuzz_input const& input) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<char const*>(input.data()), static_cast<std::streamsize>(input.size()));
}

/// A name that follows from the content.
inline std::string name_of(fuzz_input const& input) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (std::uint8_t const b : input) hash = (hash ^ b) * 0x100000001b3u;
  char text[32];
  std::snprintf(text, sizeof text, "%016llx.bin", static_cast<unsigned long long>(hash));
  return text;
}

/// All inputs of a folder, in the order of their names.
inline std::vector<std::filesystem::path> inputs_in(std::filesystem::path const& folder) {
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(folder)) {
    for (auto const& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace forebay::emulator::testing
