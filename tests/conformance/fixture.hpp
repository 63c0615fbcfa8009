// SPDX-License-Identifier: Apache-2.0
//! \file
//! The tools of the checks: a controller, queues driven by hand, scattered buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "conformance/conformance.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"

namespace forebay::conformance {

/// No wait of a check ends before this time, except by success.
inline constexpr std::uint64_t patience_ns = 60'000'000'000;

/// A completion queue consumed by hand.
struct completion_ring {
  std::uint16_t id = 0;
  std::uint32_t entries = 0;
  nvme::completion_entry* ring = nullptr;
  std::uint32_t* doorbell = nullptr;
  std::uint32_t head = 0;
  std::uint32_t phase = 1;

  /// Returns the next completion if it is there. `release()` tells the controller that it has been consumed.
  std::optional<nvme::completion_entry> take();
  void release() const { simt::native::st_mmio(doorbell, head); }
  /// The next completion, released at once. Throws when none comes.
  nvme::completion_entry wait();
};

/// A submission queue filled by hand.
struct submission_ring {
  std::uint16_t id = 0;
  std::uint32_t entries = 0;
  nvme::submission_entry* ring = nullptr;
  std::uint32_t* doorbell = nullptr;
  std::uint32_t tail = 0;

  void push(nvme::submission_entry const& entry);
  void ring_doorbell() const;
};

struct queue_pair {
  submission_ring sq;
  completion_ring cq;

  /// Runs one command in an otherwise idle pair.
  nvme::completion_entry run(nvme::submission_entry const& entry);
  /// Runs all of the commands, as many at a time as fit, each with the command id that it carries; the ids must differ.
  /// Returns the status of each by command id. Throws on a completion of no command in flight.
  std::map<std::uint16_t, std::uint16_t> run_all(std::vector<nvme::submission_entry> const& entries);
};

/// Bytes in pages whose order on the bus is shuffled, among guard bytes.
class buffer {
 public:
  /// `offset_bytes`: where in the first page it starts.
  buffer(fixture& in, std::size_t bytes, std::size_t offset_bytes = 0);
  std::size_t size_bytes() const { return bytes_; }
  std::byte& operator[](std::size_t i) const;
  void fill(std::byte value) const;
  /// The content of the block at `lba` in life `salt`, from byte `at` on.
  void fill_pattern(std::uint64_t lba, std::uint64_t salt, std::uint32_t block_bytes) const;
  bool holds_pattern(std::uint64_t lba, std::uint64_t salt, std::uint32_t block_bytes) const;
  bool holds(std::byte value) const;
  /// Checks that no byte beside the buffer in its pages has changed.
  bool guards_intact() const;
  /// Data pointer of a command on the whole buffer. A PRP list starts `list_offset_bytes` into its page.
  void describe(nvme::submission_entry& entry, std::size_t list_offset_bytes = 0) const;
  std::uint64_t bus_address(std::size_t i) const;
  /// The PRP list as `describe` last built it, page by page.
  std::vector<std::uint64_t*> const& lists() const { return lists_; }

 private:
  fixture& in_;
  std::size_t bytes_;
  std::size_t offset_;
  std::vector<std::byte*> pages_;
  mutable std::vector<std::uint64_t*> lists_;
};

/// The objects of one check. When the check ends they are destroyed, and the controller is disabled.
class fixture {
 public:
  fixture(target& on, std::string_view name);
  ~fixture();
  fixture(fixture const&) = delete;
  fixture& operator=(fixture const&) = delete;

  target& on;
  std::string const name;
  std::mt19937_64 random{20260707};

  driver::register_space& registers() { return on.registers(); }
  /// The driver, which brings the controller up at first use.
  driver::controller& controller();
  /// The namespace is the target's.
  void bring_up(driver::controller_options options);
  /// Destroys the driver, which shuts the controller down.
  void close() { controller_.reset(); }
  driver::drive_identity const& drive() { return controller().identity(); }
  std::uint32_t stride() {
    return nvme::controller_capabilities{registers().read64(nvme::registers::cap)}.doorbell_stride();
  }

  /// Pages that live until the check ends.
  std::byte* allocate(std::size_t bytes);
  std::uint64_t bus_address(void const* address) { return on.dma().bus_address(address); }
  std::size_t page_bytes() { return 4096; }

  /// Status code and type of a completion or of an admin command.
  static std::uint16_t status(nvme::completion_entry const& c) {
    return static_cast<std::uint16_t>(c.status_field() & nvme::status_code_mask);
  }
  std::uint16_t admin(nvme::submission_entry const& entry) { return status(controller().execute(entry)); }
  /// Runs admin commands that change nothing: time in which a faulty controller would do what it must not.
  void give_time();

  // Create and delete commands as they go over the wire.
  static nvme::submission_entry create_cq(std::uint32_t id, std::uint32_t entries, std::uint64_t bus_address,
                                          std::uint32_t cdw11 = nvme::queue_physically_contiguous);
  static nvme::submission_entry create_sq(std::uint32_t id, std::uint32_t entries, std::uint64_t bus_address,
                                          std::uint32_t cq_id, std::uint32_t flags = nvme::queue_physically_contiguous);
  static nvme::submission_entry delete_cq(std::uint32_t id);
  static nvme::submission_entry delete_sq(std::uint32_t id);

  /// Queues made by hand; throw when the controller refuses.
  completion_ring make_cq(std::uint16_t id, std::uint32_t entries);
  submission_ring make_sq(std::uint16_t id, std::uint32_t entries, std::uint16_t cq_id);
  queue_pair make_pair(std::uint16_t id, std::uint32_t sq_entries, std::uint32_t cq_entries = 0);
  /// The view of a driver's queue.
  static queue_pair pair_of(driver::io_queue const& queue);
  /// A driver's pair of 64 entries, made at first use.
  queue_pair& pair();
  /// Runs one command in `pair()`, returns its status.
  std::uint16_t io(nvme::submission_entry const& entry) { return status(pair().run(entry)); }

  nvme::submission_entry command(nvme::io_opcode opcode, std::uint64_t slba, std::uint32_t blocks);
  std::uint16_t transfer(nvme::io_opcode opcode, std::uint64_t slba, buffer const& data,
                         std::size_t list_offset_bytes = 0);
  /// Writes a pattern from a buffer of one shape and reads it into one of another.
  void round_trip(std::uint64_t slba, std::uint32_t blocks, std::size_t write_offset, std::size_t read_offset,
                  std::size_t list_offset_bytes = 0);

  /// Expects a status. A status that the target's table of leniencies names is accepted too, and noted.
  void expect(std::uint16_t actual, std::uint16_t expected, std::string const& context = "");
  template <class Code>
    requires std::is_enum_v<Code>
  void expect(std::uint16_t actual, Code expected, std::string const& context = "") {
    expect(actual, nvme::status_field(expected), context);
  }

 private:
  std::vector<driver::dma_buffer> memory_;
  std::unique_ptr<driver::controller> controller_;
  std::optional<driver::io_queue> queue_;
  std::optional<queue_pair> pair_;
  std::uint16_t next_command_id_ = 0x4e1;
  std::set<std::uint16_t> leniencies_used_;
};

using check_list = std::vector<check>;
void add_register_checks(check_list& list);
void add_identify_checks(check_list& list);
void add_admin_checks(check_list& list);
void add_queue_creation_checks(check_list& list);
void add_data_checks(check_list& list);
void add_command_checks(check_list& list);
void add_ring_checks(check_list& list);
void add_recovery_checks(check_list& list);

}  // namespace forebay::conformance
