// SPDX-License-Identifier: Apache-2.0
//! \file
//! Each test repeats a short sequence of operations of kernels and the host. Each time one more command of a drive
//! fails, or one more allocation of the calling thread. The caller must get the error, no other data may be lost, and
//! the next attempt must succeed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "failing_allocations.hpp"
#include "forebay/detail/emulator/fault_plan.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/storage/catalogue.hpp"
#include "forebay/error.hpp"
#include "forebay/status_text.hpp"
#include "forebay/storage.hpp"
#include "support/drive_files.hpp"

namespace forebay {
namespace {

using native = simt::native;
using test::drive_files;

constexpr std::uint64_t drive_bytes = 3 << 20;
constexpr std::uint32_t page_bytes = 4096;
constexpr std::uint64_t first_byte = catalogue::reserved_bytes;
/// The extent that the sequence writes.
constexpr std::uint64_t used_bytes = 40 * page_bytes;

/// Two drives in files. `faulty`: the one that gets `faults`.
std::vector<std::string> uris_of(drive_files const& files, std::size_t faulty = ~std::size_t{0},
                                 std::string const& faults = "") {
  std::vector<std::string> all;
  for (std::string const& path : files.paths()) {
    all.push_back("emulated:backing=file,path=" + path + (all.size() == faulty ? faults : ""));
  }
  return all;
}

/// Options of a drive on which, of the first 400 commands of queues 1 to 4, command `n` of queue `queue` alone fails. A
/// drive draws its failures from a seed.
std::string fault_of(std::uint64_t queue, std::uint64_t n) {
  constexpr std::uint64_t queues = 4, commands = 400;
  emulator::fault_plan plan;
  plan.error_ppm = 500;
  for (plan.seed = 1;; ++plan.seed) {
    if (plan.at((queue << 48) + n).status_field == 0) continue;
    std::uint64_t failing = 0;
    for (std::uint64_t q = 1; q <= queues; ++q) {
      for (std::uint64_t k = 0; k < commands; ++k) failing += plan.at((q << 48) + k).status_field != 0;
    }
    if (failing == 1) return ",errors_ppm=500,seed=" + std::to_string(plan.seed);
  }
}

/// The possible values of the bytes that the sequence uses. A byte that an operation failed to write may have its old
/// value or the new one.
class model {
 public:
  void wrote(std::uint64_t at, std::string const& data, bool surely) {
    for (std::size_t i = 0; i < data.size(); ++i) {
      std::string& values = may_be_.at(at - first_byte + i);
      if (surely) values.clear();
      values += data[i];
    }
  }
  /// Checks that each byte has a value that it may have. A byte that has been read keeps its value from then on.
  void expect(std::uint64_t at, void const* got, std::uint64_t bytes, char const* what) {
    auto const* const data = static_cast<char const*>(got);
    for (std::uint64_t i = 0; i < bytes; ++i) {
      std::string& values = may_be_.at(at - first_byte + i);
      ASSERT_NE(values.find(data[i]), std::string::npos)
          << what << ": byte " << at + i << " is " << int{static_cast<unsigned char>(data[i])};
      values.assign(1, data[i]);
    }
  }

 private:
  std::vector<std::string> may_be_ = std::vector<std::string>(used_bytes, std::string(1, '\0'));
};

/// Many are opened here.
void make_small(storage_options& o) {
  o.queues.depth = 64;
  o.queues.records = 256;
  o.queues.prp_list_pages = 16;
}

class sequence {
 public:
  sequence(bool with_cache, std::vector<std::string> uris) : cached_(with_cache), uris_(std::move(uris)) {}

  void open(std::vector<std::string> const& uris) {
    storage_options o;
    o.drives = uris;
    o.device = "cpu";
    o.queues.per_drive = 1;
    o.allow_destroy = true;
    o.cache.page_bytes = page_bytes;
    make_small(o);
    if (cached_) {
      // Smaller than the sequence needs, so that pages are evicted.
      o.cache.size_bytes = 16 * page_bytes;
      o.cache.overflow_frames = 0;
    }
    st_ = std::make_unique<storage>(o);
    buffer_ = st_->allocate_buffer(4 * page_bytes);
    opened_again_ = std::exchange(opened_, true);
  }
  void open() { open(uris_); }
  void close() {
    buffer_ = {};
    st_.reset();
  }

  using may_fail_type = std::function<bool(std::function<void()> const&)>;

  /// Runs each operation once. `may_fail` calls its argument, and returns whether the call succeeded.
  void run(may_fail_type const& may_fail) {
    change_extents(may_fail);
    read_and_write(may_fail);
    change_extents(may_fail);
  }
  void read_and_write(may_fail_type const& may_fail) {
    for (std::uint64_t k = 0; k < 2; ++k) {
      std::uint64_t const at = first_byte + k * 7 * page_bytes + 100 * k;
      host_write(may_fail, at, 100 + k * 2000, static_cast<char>('a' + k));
      kernel_write(may_fail, first_byte + (k * 5 + 2) * page_bytes, static_cast<char>('A' + k));
      if (cached_) kernel_stores(may_fail, k);
      host_read(may_fail, at);
      kernel_read(may_fail, first_byte + k * 3 * page_bytes);
      if (k % 2 == 1) (void)may_fail([&] { st_->flush(); });
      if (testing::Test::HasFailure()) return;
    }
  }

