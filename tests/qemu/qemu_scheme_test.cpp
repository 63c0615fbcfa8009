// SPDX-License-Identifier: Apache-2.0
//! \file
//! `qemu:` drives themselves: shapes, several in one storage, and what is refused.
#include "support/qemu_scheme.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"

namespace forebay {
namespace {

using simt::native;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::uint64_t ms = 1'000'000;
constexpr std::uint64_t patience_ns = 20'000 * ms;

storage_options options_of(std::vector<std::string> drives) {
  test::add_qemu_scheme();
  storage_options o;
  o.drives = std::move(drives);
  o.device = "cpu";
  o.timeout_ns = patience_ns;
  return o;
}

/// Bytes that tell where they belong.
std::vector<std::uint64_t> numbered(std::uint64_t bytes, std::uint64_t salt) {
  std::vector<std::uint64_t> words(bytes / 8);
  for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = i * 0x9e3779b97f4a7c15 + salt;
  return words;
}

TEST(QemuScheme, ADriveHasTheShapeThatItsUriSays) {
  FOREBAY_NEEDS_QEMU();
  struct shape {
    char const* keys;
    std::uint32_t block_bytes;
    std::uint64_t command_bytes_max;
  };
  for (auto const& [keys, block_bytes, command_bytes_max] :
       {shape{"", 512, 512 << 10},
        {",lba_bytes=4096", 4096, 512 << 10},
        {",mdts=1,nsid=2", 512, 8 << 10},
        {",lba_bytes=4096,mdts=1,nsid=2,queues=3", 4096, 8 << 10}}) {
    SCOPED_TRACE(keys);
    storage st(options_of({std::string("qemu:size=8M") + keys}));
    EXPECT_EQ(st.size_bytes(), 8u << 20);
    EXPECT_EQ(st.block_bytes(), block_bytes);
    EXPECT_LE(st.layout().command_bytes_max, command_bytes_max);
    std::vector<std::uint64_t> const out = numbered(3 << 20, 1);
    st.pwrite(out.data(), out.size() * 8, 4096 * 5 + 8);
    std::vector<std::uint64_t> in(out.size());
    st.pread(in.data(), in.size() * 8, 4096 * 5 + 8);
    EXPECT_TRUE(in == out);
  }
}

bool follows_itself_on_the_bus(registered_buffer const& buffer) {
  buffer_ref const ref = buffer.ref();
  for (std::uint64_t at = 4096; at < buffer.size_bytes(); at += 4096) {
    if (ref.bus_address(at) != ref.bus_address(0) + at) return false;
  }
  return true;
}

TEST(QemuScheme, RingsOfUpTo64KiBAreInOnePieceOnTheBusAndDataIsNot) {
  FOREBAY_NEEDS_QEMU();
  for (std::uint32_t const depth : {64u, 65u, 1024u}) {
    SCOPED_TRACE(depth);
    storage_options o = options_of({"qemu:size=8M,as=deep,depth=" + std::to_string(depth)});
    o.queues.depth = depth;
    o.queues.per_drive = 4;
    storage st(o);
    raw_queue_pair const deep = st.make_raw_queue_pair();
    EXPECT_EQ(deep.rings().sq_entries, depth);
    EXPECT_EQ(follows_itself_on_the_bus(st.allocate_buffer(64 << 10)), depth > 64);
    std::vector<std::uint64_t> const out = numbered(3 << 20, depth);
    registered_buffer const buffer = st.allocate_buffer(out.size() * 8);
    EXPECT_FALSE(follows_itself_on_the_bus(buffer));
    std::memcpy(buffer.data(), out.data(), buffer.size_bytes());
    auto const ref = st.ref<native>();
    EXPECT_EQ(to_string(ref.write_async(buffer.ref(), 4096, buffer.size_bytes()).wait()), "success");
    std::vector<std::uint64_t> in(out.size());
    st.pread(in.data(), in.size() * 8, 4096);
    EXPECT_TRUE(in == out);
    EXPECT_TRUE(test::opened_qemu("deep").dma().stray_pages().empty());
  }
  EXPECT_THAT(
      [] {
        storage_options o = options_of({"qemu:size=1M,depth=100"});
        o.queues.depth = 101;
        storage st(o);
      },
      ThrowsMessage<refused_input>(HasSubstr("give at most 100")));
}

TEST(QemuScheme, SeveralDrivesOfOneStorageGiveABufferTheSameBusAddresses) {
  FOREBAY_NEEDS_QEMU();
  storage_options o = options_of({"qemu:size=4M,as=first,nsid=2", "qemu:size=4M,nsid=2", "qemu:size=5M,nsid=2"});
  o.stripe_bytes = 1536;
  storage st(o);
  std::vector<std::uint64_t> const out = numbered(st.size_bytes(), 2);
  registered_buffer const buffer = st.allocate_buffer(out.size() * 8);
  std::memcpy(buffer.data(), out.data(), buffer.size_bytes());
  auto const ref = st.ref<native>();
  ASSERT_EQ(to_string(ref.write_async(buffer.ref(), 0, buffer.size_bytes()).wait()), "success");
  std::memset(buffer.data(), 0, buffer.size_bytes());
  ASSERT_EQ(to_string(ref.read_async(buffer.ref(), 0, buffer.size_bytes()).wait()), "success");
  EXPECT_EQ(std::memcmp(buffer.data(), out.data(), buffer.size_bytes()), 0);
  EXPECT_TRUE(test::opened_qemu("first").dma().stray_pages().empty());
}

/// The memory of this process, which says that it is page-locked, as that of a client on a GPU is.
class as_if_pinned final : public memory::resource {
 public:
  memory::kind kind() const override { return memory::kind::pinned; }
  void* allocate(std::size_t bytes, std::size_t alignment_bytes) override {
    ++allocations;
    return memory::host().allocate(bytes, alignment_bytes);
  }
  void deallocate(void* address) noexcept override { memory::host().deallocate(address); }
  void copy_in(void* to, void const* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy_out(void* to, void const* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  int allocations = 0;
};

TEST(QemuScheme, AClientOnAGpuHasItsDoorbellsInItsMemoryAndPageLockedRam) {
  FOREBAY_NEEDS_QEMU();
  test::add_qemu_scheme();
  as_if_pinned pinned;
  auto const of_cpu = drive::open("qemu:size=1M");
  auto const of_gpu = drive::open("qemu:size=1M", {.client_memory = &pinned});
  EXPECT_EQ(pinned.allocations, 1);
  void* const mine = of_cpu->dma().allocate(4096);
  EXPECT_THROW(of_gpu->dma().map(mine, 4096), refused_input) << "it is not in its RAM";
  of_cpu->dma().deallocate(mine);
  if (memory::device_count() == 0) {
    EXPECT_THROW(of_gpu->dma().allocate(4096), std::runtime_error) << "nothing can lock it";
  } else {
    of_gpu->dma().deallocate(of_gpu->dma().allocate(4096));
  }
}

TEST(QemuScheme, RefusesWhatItCannotDo) {
  test::add_qemu_scheme();
  auto const refuses = [](std::string const& uri, char const* message) {
    EXPECT_THAT([&] { storage st(options_of({uri})); }, ThrowsMessage<refused_input>(HasSubstr(message))) << uri;
  };
  refuses("qemu:lba_bytes=1024", "lba_bytes: '1024': give 512 or 4096");
  refuses("qemu:size=1M,lba_bytes=513", "lba_bytes: '513': give 512 or 4096");
  refuses("qemu:size=5000", "size: '5000': give whole blocks of 512 bytes");
  refuses("qemu:nsid=3", "nsid: '3'");
  refuses("qemu:depth=1", "depth: '1'");
  refuses("qemu:depth=1025", "depth: '1025'");
  refuses("qemu:fail=read", "fail: 'read': give WHAT[@SECTOR]:ERRNO[:once]");
  refuses("qemu:sizes=1M", "did you mean size?");
  EXPECT_THROW(test::opened_qemu("nobody"), std::out_of_range);
  EXPECT_THROW(test::qemu_instead_of("file:/tmp/x"), refused_input);
  EXPECT_EQ(test::qemu_instead_of("emulated:latency_us=3,size=1M,iops=4", ",mdts=1"), "qemu:size=1M,mdts=1");
  EXPECT_EQ(test::qemu_instead_of("emulated:", ",mdts=1"), "qemu:mdts=1");
}

TEST(QemuScheme, MemoryOfTheUserIsRefused) {
  FOREBAY_NEEDS_QEMU();
  storage st(options_of({"qemu:size=1M"}));
  alignas(4096) static std::byte mine[4096];
  EXPECT_THAT([&] { st.register_buffer(mine, sizeof mine); },
              ThrowsMessage<refused_input>(HasSubstr("a virtual machine reaches only its own RAM")));
}

}  // namespace
}  // namespace forebay
