// SPDX-License-Identifier: Apache-2.0
//! \file
//! What is told of real drives, and which driver gets them, on a machine whose /sys is a folder. Real controllers are
//! attached in a guest: tests/guest/test_real_drive.py.
#include "drive/pci/inspection.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "drive/pci/binding.hpp"
#include "forebay/detail/drive/real.hpp"
#include "forebay/error.hpp"
#include "system_files.hpp"

namespace forebay::drive::pci {
namespace {

using nlohmann::json;

constexpr char const* devices = "sys/bus/pci/devices/";

/// A machine with a drive and two GPUs of NVIDIA. The drive and one GPU are below a switch.
class machine : public system_files {
 public:
  machine() {
    add("pci0000:00/0000:00:01.0", "0x060400");
    add("pci0000:00/0000:00:01.0/0000:01:00.0", "0x060400");
    for (std::string const port : {"0000:02:00.0", "0000:02:01.0"}) {
      add("pci0000:00/0000:00:01.0/0000:01:00.0/" + port, "0x060400");
    }
    add("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0", "0x010802");
    add("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", "0x030200", "0x10de");
    add("pci0000:80/0000:80:01.0/0000:81:00.0", "0x030200", "0x10de");
    add("pci0000:00/0000:00:02.0", "0x030000", "0x1a03");  // of the board's own controller
    for (auto const& [file, text] :
         std::vector<std::pair<std::string, std::string>>{{"current_link_speed", "8.0 GT/s PCIe"},
                                                          {"max_link_speed", "16.0 GT/s PCIe"},
                                                          {"current_link_width", "4"},
                                                          {"max_link_width", "4"},
                                                          {"numa_node", "-1"},
                                                          {"power_state", "D0"},
                                                          {"power/control", "auto"},
                                                          {"power/runtime_status", "active"},
                                                          {"d3cold_allowed", "1"},
                                                          {"driver_override", "(null)"},
                                                          {"device", "0xa80a"},
                                                          {"nvme/nvme0/state", "live"},
                                                          {"nvme/nvme0/serial", "S1"},
                                                          {"nvme/nvme0/model", "A DRIVE  "},
                                                          {"nvme/nvme0/firmware_rev", "1.0"},
                                                          {"nvme/nvme0/nvme0n1/size", "1"},
                                                          {"config", ""}}) {
      write(devices + drive + file, text);
    }
    link(devices + drive + "driver", "../../drivers/nvme");
    write("sys/class/block/nvme0n1/dev", "259:1");
    write("sys/class/block/nvme0n1/nsid", "1");
    write("sys/class/block/nvme0n1/size", "2048");
    write("sys/class/block/nvme0n1/queue/logical_block_size", "4096");
  }

  std::string const drive = "0000:03:00.0/";

  json found(std::string const& keys = "") const { return inspect(uri::parse("pci:0000:03:00.0" + keys), where()); }
  /// A group that translates, with these functions.
  void group(std::vector<std::string> const& members) const {
    for (std::string const& name : members) {
      write("sys/bus/pci/groups/9/devices/" + name, "");
      link(devices + name + "/iommu_group", (top() / "sys/bus/pci/groups/9").string());
    }
    write("sys/bus/pci/groups/9/type", "DMA");
  }

