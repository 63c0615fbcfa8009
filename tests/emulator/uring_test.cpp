// SPDX-License-Identifier: Apache-2.0
//! \file
//! Clients' memory that a ring registers: it is found, followed and given back, and refused memory is only slower.
#include "emulator/uring.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "emulator/uring_medium.hpp"
#include "forebay/error.hpp"

namespace forebay::emulator {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t area_bytes = std::size_t{16} * page_bytes;

/// Anonymous memory at an address that a test may take again.
class area {
 public:
  explicit area(void* at = nullptr, int protection = PROT_READ | PROT_WRITE)
      : data_(mmap(at, area_bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0)) {}
  ~area() { munmap(data_, area_bytes); }
  area(area const&) = delete;
  area& operator=(area const&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_;
};

/// Bytes of this process that something has pinned.
std::uint64_t pinned_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmPin:")) return std::stoull(line.substr(6)) * 1024;
  }
  return ~std::uint64_t{0};
}

/// Takes the right to lock any amount of memory from this thread, and sets the limit to `bytes`.
class little_locked_memory {
 public:
  explicit little_locked_memory(rlim_t bytes) {
    getrlimit(RLIMIT_MEMLOCK, &before_);
    rlimit const less_memory{bytes, before_.rlim_max};
    setrlimit(RLIMIT_MEMLOCK, &less_memory);
    syscall(SYS_capget, &header_, rights_.data());
    auto less = rights_;
    less[0].effective &= ~(1u << CAP_IPC_LOCK);
    syscall(SYS_capset, &header_, less.data());
  }
  ~little_locked_memory() {
    syscall(SYS_capset, &header_, rights_.data());
    setrlimit(RLIMIT_MEMLOCK, &before_);
  }
  little_locked_memory(little_locked_memory const&) = delete;
  little_locked_memory& operator=(little_locked_memory const&) = delete;

 private:
  rlimit before_{};
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> rights_{};
};

/// Leaves at once what others count.
struct test_ring : uring {
  using uring::uring;
  ~test_ring() { leave(); }
};

class uring_test : public ::testing::Test {
 protected:
  client_memory memory{std::uint64_t{1} << 30};
  int file = -1;