  /// After it, written data is on the drives.
  void flush_at_last() {
    for (int tries = 0;; ++tries) {
      try {
        return st_->flush();
      } catch (operation_failed const& e) {
        ASSERT_LT(tries, 2) << e.what();
      }
    }
  }
  void compare_everything(char const* when) {
    std::vector<char> data(used_bytes);
    try {
      st_->pread(data.data(), data.size(), first_byte);
    } catch (operation_failed const&) {
      st_->pread(data.data(), data.size(), first_byte);
    }
    bytes_.expect(first_byte, data.data(), data.size(), when);
    // A change that failed may be on the drives or not.
    std::vector<std::string> const found = names();
    for (std::string const name : {"one", "two"}) {
      bool const there = std::find(found.begin(), found.end(), name) != found.end();
      bool const known = std::find(extents_.begin(), extents_.end(), name) != extents_.end();
      EXPECT_TRUE(there == known || change_failed_) << "extent " << name << ' ' << when;
    }
    EXPECT_TRUE(found == extents_ || opened_again_) << when;
  }
  std::uint64_t injected_errors() const {
    std::uint64_t sum = 0;
    auto const report = nlohmann::json::parse(st_->report());
    for (auto const& drive : report.at("drives")) {
      sum += drive.at("statistics").at("injected_errors").get<std::uint64_t>();
    }
    return sum;
  }

 private:
  storage_ref<native, cached> ref() const { return st_->ref<native, cached>(); }

  void host_write(may_fail_type const& may_fail, std::uint64_t at, std::uint64_t bytes, char what) {
    std::string const data(bytes, what);
    bytes_.wrote(at, data, may_fail([&] { st_->pwrite(data.data(), data.size(), at); }));
  }
  void host_read(may_fail_type const& may_fail, std::uint64_t at) {
    std::vector<char> data(3 * page_bytes + 10);
    if (!may_fail([&] { st_->pread(data.data(), data.size(), at); })) return;
    bytes_.expect(at, data.data(), data.size(), "pread");
  }
  static void expect_reported(status outcome) {
    if (!outcome.ok()) throw operation_failed(to_string(outcome));
  }
  void kernel_write(may_fail_type const& may_fail, std::uint64_t at, char what) {
    std::string const data(2 * page_bytes, what);
    std::copy(data.begin(), data.end(), reinterpret_cast<char*>(buffer_.data()));
    bytes_.wrote(at, data, may_fail([&] {
                   expect_reported(cached_ ? ref().write(buffer_.ref(), at, data.size())
                                           : st_->ref<native>().write(buffer_.ref(), at, data.size()));
                 }));
  }
  void kernel_read(may_fail_type const& may_fail, std::uint64_t at) {
    std::uint64_t const bytes = 4 * page_bytes;
    if (!may_fail([&] {
          expect_reported(cached_ ? ref().read(buffer_.ref(), at, bytes)
                                  : st_->ref<native>().read(buffer_.ref(), at, bytes));
        })) {
      return;
    }
    bytes_.expect(at, buffer_.data(), bytes, "a kernel's read");
  }
  void kernel_stores(may_fail_type const& may_fail, std::uint64_t k) {
    auto const words = ref().array<std::uint64_t>();
    for (std::uint64_t page = 0; page < 20; page += 3) {
      std::uint64_t const at = first_byte + page * 2 * page_bytes + k * 8;
      std::string const data(8, static_cast<char>('0' + k));
      std::uint64_t value = 0;
      std::copy(data.begin(), data.end(), reinterpret_cast<char*>(&value));
      // One that fails writes nothing.
      if (may_fail([&] { expect_reported(words.try_store(at / 8, value)); })) bytes_.wrote(at, data, true);
    }
  }
  /// Makes the extent if it is not there, and removes it otherwise.
  void change_extents(may_fail_type const& may_fail) {
    for (std::string const name : {"one", "two"}) {
      auto const known = std::find(extents_.begin(), extents_.end(), name);
      bool const there = known != extents_.end();
      bool const changed = may_fail([&] {
        if (there) {
          st_->remove_extent(name);
        } else {
          (void)st_->create_extent(name, 5000);
        }
      });
      if (changed && there) extents_.erase(known);
      if (changed && !there) extents_.push_back(name);
      std::sort(extents_.begin(), extents_.end());
      // The next one that succeeds writes all of them.
      change_failed_ = !changed;
      ASSERT_EQ(names(), extents_) << "after a change that " << (changed ? "succeeded" : "failed");
    }
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (auto const& e : st_->extents()) all.push_back(e.name);
    std::sort(all.begin(), all.end());
    return all;
  }

