// SPDX-License-Identifier: Apache-2.0
#include "drive/pci/quirks.hpp"

#include <gtest/gtest.h>

namespace forebay::drive::pci {
namespace {

TEST(pci_quirks, are_found_by_both_numbers) {
  EXPECT_EQ(quirks_of(0x144d, 0xa822),
            (driver::quirks{.ready_delay_ns = 2'300'000'000, .queue_entries_if_untold = 64, .no_write_zeroes = true}));
  EXPECT_EQ(quirks_of(0x106b, 0x2001).queue_entries_most, 2u);  // the first row
  EXPECT_TRUE(quirks_of(0x8086, 0xf1a5).no_write_zeroes);       // the last
  for (auto const& [vendor, device] : {std::pair{0x144du, 0xa820u},
                                       {0x144cu, 0xa822u},
                                       {0x1b36u, 0x0010u},
                                       {0u, 0u},
                                       {0xffffu, 0xffffu},
                                       {0x1144du, 0xa822u},
                                       {0x144du, 0x1a822u}}) {
    EXPECT_EQ(quirks_of(vendor, device), driver::quirks()) << vendor << ' ' << device;
  }
}

TEST(pci_quirks, are_told_in_words) {
  EXPECT_TRUE(describe({}).empty());
  EXPECT_EQ(describe({.ready_delay_ns = 2'300'000'000,
                      .queue_entries_most = 2,
                      .queue_entries_if_untold = 64,
                      .no_write_zeroes = true}),
            (std::vector<std::string>{"its status is not read until 2300 ms after it was enabled or disabled",
                                      "its queues have at most 2 entries",
                                      "if it does not say how many entries its queues may have, they have at most 64",
                                      "Write Zeroes is not used"}));
}

TEST(pci_quirks, one_controller_cannot_be_driven) {
  EXPECT_NE(why_undrivable(0x106b, 0x2005), "");
  EXPECT_EQ(why_undrivable(0x106b, 0x2003), "");
}

}  // namespace
}  // namespace forebay::drive::pci
