// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/attribution.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "forebay/error.hpp"

namespace forebay::transfer {
namespace {

constexpr char const* kind_names[activity_kinds] = {"copy", "kernel", "allocation", "host", "call"};

void require_order(time_span when, char const* what) {
  if (when.begin_ns <= when.end_ns) return;
  throw operation_failed(fmt::format("{} ends {} ns before it begins", what, when.begin_ns - when.end_ns));
}

/// A moment at which an activity of this kind begins (+1) or ends (-1).
struct change {
  std::int64_t at_ns;
  std::size_t kind;
  int by;
};

void divide_part(std::vector<activity> const& activities, time_span part, attribution& result) {
  std::vector<change> changes;
  for (activity const& a : activities) {
    std::int64_t const begin = std::max(a.when.begin_ns, part.begin_ns);
    std::int64_t const end = std::min(a.when.end_ns, part.end_ns);
    if (begin >= end) continue;
    auto const kind = static_cast<std::size_t>(a.kind);
    result.sums[kind] += end - begin;
    changes.push_back({begin, kind, +1});
    changes.push_back({end, kind, -1});
  }
  std::sort(changes.begin(), changes.end(), [](change const& a, change const& b) { return a.at_ns < b.at_ns; });

  std::int64_t under_way[activity_kinds] = {};
  std::int64_t now = part.begin_ns;
  auto const advance = [&](std::int64_t to) {
    auto const* const first = std::find_if(std::begin(under_way), std::end(under_way), [](auto n) { return n != 0; });
    (first == std::end(under_way) ? result.unattributed : result.exclusive[first - under_way]) += to - now;
    now = to;
  };
  for (change const& c : changes) {
    advance(c.at_ns);
    under_way[c.kind] += c.by;
  }
  advance(part.end_ns);
  result.total += part.end_ns - part.begin_ns;
}

}  // namespace

double attribution::covered() const {
  return total == 0 ? 1 : 1 - static_cast<double>(unattributed) / static_cast<double>(total);
}

attribution divide(std::vector<activity> const& activities, std::vector<time_span> const& run) {
  for (activity const& a : activities) {
    require_order(a.when, fmt::format("a record of a {}", kind_names[static_cast<std::size_t>(a.kind)]).c_str());
  }
  attribution result;
  for (time_span const& part : run) {
    require_order(part, "a part of the run");
    divide_part(activities, part, result);
  }
  return result;
}

}  // namespace forebay::transfer