  bool cached_;
  std::vector<std::string> uris_;
  std::unique_ptr<storage> st_;
  registered_buffer buffer_;
  model bytes_;
  std::vector<std::string> extents_;  ///< their names
  bool change_failed_ = false;
  bool opened_ = false;
  bool opened_again_ = false;
};

/// Whether the `n`-th command of the queue existed, so that it could fail.
bool fails_one_command(bool with_cache, std::size_t drive, std::uint64_t queue, std::uint64_t n) {
  drive_files const files(2, drive_bytes);
  sequence s(with_cache, uris_of(files, drive, fault_of(queue, n)));
  std::uint64_t failures = 0;
  s.open();  // tries again
  std::uint64_t const while_opened = s.injected_errors();
  s.run([&](auto const& operation) {
    try {
      operation();
      return true;
    } catch (operation_failed const&) {
      ++failures;
      return false;
    }
  });
  if (testing::Test::HasFailure()) return false;
  s.flush_at_last();
  std::uint64_t const injected = s.injected_errors();
  // A caller may hear of one failed write-back twice: from the kernel's write, and from the flush that tries again.
  EXPECT_LE(failures, 2 * (injected - while_opened)) << "more failed than was made to";
  s.compare_everything("before the end");
  s.close();
  s.open(uris_of(files));
  s.compare_everything("after it was opened again");
  return injected != 0;
}

void each_command_fails(bool with_cache) {
  std::uint64_t failed = 0;
  for (std::size_t drive = 0; drive < 2; ++drive) {
    for (std::uint64_t queue = 1; queue <= 2; ++queue) {
      // Which of two commands comes first may differ from run to run.
      for (std::uint64_t n = 0, missed = 0; missed < 3; ++n) {
        SCOPED_TRACE("drive " + std::to_string(drive) + ", command " + std::to_string(n) + " of queue " +
                     std::to_string(queue));
        bool const had = fails_one_command(with_cache, drive, queue, n);
        if (testing::Test::HasFailure()) return;
        missed = had ? 0 : missed + 1;
        failed += had;
      }
    }
  }
  EXPECT_GT(failed, 40u);
  std::printf("  %llu commands failed, one at a time\n", static_cast<unsigned long long>(failed));
}

TEST(Failures, EachCommandOnceWithoutACache) {
  each_command_fails(false);
}
TEST(Failures, EachCommandOnceWithACache) {
  each_command_fails(true);
}

TEST(Failures, EachAllocationOnceWhileOneIsOpened) {
  drive_files const files(2, drive_bytes);
  storage_options o;
  o.drives = uris_of(files);
  o.device = "cpu";
  o.queues.per_drive = 1;
  o.allow_destroy = true;
  make_small(o);
  o.cache.size_bytes = 16 * page_bytes;
  for (std::int64_t n = 0;; ++n) {
    SCOPED_TRACE("allocation " + std::to_string(n));
    std::unique_ptr<storage> st;
    test::allocations_left = n;
    test::allocation_failed = false;
    bool opened = true;
    try {
      // A storage whose opening failed has let go of its files.
      st = std::make_unique<storage>(o);
    } catch (std::bad_alloc const&) {
      opened = false;
    } catch (operation_failed const&) {
      opened = false;
    }
    test::allocations_left = -1;
    ASSERT_TRUE(opened || test::allocation_failed);
    if (!opened) continue;
    std::string const data = "all is well";
    st->pwrite(data.data(), data.size(), first_byte);
    st->flush();
    std::string found(data.size(), ' ');
    st->pread(found.data(), found.size(), first_byte);
    ASSERT_EQ(found, data);
    if (!test::allocation_failed) return;
  }
}

TEST(Failures, EachAllocationOnceWhileOneIsUsed) {
  for (bool const with_cache : {false, true}) {
    drive_files const files(2, drive_bytes);
    sequence s(with_cache, uris_of(files));
    s.open();
    for (std::int64_t n = 0; n < 4000; ++n) {
      SCOPED_TRACE("allocation " + std::to_string(n));
      test::allocation_failed = false;
      std::int64_t left = n;
      // No extents: the destructor of the JSON library, which may not throw, allocates.
      s.read_and_write([&](auto const& operation) {
        test::allocations_left = left;
        bool ok = true;
        try {
          operation();
        } catch (std::bad_alloc const&) {
          ok = false;
        } catch (operation_failed const&) {
          ok = false;
        }
        left = test::allocations_left;
        test::allocations_left = -1;
        return ok;
      });
      if (testing::Test::HasFailure()) return;
      s.compare_everything("after one failed");
      if (!test::allocation_failed || testing::Test::HasFailure()) break;
    }
    ASSERT_FALSE(test::allocation_failed) << "there are more allocations";
    s.flush_at_last();
    s.close();
    s.open();
    s.compare_everything("after it was opened again");
  }
}

}  // namespace
}  // namespace forebay
