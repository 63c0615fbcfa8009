// SPDX-License-Identifier: Apache-2.0
//! \file
//! The host's operations on a storage: I/O of any range, extents, raw queue pairs, options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>

#include "forebay/detail/memory/machine.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/storage/catalogue.hpp"
#include "forebay/queue_rules.hpp"
#include "forebay/storage.hpp"
#include "support/qemu_scheme.hpp"
#include "support/traits.hpp"

namespace forebay {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

storage_options on_cpu(std::vector<std::string> drives) {
  storage_options o;
  o.drives = std::move(drives);
  o.device = "cpu";
  return o;
}

/// A file that the drive may use, removed at the end.
struct scratch_file {
  std::filesystem::path path;
  explicit scratch_file(std::uintmax_t bytes, std::string const& name = "")
      : path(std::filesystem::temp_directory_path() / ("forebay-host-io-" + std::to_string(getpid()) + name + ".img")) {
    FILE* const f = std::fopen(path.c_str(), "w");
    std::fclose(f);
    std::filesystem::resize_file(path, bytes);
  }
  ~scratch_file() { std::filesystem::remove(path); }
  std::string uri() const { return "emulated:backing=file,path=" + path.string() + ",size=8M"; }
};

/// Two drives of the URI that is the parameter.
class HostIoOnDrives : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!GetParam().starts_with("qemu:")) return;
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer does not see what QEMU's controller orders";
#endif
    FOREBAY_NEEDS_QEMU();
    test::add_qemu_scheme();
  }
};

