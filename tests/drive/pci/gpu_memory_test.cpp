// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory of a GPU that a PCI function reaches, with kernel modules that are played. The conformance list runs over the
//! same on QEMU's controller (tests/conformance/qemu_test.cpp).
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "drive/pci/gpu_addresses.hpp"
#include "drive/pci/gpu_dma_space.hpp"
#include "drive/pci/mapped_areas.hpp"
#include "drive/pci/system_files.hpp"
#include "forebay/error.hpp"
#include "support/played_gpu_modules.hpp"

namespace forebay::drive::pci {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t window = 0x38'0000'0000;
constexpr std::uint64_t large_window = 0x60'0000'0000;
std::vector<bus_stretch> const windows = {{0xf000'0000, 1 << 24}, {window, 1 << 30}, {large_window, 1ull << 35}};

template <class Error, class Function>
std::string message_of(Function const& call) {
  try {
    call();
  } catch (Error const& e) {
    return e.what();
  }
  ADD_FAILURE() << "it throws nothing";
  return {};
}

/// Memory whose bus addresses are of pages in reverse order, within the window.
class reversed_space final : public driver::dma_space {
 public:
  void* allocate(std::size_t bytes) override {
    std::size_t const whole = (bytes + page - 1) / page * page;
    auto made = std::make_unique<std::vector<std::byte>>(whole + page);
    void* at = made->data();
    std::size_t room = made->size();
    at = std::align(page, whole, at, room);
    all_[static_cast<std::byte*>(at)] = {std::move(made), whole, next_};
    next_ += whole;
    return at;
  }
  void deallocate(void* address) noexcept override { all_.erase(static_cast<std::byte*>(address)); }
  void map(void* address, std::size_t bytes) override { mapped.emplace_back(address, bytes); }
  void unmap(void* address, std::size_t bytes) override { std::erase(mapped, std::pair(address, bytes)); }
  std::uint64_t bus_address(void const* address) const override {
    auto const after = all_.upper_bound(const_cast<std::byte*>(static_cast<std::byte const*>(address)));
    if (after == all_.begin()) throw std::out_of_range("not of this space");
    auto const& [first, its] = *std::prev(after);
    auto const offset = static_cast<std::size_t>(static_cast<std::byte const*>(address) - first);
    return its.bus + its.bytes - (offset / page + 1) * page + offset % page;
  }
  std::size_t page_bytes() const override { return page; }
  std::size_t count() const { return all_.size(); }

  std::vector<std::pair<void*, std::size_t>> mapped;

 private:
  struct one {
    std::unique_ptr<std::vector<std::byte>> bytes_of;
    std::size_t bytes;
    std::uint64_t bus;
  };
  std::map<std::byte*, one> all_;
  std::uint64_t next_ = window;
};

class GpuAddresses : public testing::Test {
 protected:
  test::played_gpu_modules modules;
  untranslated_addresses addresses{windows, modules.device(), modules.call()};

  std::string refusal(std::vector<bus_stretch> where, std::uint64_t bytes) {
    open_file const file = modules.share(std::move(where));
    std::string const said = message_of<operation_failed>([&] { addresses.find(file.get(), bytes); });
    EXPECT_TRUE(modules.attached.empty());
    return said;
  }
};

TEST_F(GpuAddresses, AreWhatTheModuleTells) {
  open_file const file = modules.share({{window + 8 * page, 2 * page}, {window, page}, {0xf000'0000, page}});
  auto const found = addresses.find(file.get(), 4 * page);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].first, window + 8 * page);
  EXPECT_EQ(found[0].bytes, 2 * page);
  EXPECT_EQ(found[2].first, 0xf000'0000u);
  EXPECT_EQ(modules.attached, std::set{file.get()});
  addresses.forget(file.get());
  EXPECT_TRUE(modules.attached.empty());
}

TEST_F(GpuAddresses, MayEndBeyondTheMemory) {
  open_file const file = modules.share({{window, 16 * page}});
  auto const found = addresses.find(file.get(), 4 * page);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].bytes, 4 * page);
}

TEST_F(GpuAddresses, TakeOneStretchMoreThanTheModuleSaid) {
  modules.writes_one_more = true;
  open_file const file = modules.share({{window, page}, {window + 4 * page, page}});
  EXPECT_EQ(addresses.find(file.get(), 2 * page).size(), 2u);
}

// Anything else a drive could overwrite as well.
TEST_F(GpuAddresses, OutsideTheWindowsOfTheGpuAreNotBelieved) {
  for (bus_stretch const& wrong :
       {bus_stretch{0x1000'0000, page}, bus_stretch{window - page, page}, bus_stretch{window + (1 << 30), page},
        bus_stretch{window + (1 << 30) - page, 2 * page}, bus_stretch{0, page}, bus_stretch{~0ull - page + 1, page},
        bus_stretch{window, ~0ull - page + 1}}) {
    EXPECT_NE(refusal({wrong}, page).find("no memory of this GPU"), std::string::npos) << wrong.first;
  }
}
TEST_F(GpuAddresses, ThatAreNoWholePagesAreNotBelieved) {
  EXPECT_NE(refusal({{window + 512, page}}, page).find("no memory of this GPU"), std::string::npos);
  EXPECT_NE(refusal({{window, 512}}, page).find("no memory of this GPU"), std::string::npos);
  EXPECT_NE(refusal({{window, 0}, {window, page}}, 2 * page).find("no memory of this GPU"), std::string::npos);
}
TEST_F(GpuAddresses, OfLessThanTheMemoryAreNotBelieved) {
  EXPECT_NE(refusal({{window, page}}, 2 * page).find("4096 bytes too few in 8192"), std::string::npos);
  EXPECT_NE(refusal({}, page).find("0 stretches in 4096 bytes"), std::string::npos);
}
TEST_F(GpuAddresses, InMoreStretchesThanPagesAreNotBelieved) {
  modules.claims_more = 1 << 30;
  EXPECT_NE(refusal({{window, page}}, page).find("1073741825 stretches in 4096 bytes"), std::string::npos);
}
TEST_F(GpuAddresses, ThatTheModuleRefusesSayWhy) {
  modules.refuses_map = ENOMEM;
  EXPECT_NE(refusal({{window, page}}, page).find("Cannot allocate memory"), std::string::npos);
  modules.refuses_attach = EPERM;
  EXPECT_NE(refusal({{window, page}}, page).find("Operation not permitted"), std::string::npos);
}

TEST(GpuAddressesModule, ThatIsNotThereIsNamed) {
  std::string const said = message_of<refused_input>([] { untranslated_addresses(windows, "/nowhere/module"); });
  EXPECT_NE(said.find("/nowhere/module"), std::string::npos);
  EXPECT_NE(said.find("placement=1"), std::string::npos);
}

TEST(WindowsOfAGpu, AreThoseOfItsMemory) {
  system_files const files;
  files.write("resource",
              "0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200\n"
              "0x0000003800000000 0x0000003fffffffff 0x000000000014220c\n"
              "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
              "0x0000000000003000 0x000000000000307f 0x0000000000040101\n"
              "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
              "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
              "0x00000000f1000000 0x00000000f107ffff 0x0000000000046200");
  auto const found = windows_of(files.top());
  ASSERT_EQ(found.size(), 1u);  // neither registers, nor ports, nor the ROM
  EXPECT_EQ(found[0].first, 0x38'0000'0000u);
  EXPECT_EQ(found[0].bytes, 1ull << 35);
  EXPECT_NE(message_of<operation_failed>([] { windows_of("/nowhere"); }).find("/nowhere/resource"), std::string::npos);
}

class TranslatedGpuAddresses : public testing::Test {
 protected:
  test::played_gpu_modules modules;
  std::uint64_t next = 1 << 20;
  std::vector<std::uint64_t> given_back;
  translated_addresses addresses{std::make_unique<untranslated_addresses>(windows, modules.device(), modules.call()),
                                 {.take = [this](std::uint64_t bytes) { return std::exchange(next, next + bytes); },
                                  .give_back = [this](std::uint64_t first) { given_back.push_back(first); }},
                                 address::parse("0000:01:00.0"),
                                 modules.device(),
                                 modules.call()};
};

TEST_F(TranslatedGpuAddresses, AreThoseThatTheIommuWasTold) {
  open_file const file = modules.share({{window + page, page}, {window + 8 * page, 2 * page}});
  auto const found = addresses.find(file.get(), 3 * page);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].first, 1u << 20);
  EXPECT_EQ(found[0].bytes, 3 * page);
  EXPECT_EQ(modules.mapped[1 << 20], (std::vector{window + page, window + 8 * page, window + 9 * page}));
  EXPECT_EQ(modules.functions, std::vector<std::string>{"0000:01:00.0"});
  EXPECT_TRUE(addresses.forget(file.get()));
  EXPECT_TRUE(modules.mapped.empty());
  EXPECT_TRUE(modules.attached.empty());
  EXPECT_EQ(given_back, std::vector<std::uint64_t>{1 << 20});
}

// The module takes no more than 2 GiB at once.
TEST_F(TranslatedGpuAddresses, OfMuchMemoryAreToldInParts) {
  constexpr std::uint64_t gib = 1 << 30;
  constexpr std::uint64_t bytes = 4 * gib + 5 * page;
  open_file const file = modules.share({{large_window, bytes}});
  ASSERT_EQ(addresses.find(file.get(), bytes).size(), 1u);
  ASSERT_EQ(modules.mapped.size(), 3u);
  EXPECT_EQ(modules.mapped[(1 << 20) + 2 * gib].front(), large_window + 2 * gib);
  EXPECT_EQ(modules.mapped[(1 << 20) + 4 * gib].size(), 5u);
  EXPECT_TRUE(addresses.forget(file.get()));
  EXPECT_TRUE(modules.mapped.empty());
  EXPECT_EQ(given_back.size(), 1u);
}

TEST_F(TranslatedGpuAddresses, ThatTheIommuDoesNotTakeAreFreeAgain) {
  modules.refuses_iommu = ERANGE;
  open_file const file = modules.share({{window, page}});
  EXPECT_NE(message_of<operation_failed>([&] { addresses.find(file.get(), page); }).find("out of range"),
            std::string::npos);
  EXPECT_EQ(given_back.size(), 1u);
  EXPECT_TRUE(modules.attached.empty());
  modules.refuses_iommu = 0;
  EXPECT_EQ(addresses.find(file.get(), page).size(), 1u);
}

TEST_F(TranslatedGpuAddresses, ThatAFunctionStillReachesAreNeverUsedAgain) {
  open_file const file = modules.share({{window, page}});
  addresses.find(file.get(), page);
  modules.refuses_unmap = EIO;
  EXPECT_FALSE(addresses.forget(file.get()));
  EXPECT_TRUE(given_back.empty());
  EXPECT_EQ(modules.attached.size(), 1u);
}

class GpuDmaSpace : public testing::Test {
 protected:
  GpuDmaSpace() { space->join(this, keeper()); }

  gpu_dma_space::keeper keeper() {
    return {.begin =
                [this](int file) {
                  // What is found could be written as soon as it is known.
                  EXPECT_FALSE(modules.attached.contains(file) && !may_keep_late);
                  events.push_back("kept");
                  return std::uint64_t{7};
                },
            .end =
                [this](std::uint64_t id, std::size_t bytes) {
                  EXPECT_EQ(id, 7u);
                  EXPECT_TRUE(modules.attached.empty());
                  events.push_back("let go of " + std::to_string(bytes));
                }};
  }
  void expect_addresses(std::byte const* first, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += 512) {
      ASSERT_EQ(space->bus_address(first + at), of_gpu.bus_address(first + at)) << at;
    }
  }

  reversed_space host, of_gpu;
  test::played_gpu_modules modules;
  test::played_gpu_memory memory{of_gpu, modules};
  bool may_keep_late = false;
  std::vector<std::string> events;  ///< the first is that the module's file is kept
  std::unique_ptr<gpu_dma_space> space = std::make_unique<gpu_dma_space>(
      host, std::make_unique<untranslated_addresses>(windows, modules.device(), modules.call()),
      memory.as_gpu_memory());
};

TEST_F(GpuDmaSpace, GivesMemoryOfTheGpuToThoseThatAskForIt) {
  auto* const on_host = static_cast<std::byte*>(space->allocate(3 * page));
  EXPECT_EQ(host.count(), 1u);
  auto* const on_gpu = static_cast<std::byte*>(space->allocate_for_gpu(3 * page));
  EXPECT_EQ(memory.count(), 1u);
  expect_addresses(on_gpu, 65536);  // what a GPU's driver pins at once
  EXPECT_EQ(space->bus_address(on_host + 100), host.bus_address(on_host + 100));
  space->deallocate(on_gpu);
  space->deallocate(on_host);
  EXPECT_EQ(memory.count() + host.count(), 0u);
  EXPECT_EQ(events, (std::vector<std::string>{"kept", "kept", "let go of 65536"}));
}

TEST_F(GpuDmaSpace, MapsWhatIsTheGpus) {
  auto* const mine = static_cast<std::byte*>(memory.allocate(8 * page, page));
  space->map(mine, 8 * page);
  space->map(mine + page, 2 * page);  // within
  EXPECT_TRUE(host.mapped.empty());
  expect_addresses(mine, 8 * page);
  space->unmap(mine, 8 * page);
  expect_addresses(mine + page, 2 * page);
  EXPECT_EQ(events.size(), 2u);
  space->unmap(mine + page, 2 * page);
  EXPECT_TRUE(modules.attached.empty());
  EXPECT_EQ(events.back(), "let go of 32768");
  EXPECT_EQ(memory.count(), 1u);  // the user's own
  memory.deallocate(mine);
}

TEST_F(GpuDmaSpace, LeavesMemoryOfTheHostToTheOther) {
  auto* const mine = host.allocate(page);
  space->map(mine, page);
  EXPECT_EQ(host.mapped.size(), 1u);
  space->unmap(mine, page);
  EXPECT_TRUE(host.mapped.empty());
  EXPECT_EQ(events.size(), 1u);
}

TEST_F(GpuDmaSpace, MapsNothingThatOverlaps) {
  auto* const mine = static_cast<std::byte*>(memory.allocate(8 * page, page));
  space->map(mine + 2 * page, 2 * page);
  EXPECT_THROW(space->map(mine, 8 * page), refused_input);
  EXPECT_THROW(space->map(mine + 3 * page, 2 * page), refused_input);
  expect_addresses(mine + 2 * page, 2 * page);
  space->unmap(mine + 2 * page, 2 * page);
  memory.deallocate(mine);
}

TEST_F(GpuDmaSpace, KeepsNothingThatItDoesNotReach) {
  modules.refuses_attach = EBUSY;
  EXPECT_THROW(space->allocate_for_gpu(page), operation_failed);
  EXPECT_EQ(memory.count(), 0u);
  EXPECT_EQ(events, (std::vector<std::string>{"kept", "kept", "let go of 65536"}));
}

// CUDA does not know it any more then.
TEST_F(GpuDmaSpace, UnmapsMemoryThatItsUserHasFreed) {
  auto* const mine = static_cast<std::byte*>(memory.allocate(4 * page, page));
  space->map(mine, 4 * page);
  memory.forget(mine);
  space->unmap(mine, 4 * page);
  EXPECT_TRUE(modules.attached.empty());
  EXPECT_EQ(events.back(), "let go of 16384");
  EXPECT_THROW(space->bus_address(mine), std::out_of_range);  // the host's, which does not know it
}

TEST_F(GpuDmaSpace, KeepsMemoryThatAFunctionStillReaches) {
  auto* const on_gpu = space->allocate_for_gpu(page);
  modules.refuses_detach = EIO;
  space->deallocate(on_gpu);
  EXPECT_EQ(memory.count(), 1u);
  EXPECT_EQ(events.back(), "kept");
}

// A controller that did not stop may use rings that nobody gave back.
TEST_F(GpuDmaSpace, LeavesWhatIsLeftAtItsEnd) {
  space->allocate_for_gpu(page);
  space->leave(this);
  space.reset();
  EXPECT_EQ(modules.attached.size(), 1u);
  EXPECT_EQ(memory.count(), 1u);
  EXPECT_EQ(events, (std::vector<std::string>{"kept", "kept"}));
}

TEST_F(GpuDmaSpace, IsKeptByEachDriveThatUsesIt) {
  auto* const on_gpu = space->allocate_for_gpu(page);
  int other = 0;
  may_keep_late = true;
  space->join(&other, keeper());
  EXPECT_EQ(events.size(), 4u);  // the module's file and the memory, twice
  space->leave(this);
  space->deallocate(on_gpu);
  EXPECT_EQ(events.size(), 5u);
  EXPECT_EQ(events.back(), "let go of 65536");
}

}  // namespace
}  // namespace forebay::drive::pci