  void SetUp() override {
    if (std::string const why = uring::why_not(8); !why.empty()) GTEST_SKIP() << why;
    if (std::string const why = uring::why_no_registered_memory(); !why.empty()) GTEST_SKIP() << why;
    file = memfd_create("forebay-uring-test", MFD_CLOEXEC);
    std::array<char, area_bytes> bytes;
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i / page_bytes + 1);
    ASSERT_EQ(pwrite(file, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  void TearDown() override {
    if (file >= 0) close(file);
  }

  /// Reads page `page` of the file by the memory's registration; returns what the kernel says.
  int read_fixed(uring& ring, std::byte* to, unsigned page) const {
    int const place = ring.registered(to, page_bytes);
    if (place < 0) return -1;
    io_uring_sqe* const entry = ring.next_entry();
    io_uring_prep_read_fixed(entry, file, to, page_bytes, std::uint64_t{page} * page_bytes, place);
    return complete(ring);
  }
  static int complete(uring& ring) {
    io_uring_cqe* completion = nullptr;
    for (ring.enter(); (completion = ring.peek()) == nullptr;) ring.wait(1'000'000'000);
    int const result = completion->res;
    ring.seen(completion);
    return result;
  }
  test_ring make() { return {8, uring::completes::by_interrupt, port_use::by_one_thread, memory}; }
};

TEST_F(uring_test, finds_memory_that_was_added_before_and_after_the_first_request) {
  test_ring ring = make();
  area const first, second;
  memory.add(this, first.data(), area_bytes);
  EXPECT_EQ(read_fixed(ring, first.data() + page_bytes, 2), page_bytes);
  EXPECT_EQ(first.data()[page_bytes], std::byte{3});
  EXPECT_LT(ring.registered(second.data(), page_bytes), 0);
  memory.add(this, second.data(), area_bytes);
  EXPECT_EQ(read_fixed(ring, second.data(), 4), page_bytes);
  EXPECT_EQ(second.data()[0], std::byte{5});
  EXPECT_EQ(memory.why_refused(), "");
}

TEST_F(uring_test, finds_only_what_lies_within_one_registration) {
  test_ring ring = make();
  area const data;
  memory.add(this, data.data() + page_bytes, 2 * page_bytes);
  EXPECT_LT(ring.registered(data.data(), page_bytes), 0);
  EXPECT_LT(ring.registered(data.data(), 2 * page_bytes), 0);
  EXPECT_GE(ring.registered(data.data() + page_bytes, 2 * page_bytes), 0);
  EXPECT_GE(ring.registered(data.data() + 2 * page_bytes + 512, page_bytes - 512), 0);
  EXPECT_LT(ring.registered(data.data() + 2 * page_bytes + 512, page_bytes), 0);
  EXPECT_LT(ring.registered(data.data() + 3 * page_bytes, 1), 0);
  EXPECT_LT(ring.registered(data.data() + page_bytes, ~std::uint64_t{0}), 0);
}

// The registration names pages and not addresses, so data would go to memory that nobody sees.
TEST_F(uring_test, what_comes_to_an_address_later_is_other_memory) {
  test_ring ring = make();
  std::byte* place = nullptr;
  {
    area const before;
    place = before.data();
    memory.add(this, place, area_bytes);
    ASSERT_EQ(read_fixed(ring, place, 0), page_bytes);
    memory.remove(this, place, area_bytes);
  }
  area const after(place);
  ASSERT_EQ(after.data(), place);
  EXPECT_LT(ring.registered(place, page_bytes), 0);
  memory.add(this, place, area_bytes);
  EXPECT_EQ(read_fixed(ring, place, 6), page_bytes);
  EXPECT_EQ(place[0], std::byte{7});
}

TEST_F(uring_test, what_was_removed_is_no_longer_pinned) {
  test_ring ring = make();
  std::uint64_t const before = pinned_bytes();
  area const mine, of_others;
  EXPECT_TRUE(memory.add(this, mine.data(), area_bytes));
  EXPECT_TRUE(memory.add(&ring, of_others.data(), area_bytes));
  // What is pinned already is not pinned again.
  EXPECT_FALSE(memory.add(&ring, of_others.data() + page_bytes, page_bytes));
  ring.keep_up();
  EXPECT_EQ(pinned_bytes(), before + 2 * area_bytes);
  EXPECT_EQ(memory.why_refused(), "");
  memory.remove_all(&ring);
  ring.keep_up();
  EXPECT_EQ(pinned_bytes(), before + area_bytes);
  memory.remove(this, mine.data(), area_bytes);
  ring.keep_up();
  EXPECT_EQ(pinned_bytes(), before);
}

TEST_F(uring_test, memory_that_cannot_be_pinned_is_left_out_and_told) {
  test_ring ring = make();
  area const good, hole(nullptr, PROT_NONE);
  memory.add(this, hole.data(), area_bytes);
  memory.add(this, good.data(), area_bytes);
  EXPECT_LT(ring.registered(hole.data(), page_bytes), 0);
  EXPECT_EQ(read_fixed(ring, good.data(), 1), page_bytes);
  EXPECT_EQ(memory.why_refused(),
            "clients registered memory that the kernel cannot pin, such as that of a device or of a file");
}

TEST_F(uring_test, more_than_may_be_locked_is_left_out_and_told) {
  constexpr std::size_t limit_bytes = std::size_t{1} << 20;
  little_locked_memory const limit(limit_bytes);
  std::vector<std::byte> const data(2 * limit_bytes);
  try {
    test_ring ring = make();
    memory.add(this, data.data(), data.size());
    EXPECT_LT(ring.registered(data.data(), page_bytes), 0);
  } catch (operation_failed const& e) {
    GTEST_SKIP() << "other processes of this user have locked more: " << e.what();
  }
  EXPECT_THAT(memory.why_refused(), ::testing::HasSubstr("the limit on locked memory (ulimit -l) is too small"));
}

TEST_F(uring_test, more_areas_than_a_ring_has_places_for_are_left_out_and_told) {
  test_ring ring = make();
  std::vector<std::byte> const pages(page_bytes * (client_memory::most_ranges + 2));
  std::byte* const first =
      const_cast<std::byte*>(pages.data()) + page_bytes - reinterpret_cast<std::uintptr_t>(pages.data()) % page_bytes;
  for (std::size_t i = 0; i < client_memory::most_ranges; ++i) {
    ASSERT_TRUE(memory.add(this, first + i * page_bytes, page_bytes));
  }
  ring.keep_up();
  EXPECT_EQ(memory.why_refused(), "");
  std::byte* const last = first + client_memory::most_ranges * page_bytes;
  EXPECT_FALSE(memory.add(this, last, page_bytes));
  EXPECT_LT(ring.registered(last, page_bytes), 0);
  EXPECT_THAT(memory.why_refused(), ::testing::HasSubstr("more than 1024 areas"));
  memory.remove_all(this);
  EXPECT_TRUE(memory.add(this, last, page_bytes));
  EXPECT_EQ(read_fixed(ring, last, 8), page_bytes);
}

TEST_F(uring_test, more_than_the_limit_for_all_rings_is_left_out_and_told) {
  client_memory small{2 * area_bytes};
  area const first, second, third;
  EXPECT_TRUE(small.add(this, first.data(), area_bytes));
  EXPECT_TRUE(small.add(this, second.data(), area_bytes));
  EXPECT_FALSE(small.add(this, third.data(), page_bytes));
  EXPECT_THAT(small.why_refused(), ::testing::HasSubstr("more than the 131072 bytes"));
  small.remove(this, first.data(), area_bytes);
  EXPECT_TRUE(small.add(this, third.data(), page_bytes));
  small.remove_all(this);
  // Each ring pins it all.
  small.add_ring();
  small.add_ring();
  EXPECT_FALSE(small.add(this, first.data(), area_bytes + page_bytes));
  EXPECT_TRUE(small.add(this, first.data(), area_bytes));
}

// Another thread may give memory back while a request that names its place waits to be submitted.
TEST_F(uring_test, a_request_that_was_prepared_keeps_its_memory) {
  test_ring ring = make();
  area const data;
  memory.add(this, data.data(), area_bytes);
  int const place = ring.registered(data.data(), page_bytes);
  ASSERT_GE(place, 0);
  io_uring_prep_read_fixed(ring.next_entry(), file, data.data(), page_bytes, 0, place);
  memory.remove(this, data.data(), area_bytes);
  EXPECT_LT(ring.registered(data.data(), page_bytes), 0);
  EXPECT_EQ(complete(ring), page_bytes);
  EXPECT_EQ(data.data()[0], std::byte{1});
}

// To follow a change, the port submits what it has prepared, which must not be a request that is half made.
TEST_F(uring_test, memory_may_change_between_the_requests_of_a_port) {
  file_health health;
  auto const medium = medium_of({.fd = file, .bytes = area_bytes, .health = &health});
  auto const port = medium->open(port_use::by_one_thread);
  area const data;
  std::array<dma_segment, 4> segments;
  for (std::uint64_t i = 0; i < segments.size(); ++i) {
    medium->add_memory(this, data.data() + i * page_bytes, page_bytes);
    segments[i] = {reinterpret_cast<std::uint64_t>(data.data() + i * page_bytes), page_bytes};
    ASSERT_TRUE(port->submit({.operation = medium_operation::read,
                              .offset_bytes = i * page_bytes,
                              .bytes = page_bytes,
                              .segments = {&segments[i], 1},
                              .tag = i}));
  }
  std::array<medium_completion, 8> completions;
  std::size_t done = 0;
  for (int looks = 0; done < segments.size() && looks < 100; ++looks) {
    done += port->collect(std::span(completions).subspan(done));
    if (done < segments.size()) port->wait(10'000'000);
  }
  ASSERT_EQ(done, segments.size());
  for (std::size_t i = 0; i < done; ++i) {
    EXPECT_EQ(completions[i].status_field, 0);
    EXPECT_EQ(data.data()[i * page_bytes], std::byte(i + 1));
  }
  port->leave();
}

TEST_F(uring_test, much_memory_is_taken_up_in_several_calls) {
  test_ring ring = make();
  std::uint64_t const before = pinned_bytes();
  constexpr std::size_t part = std::size_t{16} << 20;
  std::vector<std::byte> const large(4 * part);
  std::byte* const first =
      const_cast<std::byte*>(large.data()) + page_bytes - reinterpret_cast<std::uintptr_t>(large.data()) % page_bytes;
  for (std::size_t i = 0; i < 3; ++i) memory.add(this, first + i * part, part);
  for (std::size_t calls = 1; calls <= 4; ++calls) {
    ring.keep_up();
    EXPECT_EQ(pinned_bytes(), before + std::min<std::size_t>(calls, 3) * part);
  }
}

TEST_F(uring_test, memory_is_free_as_soon_as_the_ring_leaves) {
  std::uint64_t const before = pinned_bytes();
  test_ring ring = make();
  area const data;
  memory.add(this, data.data(), area_bytes);
  ring.keep_up();
  EXPECT_EQ(pinned_bytes(), before + area_bytes);
  ring.leave();
  EXPECT_EQ(pinned_bytes(), before);
  EXPECT_LT(ring.registered(data.data(), page_bytes), 0);
}

}  // namespace
}  // namespace forebay::emulator