TEST_P(HostIoOnDrives, AnyRangeReadsWhatWasLastWrittenThere) {
  storage st(on_cpu({GetParam(), GetParam()}));
  std::uint64_t const seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  std::vector<unsigned char> expected(st.size_bytes());
  for (int i = 0; i < 200; ++i) {
    std::uint64_t const bytes = random() % (i % 20 == 0 ? 9'000'000 : 20'000);
    std::uint64_t const at = random() % (st.size_bytes() - bytes);
    if (i % 2 == 0) {
      for (std::uint64_t k = 0; k < bytes; ++k) expected[at + k] = static_cast<unsigned char>(random());
      st.pwrite(expected.data() + at, bytes, at);
    } else {
      std::vector<unsigned char> got(bytes);
      st.pread(got.data(), bytes, at);
      ASSERT_EQ(std::memcmp(got.data(), expected.data() + at, bytes), 0) << "step " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Drives, HostIoOnDrives,
                         testing::Values("emulated:size=12M", "qemu:size=12M,lba_bytes=4096",
                                         "qemu:size=12M,mdts=1,nsid=2"),
                         [](auto const& drive) {
                           return drive.param.substr(0, drive.param.find(':')) + std::to_string(drive.index);
                         });

TEST(HostIo, RangesOutsideAreRefused) {
  storage st(on_cpu({"emulated:size=2M"}));
  char byte = 0;
  EXPECT_THAT([&] { st.pread(&byte, 1, 2 << 20); },
              ThrowsMessage<refused_input>(AllOf(HasSubstr("offset_bytes"), HasSubstr("2097152"))));
  EXPECT_THROW(st.pwrite(&byte, ~std::uint64_t{0}, 1), refused_input);
  extent const part{"part", 1 << 20, 10};
  EXPECT_THROW(st.pread(&byte, 1, 10, &part), refused_input);
}

TEST(HostIo, DrivesOneAfterTheOtherHoldWhatTheirBytesSay) {
  scratch_file first(8 << 20, "-first"), second(8 << 20, "-second");
  constexpr std::uint64_t each = 8 << 20;
  auto options = on_cpu({first.uri(), second.uri()});
  options.stripe_bytes = 0;
  {
    storage st(options);
    EXPECT_EQ(st.size_bytes(), 2 * each);
    extent const e = st.create_extent("across", 9 << 20);
    // Two bytes before the second drive, and two on it.
    st.pwrite("abcd", 4, each - e.first_byte - 2, &e);
    st.flush();
  }
  auto const byte_of = [](scratch_file const& file, std::uint64_t at) {
    std::ifstream in(file.path, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(at));
    return std::string{static_cast<char>(in.get()), static_cast<char>(in.get())};
  };
  EXPECT_EQ(byte_of(first, each - 2), "ab");
  EXPECT_EQ(byte_of(second, 0), "cd");
  {
    storage st(options);
    EXPECT_EQ(st.find_extent("across").size_bytes, 9u << 20);
  }
  // The same drives striped are another storage.
  EXPECT_THAT([&] { storage st(on_cpu({first.uri(), second.uri()})); },
              ThrowsMessage<operation_failed>(HasSubstr("8388608")));
}

TEST(HostIo, ExtentsAndTheirDataOutliveTheStorage) {
  scratch_file file(8 << 20);
  {
    storage st(on_cpu({file.uri()}));
    extent const e = st.create_extent("edges", 5);
    st.pwrite("hello", 5, 0, &e);
    st.flush();
  }
  storage st(on_cpu({file.uri()}));
  extent const e = st.find_extent("edges");
  char text[6] = {};
  st.pread(text, 5, 0, &e);
  EXPECT_STREQ(text, "hello");
  EXPECT_THAT([&] { st.pwrite("x", 1, 0); }, ThrowsMessage<refused_input>(HasSubstr("allow_destroy")));
  EXPECT_THAT([&] { st.find_extent("nodes"); }, ThrowsMessage<refused_input>(HasSubstr("nodes")));
  st.remove_extent("edges");
  EXPECT_TRUE(st.extents().empty());
}

TEST(HostIo, AnExtentThatDoesNotFitChangesNothing) {
  storage st(on_cpu({"emulated:size=8M"}));
  EXPECT_THROW(st.create_extent("edges", 9 << 20), refused_input);
  st.pwrite("still without a catalogue", 25, 0);
  st.pwrite(std::vector<char>(25).data(), 25, 0);

  extent const e = st.create_extent("edges", 5);
  st.pwrite("hello", 5, 0, &e);
  EXPECT_THROW(st.stage_extent("edges", 9 << 20), refused_input);
  extent const kept = st.find_extent("edges");
  char text[6] = {};
  st.pread(text, 5, 0, &kept);
  EXPECT_STREQ(text, "hello");
  EXPECT_EQ(st.extents().size(), 1u);
}

TEST(HostIo, AnExtentIsTheOldOneOrTheNewOneWhenever) {
  scratch_file file(8 << 20);
  auto const found = [&] {
    // The drive as it is now, as a process that opens it after a crash finds it.
    scratch_file copy(8 << 20, "-copy");
    std::filesystem::copy_file(file.path, copy.path, std::filesystem::copy_options::overwrite_existing);
    storage st(on_cpu({copy.uri()}));
    if (st.extents().empty()) return std::string("none");
    extent const e = st.find_extent("edges");
    std::string text(e.size_bytes, '\0');
    st.pread(text.data(), text.size(), 0, &e);
    return text;
  };
  storage st(on_cpu({file.uri()}));
  extent staged = st.stage_extent("edges", 5);
  EXPECT_EQ(found(), "none");
  st.pwrite("hello", 5, 0, &staged);
  st.flush();
  EXPECT_EQ(found(), "none");
  st.publish_extent(staged);
  EXPECT_EQ(found(), "hello");

  staged = st.stage_extent("edges", 3);
  EXPECT_EQ(st.find_extent("edges").size_bytes, 5u);
  st.pwrite("new", 3, 0, &staged);
  EXPECT_EQ(found(), "hello");
  extent const other = st.stage_extent("given up", 1);
  st.discard_extent(other);
  EXPECT_THROW(st.publish_extent(staged), refused_input) << "somebody has made one of that name meanwhile";
  EXPECT_EQ(found(), "hello");
  st.publish_extent(staged, true);
  EXPECT_EQ(found(), "new");
  EXPECT_EQ(st.extents().size(), 1u);
  EXPECT_THROW(st.publish_extent(staged), refused_input);
  EXPECT_THROW(st.discard_extent(other), refused_input);
}

TEST(HostIo, DrivesInMemoryArePopulatedWhereTheMachineHasRoom) {
  for (std::uint64_t const stripe : {std::uint64_t{0}, std::uint64_t{65536}}) {
    auto options = on_cpu({"emulated:size=4M", "emulated:size=4M,seed=1"});
    options.stripe_bytes = stripe;
    storage st(options);
    for (std::uint64_t const bytes : {std::uint64_t{1}, std::uint64_t{5 << 20}, ~std::uint64_t{0}}) {
      EXPECT_TRUE(st.populate(bytes)) << bytes;
    }
  }
  std::uint64_t const machine = memory::machine_bytes();
  EXPECT_FALSE(storage(on_cpu({"emulated:size=" + std::to_string(machine)})).populate(machine));
}

TEST(HostIo, AnExtentThatIsGivenUpLeavesNoCatalogue) {
  storage st(on_cpu({"emulated:size=8M"}));
  st.discard_extent(st.stage_extent("edges", 5));
  EXPECT_NO_THROW(st.pwrite("still without a catalogue", 25, 0));
}

TEST(HostIo, ADamagedCatalogueIsStartedAfreshOnlyWhereThatIsAllowed) {
  scratch_file file(8 << 20);
  {
    auto destroy = on_cpu({file.uri()});
    destroy.allow_destroy = true;
    storage st(destroy);
    st.create_extent("edges", 5);
    char const damage = '?';
    for (std::uint64_t const copy : {0, 1}) st.pwrite(&damage, 1, copy * catalogue::copy_bytes + 40);
  }
  EXPECT_THAT([&] { storage st(on_cpu({file.uri()})); }, ThrowsMessage<operation_failed>(HasSubstr("allow_destroy")));
  auto destroy = on_cpu({file.uri()});
  destroy.allow_destroy = true;
  storage st(destroy);
  EXPECT_TRUE(st.extents().empty());
  st.create_extent("nodes", 5);
}

TEST(HostIo, DataWithoutACatalogueIsNotOverwrittenByOne) {
  scratch_file file(8 << 20);
  {
    storage st(on_cpu({file.uri()}));
    st.pwrite("data", 4, 1000);
    st.flush();
  }
  {
    storage st(on_cpu({file.uri()}));
    EXPECT_THAT([&] { st.create_extent("edges", 5); }, ThrowsMessage<refused_input>(HasSubstr("allow_destroy")));
  }
  auto destroy = on_cpu({file.uri()});
  destroy.allow_destroy = true;
  storage(destroy).create_extent("edges", 5);
}

TEST(HostIo, AClientOfItsOwnDrivesARawQueuePair) {
  storage st(on_cpu({"emulated:size=2M"}));
  st.pwrite("through a raw queue", 20, 5 * 512);
  raw_queue_pair const raw = st.make_raw_queue_pair(0, 4);
  queue_pair_rings const& q = raw.rings();
  registered_buffer buffer = st.allocate_buffer(4096);
  using M = simt::native;
  for (std::uint32_t n = 0; n < 10; ++n) {
    std::memset(buffer.data(), 0, 4096);
    nvme::submission_entry read =
        nvme::make_io_command(nvme::io_opcode::read, static_cast<std::uint16_t>(100 + n), raw.nsid(), 5, 1);
    read.prp1 = buffer.ref().bus_address(0);
    q.sq[n % 4] = read;
    // Release pairs with the controller's read of the doorbell: the entry is written.
    simt::atomic<M, simt::scope::system>(*q.sq_doorbell).store((n + 1) % 4, simt::order::release);
    nvme::completion_entry& done = q.cq[n % 4];
    std::uint32_t const phase = n / 4 % 2 ^ 1;
    ASSERT_TRUE(M::wait_until(
        [&] {
          // Acquire pairs with the controller's release of dw3.
          return (simt::atomic<M, simt::scope::system>(done.dw3).load(simt::order::acquire) >> 16 & 1) == phase;
        },
        M::clock_ns() + 10'000'000'000));
    EXPECT_EQ(done.command_id(), 100 + n);
    EXPECT_EQ(done.status_field(), 0);
    EXPECT_STREQ(reinterpret_cast<char const*>(buffer.data()), "through a raw queue");
    // Release: the entry was read before the controller may write it again.
    simt::atomic<M, simt::scope::system>(*q.cq_doorbell).store((n + 1) % 4, simt::order::release);
  }
}

TEST(HostIo, ARawQueuePairCannotWriteWhatTheStorageMustNot) {
  scratch_file file(8 << 20);
  auto options = on_cpu({file.uri()});
  auto const refused = [](storage_options const& o, char const* why) {
    storage st(o);
    EXPECT_THAT([&] { st.make_raw_queue_pair(); }, ThrowsMessage<refused_input>(HasSubstr(why)));
  };
  EXPECT_NO_THROW(storage(options).make_raw_queue_pair());
  auto cached = options;
  cached.cache.size_bytes = 1 << 20;
  refused(cached, "cache.size_bytes");
  auto in_memory = on_cpu({"emulated:size=8M"});
  in_memory.read_only = true;
  refused(in_memory, "read_only");
  storage(options).create_extent("edges", 5);
  refused(options, "allow_destroy");
  options.allow_destroy = true;
  EXPECT_NO_THROW(storage(options).make_raw_queue_pair());
  {
    storage blank(on_cpu({"emulated:size=8M"}));
    {
      raw_queue_pair const pair = blank.make_raw_queue_pair();
      EXPECT_THAT([&] { blank.create_extent("edges", 5); }, ThrowsMessage<refused_input>(HasSubstr("raw queue pairs")));
      EXPECT_THAT([&] { blank.stage_extent("edges", 5); }, ThrowsMessage<refused_input>(HasSubstr("raw queue pairs")));
    }
    EXPECT_NO_THROW(blank.create_extent("edges", 5));
  }

  // A file that is opened for reading only is write protected: the controller itself refuses.
  options.allow_destroy = false;
  options.read_only = true;
  storage st(options);
  raw_queue_pair const pair = st.make_raw_queue_pair(0, 4);
  registered_buffer const buffer = st.allocate_buffer(4096);
  nvme::submission_entry write = nvme::make_io_command(nvme::io_opcode::write, 7, pair.nsid(), 0, 1);
  write.prp1 = buffer.ref().bus_address(0);
  pair.rings().sq[0] = write;
  using M = simt::native;
  // Release pairs with the controller's read of the doorbell: the entry is written.
  simt::atomic<M, simt::scope::system>(*pair.rings().sq_doorbell).store(1, simt::order::release);
  nvme::completion_entry& done = pair.rings().cq[0];
  ASSERT_TRUE(M::wait_until(
      [&] {
        // Acquire pairs with the controller's release of dw3.
        return (simt::atomic<M, simt::scope::system>(done.dw3).load(simt::order::acquire) >> 16 & 1) == 1;
      },
      M::clock_ns() + 10'000'000'000));
  EXPECT_EQ(done.status_field() & nvme::status_code_mask,
            nvme::status_field(nvme::generic_status::namespace_is_write_protected));
}

TEST(HostIo, ARawQueuePairSaysWhatItCannotBe) {
  storage st(on_cpu({"emulated:size=2M,queues=6"}));
  EXPECT_THAT([&] { st.make_raw_queue_pair(1); }, ThrowsMessage<refused_input>(HasSubstr("the storage has 1")));
  EXPECT_THROW(st.make_raw_queue_pair(0, 1), refused_input);
  EXPECT_THROW(st.make_raw_queue_pair(0, 65537), refused_input);
  raw_queue_pair const last = st.make_raw_queue_pair();  // the storage has taken five
  EXPECT_THROW(st.make_raw_queue_pair(), operation_failed);
}

TEST(HostIo, RegisteredMemoryOfTheCallerIsATarget) {
  storage st(on_cpu({"emulated:size=2M"}));
  memory::allocation mine(memory::host(), 8192, 4096);
  registered_buffer const buffer = st.register_buffer(mine.data(), mine.size_bytes());
  EXPECT_EQ(buffer.data(), mine.data());
  EXPECT_THROW(st.register_buffer(mine.as<std::byte>() + 1, 4096), refused_input);
  EXPECT_THROW(st.register_buffer(mine.data(), 100), refused_input);
}

TEST(HostIo, ABufferThatTheMachineCannotHoldIsRefused) {
  storage st(on_cpu({"emulated:size=2M"}));
  for (std::size_t const bytes : {std::size_t{0}, std::size_t{1} << 60, ~std::size_t{0}}) {
    std::string const named = "bytes: '" + std::to_string(bytes) + "'";
    EXPECT_THAT([&] { st.allocate_buffer(bytes); }, ThrowsMessage<refused_input>(HasSubstr(named)));
    EXPECT_THAT([&] { st.allocate_device_buffer(bytes); }, ThrowsMessage<refused_input>(HasSubstr(named)));
  }
}

TEST(HostIo, AFileThatIsOnlyReadIsOpenedForReadingOnly) {
  std::string const path = testing::TempDir() + "/forebay-read-only-" + std::to_string(::getpid());
  std::ofstream(path) << std::string(1 << 20, 'x');
  std::filesystem::permissions(path, std::filesystem::perms::owner_read);
  {
    auto options = on_cpu({"file:" + path});
    options.read_only = true;
    storage first(options);
    storage second(options);  // a writer would have locked the file
    char byte = 0;
    second.pread(&byte, 1, 12345);
    EXPECT_EQ(byte, 'x');
    EXPECT_THAT([&] { first.pwrite("y", 1, 0); }, ThrowsMessage<refused_input>(HasSubstr("read_only")));
    options.drives.push_back(options.drives[0]);
    EXPECT_THAT([&] { storage twice(options); }, ThrowsMessage<refused_input>(HasSubstr("name each drive once")));
  }
  std::filesystem::remove(path);
}

TEST(StorageReport, SaysWhatTheStorageIs) {
  auto options = on_cpu({"emulated:size=2M", "emulated:size=3M"});
  options.stripe_bytes = 12288;
  auto const striped = nlohmann::json::parse(storage(options).report());
  EXPECT_EQ(striped["device"], "cpu");
  EXPECT_EQ(striped["stripe_bytes"], 12288);
  EXPECT_EQ(striped["bytes_per_drive"], (2 << 20) / 12288 * 12288);
  EXPECT_EQ(striped["size_bytes"], (2 << 20) / 12288 * 12288 * 2);
  EXPECT_EQ(striped["drives"].size(), 2u);
  EXPECT_TRUE(striped.at("cache").is_null());
  options.stripe_bytes = 0;
  auto const apart = nlohmann::json::parse(storage(options).report());
  EXPECT_EQ(apart["stripe_bytes"], 0);
  EXPECT_EQ(apart["bytes_per_drive"], 2 << 20);
  auto const one = nlohmann::json::parse(storage(on_cpu({"emulated:size=2M"})).report());
  EXPECT_EQ(one["stripe_bytes"], 0);
  EXPECT_EQ(one["bytes_per_drive"], 2 << 20);
}

TEST(StorageReport, SaysWhichQueuesEachDriveHas) {
  auto options = on_cpu({"emulated:size=2M", "emulated:size=2M"});
  options.queues.per_drive = 3;
  options.queues.depth = 64;
  auto const even = nlohmann::json::parse(storage(options).report());
  EXPECT_EQ(even["queues_per_drive"], 3);
  EXPECT_EQ(even["queue_depth"], 64);
  options.queues.of_drives = {{}, {.count = 2, .depth = 8}};
  storage st(options);
  auto const report = nlohmann::json::parse(st.report());
  EXPECT_TRUE(report.at("queues_per_drive").is_null());
  EXPECT_TRUE(report.at("queue_depth").is_null());
  EXPECT_EQ(report["drives"][0]["kernel_queues"], (nlohmann::json{{"count", 3}, {"depth", 64}, {"priority", nullptr}}));
  EXPECT_EQ(report["drives"][1]["kernel_queues"], (nlohmann::json{{"count", 2}, {"depth", 8}, {"priority", nullptr}}));
  EXPECT_EQ(st.make_raw_queue_pair(0).rings().sq_entries, 64u);
  EXPECT_EQ(st.make_raw_queue_pair(1).rings().sq_entries, 8u);
}

TEST(StorageOptions, QueueCountsGoUpToWhatTheWeakestDriveLeaves) {
  // One pair of each drive is the host's.
  std::vector<std::string> const drives{"emulated:size=2M,queues=6", "emulated:size=2M,queues=4"};
  auto const count_with = [&](auto change) {
    storage_options o = on_cpu(drives);
    change(o);
    auto const report = nlohmann::json::parse(storage(o).report());
    return report["drives"][0]["kernel_queues"]["count"].get<int>() * 10 +
           report["drives"][1]["kernel_queues"]["count"].get<int>();
  };
  auto const refused_with = [&](auto change, char const* why) {
    EXPECT_THAT([&] { count_with(change); }, ThrowsMessage<refused_input>(HasSubstr(why)));
  };
  EXPECT_EQ(count_with([](auto&) {}), 33) << "four are wanted";
  EXPECT_EQ(count_with([](auto& o) { o.queues.per_drive = 3; }), 33);
  refused_with([](auto& o) { o.queues.per_drive = 4; },
               "queues.per_drive: '4': the drives have fewer queue pairs for kernels; give at most 3");
  EXPECT_EQ(count_with([](auto& o) { o.queues.of_drives = {{.count = 5}, {.count = 3}}; }), 53);
  refused_with([](auto& o) { o.queues.of_drives = {{.count = 6}, {.count = 3}}; },
               "queues.of_drives[0].count: '6': the drive has fewer queue pairs for kernels; give at most 5");
  refused_with([](auto& o) { o.queues.of_drives = {{.count = 5}, {.count = 4}}; },
               "queues.of_drives[1].count: '4': the drive has fewer queue pairs for kernels; give at most 3");
  // A drive whose count is given is no limit for the others.
  EXPECT_EQ(count_with([](auto& o) {
              o.queues.of_drives = {{}, {.count = 1}};
              o.queues.per_drive = 5;
            }),
            51);
}

TEST(StorageOptions, RefsMustFitTheQueues) {
  auto options = on_cpu({"emulated:size=2M", "emulated:size=2M", "emulated:size=2M"});
  options.queues.of_drives = {{.count = 2}, {.count = 2}, {.count = 1}};
  storage st(options);
  EXPECT_THAT(
      [&] { st.ref<simt::native>(); },
      ThrowsMessage<refused_input>(AllOf(HasSubstr("queues.of_drives[2].count: '1'"), HasSubstr("uneven_rules"))));
  EXPECT_NO_THROW((st.ref<simt::native, test::uncached_traits<uneven_rules<>>>()));
  EXPECT_THROW(st.ref<simt::native>(extent{"part", 0, 4096}), refused_input);
  EXPECT_NO_THROW((st.ref<simt::native, test::uncached_traits<uneven_rules<service_rules>>>(extent{"part", 0, 4096})));

  options.queues.of_drives = {{.count = 2, .depth = 4}, {.count = 2, .depth = 8}, {.count = 2}};
  storage deep(options);
  EXPECT_NO_THROW(deep.ref<simt::native>());
}

TEST(StorageOptions, BadOnesAreRefusedByName) {
  auto const refuses = [](auto change, char const* field) {
    storage_options o = on_cpu({"emulated:size=2M"});
    change(o);
    EXPECT_THAT([&] { storage st(o); }, ThrowsMessage<refused_input>(HasSubstr(field)));
  };
  refuses([](auto& o) { o.drives.clear(); }, "drives");
  refuses([](auto& o) { o.device = "gpu"; }, "device: 'gpu'");
  refuses([](auto& o) { o.device = "cuda:x"; }, "device: 'cuda:x'");
  refuses([](auto& o) { o.device = "cuda:99"; }, "device: 'cuda:99'");
  refuses([](auto& o) { o.queues.depth = 1; }, "queues.depth: '1'");
  refuses([](auto& o) { o.queues.depth = 65537; }, "queues.depth");
  refuses([](auto& o) { o.queues.per_drive = 60000; }, "queues.per_drive");
  refuses([](auto& o) { o.queues.of_drives = {{}, {}}; }, "queues.of_drives: 'of 2 drives'");
  refuses([](auto& o) { o.queues.of_drives = {{.depth = 1}}; }, "queues.of_drives[0].depth: '1'");
  refuses([](auto& o) { o.queues.of_drives = {{.depth = 65536}}; }, "queues.of_drives[0].depth: '65536'");
  refuses([](auto& o) { o.queues.of_drives = {{.count = 60000}}; }, "queues.of_drives[0].count: '60000'");
  refuses([](auto& o) { o.queues.of_drives = {{.priority = nvme::queue_priority::high}}; },
          "queues.of_drives[0].priority: 'high'");
  refuses([](auto& o) { o.queues.records = (1u << 28) + 1; }, "records: '268435457'");
  refuses([](auto& o) { o.queues.prp_list_pages = 0; }, "prp_list_pages");
  refuses([](auto& o) { o.timeout_ns = 0; }, "timeout_ns");
  refuses(
      [](auto& o) {
        o.drives.push_back("emulated:size=2M");
        o.stripe_bytes = 700;
      },
      "stripe_bytes: '700'");
  refuses([](auto& o) { o.timeout_ns = ~std::uint64_t{0}; }, "timeout_ns");
  refuses(
      [](auto& o) {
        o.drives.push_back("emulated:size=63K");
        o.stripe_bytes = 0;
      },
      "stripe_bytes: '0'");
  refuses(
      [](auto& o) {
        o.drives.push_back("emulated:size=2M");
        o.stripe_bytes = 4 << 20;
      },
      "stripe_bytes: '4194304'");
  refuses([](auto& o) { o.drives.assign(3, "emulated:size=8388607T,data=none"); }, "2^64");
  refuses([](auto& o) { o.drives = {"emulated:size=2M,queues=1"}; }, "queues=1");
  refuses([](auto& o) { o.drives.push_back("emulated:size=2M,lba_bytes=4096"); }, "block");
  refuses([](auto& o) { o.drives = {"emulated:size=2M,profil=ideal"}; }, "profil");
}

}  // namespace
}  // namespace forebay
