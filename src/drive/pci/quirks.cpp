// SPDX-License-Identifier: Apache-2.0
#include "quirks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace forebay::drive::pci {
namespace {

constexpr std::uint64_t ready_delay_ns = 2'300'000'000;
constexpr driver::quirks slow_to_be_read{.ready_delay_ns = ready_delay_ns};
constexpr driver::quirks one_command{.queue_entries_most = 2};
constexpr driver::quirks no_zeroes{.no_write_zeroes = true};

struct row {
  std::uint16_t vendor, device;
  driver::quirks its;
};

/// By vendor and device.
constexpr row table[] = {
    {0x106b, 0x2001, one_command},                                                        // Apple, in a MacBook
    {0x1217, 0x8760, one_command},                                                        // O2 Micro
    {0x144d, 0xa809, no_zeroes},                                                          // Samsung MZALQ
    {0x144d, 0xa80b, no_zeroes},                                                          // Samsung PM9B1
    {0x144d, 0xa821, {.ready_delay_ns = ready_delay_ns, .queue_entries_if_untold = 64}},  // Samsung PM1725
    {0x144d,
     0xa822,
     {.ready_delay_ns = ready_delay_ns, .queue_entries_if_untold = 64, .no_write_zeroes = true}},  // Samsung PM1725a
    {0x15b7, 0x2001, no_zeroes},                                                                   // SanDisk
    {0x1987, 0x5013, {.queue_entries_most = 32}},                                                  // Phison E13
    {0x1987, 0x5019, no_zeroes},                                                                   // Phison E19
    {0x1987, 0x5021, no_zeroes},                                                                   // Phison E21
    {0x1bb1, 0x0100, slow_to_be_read},                                                             // Seagate Nytro
    {0x1c58, 0x0003, slow_to_be_read},                                                             // HGST
    {0x1c58, 0x0023, slow_to_be_read},                                                             // WDC SN200
    {0x1c5c, 0x1504, no_zeroes},                                                                   // SK Hynix PC400
    {0x1c5f, 0x0540, slow_to_be_read},                                                             // Memblaze PBlaze4
    {0x1cc4, 0x6302, no_zeroes},                                                                   // UMIS
    {0x1cc4, 0x6303, no_zeroes},
    {0x1d97, 0x2263, no_zeroes},  // SPCC, Lexar NM610
    {0x2646, 0x5016, no_zeroes},  // Kingston
    {0x2646, 0x5018, no_zeroes},
    {0x2646, 0x501a, no_zeroes},
    {0x2646, 0x501b, no_zeroes},
    {0x2646, 0x501e, no_zeroes},
    {0x8086, 0x5845, no_zeroes},  // QEMU, until 5.2
    {0x8086, 0xf1a5, no_zeroes},  // Intel 600p
};

constexpr bool comes_before(row const& a, row const& b) {
  return a.vendor != b.vendor ? a.vendor < b.vendor : a.device < b.device;
}
static_assert(std::is_sorted(std::begin(table), std::end(table), comes_before));

}  // namespace

driver::quirks quirks_of(std::uint32_t vendor, std::uint32_t device) {
  if (vendor > 0xffff || device > 0xffff) return {};
  row const wanted{static_cast<std::uint16_t>(vendor), static_cast<std::uint16_t>(device), {}};
  auto const* const found = std::lower_bound(std::begin(table), std::end(table), wanted, comes_before);
  return found != std::end(table) && !comes_before(wanted, *found) ? found->its : driver::quirks();
}

std::string why_undrivable(std::uint32_t vendor, std::uint32_t device) {
  if (vendor == 0x106b && device == 0x2005) {
    return "this controller of Apple's has submission entries of 128 bytes, and the specification has 64: use another "
           "drive";
  }
  return {};
}

std::vector<std::string> describe(driver::quirks const& its) {
  std::vector<std::string> all;
  if (its.ready_delay_ns != 0) {
    all.push_back(fmt::format("its status is not read until {} ms after it was enabled or disabled",
                              its.ready_delay_ns / 1'000'000));
  }
  if (its.queue_entries_most != 0) {
    all.push_back(fmt::format("its queues have at most {} entries", its.queue_entries_most));
  }
  if (its.queue_entries_if_untold != 0) {
    all.push_back(fmt::format("if it does not say how many entries its queues may have, they have at most {}",
                              its.queue_entries_if_untold));
  }
  if (its.no_write_zeroes) all.push_back("Write Zeroes is not used");
  return all;
}

}  // namespace forebay::drive::pci