 private:
  void add(std::string const& path, std::string const& kind, std::string const& vendor = "0x144d") const {
    write("sys/devices/" + path + "/class", kind);
    write("sys/devices/" + path + "/vendor", vendor);
    link(devices + path.substr(path.rfind('/') + 1), "../../../devices/" + path);
  }
};

TEST(pci_inspection, tells_what_the_system_does) {
  machine const system;
  json const found = system.found();
  EXPECT_EQ(found.at("address"), "0000:03:00.0");
  EXPECT_EQ(found.at("quirks"), nlohmann::json::array());
  EXPECT_EQ(found.at("vendor"), "0x144d");
  EXPECT_EQ(found.at("device"), "0xa80a");
  EXPECT_EQ(found.at("driver"), "nvme");
  EXPECT_TRUE(found.at("driver_override").is_null());
  EXPECT_EQ(found.at("model"), "A DRIVE");
  EXPECT_EQ(found.at("firmware"), "1.0");
  EXPECT_EQ(found.at("state"), "live");
  EXPECT_TRUE(found.at("numa_node").is_null());
  EXPECT_EQ(found.at("link"),
            (json{{"speed_gt_s", 8.0}, {"speed_max_gt_s", 16.0}, {"width", 4.0}, {"width_max", 4.0}}));
  EXPECT_EQ(found.at("power"),
            (json{{"state", "D0"}, {"runtime_status", "active"}, {"control", "auto"}, {"d3cold_allowed", true}}));
  ASSERT_EQ(found.at("namespaces").size(), 1u);
  json const& one = found.at("namespaces")[0];
  EXPECT_EQ(one.at("size_bytes"), 1u << 20);
  EXPECT_EQ(one.at("block_bytes"), 4096u);
  EXPECT_TRUE(one.at("used_by").is_null());
  EXPECT_TRUE(one.at("contents").is_null()) << "its device is not in this machine's /dev";
  EXPECT_EQ(one.at("contents_unknown"), "No such file or directory");
}

TEST(pci_inspection, tells_what_a_drive_and_a_gpu_have_in_common) {
  machine const system;
  json const gpus = system.found().at("gpus");
  ASSERT_EQ(gpus.size(), 2u) << "that of the board is none";
  EXPECT_EQ(gpus[0], (json{{"gpu", "0000:04:00.0"}, {"common", "switch"}, {"at", "0000:01:00.0"}}));
  EXPECT_EQ(gpus[1], (json{{"gpu", "0000:81:00.0"}, {"common", "nothing"}, {"at", nullptr}}));
  json const all = inspect_all(system.where());
  EXPECT_EQ(all.at("drives").size(), 1u);
  EXPECT_EQ(all.at("gpus").size(), 2u);
}

/// Extended configuration with two capabilities, of which the second is Access Control Services.
std::string configuration(char control) {
  std::string bytes(0x1000, '\0');
  bytes.replace(0x100, 4, std::string("\x01\x00\x01\x20", 4));  // another one; the next is at 0x200
  bytes.replace(0x200, 4, std::string("\x0d\x00\x01\x00", 4));
  bytes[0x206] = control;
  return bytes;
}

TEST(pci_inspection, reads_access_control_of_bridges_where_it_may) {
  machine const system;
  std::string const port = std::string(devices) + "0000:02:00.0/";
  auto const last = [&] { return system.found().at("bridges").back(); };
  EXPECT_EQ(last(), (json{{"address", "0000:02:00.0"}, {"access_control", "unknown"}}));
  system.write(port + "config", std::string(63, '\0'));
  EXPECT_EQ(last().at("access_control"), "unknown") << "all that the system shows without root";
  system.write(port + "config", configuration(0x0c));
  EXPECT_EQ(last().at("access_control"), "on");
  system.write(port + "config", configuration(0x11));
  EXPECT_EQ(last().at("access_control"), "off");
  system.write(port + "config", std::string(0x1000, '\0'));
  EXPECT_EQ(last().at("access_control"), "none");
  std::string endless = configuration(0);
  endless.replace(0x200, 4, std::string("\x02\x00\x01\x10", 4));  // the next is the first again
  system.write(port + "config", endless);
  EXPECT_EQ(last().at("access_control"), "none");
  system.write(port + "config", configuration(0x0c));
  system.write(port + "power/runtime_status", "suspended");
  EXPECT_EQ(last().at("access_control"), "unknown") << "it is not woken to be read";
}

TEST(pci_inspection, refuses_in_the_words_of_opening) {
  machine const system;
  json found = system.found();
  EXPECT_EQ(found.at("access"), "sysfs");
  found = system.found(",access=vfio");
  EXPECT_EQ(found.at("access"), nullptr);
  EXPECT_EQ(found.at("refused").at("read"),
            "access: 'vfio': there is no IOMMU for 0000:03:00.0: boot with one (intel_iommu=on), or use access=sysfs");
  system.group({"0000:03:00.0", "0000:04:00.0"});
  system.link(std::string(devices) + "0000:04:00.0/driver", "../../drivers/nvidia");
  found = system.found();
  EXPECT_EQ(found.at("access"), "vfio");
  EXPECT_EQ(found.at("iommu"), (json{{"group", "9"},
                                     {"type", "DMA"},
                                     {"translated", true},
                                     {"others", {{{"address", "0000:04:00.0"}, {"driver", "nvidia"}}}}}));
  EXPECT_EQ(
      found.at("refused").at("write"),
      "drive: 'pci:0000:03:00.0': 0000:04:00.0 is in the same IOMMU group 9, and the driver nvidia has it: unbind "
      "that too");
  std::filesystem::remove(system.top() / devices / "0000:04:00.0/driver");
  found = system.found();
  EXPECT_EQ(
      found.at("refused").at("read"),
      "access: 'vfio': cannot open /dev/vfio/vfio: No such file or directory; load the module vfio-pci, and run as "
      "root or get the permission for that file");
  system.write("dev/vfio/vfio", "");
  EXPECT_EQ(system.found().at("refused").at("read"),
            "access: 'vfio': the driver vfio-pci is not there: load it (modprobe vfio-pci)");
  system.write("sys/bus/pci/drivers/vfio-pci/bind", "");
  EXPECT_EQ(system.found().at("refused").at("read"),
            "drive: 'pci:0000:03:00.0': " + (system.top() / "dev/nvme0n1").string() +
                " cannot be looked at (No such file or directory)");
}

TEST(pci_inspection, finds_who_uses_a_drive) {
  machine const system;
  system.group({"0000:03:00.0"});
  system.write("dev/vfio/vfio", "");
  system.write("sys/bus/pci/drivers/vfio-pci/bind", "");
  system.write("proc/self/mountinfo", "36 35 259:1 / /data rw - ext4 /dev/nvme0n1 rw");
  json found = system.found();
  EXPECT_EQ(found.at("namespaces")[0].at("used_by"), "it is mounted at /data");
  std::string const read = found.at("refused").at("read");
  EXPECT_NE(read.find("it is mounted at /data; stop that first"), std::string::npos) << read;
  struct stat about{};
  ASSERT_EQ(::stat((system.top() / devices / system.drive / "config").c_str(), &about), 0);
  char line[128];
  std::snprintf(line, sizeof line, "1: FLOCK  ADVISORY  WRITE 77 %02x:%02x:%lu 0 EOF", major(about.st_dev),
                minor(about.st_dev), about.st_ino);
  system.write("proc/locks", line);
  EXPECT_EQ(system.found().at("refused").at("read"),
            "drive: 'pci:0000:03:00.0': it is taken already, by this process or another; close it there first");
}

std::string refusal(auto const& call) {
  try {
    call();
    return "not refused";
  } catch (refused_input const& refused) {
    return refused.what();
  }
}

TEST(pci_inspection, wants_a_real_drive) {
  machine const system;
  EXPECT_NE(refusal([] { inspect_real_drive("emulated:size=1M"); }).find("must be a real drive"), std::string::npos);
  EXPECT_NE(refusal([] { detach_real_drive("pci:ff:1f.7,nsid=2", true, {}); }).find("must have no keys here"),
            std::string::npos);
  EXPECT_NE(refusal([&] { inspect(uri::parse("pci:04:00.0"), system.where()); }).find("is not an NVMe controller"),
            std::string::npos);
}

/// What a change told.
class told {
 public:
  step_listener listener() {
    return [this](std::string const& what, std::string const& line) { lines_ += what + ": " + line + "\n"; };
  }
  std::string const& lines() const { return lines_; }

