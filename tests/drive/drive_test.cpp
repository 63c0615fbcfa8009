// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/drive/drive.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"

namespace forebay::drive {
namespace {

std::string refusal(std::string const& uri) {
  try {
    open(uri);
  } catch (refused_input const& refused) {
    return refused.what();
  }
  return "accepted";
}

std::string temporary(std::string const& name) {
  return (std::filesystem::path(::testing::TempDir()) / ("forebay-" + std::to_string(getpid()) + "-" + name)).string();
}

TEST(open, says_what_it_opened) {
  auto const drive = open("emulated:profile=p5800x,size=64M,threads=2,queues=16,seed=5");
  auto const report = drive->report();
  EXPECT_EQ(report["uri"], "emulated:profile=p5800x,size=64M,threads=2,queues=16,seed=5");
  EXPECT_EQ(report["profile"], "p5800x");
  EXPECT_EQ(report["residency"], "threads");
  EXPECT_EQ(report["threads"], 2);
  EXPECT_EQ(report["backing"], "memory");
  EXPECT_EQ(report["size_bytes"], 64 << 20);
  EXPECT_EQ(report["lba_bytes"], 512);
  EXPECT_EQ(report["fidelity"], "ok");
  EXPECT_EQ(report["timing"]["seed"], 5);
  EXPECT_EQ(report["latency"]["target"]["count"], 0);
  EXPECT_EQ(report["latency"]["processing"]["count"], 0);
  EXPECT_EQ(report["lateness"]["count"], 0);
  EXPECT_EQ(report["lateness"]["bound_ns"], 5000);
  EXPECT_EQ(report["statistics"]["read_commands"], 0);
}

TEST(open, explicit_keys_override_the_profile) {
  auto const timing =
      open("emulated:profile=p5800x,size=64M,iops=20000,bandwidth=2G,latency_us=500,channels=4,lba_bytes=4096")
          ->report()["timing"];
  for (char const* op : {"read", "write"}) {
    EXPECT_EQ(timing[op]["per_command_ns"], 50'000.0 - 4096 * 0.5);
    EXPECT_EQ(timing[op]["per_byte_ns"], 0.5);
    EXPECT_EQ(timing[op]["latency_min_us"], 500.0);
  }
  EXPECT_EQ(timing["channels"], 4);
}

/// How many commands of `bytes` a saturated drive completes in a second.
double rate(std::string const& keys, char const* op, double bytes) {
  auto const cost = open("emulated:size=64M," + keys)->report()["timing"][op];
  return 1e9 / (cost["per_command_ns"].get<double>() + bytes * cost["per_byte_ns"].get<double>());
}

TEST(open, a_drive_of_rate_and_bandwidth_has_both) {
  EXPECT_NEAR(rate("iops=2.6M,bandwidth=14G", "read", 4096), 2.6e6, 1e3);
  EXPECT_NEAR(rate("iops=2.6M,bandwidth=14G", "read", 1 << 20) * (1 << 20), 14e9, 0.03e9);
  EXPECT_NEAR(rate("iops=20M,bandwidth=14G,iops_bytes=512", "read", 512), 20e6, 1e4);
  EXPECT_NEAR(rate("iops=20M", "read", 1 << 20), 20e6, 1e4) << "without a bandwidth bytes are free";
  EXPECT_NEAR(rate("profile=p5800x,iops=1M", "read", 4096), 1e6, 1e3);
  EXPECT_LT(rate("profile=p5800x,iops=1M", "read", 1 << 20) * (1 << 20), 8e9) << "the profile's bandwidth stays";
}

TEST(open, writes_may_have_rates_of_their_own) {
  std::string const keys = "iops=2M,bandwidth=14G,write_iops=400k,write_bandwidth=7G";
  EXPECT_NEAR(rate(keys, "read", 4096), 2e6, 1e3);
  EXPECT_NEAR(rate(keys, "write", 4096), 4e5, 1e3);
  EXPECT_NEAR(rate(keys, "write", 1 << 20) * (1 << 20), 7e9, 0.1e9);
  EXPECT_NEAR(rate("iops=2M", "write", 4096), 2e6, 1e3);
  EXPECT_NEAR(rate("write_iops=2M", "write", 4096), 2e6, 1e3);
}

TEST(open, rates_that_contradict_each_other_are_refused) {
  std::string const remedy =
      "give a lower rate, a larger bandwidth, or with iops_bytes= the size that the rate is stated for";
  EXPECT_EQ(refusal("emulated:size=1G,iops=20M,bandwidth=14G"),
            "iops: '20M': commands of 4096 bytes at this rate move 81.9 GB/s, and the drive's bandwidth allows 14; " +
                remedy);
  EXPECT_EQ(refusal("emulated:size=1G,iops=1M,write_iops=4M,write_bandwidth=8G").substr(0, 17), "write_iops: '4M':");
  EXPECT_EQ(refusal("emulated:size=1G,iops_bytes=512"),
            "iops_bytes: '512': it is the size that iops= is stated for: give iops= or write_iops=");
  EXPECT_EQ(refusal("emulated:size=1G,iops=1M,iops_bytes=0"), "iops_bytes: '0': give more than 0 bytes");
}

TEST(open, a_drive_with_flash_says_what_it_began_with_and_what_was_made_of_it) {
  auto const fresh = open("emulated:profile=970-pro,size=64M")->report();
  EXPECT_EQ(fresh["flash"]["precondition"], "fresh");
  EXPECT_EQ(fresh["flash"]["host_bytes_written"], 0);
  EXPECT_EQ(fresh["flash"]["host_pages_written"], 0);
  EXPECT_EQ(fresh["flash"]["pages_programmed"], 0);
  EXPECT_EQ(fresh["flash"]["pages_migrated"], 0);
  EXPECT_EQ(fresh["flash"]["blocks_erased"], 0);
  EXPECT_TRUE(fresh["flash"]["write_amplification"].is_null());
  EXPECT_EQ(fresh["timing"]["flash"]["channels"], 8);
  EXPECT_EQ(fresh["timing"]["flash"]["read_us"], 35.76);
  EXPECT_EQ(fresh["timing"]["flash"]["spare_percent"], 7.0);
  for (std::string const start : {"full", "random"}) {
    EXPECT_EQ(open("emulated:profile=970-pro,size=64M,precondition=" + start)->report()["flash"]["precondition"],
              start);
  }
  auto const without = open("emulated:profile=p5800x,size=64M")->report();
  EXPECT_FALSE(without.contains("flash"));
  EXPECT_FALSE(without["timing"].contains("flash"));
}

TEST(open, refuses_preconditioning_that_cannot_be) {
  EXPECT_EQ(refusal("emulated:profile=970-pro,size=64M,precondition=used"),
            "precondition: 'used': use fresh, full or random");
  EXPECT_EQ(refusal("emulated:profile=p5800x,size=64M,precondition=full"),
            "precondition: 'full': only flash has a state to begin in; use a profile with a [flash] table, such as "
            "970-pro");
  EXPECT_EQ(refusal("emulated:profile=970-pro,size=16M").substr(0, 16), "size: '16777216'");
}

TEST(open, refuses_more_errors_than_commands) {
  EXPECT_NE(refusal("emulated:size=1M,errors_ppm=1000001").find("errors_ppm"), std::string::npos);
  EXPECT_EQ(refusal("emulated:size=1M,errors_ppm=1000000"), "accepted");
}

TEST(open, the_driver_brings_it_up) {
  auto const drive = open("emulated:size=64M,lba_bytes=4096,queues=9");
  driver::controller controller(drive->registers(), drive->dma());
  EXPECT_EQ(controller.identity().block_bytes, 4096u);
  EXPECT_EQ(controller.identity().size_bytes(), 64u << 20);
  EXPECT_EQ(controller.identity().io_queue_pairs, 9u);
  EXPECT_EQ(controller.identity().serial, drive->report()["serial"]);
  EXPECT_NE(open("emulated:size=1M")->report()["serial"], open("emulated:size=1M")->report()["serial"]);
}

TEST(open, refusals_name_field_value_and_remedy) {
  EXPECT_EQ(refusal("emulated:"), "size: '': give the size of the drive, as in size=1G");
  EXPECT_EQ(refusal("emulated:size=1000"), "size: '1000': give a multiple of lba_bytes, which is 512");
  EXPECT_EQ(refusal("emulated:size=6K,lba_bytes=4096"), "size: '6K': give a multiple of lba_bytes, which is 4096");
  EXPECT_EQ(refusal("emulated:size=1G,lba_bytes=520"), "lba_bytes: '520': give 512, 1024, 2048 or 4096");
  EXPECT_EQ(refusal("emulated:size=1G,lba_bytes=8192"), "lba_bytes: '8192': give a whole number from 512 to 4096");
  EXPECT_EQ(refusal("emulated:size=1G,bandwidth=999"), "bandwidth: '999': give at least 1k bytes a second");
  EXPECT_EQ(refusal("emulated:size=1G,threads=0"), "threads: '0': give a whole number from 1 to 1024");
  EXPECT_EQ(refusal("emulated:size=1G,queues=65535"), "queues: '65535': give a whole number from 1 to 65534");
  EXPECT_EQ(refusal("emulated:size=1G,channels=100"), "channels: '100': give a whole number from 1 to 64");
  EXPECT_EQ(refusal("emulated:size=1G,seed=x"), "seed: 'x': give a whole number from 0 to 18446744073709551615");
  EXPECT_EQ(refusal("emulated:size=1G,data=all"), "data: 'all': use data=none, or leave it out to move data");
  EXPECT_EQ(refusal("emulated:size=1G,backing=file"), "path: '': backing=file needs path=FILE");
  EXPECT_EQ(refusal("emulated:size=1G,path=/x"), "path: '/x': only backing=file has a path; add backing=file");
  EXPECT_EQ(refusal("emulated:size=1G,profile=no-such").substr(0, 31), "profile: 'no-such': there are 9");
}

TEST(open, what_is_not_available_yet_is_refused_and_not_ignored) {
  EXPECT_EQ(refusal("emulated:size=1G,sms=8"),
            "sms: '8': is only for a drive on a GPU; use threads= for one on the CPU");
  EXPECT_EQ(refusal("emulated:size=1G,placement=2"),
            "placement: '2': the engine runs on the CPU, which does not reach a GPU's memory: use backing=hbm, host or "
            "peer:N, or leave it out");
  EXPECT_EQ(refusal("emulated:size=1G,placement=0"), "placement: '0': give a whole number from 1 to 3");
  EXPECT_EQ(refusal("emulated:size=1G,placement=3,residency=served"),
            "placement: '3': leave it out: a drive of the daemon has the one that its engine can");
  EXPECT_EQ(refusal("emulated:size=1G,link=gen9x1").substr(0, 50),
            "link: 'gen9x1': use one of gen3x4, gen3x8, gen3x16");
  for (std::string const residency : {"peer", "in_process", "thread", "moon"}) {
    EXPECT_EQ(refusal("emulated:size=1G,residency=" + residency),
              "residency: '" + residency + "': use threads or served with backing=memory");
  }
  EXPECT_EQ(refusal("emulated:size=1G,backing=tape"), "backing: 'tape': use memory, file, hbm, host or peer:N");
  EXPECT_EQ(refusal("emulated:size=1G,backing=peer:x"), "backing: 'x': give a whole number from 0 to 1023");
  EXPECT_EQ(refusal("emulated:size=1G,backing=hbm,threads=2"),
            "threads: '2': is only for a drive on the CPU; use sms= for one on a GPU");
  if (memory::device_count() == 0) {
    for (std::string const backing : {"hbm", "host", "peer:1"}) {
      EXPECT_EQ(refusal("emulated:size=1G,backing=" + backing),
                "backing: '" + backing +
                    "': no GPU was found, or CUDA is not built in: nvidia-smi lists GPUs, and `forebay doctor` of the "
                    "Python package tells which it is; use backing=memory");
    }
  }
  EXPECT_EQ(refusal("pci:ffff:ff:1f.7"),
            "drive: 'pci:ffff:ff:1f.7': there is no PCI device at this address; lspci -D lists those there are");
  EXPECT_EQ(refusal("pci:/dev/nvme0"),
            "drive: 'pci:/dev/nvme0': give a bus address such as 0000:01:00.0; lspci -D lists them");
  EXPECT_NO_THROW(open("emulated:size=1M,residency=threads,backing=memory"));
}

TEST(open, without_data) {
  auto const drive = open("emulated:size=1T,data=none");
  EXPECT_EQ(drive->report()["backing"], "none");
  EXPECT_EQ(drive->report()["size_bytes"], std::uint64_t{1} << 40);
}

class file_drive : public ::testing::Test {
 protected:
  std::string path = temporary("drive.img");
  ~file_drive() override { std::remove(path.c_str()); }

  /// Writes (or reads) one block at LBA 3 through a queue driven by hand.
  void block(device& drive, bool write, char* text, std::uint16_t status = 0) {
    driver::controller controller(drive.registers(), drive.dma());
    auto* const rings = static_cast<std::byte*>(drive.dma().allocate(3 * 4096));
    nvme::submission_entry create;
    create.cdw0 = static_cast<std::uint8_t>(nvme::admin_opcode::create_io_completion_queue);
    create.prp1 = drive.dma().bus_address(rings);
    create.cdw10 = 1 | 7u << 16;
    create.cdw11 = 1;
    ASSERT_EQ(controller.execute(create).status_field(), 0);
    create.cdw0 = static_cast<std::uint8_t>(nvme::admin_opcode::create_io_submission_queue);
    create.prp1 = drive.dma().bus_address(rings + 4096);
    create.cdw11 = 1 | 1u << 16;
    ASSERT_EQ(controller.execute(create).status_field(), 0);
    auto* const sq = reinterpret_cast<nvme::submission_entry*>(rings + 4096);
    sq[0] = nvme::make_io_command(write ? nvme::io_opcode::write : nvme::io_opcode::read, 1, 1, 3, 1);
    sq[0].prp1 = drive.dma().bus_address(rings + 8192);
    sq[1] = nvme::make_io_command(nvme::io_opcode::flush, 2, 1, 0, 1);
    if (write) std::memcpy(rings + 8192, text, 16);
    drive.registers().write32(nvme::registers::sq_tail_doorbell(1, 0), 2);
    auto* const cq = reinterpret_cast<nvme::completion_entry*>(rings);
    for (int i = 0; i < 2; ++i) {
      // Acquire: pairs with the engine's release of the same word.
      ASSERT_TRUE(simt::native::wait_until(
          [&] {
            return (simt::atomic<simt::native, simt::scope::system>(cq[i].dw3).load(simt::order::acquire) >> 16 & 1) ==
                   1;
          },
          simt::native::clock_ns() + 20'000'000'000));
      ASSERT_EQ(cq[i].status_field(), cq[i].command_id() == 1 ? status : 0);
    }
    if (!write) std::memcpy(text, rings + 8192, 16);
    controller.shutdown();
    drive.dma().deallocate(rings);
  }
};

TEST_F(file_drive, keeps_what_was_written) {
  create("file:" + path + ",size=1M");
  EXPECT_EQ(std::filesystem::file_size(path), 1u << 20);
  char text[16] = "stays on disk";
  block(*open("file:" + path), true, text);
  char back[16] = {};
  block(*open("emulated:backing=file,path=" + path + ",iops=100000"), false, back);
  EXPECT_STREQ(back, text);
  auto const drive = open("file:" + path);
  EXPECT_EQ(drive->report()["backing"], "file");
  EXPECT_EQ(drive->report()["size_bytes"], 1u << 20);
}

TEST_F(file_drive, that_is_read_only_needs_no_permission_to_write_and_takes_no_writes) {
  create("file:" + path + ",size=1M");
  char text[16] = "stays on disk";
  block(*open("file:" + path), true, text);
  ASSERT_EQ(chmod(path.c_str(), 0444), 0);
  open_options const reading{.read_only = true};
  auto const drive = open("file:" + path, reading);
  {
    driver::controller const controller(drive->registers(), drive->dma());
    EXPECT_TRUE(controller.identity().write_protected);
  }
  char other[16] = "never gets here";
  block(*drive, true, other,
        nvme::status_field(nvme::generic_status::namespace_is_write_protected) | nvme::do_not_retry);
  char back[16] = {};
  block(*open("file:" + path, reading), false, back);  // beside the first
  EXPECT_STREQ(back, text);
  EXPECT_NE(
      refusal("file:" + path).find(geteuid() == 0 ? "another drive has the file open" : "open the storage read-only"),
      std::string::npos);
}

TEST_F(file_drive, has_the_same_serial_number_each_time) {
  create("file:" + path + ",size=1M");
  auto const first = open("file:" + path)->report()["serial"];
  EXPECT_EQ(open("file:" + path)->report()["serial"], first);
}

TEST_F(file_drive, refusals) {
  EXPECT_EQ(refusal("file:" + path), "path: '" + path +
                                         "': no such file; make it with create=1 and size= in a file: URI, or with "
                                         "`forebay drive create` of the Python package");
  create("file:" + path + ",size=1M");
  EXPECT_EQ(refusal("file:" + path + ",size=2M"),
            "size: '2097152': the file has 1048576 bytes; leave size out to take that");
  EXPECT_THROW(create("file:" + path + ",size=1M"), refused_input);
  EXPECT_THROW(create("file:" + temporary("other")), refused_input);
  EXPECT_THROW(create("emulated:size=1M"), refused_input);
  EXPECT_THROW(create("pci:0000:01:00.0"), refused_input);
  EXPECT_EQ(refusal("emulated:backing=file,data=none,path=" + path),
            "data: 'none': is only for a drive without a file; leave it out");
}

}  // namespace
}  // namespace forebay::drive
