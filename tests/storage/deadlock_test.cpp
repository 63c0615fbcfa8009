// SPDX-License-Identifier: Apache-2.0
//! \file
//! What a build with FOREBAY_DEBUG_WAITS finds: a deadlock of CPU fibers is reported, and a token that is used twice.
#include "forebay/detail/simt/launch.hpp"
#include "forebay/storage.hpp"
#include "storage/deadlock_suite.hpp"

namespace forebay::storage_test {
namespace {

struct on_fibers {
  using machine = simt::fiber;
  static std::string device() { return "cpu"; }
  static std::string drive_keys() { return ""; }
  template <class Kernel>
  static void run(simt::grid shape, Kernel const& kernel) {
    simt::launch<simt::fiber>(shape, kernel);
  }
};

TEST(Deadlock, OfTwoLanesIsReportedWithItsChain) {
  expect_a_deadlock_to_be_reported<on_fibers>();
}

TEST(DebugTokens, ATokenThatIsUsedAfterItsCopyWasIsCaught) {
  storage_options o;
  o.drives = {"emulated:size=64M"};
  o.device = "cpu";
  storage st(o);
  registered_buffer const buffer = st.allocate_buffer(4096);
  auto const ref = st.ref<simt::native>();
  auto token = ref.read_async(buffer.ref(), 0, 4096);
  auto copy = token;
  EXPECT_EQ(token.wait(), status());
  EXPECT_EQ(token.wait(), status()) << "a token remembers";
  EXPECT_DEATH((void)copy.wait(), "a token is used after another copy of it was waited for or detached");
  EXPECT_DEATH(copy.detach(), "a token is used after another copy of it was waited for or detached");
  // Its record is the next request's by now.
  auto next = ref.read_async(buffer.ref(), 0, 4096);
  EXPECT_DEATH((void)copy.ready(), "a token is used after another copy of it was waited for or detached");
  EXPECT_EQ(next.wait(), status());
}

}  // namespace
}  // namespace forebay::storage_test
