// SPDX-License-Identifier: Apache-2.0
//! \file
//! QEMU's NVMe controller without a guest: a stopped virtual machine whose registers are reached through the qtest
//! socket and whose RAM is shared. A controller that this project did not write.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "forebay/detail/driver/spaces.hpp"
#include "forebay/memory.hpp"
#include "support/shared_memory.hpp"

namespace forebay::test {

/// An error that the drive's backing store reports (QEMU's blkdebug).
struct injected_error {
  std::string iotype;                        ///< "read", "write", "write-zeroes", "discard", "flush"
  int error = 5;                             ///< errno
  std::optional<std::uint64_t> sector = {};  ///< of 512 bytes; none: any
  bool once = false;
};

/// What the drive has done since it was made, as QEMU counts it.
struct qemu_traffic {
  std::uint64_t read_commands = 0, write_commands = 0;
  std::uint64_t bytes_read = 0, bytes_written = 0;
};

struct qemu_options {
  std::uint64_t memory_bytes = 256 << 20;
  std::uint64_t drive_bytes = 64 << 20;
  std::uint32_t block_bytes = 512;
  std::uint32_t nsid = 1;  ///< of the namespace that is the drive; if it is 2, namespace 1 loses what is written
  std::uint32_t io_queue_pairs = 16;
  /// What CAP.MQES says, less than QEMU does. 64 entries are a ring that fits a page of scattered memory. 0: as QEMU
  /// does
  std::uint32_t queue_entries_max = 0;
  std::uint32_t ready_timeout = 0;  ///< what CAP.TO says, in units of 500 ms; 0: as QEMU does
  std::uint32_t mdts = 7;           ///< 4096 << mdts bytes; 0: no limit
  std::string serial = "forebay-qemu";
  std::vector<injected_error> errors = {};
  bool breakpoints = false;  ///< `hold()` will be used
  std::uint64_t seed = 1;    ///< of the order in which pages are handed out
  /// Where the words of doorbells lie. If that is page-locked memory, a GPU is the client, and RAM that is made for
  /// these options is page-locked too. It must outlive the machine
  memory::resource* client_memory = &memory::host();
};

/// Owns one QEMU process; it dies with the thread that made this object. Registers may be used from any thread.
class qemu_nvme {
 public:
  /// Throws `operation_failed` when QEMU cannot be started or does not answer.
  explicit qemu_nvme(qemu_options const& options = {});
  /// The same with RAM that other machines have too, whose size and locks count: so memory has one bus address for all
  /// of them.
  qemu_nvme(qemu_options const& options, std::shared_ptr<shared_memory> ram);
  /// RAM as `options` want it.
  static std::shared_ptr<shared_memory> make_ram(qemu_options const& options);
  qemu_nvme(qemu_nvme const&) = delete;
  qemu_nvme& operator=(qemu_nvme const&) = delete;
  ~qemu_nvme();

  /// Why there is no QEMU to test with; nothing if there is one.
  static std::optional<std::string> unavailable();

  /// BAR0. Doorbell words live in a relay page, from which a thread forwards each value stored.
  driver::register_space& registers();
  shared_memory& dma();
  qemu_options const& options() const { return options_; }
  /// "7.2.22" and the like.
  std::string version() const;

  /// One QMP command; returns its result, throws `operation_failed` with QEMU's words.
  nlohmann::json qmp(std::string const& command, nlohmann::json const& arguments);
  nlohmann::json qmp(std::string const& command);

  qemu_traffic traffic();

  /// The next request of the drive that raises `event` ("read_aio", "write_aio") stays with it until `let_go()`. Until
  /// then the queue must not be deleted and the controller must not be reset: QEMU would wait for the request for ever.
  void hold(std::string const& event);
  void let_go();

  /// Stops the controller completely (SIGSTOP): registers read as they do now, and writes wait for `resume()`.
  void pause();
  void resume();
  /// Whether it was neither stopped nor killed.
  bool answers() const;
  /// Kills QEMU: registers read as all ones, as those of a device that left the bus.
  void kill();

 private:
  class process;
  class bar;
  qemu_options options_;
  std::shared_ptr<shared_memory> memory_;
  std::unique_ptr<process> process_;
  std::unique_ptr<bar> bar_;
};

}  // namespace forebay::test

/// At the start of a test that needs QEMU: skips the test if there is none, unless FOREBAY_REQUIRE_QEMU=1 makes that a
/// failure, as in continuous integration.
#define FOREBAY_NEEDS_QEMU()                                                                 \
  do {                                                                                       \
    if (auto const reason = ::forebay::test::qemu_nvme::unavailable()) {                     \
      char const* const required = std::getenv("FOREBAY_REQUIRE_QEMU");                      \
      if (required != nullptr && std::string_view(required) == "1") GTEST_FAIL() << *reason; \
      GTEST_SKIP() << *reason;                                                               \
    }                                                                                        \
  } while (false)
