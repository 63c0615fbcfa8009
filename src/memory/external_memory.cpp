// SPDX-License-Identifier: Apache-2.0
#include "forebay/external_memory.hpp"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "forebay/detail/memory/link_speed.hpp"
#include "forebay/detail/memory/parse.hpp"
#include "forebay/error.hpp"

namespace forebay::memory {
namespace {

std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

/// Refuses a number outside [least, most]; 0 too, unless it stands for no limit. NaN is in no range.
void require(char const* key, double value, double least, double most, bool may_be_none, std::string const& remedy) {
  if ((may_be_none && value == 0) || (value >= least && value <= most)) return;
  throw refused_input(key, text_of(value), remedy);
}

struct key_reader {
  char const* key;
  void (*read)(external_memory_options&, std::string const& value);
};

std::uint32_t bytes_of(char const* key, std::string const& value) {
  std::uint64_t const bytes = parse_bytes(key, value);
  if (bytes > ~std::uint32_t{0}) throw refused_input(key, value, "give at most 1M");
  return static_cast<std::uint32_t>(bytes);
}

double link_of(std::string const& value) {
  if (value == "none") return 0;
  bool const is_rate = !value.empty() && std::isdigit(static_cast<unsigned char>(value[0])) != 0;
  return is_rate ? parse_rate("link", value) : find_link_speed(value).bytes_per_second;
}

constexpr key_reader readers[] = {
    {"mode",
     [](auto& o, auto const& v) {
       if (v != "device" && v != "pinned") throw refused_input("mode", v, "give device or pinned");
       o.mode = v == "pinned" ? external_mode::pinned : external_mode::device;
     }},
    {"latency_us", [](auto& o, auto const& v) { o.latency_us = parse_microseconds("latency_us", v); }},
    {"alignment", [](auto& o, auto const& v) { o.alignment_bytes = bytes_of("alignment", v); }},
    {"iops", [](auto& o, auto const& v) { o.iops = v == "none" ? 0 : parse_rate("iops", v); }},
    {"outstanding",
     [](auto& o, auto const& v) {
       o.outstanding = v == "none" ? 0 : static_cast<std::uint32_t>(parse_count("outstanding", v, 1, 1 << 20));
     }},
    {"link", [](auto& o, auto const& v) { o.link_bytes_per_second = link_of(v); }},
    {"devices",
     [](auto& o, auto const& v) { o.devices = static_cast<std::uint32_t>(parse_count("devices", v, 1, 1024)); }},
    {"request_max", [](auto& o, auto const& v) { o.request_max_bytes = bytes_of("request_max", v); }},
    {"lines",
     [](auto& o, auto const& v) {
       if (v != "on" && v != "off") throw refused_input("lines", v, "give on or off");
       o.lines = v == "on";
     }},
    {"shards",
     [](auto& o, auto const& v) { o.shards = static_cast<std::uint32_t>(parse_count("shards", v, 1, 1024)); }},
    {"lead_us", [](auto& o, auto const& v) { o.lead_us = parse_microseconds("lead_us", v); }},
};

key_reader const& find_reader(std::string const& key, std::string const& value) {
  std::vector<std::string_view> known;
  for (key_reader const& reader : readers) {
    if (key == reader.key) return reader;
    known.emplace_back(reader.key);
  }
  throw refused_input(key, value, "external: has no such key; did you mean " + nearest(key, known) + "?");
}

/// So many parts share out what thousands of threads of a GPU ask for, and each still has many slots.
constexpr std::uint32_t shards_of_a_gpu = 16;
constexpr double lead_us_of_a_gpu = 0.32;

/// The same with the number of shards and the lead chosen, if they were not given.
external_memory_options resolved(external_memory_options options, resource const& where) {
  options.validate();
  if (options.shards == 0) {
    options.shards = where.kind() == kind::host ? 1 : shards_of_a_gpu;
    if (options.outstanding != 0) options.shards = std::min(options.shards, options.outstanding);
  }
  if (!options.lead_us) options.lead_us = where.kind() == kind::host ? 0 : lead_us_of_a_gpu;
  return options;
}

external_timing timing_of(external_memory_options const& options) {
  auto const whole = [](double value) { return static_cast<std::uint64_t>(std::llround(value)); };
  external_timing timing;
  timing.latency_ps = whole(options.latency_us * 1e6);
  timing.late_after_ns = whole(options.late_after_us * 1e3);
  timing.lead_ps = whole(*options.lead_us * 1e6);
  // A part of the memory with 1 of n shares of a rate takes n times as long.
  if (options.link_bytes_per_second != 0)
    timing.link_byte_fs = whole(1e15 * options.shards / options.link_bytes_per_second);
  if (options.iops != 0) timing.request_ps = whole(1e12 * options.shards / options.iops);
  timing.alignment_bytes = options.alignment_bytes;
  timing.request_max_bytes = options.request_max_bytes != 0 ? options.request_max_bytes : options.alignment_bytes;
  timing.lines = options.lines ? 1 : 0;
  timing.device_shift = static_cast<std::uint32_t>(std::bit_width(timing.request_max_bytes - 1));
  timing.devices = options.devices;
  timing.shards = options.shards;
  // Requests that take no time are never in flight.
  if (timing.latency_ps != 0) {
    timing.slots = options.outstanding / options.shards;
    timing.slots_more = options.outstanding % options.shards;
  }
  // If all requests pass the same two clocks and take longer on one of them, the other is never waited for.
  if (timing.devices == 1 && timing.request_ps != 0 && timing.link_byte_fs != 0) {
    auto const on_link_ps = [&](std::uint64_t bytes) { return bytes * timing.link_byte_fs / 1000; };
    if (on_link_ps(timing.alignment_bytes) >= timing.request_ps) {
      timing.request_ps = 0;
    } else if (on_link_ps(timing.request_max_bytes) <= timing.request_ps) {
      timing.link_byte_fs = 0;
    }
  }
  return timing;
}

}  // namespace

external_memory_options external_memory_options::parse(std::string_view text) {
  external_memory_options options;
  std::vector<std::string> given;
  while (!text.empty()) {
    std::size_t const comma = text.find(',');
    std::string const item(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    std::size_t const equals = item.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw refused_input("external", item, "write key=value between commas, as in latency_us=2,alignment=32");
    }
    std::string const key = item.substr(0, equals), value = item.substr(equals + 1);
    key_reader const& reader = find_reader(key, value);
    for (std::string const& before : given) {
      if (before == key) throw refused_input(key, value, "give each key once");
    }
    given.push_back(key);
    reader.read(options, value);
  }
  options.validate();
  return options;
}

void external_memory_options::validate() const {
  require("latency_us", latency_us, 0, 1e6, false, "give microseconds from 0 to 1000000");
  if (!std::has_single_bit(alignment_bytes) || alignment_bytes < 16 || alignment_bytes > 4096) {
    throw refused_input("alignment", std::to_string(alignment_bytes), "give a power of two from 16 to 4096");
  }
  require("iops", iops, 1, 1e10, true, "give a rate of each device from 1 to 10G, or none");
  require("outstanding", outstanding, 1, 1 << 20, true, "give a number from 1 to 1048576, or none");
  require("link", link_bytes_per_second, 1e6, 1e13, true, "give 1M to 10000G bytes a second, or none");
  require("devices", devices, 1, 1024, false, "give a number from 1 to 1024");
  if (request_max_bytes > 1 << 20 || request_max_bytes % alignment_bytes != 0) {
    throw refused_input("request_max", std::to_string(request_max_bytes),
                        "give a multiple of the alignment, " + std::to_string(alignment_bytes) + ", up to 1M");
  }
  if (lines && request_max_bytes != 0 && !std::has_single_bit(request_max_bytes)) {
    throw refused_input("request_max", std::to_string(request_max_bytes),
                        "give a power of two where requests are parts of lines");
  }
  require("shards", shards, 1, 1024, true, "give a number from 1 to 1024");
  if (outstanding != 0 && shards > outstanding) {
    throw refused_input("shards", std::to_string(shards),
                        "give at most as many as may be in flight, " + std::to_string(outstanding));
  }
  require("late_after_us", late_after_us, 0, 1e6, false, "give microseconds from 0 to 1000000");
  require("lead_us", lead_us.value_or(0), 0, 1e3, false, "give microseconds from 0 to 1000");
}

std::uint32_t external_memory_options::requests_of_page(std::uint64_t page_bytes) const {
  if (!std::has_single_bit(page_bytes)) {
    throw refused_input("page", std::to_string(page_bytes), "give a power of two");
  }
  // Pages of a block or more begin with a block, and so a request of theirs does; smaller ones lie within a block.
  std::uint64_t const most = request_max_bytes != 0 ? request_max_bytes : alignment_bytes;
  std::uint64_t const requests = (std::max<std::uint64_t>(page_bytes, alignment_bytes) + most - 1) / most;
  if (requests > ~std::uint32_t{0}) throw refused_input("page", std::to_string(page_bytes), "give a smaller page");
  return static_cast<std::uint32_t>(requests);
}

external_memory::external_memory(external_memory_options const& options, resource& where)
    : options_(resolved(options, where)),
      timing_(timing_of(options_)),
      layout_(timing_),
      state_(where, layout_.bytes(timing_.shards), external_layout::line_bytes) {}

external_memory_counts external_memory::counts() const {
  external_memory_counts all;
  for (std::uint32_t i = 0; i < timing_.shards; ++i) {
    external_shard shard;
    state_.from().copy_out(&shard, &layout_.shard(state_.as<std::byte>(), i), sizeof shard);
    all.late += shard.late;
    all.loads += shard.loads;
    all.requests += shard.requests;
    all.bytes += shard.bytes;
  }
  return all;
}

void external_memory::reset() {
  std::vector<std::byte> const zeros(state_.size_bytes());
  state_.from().copy_in(state_.data(), zeros.data(), zeros.size());
}

}  // namespace forebay::memory