 private:
  std::string lines_;
};

TEST(pci_binding, a_dry_run_tells_the_steps_and_does_none) {
  machine const system;
  std::filesystem::remove(system.top() / devices / system.drive / "driver");
  std::string const override_file = devices + system.drive + "driver_override";
  system.write(override_file, "vfio-pci");
  system.write("sys/bus/pci/drivers_probe", "");
  told steps;
  function const of(address::parse("03:00.0"), system.where());
  json const document = detach(of, true, steps.listener());
  EXPECT_EQ(steps.lines(), "let the system choose its driver: echo > " + of.folder() + "/driver_override\n" +
                               "give it to the driver that the system has for it: echo 0000:03:00.0 > " +
                               system.where().buses + "/drivers_probe\n");
  EXPECT_EQ(document.at("steps").size(), 2u);
  EXPECT_EQ(system.read(override_file), "vfio-pci\n");
  EXPECT_EQ(system.read("sys/bus/pci/drivers_probe"), "\n");
}

TEST(pci_binding, what_was_done_is_undone_when_a_step_fails) {
  machine const system;
  std::filesystem::remove(system.top() / devices / system.drive / "driver");
  std::string const override_file = devices + system.drive + "driver_override";
  system.write(override_file, "vfio-pci");
  system.write("sys/bus/pci/drivers_probe", "");
  function const of(address::parse("03:00.0"), system.where());
  std::string overridden;
  auto const listener = [&](std::string const&, std::string const& line) {
    if (line.ends_with("drivers_probe")) overridden = system.read(override_file);
  };
  try {
    detach(of, false, listener);
    ADD_FAILURE() << "no driver took it";
  } catch (operation_failed const& failed) {
    EXPECT_STREQ(failed.what(), "pci:0000:03:00.0: no driver takes it; is the module nvme loaded (modprobe nvme)?");
  }
  EXPECT_TRUE(overridden.starts_with("\n")) << "the first step was done before the second was told";
  EXPECT_EQ(system.read(override_file), "vfio-pci\n");
  struct stopped {};
  auto const stops = [](std::string const&, std::string const& line) {
    if (line.ends_with("drivers_probe")) throw stopped();
  };
  EXPECT_THROW(detach(of, false, stops), stopped);
  EXPECT_EQ(system.read(override_file), "vfio-pci\n");
}

TEST(pci_binding, refuses_a_drive_that_another_driver_has) {
  machine const system;
  std::filesystem::remove(system.top() / devices / system.drive / "driver");
  system.link(devices + system.drive + "driver", "../../drivers/uio_pci_generic");
  function const of(address::parse("03:00.0"), system.where());
  EXPECT_EQ(refusal([&] { detach(of, false, {}); }),
            "drive: 'pci:0000:03:00.0': the driver uio_pci_generic has it, and not vfio-pci; nothing was changed");
}

}  // namespace
}  // namespace forebay::drive::pci
