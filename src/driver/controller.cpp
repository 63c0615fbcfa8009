// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/driver/controller.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "admin_queue.hpp"
#include "forebay/detail/simt/native.hpp"

namespace forebay::driver {

namespace {

using cause = controller_failure::cause;
using simt::native;

/// How often a thread that waits for an admin command also asks whether the controller is still there.
constexpr std::uint64_t health_check_interval_ns = 10'000'000;
constexpr std::uint32_t max_blocks_per_command = 65536;

/// A text of Identify data. The specification allows printable ASCII only, and messages and reports rely on it.
std::string trimmed(char const* text, std::size_t bytes) {
  std::string s(text, bytes);
  s.erase(std::find(s.begin(), s.end(), '\0'), s.end());
  s.erase(s.find_last_not_of(' ') + 1);
  std::replace_if(s.begin(), s.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return s;
}

nvme::submission_entry admin_command(nvme::admin_opcode opcode) {
  nvme::submission_entry entry;
  entry.cdw0 = nvme::make_cdw0(opcode, 0);
  return entry;
}

}  // namespace

controller::controller(register_space& registers, dma_space& dma, controller_options options)
    : registers_(registers), dma_(dma), options_(options), shutdown_timeout_ns_(options.shutdown_timeout_ns) {
  if (options_.admin_queue_entries < 2 || options_.admin_queue_entries > 4096) {
    throw refused_input("admin_queue_entries", std::to_string(options_.admin_queue_entries), "use 2 to 4096");
  }
  if (options_.io_queue_pairs < 1 || options_.io_queue_pairs > 65535) {
    throw refused_input("io_queue_pairs", std::to_string(options_.io_queue_pairs), "use 1 to 65535");
  }
  if (options_.nsid == 0 || options_.nsid == nvme::broadcast_nsid) {
    throw refused_input("nsid", std::to_string(options_.nsid), "name one namespace, usually 1");
  }
  if (options_.priorities) {
    for (auto const& [field, weight] : {std::pair{"priorities.high", options_.priorities->high},
                                        {"priorities.medium", options_.priorities->medium},
                                        {"priorities.low", options_.priorities->low}}) {
      if (weight < 1 || weight > 256) throw refused_input(field, std::to_string(weight), "use 1 to 256");
    }
  }
  try {
    bring_up();
  } catch (...) {
    shutdown_quietly();
    throw;
  }
}

controller::~controller() {
  shutdown_quietly();
}

std::uint64_t controller::generation() const {
  std::lock_guard const lock(mutex_);
  return generation_;
}

bool controller::has_left() {
  std::unique_lock const lock(mutex_, std::try_to_lock);
  if (!lock || !registers_.has_left()) return false;
  if (state_ != state::disabled) ++generation_;
  state_ = state::disabled;
  return true;
}

void controller::reset() {
  std::lock_guard const lifecycle(lifecycle_mutex_);
  bring_up();
}

void controller::shutdown() {
  std::lock_guard const lifecycle(lifecycle_mutex_);
  std::lock_guard const lock(mutex_);
  if (state_ == state::disabled) return;
  if (state_ == state::enabled) notify_shutdown_locked();
  disable_locked();
}

void controller::shutdown_quietly() noexcept {
  std::lock_guard const lifecycle(lifecycle_mutex_);
  std::lock_guard const lock(mutex_);
  try {
    if (state_ == state::enabled) notify_shutdown_locked();
  } catch (controller_failure const&) {
    // Disabling it, next, is what keeps memory safe.
  }
  try {
    if (state_ != state::disabled) disable_locked();
  } catch (controller_failure const&) {
    if (state_ == state::disabled) return;
    // The controller may write these pages at any time: leaking them does less harm.
    if (admin_) admin_->leak();
    for (orphan& o : orphans_) {
      o.submission.leak();
      o.completion.leak();
    }
  }
}

void controller::bring_up() {
  {
    std::lock_guard const lock(mutex_);
    nvme::controller_capabilities const found{registers_.read64(nvme::registers::cap)};
    if (found.value == ~std::uint64_t{0}) {
      fail_locked(cause::removed, "the controller's registers read as all ones: the device is gone or its BAR is off");
    }
    if (!admin_) {
      adopt_capabilities(found);
    } else if (found.value != capabilities_.value) {
      fail_locked(cause::protocol, fmt::format("after reset the controller is another: CAP = {:#018x}, before {:#018x}",
                                               found.value, capabilities_.value));
    }
    disable_locked();
    if (!admin_) {
      admin_ = std::make_unique<admin_queue>(registers_, dma_, options_.admin_queue_entries,
                                             capabilities_.doorbell_stride());
    }
    enable_locked();
  }
  learn_identity();
}

void controller::adopt_capabilities(nvme::controller_capabilities found) {
  if (!found.nvm_command_set()) {
    throw operation_failed(
        fmt::format("CAP = {:#018x}: the controller does not offer the NVM command set", found.value));
  }
  if (found.max_queue_entries() < 2 && options_.quirks.queue_entries_if_untold == 0) {
    throw operation_failed(
        fmt::format("CAP = {:#018x}: its queues have one entry, and a queue needs two", found.value));
  }
  if (dma_.page_bytes() % found.min_page_bytes() != 0) {
    throw operation_failed(fmt::format("the controller's smallest page is {} bytes but memory comes in pages of {}",
                                       found.min_page_bytes(), dma_.page_bytes()));
  }
  if (options_.admin_queue_entries * sizeof(nvme::submission_entry) > found.min_page_bytes()) {
    throw refused_input(
        "admin_queue_entries", std::to_string(options_.admin_queue_entries),
        fmt::format("use at most {}, which fill a page", found.min_page_bytes() / sizeof(nvme::submission_entry)));
  }
  if (options_.priorities && !found.weighted_round_robin()) {
    throw refused_input("priorities", "weighted round robin",
                        "the controller arbitrates by round robin only (CAP.AMS): do without priorities of queues");
  }
  capabilities_ = found;
  identity_.page_bytes = static_cast<std::uint32_t>(found.min_page_bytes());
}

void controller::enable_locked() {
  admin_->restart();
  registers_.write32(nvme::registers::aqa, nvme::admin_queue_attributes::make(admin_->entries(), admin_->entries()));
  registers_.write64(nvme::registers::asq, admin_->submission_bus_address());
  registers_.write64(nvme::registers::acq, admin_->completion_bus_address());
  auto const arbitration = options_.priorities ? nvme::arbitration_mechanism::weighted_round_robin
                                               : nvme::arbitration_mechanism::round_robin;
  registers_.write32(nvme::registers::cc,
                     nvme::controller_configuration::make(true, identity_.page_bytes, 6, 4, arbitration));
  state_ = state::broken;  // until it says that it is ready
  wait_before_status_locked();
  if (!wait_for_ready_locked(true)) fail_not_in_time_locked("become ready");
  state_ = state::enabled;
}

void controller::disable_locked() {
  nvme::controller_configuration const configuration{registers_.read32(nvme::registers::cc)};
  nvme::controller_status const status = status_locked(false);
  // A controller that this driver has enabled is told to stop, whatever it says of itself: it knows this memory.
  if (configuration.enabled() || state_ != state::disabled) {
    // CC.EN must not be cleared before CSTS.RDY has followed it to 1. If the wait for that has failed before, or fails
    // here, the controller is disabled all the same: nothing else can help.
    if (!status.ready() && state_ == state::disabled) {
      static_cast<void>(native::wait_until(
          [&] {
            nvme::controller_status const now = status_locked(false);
            return now.ready() || now.fatal();
          },
          native::clock_ns() + ready_timeout_ns()));
    }
    registers_.write32(nvme::registers::cc, configuration.value & ~nvme::controller_configuration::enable_bit);
    wait_before_status_locked();
  }
  if (!wait_for_ready_locked(false)) fail_not_in_time_locked("stop");
  state_ = state::disabled;
  ++generation_;
  for (orphan const& o : orphans_) queue_id_used_[o.id] = false;
  orphans_.clear();
}

std::uint64_t controller::ready_timeout_ns() const {
  // With CAP.TO = 0 there would be no time at all, so half a second is added.
  return options_.ready_timeout_ns != 0 ? options_.ready_timeout_ns : capabilities_.timeout_ns() + 500'000'000;
}

void controller::wait_before_status_locked() const {
  if (options_.quirks.ready_delay_ns == 0) return;
  static_cast<void>(native::wait_until([] { return false; }, native::clock_ns() + options_.quirks.ready_delay_ns));
}

bool controller::wait_for_ready_locked(bool ready) {
  return native::wait_until([&] { return status_locked(ready).ready() == ready; },
                            native::clock_ns() + ready_timeout_ns());
}

void controller::fail_not_in_time_locked(char const* what) {
  fail_locked(cause::timed_out,
              fmt::format("the controller did not {} within {} ms (CC = {:08x}h, CSTS = {:08x}h)", what,
                          ready_timeout_ns() / 1'000'000, registers_.read32(nvme::registers::cc),
                          registers_.read32(nvme::registers::csts)));
}

nvme::controller_status controller::status_locked(bool fatal_throws) {
  nvme::controller_status const status{registers_.read32(nvme::registers::csts)};
  if (status.value == nvme::removed_value) {
    fail_locked(cause::removed, "the controller has left the bus (CSTS reads as all ones)");
  }
  if (fatal_throws && status.fatal()) {
    fail_locked(cause::fatal,
                fmt::format("the controller reports a fatal error (CSTS = {:08x}h): reset it", status.value));
  }
  return status;
}

void controller::require_enabled_locked() const {
  if (state_ == state::enabled) return;
  throw controller_failure(cause::cancelled, state_ == state::disabled
                                                 ? "the controller is shut down: reset() brings it up"
                                                 : "the controller stopped answering: reset() may bring it back");
}

void controller::fail_locked(controller_failure::cause why, std::string const& what) {
  // A device that left the bus touches nothing; any other may.
  state_ = why == cause::removed ? state::disabled : state::broken;
  if (why == cause::removed) ++generation_;
  throw controller_failure(why, what);
}

void controller::notify_shutdown_locked() {
  std::uint32_t const configuration = registers_.read32(nvme::registers::cc);
  registers_.write32(nvme::registers::cc,
                     nvme::controller_configuration::with_shutdown(configuration, nvme::shutdown_notification::normal));
  bool const in_time =
      native::wait_until([&] { return status_locked(true).shutdown() == nvme::shutdown_status::complete; },
                         native::clock_ns() + shutdown_timeout_ns_);
  if (!in_time) {
    fail_locked(cause::timed_out, fmt::format("the controller did not finish its shutdown within {} ms",
                                              shutdown_timeout_ns_ / 1'000'000));
  }
}

void controller::learn_identity() {
  nvme::identify_controller const c = identify_controller();
  std::vector<std::uint32_t> const active = active_namespaces(options_.nsid - 1);
  if (active.empty() || active.front() != options_.nsid) {
    throw operation_failed(fmt::format("namespace {} is not active on drive '{}' ({} namespaces at most)",
                                       options_.nsid, trimmed(c.sn, sizeof c.sn), c.nn));
  }
  nvme::identify_namespace const n = identify_namespace(options_.nsid);
  if (n.format().ms != 0) {
    throw operation_failed(
        fmt::format("namespace {} is formatted with {} bytes of metadata per block: format it without", options_.nsid,
                    n.format().ms));
  }
  if (n.format().lbads < 9 || n.format().lbads > 16) {
    throw operation_failed(fmt::format("namespace {} has blocks of 2^{} bytes: 512 to 65536 can be used", options_.nsid,
                                       n.format().lbads));
  }

  std::uint64_t const most_blocks = (std::uint64_t{1} << 63) / n.block_bytes();
  if (n.nsze == 0 || n.nsze >= most_blocks) {
    throw operation_failed(
        fmt::format("namespace {} has {} blocks of {} bytes: 1 to {} can be used; check the drive's namespaces and its "
                    "firmware",
                    options_.nsid, n.nsze, n.block_bytes(), most_blocks - 1));
  }

  drive_identity found;
  found.serial = trimmed(c.sn, sizeof c.sn);
  found.model = trimmed(c.mn, sizeof c.mn);
  found.firmware = trimmed(c.fr, sizeof c.fr);
  found.version = {c.ver};
  found.nsid = options_.nsid;
  found.blocks = n.nsze;
  found.block_bytes = static_cast<std::uint32_t>(n.block_bytes());
  found.page_bytes = identity_.page_bytes;
  std::uint64_t const mdts_bytes = c.max_data_transfer_bytes(capabilities_.min_page_bytes());
  found.max_transfer_bytes = std::uint64_t{max_blocks_per_command} * found.block_bytes;
  if (mdts_bytes != 0) found.max_transfer_bytes = std::min(found.max_transfer_bytes, mdts_bytes);
  if (found.max_transfer_bytes < found.block_bytes) {
    throw operation_failed(
        fmt::format("a command moves at most {} bytes (MDTS = {}), and namespace {} has blocks of {}",
                    found.max_transfer_bytes, c.mdts, options_.nsid, found.block_bytes));
  }
  found.max_queue_entries = capabilities_.max_queue_entries();
  if (found.max_queue_entries < 2) found.max_queue_entries = options_.quirks.queue_entries_if_untold;
  if (std::uint32_t const most = options_.quirks.queue_entries_most; most != 0) {
    found.max_queue_entries = std::min(found.max_queue_entries, most);
  }
  auto const supports = [&](nvme::optional_nvm_command bit) { return (c.oncs & static_cast<std::uint16_t>(bit)) != 0; };
  found.volatile_write_cache = c.volatile_write_cache_present();
  found.compare = supports(nvme::optional_nvm_command::compare);
  found.write_zeroes = supports(nvme::optional_nvm_command::write_zeroes) && !options_.quirks.no_write_zeroes;
  found.dataset_management = supports(nvme::optional_nvm_command::dataset_management);
  found.write_protected = (n.nsattr & 1) != 0;
  found.deallocated_reads_zero = (n.dlfeat & 7) == 1;
  nvme::number_of_queues const granted{
      set_feature(nvme::feature_id::number_of_queues,
                  nvme::number_of_queues::make(options_.io_queue_pairs, options_.io_queue_pairs))};
  found.io_queue_pairs = std::min({options_.io_queue_pairs, granted.submission_queues(), granted.completion_queues()});

  if (options_.priorities) {
    priority_weights const& w = *options_.priorities;
    nvme::arbitration const before{get_feature(nvme::feature_id::arbitration)};
    set_feature(nvme::feature_id::arbitration, before.with_weights(w.high, w.medium, w.low).value);
  }

  if (identity_.blocks == 0) {
    std::uint64_t const rtd3e_ns = std::uint64_t{c.rtd3e} * 1000;
    shutdown_timeout_ns_ = std::max(shutdown_timeout_ns_, std::min(rtd3e_ns, options_.shutdown_timeout_most_ns));
    std::lock_guard const lock(mutex_);
    queue_id_used_.assign(found.io_queue_pairs + 1, false);
    queue_id_used_[0] = true;
    identity_ = std::move(found);
  } else if (found.serial != identity_.serial || found.blocks != identity_.blocks ||
             found.block_bytes != identity_.block_bytes || found.io_queue_pairs < identity_.io_queue_pairs) {
    std::lock_guard const lock(mutex_);
    fail_locked(
        cause::protocol,
        fmt::format("after reset the controller is another: drive '{}' of {} blocks of {} bytes with {} queue pairs, "
                    "before '{}' of {} blocks of {} bytes with {}",
                    found.serial, found.blocks, found.block_bytes, found.io_queue_pairs, identity_.serial,
                    identity_.blocks, identity_.block_bytes, identity_.io_queue_pairs));
  }
}

admin_ticket controller::start(nvme::submission_entry const& entry, dma_buffer* data, std::uint64_t deadline_ns) {
  admin_ticket ticket;
  bool const started = native::wait_until(
      [&] {
        std::lock_guard const lock(mutex_);
        require_enabled_locked();
        admin_->poll();
        std::optional<std::uint16_t> const id = admin_->submit(entry, data);
        if (!id) return false;
        ticket = {*id, generation_};
        return true;
      },
      deadline_ns);
  if (!started) throw controller_failure(cause::timed_out, "every admin command id stayed in use");
  return ticket;
}

std::optional<nvme::completion_entry> controller::finish(admin_ticket ticket, dma_buffer* data,
                                                         std::uint64_t deadline_ns) {
  std::optional<nvme::completion_entry> completion;
  std::uint64_t next_health_check_ns = native::clock_ns() + health_check_interval_ns;
  bool const done = native::wait_until(
      [&] {
        std::lock_guard const lock(mutex_);
        if (ticket.generation != generation_) {
          throw controller_failure(cause::cancelled, "the controller was reset while the command was under way");
        }
        require_enabled_locked();
        admin_->poll();
        completion = admin_->take(ticket.command_id, data);
        if (!completion && native::clock_ns() >= next_health_check_ns) {
          status_locked(true);
          next_health_check_ns = native::clock_ns() + health_check_interval_ns;
        }
        return completion.has_value();
      },
      deadline_ns);
  if (!done && deadline_ns != 0) {
    std::lock_guard const lock(mutex_);
    status_locked(true);
  }
  return completion;
}

nvme::completion_entry controller::run(nvme::submission_entry const& entry, dma_buffer* data) {
  admin_ticket const ticket = start(entry, data, native::clock_ns() + options_.admin_timeout_ns);
  auto completion = finish(ticket, data, native::clock_ns() + options_.admin_timeout_ns);
  if (completion) return *completion;
  if (entry.opcode() != static_cast<std::uint8_t>(nvme::admin_opcode::abort)) {
    try {
      abort(0, ticket.command_id);
    } catch (command_error const&) {
      // It will not abort this one; the command may still complete by itself.
    }
    completion = finish(ticket, data, native::clock_ns() + options_.admin_timeout_ns);
    if (completion) return *completion;
  }
  std::lock_guard const lock(mutex_);
  fail_locked(cause::timed_out, fmt::format("admin command {:02x}h had no answer within {} ms: reset the controller",
                                            entry.opcode(), options_.admin_timeout_ns / 1'000'000));
}

nvme::completion_entry controller::run_or_throw(nvme::submission_entry const& entry, dma_buffer* data,
                                                std::string const& what) {
  nvme::completion_entry const completion = run(entry, data);
  if (completion.status_field() != 0) throw command_error(what, completion.status_field());
  return completion;
}

nvme::completion_entry controller::execute(nvme::submission_entry const& entry) {
  return run(entry, nullptr);
}

admin_ticket controller::start(nvme::submission_entry const& entry) {
  return start(entry, nullptr, native::clock_ns() + options_.admin_timeout_ns);
}

std::optional<nvme::completion_entry> controller::finish(admin_ticket ticket, std::uint64_t deadline_ns) {
  return finish(ticket, nullptr, deadline_ns);
}

bool controller::abort(std::uint16_t sq_id, std::uint16_t command_id) {
  std::lock_guard const one_at_a_time(abort_mutex_);
  nvme::submission_entry entry = admin_command(nvme::admin_opcode::abort);
  entry.cdw10 = sq_id | static_cast<std::uint32_t>(command_id) << 16;
  nvme::completion_entry const completion =
      run_or_throw(entry, nullptr, fmt::format("Abort of command {} in queue {}", command_id, sq_id));
  return (completion.dw0 & 1) == 0;
}

dma_buffer controller::identify(nvme::identify_cns cns, std::uint32_t nsid, std::string const& what) {
  dma_buffer page(dma_, identity_.page_bytes);
  nvme::submission_entry entry = admin_command(nvme::admin_opcode::identify);
  entry.nsid = nsid;
  entry.prp1 = page.bus_address();
  entry.cdw10 = static_cast<std::uint32_t>(cns);
  run_or_throw(entry, &page, what);
  return page;
}

nvme::identify_controller controller::identify_controller() {
  return *identify(nvme::identify_cns::identify_controller, 0, "Identify Controller").as<nvme::identify_controller>();
}

nvme::identify_namespace controller::identify_namespace(std::uint32_t nsid) {
  return *identify(nvme::identify_cns::identify_namespace, nsid, fmt::format("Identify Namespace {}", nsid))
              .as<nvme::identify_namespace>();
}

std::vector<std::uint32_t> controller::active_namespaces(std::uint32_t after) {
  dma_buffer const page = identify(nvme::identify_cns::active_namespace_list, after,
                                   fmt::format("Identify active namespaces after {}", after));
  auto const& list = *page.as<nvme::namespace_list>();
  auto const* const end = std::find(std::begin(list.nsid), std::end(list.nsid), 0u);
  return {std::begin(list.nsid), end};
}

std::uint32_t controller::get_feature(nvme::feature_id feature, nvme::feature_select select, std::uint32_t nsid) {
  nvme::submission_entry entry = admin_command(nvme::admin_opcode::get_features);
  entry.nsid = nsid;
  entry.cdw10 = static_cast<std::uint32_t>(feature) | static_cast<std::uint32_t>(select) << 8;
  return run_or_throw(entry, nullptr, fmt::format("Get Features {:02x}h", static_cast<unsigned>(feature))).dw0;
}

std::uint32_t controller::set_feature(nvme::feature_id feature, std::uint32_t value, std::uint32_t nsid) {
  nvme::submission_entry entry = admin_command(nvme::admin_opcode::set_features);
  entry.nsid = nsid;
  entry.cdw10 = static_cast<std::uint32_t>(feature);
  entry.cdw11 = value;
  return run_or_throw(entry, nullptr,
                      fmt::format("Set Features {:02x}h to {:#x}", static_cast<unsigned>(feature), value))
      .dw0;
}

void controller::get_log_page(nvme::log_page_id page, void* to, std::size_t bytes, std::uint32_t nsid) {
  if (bytes == 0 || bytes % 4 != 0 || bytes > identity_.page_bytes) {
    throw refused_input("bytes", std::to_string(bytes),
                        fmt::format("use a multiple of 4 up to {}", identity_.page_bytes));
  }
  dma_buffer data(dma_, identity_.page_bytes);
  nvme::submission_entry entry = admin_command(nvme::admin_opcode::get_log_page);
  entry.nsid = nsid;
  entry.prp1 = data.bus_address();
  entry.cdw10 = nvme::get_log_page_cdw10(page, bytes);
  entry.cdw11 = nvme::get_log_page_cdw11(bytes);
  run_or_throw(entry, &data, fmt::format("Get Log Page {:02x}h", static_cast<unsigned>(page)));
  std::memcpy(to, data.data(), bytes);
}

std::uint64_t controller::ring_bus_address(void const* ring, std::size_t bytes, std::string const& field) const {
  std::size_t const page_bytes = identity_.page_bytes;
  if (reinterpret_cast<std::uintptr_t>(ring) % page_bytes != 0) {
    throw refused_input(field, fmt::format("{}", ring), fmt::format("start it on a page of {} bytes", page_bytes));
  }
  auto const* const first = static_cast<std::byte const*>(ring);
  std::uint64_t const base = dma_.bus_address(first);
  for (std::size_t offset = page_bytes; offset < bytes; offset += page_bytes) {
    if (dma_.bus_address(first + offset) != base + offset) {
      throw refused_input(
          field, fmt::format("{} bytes", bytes),
          fmt::format("give memory that is contiguous on the bus, or entries that fit a page of {}", page_bytes));
    }
  }
  return base;
}

io_queue controller::create_io_queue_pair(queue_options const& options) {
  std::uint32_t const completion_entries =
      options.completion_entries != 0 ? options.completion_entries : options.entries;
  for (auto const& [field, entries] :
       {std::pair{"entries", options.entries}, {"completion_entries", completion_entries}}) {
    if (entries < 2 || entries > identity_.max_queue_entries) {
      throw refused_input(field, std::to_string(entries),
                          fmt::format("the controller takes 2 to {} entries", identity_.max_queue_entries));
    }
  }

  io_queue queue;
  queue.entries_ = options.entries;
  queue.completion_entries_ = completion_entries;
  queue.priority_ = options.priority;
  queue.submission_ring_ = options.submission_memory;
  if (queue.submission_ring_ == nullptr) {
    queue.submission_buffer_ = dma_buffer(dma_, queue.entries_ * sizeof(nvme::submission_entry), options.rings_on_gpu);
    queue.submission_ring_ = queue.submission_buffer_.as<nvme::submission_entry>();
  }
  queue.completion_ring_ = options.completion_memory;
  if (queue.completion_ring_ == nullptr) {
    queue.completion_buffer_ =
        dma_buffer(dma_, queue.completion_entries_ * sizeof(nvme::completion_entry), options.rings_on_gpu);
    queue.completion_ring_ = queue.completion_buffer_.as<nvme::completion_entry>();
  }
  {
    std::lock_guard const lock(mutex_);
    auto const unused = std::find(queue_id_used_.begin(), queue_id_used_.end(), false);
    if (unused == queue_id_used_.end()) {
      throw operation_failed(
          fmt::format("all {} I/O queue pairs that the controller granted are in use", identity_.io_queue_pairs));
    }
    queue.id_ = static_cast<std::uint16_t>(unused - queue_id_used_.begin());
    auto const doorbell = [&](std::uint32_t offset_bytes) {
      return options.driven_by_gpu ? registers_.doorbell_for_gpu(offset_bytes) : registers_.doorbell(offset_bytes);
    };
    queue.sq_tail_doorbell_ = doorbell(nvme::registers::sq_tail_doorbell(queue.id_, capabilities_.doorbell_stride()));
    queue.cq_head_doorbell_ = doorbell(nvme::registers::cq_head_doorbell(queue.id_, capabilities_.doorbell_stride()));
    // After the doorbells, which a controller with a large stride may not have.
    *unused = true;
  }
  queue.owner_ = this;
  create_queues(queue);
  return queue;
}

void controller::recreate(io_queue& queue) {
  if (queue.owner_ != this) throw refused_input("queue", std::to_string(queue.id_), "use a queue of this controller");
  if (queue.live()) throw refused_input("queue", std::to_string(queue.id_), "delete it or reset the controller first");
  if (queue.submission_buffer_) queue.submission_buffer_.clear();
  if (queue.completion_buffer_) queue.completion_buffer_.clear();
  create_queues(queue);
}

void controller::delete_io_queue_pair(io_queue& queue) {
  if (!queue.live() || queue.owner_ != this) {
    throw refused_input("queue", std::to_string(queue.id_), "use a live queue of this controller");
  }
  delete_queues(queue);
}

void controller::create_queues(io_queue& queue) {
  nvme::submission_entry cq = admin_command(nvme::admin_opcode::create_io_completion_queue);
  cq.prp1 = ring_bus_address(queue.completion_ring_, queue.completion_entries_ * sizeof(nvme::completion_entry),
                             "completion_memory");
  cq.cdw10 = queue.id_ | (queue.completion_entries_ - 1) << 16;
  cq.cdw11 = nvme::queue_physically_contiguous;
  nvme::submission_entry sq = admin_command(nvme::admin_opcode::create_io_submission_queue);
  sq.prp1 =
      ring_bus_address(queue.submission_ring_, queue.entries_ * sizeof(nvme::submission_entry), "submission_memory");
  sq.cdw10 = queue.id_ | (queue.entries_ - 1) << 16;
  sq.cdw11 = nvme::queue_physically_contiguous | static_cast<std::uint32_t>(queue.id_) << 16;
  // With round-robin arbitration the field has no meaning, and is left clear.
  if (options_.priorities) sq.cdw11 |= nvme::queue_priority_bits(queue.priority_);

  // Once the create command is sent the controller may know the ring, whether it answers or not. So the queue counts as
  // live, and its memory outlives that.
  queue.generation_ = generation();
  try {
    run_or_throw(cq, nullptr,
                 fmt::format("Create I/O Completion Queue {} of {} entries", queue.id_, queue.completion_entries_));
  } catch (command_error const&) {
    queue.generation_ = 0;
    throw;
  }
  try {
    run_or_throw(sq, nullptr, fmt::format("Create I/O Submission Queue {} of {} entries", queue.id_, queue.entries_));
  } catch (command_error const&) {
    delete_completion_queue(queue);
    throw;
  }
}

void controller::delete_queues(io_queue& queue) {
  nvme::submission_entry entry = admin_command(nvme::admin_opcode::delete_io_submission_queue);
  entry.cdw10 = queue.id_;
  run_or_throw(entry, nullptr, fmt::format("Delete I/O Submission Queue {}", queue.id_));
  delete_completion_queue(queue);
}

void controller::delete_completion_queue(io_queue& queue) {
  nvme::submission_entry entry = admin_command(nvme::admin_opcode::delete_io_completion_queue);
  entry.cdw10 = queue.id_;
  run_or_throw(entry, nullptr, fmt::format("Delete I/O Completion Queue {}", queue.id_));
  queue.generation_ = 0;
}

void controller::release(io_queue& queue) noexcept {
  try {
    if (queue.live()) delete_queues(queue);
  } catch (...) {
    // The controller may go on writing the rings: they stay allocated until it is disabled.
  }
  std::lock_guard const lock(mutex_);
  if (queue.generation_ == generation_) {
    orphans_.push_back({queue.id_, std::move(queue.submission_buffer_), std::move(queue.completion_buffer_)});
  } else {
    queue_id_used_[queue.id_] = false;
  }
}

}  // namespace forebay::driver
