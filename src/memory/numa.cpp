// SPDX-License-Identifier: Apache-2.0
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "forebay/error.hpp"
#include "forebay/host_memory.hpp"

namespace forebay::memory {

void bind_to_node(void* address, std::size_t bytes, int node) {
  std::error_code ignored;
  // A machine without NUMA has no such folder, and then one node.
  bool const exists =
      node >= 0 &&
      (std::filesystem::exists("/sys/devices/system/node/node" + std::to_string(node), ignored) || node == 0);
  if (!exists) {
    throw refused_input("node", std::to_string(node), "must be a NUMA node of this machine: see `lscpu`");
  }
  constexpr std::size_t page = 4096, word_bits = 8 * sizeof(unsigned long);
  auto const begin = reinterpret_cast<std::uintptr_t>(address) & ~(page - 1);
  std::size_t const length = (reinterpret_cast<std::uintptr_t>(address) + bytes + page - 1 - begin) & ~(page - 1);
  auto const number = static_cast<std::size_t>(node);
  std::vector<unsigned long> nodes(number / word_bits + 1);
  nodes[number / word_bits] = 1ul << number % word_bits;
  // The C library has no function for it but libnuma's.
  if (syscall(SYS_mbind, begin, length, MPOL_BIND, nodes.data(), nodes.size() * word_bits + 1, 0) != 0) {
    if (errno == ENOSYS && node == 0) return;  // a kernel without NUMA
    throw operation_failed("placing host memory on NUMA node " + std::to_string(node) + ": " + std::strerror(errno));
  }
}

}  // namespace forebay::memory
