// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/memory/machine.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace forebay::memory {

std::uint64_t machine_bytes() {
  auto const pages = static_cast<std::uint64_t>(std::max(::sysconf(_SC_PHYS_PAGES), 1L));
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

std::uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string key, rest;
  for (std::uint64_t kib = 0; file >> key >> kib; std::getline(file, rest)) {
    if (key == "MemAvailable:") return kib << 10;
  }
  return 0;
}

}  // namespace forebay::memory
