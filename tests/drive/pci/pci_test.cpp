// SPDX-License-Identifier: Apache-2.0
//! \file
//! What is known of a PCI function, from folders as the system has them; and what is refused. Real controllers are
//! driven in a guest: tests/guest/test_real_drive.py.
#include <gtest/gtest.h>

#include <string>

#include "drive/pci/address.hpp"
#include "drive/pci/function.hpp"
#include "forebay/error.hpp"
#include "system_files.hpp"

namespace forebay::drive::pci {
namespace {

std::string refusal(std::string_view text) {
  try {
    return address::parse(text).text();
  } catch (refused_input const& refused) {
    return refused.what();
  }
}

TEST(pci_address, is_read_and_written_as_the_system_does) {
  EXPECT_EQ(address::parse("0000:01:00.0").text(), "0000:01:00.0");
  EXPECT_EQ(address::parse("01:1f.7").text(), "0000:01:1f.7");
  EXPECT_EQ(address::parse("10000:E1:00.0").text(), "10000:e1:00.0");
  EXPECT_EQ(address::parse("c1:2.3"), (address{0, 0xc1, 2, 3}));
  for (char const* const wrong :
       {"", "0000:01:00", "0000:01:00.8", "0000:01:20.0", "0000:100:00.0", "0000:01:00.0 ", "x:01:00.0", "0000::00.0",
        "01:00.", ":01:00.0", "0000:01:00.0.0", "0x1:00.0", "-1:00.0", "123456789:01:00.0"}) {
    EXPECT_EQ(refusal(wrong),
              "drive: 'pci:" + std::string(wrong) + "': give a bus address such as 0000:01:00.0; lspci -D lists them");
  }
}

TEST(pci_function, tells_what_the_system_does) {
  system_files const system;
  std::string const folder = "sys/bus/pci/devices/0000:01:00.0/";
  system.write(folder + "class", "0x010802");
  system.write(folder + "vendor", "0x1b36");
  system.write(folder + "device", "0x0010");
  system.write(folder + "resource", "0x00000000fe800000 0x00000000fe803fff 0x0000000000140204");
  system.link(folder + "driver", "../../drivers/nvme");
  system.link(folder + "iommu_group", "../../groups/7");
  system.write("sys/bus/pci/groups/7/devices/.keep", "");
  system.write(folder + "nvme/nvme3/serial", "S1 23  ");
  system.write(folder + "nvme/nvme3/nvme3n1/size", "1");
  system.write(folder + "nvme/nvme3/nvme3c3n2/size", "1");
  system.write(folder + "nvme/nvme3/hwmon/name", "nvme");
  system.write(folder + "nvme/nvme3/state", "connecting");
  system.write("sys/bus/pci/groups/7/type", "DMA-FQ");
  system.write("sys/class/block/nvme3n1/dev", "259:4");
  system.write("sys/class/block/nvme3n1/nsid", "1");
  system.write("sys/class/block/nvme3n2/nsid", "32");
  system.write("sys/class/block/nvme3n2/dev", "259:5");
  function const found(address::parse("01:00.0"), system.where());
  EXPECT_TRUE(found.is_nvme());
  EXPECT_EQ(found.vendor(), 0x1b36u);
  EXPECT_EQ(found.device(), 0x10u);
  EXPECT_EQ(found.bar0_bytes(), 0x4000u);
  EXPECT_EQ(found.driver(), "nvme");
  EXPECT_EQ(found.iommu_group(), "7");
  EXPECT_EQ(found.serial(), "S1 23");
  auto const nodes = found.block_nodes();
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].name, "nvme3n2") << "the hidden path stands for it";
  EXPECT_EQ(nodes[1].name, "nvme3n1");
  EXPECT_EQ(nodes[0].nsid, 32u);
  EXPECT_EQ(nodes[1].nsid, 1u);
  EXPECT_FALSE(found.is_live());
  system.write(folder + "nvme/nvme3/state", "live");
  EXPECT_TRUE(found.is_live());
  EXPECT_TRUE(found.is_translated());
  system.write("sys/bus/pci/groups/7/type", "identity");
  EXPECT_FALSE(found.is_translated());
}

TEST(pci_function, of_a_group_are_those_that_are_no_bridges) {
  system_files const system;
  for (std::string const name : {"0000:01:00.0", "0000:01:00.1", "0000:00:02.0"}) {
    system.write("sys/bus/pci/devices/" + name + "/class", name == "0000:00:02.0" ? "0x060400" : "0x010802");
    system.write("sys/bus/groups/3/devices/" + name, "");
  }
  system.link("sys/bus/pci/devices/0000:01:00.0/iommu_group", "../../../groups/3");
  function const found(address::parse("01:00.0"), system.where());
  EXPECT_EQ(found.group_members(), (std::vector<std::string>{"0000:01:00.0", "0000:01:00.1"}));
}

TEST(pci_function, of_which_the_system_tells_little) {
  system_files const system;
  system.write("sys/bus/pci/devices/0000:02:00.0/class", "0x030000");
  function const found(address::parse("02:00.0"), system.where());
  EXPECT_FALSE(found.is_nvme());
  EXPECT_EQ(found.driver(), "");
  EXPECT_EQ(found.iommu_group(), "");
  EXPECT_FALSE(found.is_translated());
  EXPECT_FALSE(found.is_live());
  EXPECT_EQ(found.serial(), "");
  EXPECT_EQ(found.bar0_bytes(), 0u);
  EXPECT_TRUE(found.block_nodes().empty());
  EXPECT_TRUE(found.group_members().empty());
  EXPECT_THROW(function(address::parse("03:00.0"), system.where()), refused_input);
}

}  // namespace
}  // namespace forebay::drive::pci
