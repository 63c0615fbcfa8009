// SPDX-License-Identifier: Apache-2.0
#include "support/queue_schedule.hpp"

namespace forebay::test {

std::string name_of(schedule_mode mode) {
  using policy = schedule_mode::policy;
  std::string name;
  switch (mode.scheduler) {
    case policy::sticky_random:
      name = "sticky random";
      break;
    case policy::random:
      name = "random";
      break;
    case policy::pct3:
      name = "pct3";
      break;
    case policy::pct5:
      name = "pct5";
      break;
    case policy::round_robin:
      name = "round robin";
      break;
  }
  switch (mode.memory) {
    case simt::memory_model::sequential:
      return name + ", sequential";
    case simt::memory_model::store_buffers:
      return name + ", store buffers";
    case simt::memory_model::race_detector:
      return name + ", race detector";
    case simt::memory_model::stale_reads:
      break;
  }
  return name + ", stale reads";
}

schedule_mode mode_of(std::uint64_t seed) {
  using policy = schedule_mode::policy;
  using memory = simt::memory_model;
  constexpr policy policies[] = {policy::sticky_random, policy::pct3,          policy::random,
                                 policy::pct5,          policy::sticky_random, policy::round_robin,
                                 policy::pct5,          policy::sticky_random, policy::pct3};
#if defined(__SANITIZE_THREAD__)
  // The other models act out the atomics themselves, so ThreadSanitizer does not see what these order.
  constexpr memory memories[] = {memory::sequential};
#else
  constexpr memory memories[] = {memory::sequential, memory::store_buffers, memory::race_detector, memory::stale_reads};
#endif
  std::uint64_t const drawn = emulator::mix(seed ^ 0x1f83d9abfb41bd6bu);
  return {policies[drawn % std::size(policies)], memories[(drawn >> 32) % std::size(memories)]};
}

}  // namespace forebay::test
