// SPDX-License-Identifier: Apache-2.0
#include "shared_controller.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client_space.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/driver/dma_buffer.hpp"
#include "forebay/detail/driver/doorbell_relay.hpp"
#include "forebay/detail/emulator/queues.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/feature.hpp"
#include "forebay/detail/nvme/identify.hpp"
#include "forebay/detail/nvme/log_page.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/nvme/status_code.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "whole_controller.hpp"

namespace forebay::drive::served {
namespace {

namespace registers = nvme::registers;
using nvme::admin_opcode;
using nvme::command_specific_status;
using nvme::feature_id;
using nvme::generic_status;
using simt::native;

constexpr std::uint32_t max_events = 4;

template <class Code>
constexpr std::uint16_t refuse(Code code) {
  return static_cast<std::uint16_t>(nvme::status_field(code) | nvme::do_not_retry);
}

/// What one client sees: a controller that has some of the whole one's queue pairs. Pair `n` of the client is pair
/// `ids_[n - 1]` of the whole one. The client's requests are made by one thread.
class part_of_controller final : public client_controller, private driver::register_space {
 public:
  part_of_controller(std::shared_ptr<whole_controller> of, std::vector<std::uint16_t> ids,
                     std::unique_ptr<client_space> space)
      : of_(std::move(of)),
        ids_(std::move(ids)),
        space_(std::move(space)),
        page_(of_->drive().dma(), page_bytes),
        submission_(ids_.size() + 1),
        completion_(ids_.size() + 1),
        targets_(2 * (ids_.size() + 1)),
        sizes_(targets_.size()),
        relay_(space_->arena(), static_cast<std::uint32_t>(targets_.size()),
               [this](std::uint32_t offset_bytes, std::uint32_t value) { ring(offset_bytes, value); }) {
    capabilities_ =
        nvme::controller_capabilities::make(of_->host().identity().max_queue_entries, true, ready_500ms, 0, 1, 0, 0);
  }
  ~part_of_controller() override { leave(); }
  part_of_controller(part_of_controller const&) = delete;
  part_of_controller& operator=(part_of_controller const&) = delete;

  driver::register_space& registers() override { return *this; }
  driver::dma_space& dma() override { return *space_; }
  void reach(std::shared_ptr<chunk> const& its) override { space_->reach(its); }
  std::vector<bus_stretch> stretches_of(chunk const& its) const override { return space_->stretches_of(its); }
  nlohmann::json report() override {
    nlohmann::json document = of_->drive().report();
    document["residency"] = "served";
    document["doorbells"] = "relay";
    return document;
  }
  void reset_statistics() override {}

  bool leave() noexcept override {
    if (left_) return let_go_;
    left_ = true;
    let_go_ = delete_queues();
    use_cache_quietly();
    if (let_go_) {
      space_->let_go();
      of_->give_back(ids_);
    } else {
      space_->keep();
      page_.leak();
    }
    return let_go_;
  }

 private:
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::uint32_t ready_500ms = 20;

  struct completion {
    std::uint16_t status_field = 0;
    std::uint32_t result = 0;
  };
  /// Nothing: the command is outstanding.
  using outcome = std::optional<completion>;
  struct queue {
    bool exists = false;
    std::uint32_t users = 0;  ///< of a completion queue: submission queues that name it
    std::uint32_t cq_id = 0;  ///< of a submission queue
  };

  // ---- registers

  std::uint32_t read32(std::uint32_t offset_bytes) override {
    switch (offset_bytes) {
      case registers::cap:
        return static_cast<std::uint32_t>(capabilities_);
      case registers::cap + 4:
        return static_cast<std::uint32_t>(capabilities_ >> 32);
      case registers::vs:
        return of_->host().identity().version.value;
      case registers::cc:
        return configuration_.value;
      case registers::csts:
        if (of_->host().has_left()) return nvme::removed_value;
        // A reset of the whole controller, for another client, has deleted this one's queues too.
        if (status_.ready() && generation_ != of_->generation()) fail();
        return status_.value;
      case registers::aqa:
        return attributes_.value;
      case registers::asq:
      case registers::asq + 4:
        return static_cast<std::uint32_t>(submission_base_ >> (offset_bytes - registers::asq) * 8);
      case registers::acq:
      case registers::acq + 4:
        return static_cast<std::uint32_t>(completion_base_ >> (offset_bytes - registers::acq) * 8);
      default:
        return 0;
    }
  }
  void write32(std::uint32_t offset_bytes, std::uint32_t value) override {
    auto const set_half = [&](std::uint64_t& whole, std::uint32_t first) {
      unsigned const shift = (offset_bytes - first) * 8;
      whole = (whole & ~(std::uint64_t{0xffffffff} << shift)) | std::uint64_t{value} << shift;
    };
    switch (offset_bytes) {
      case registers::cc:
        configure(nvme::controller_configuration{value});
        break;
      case registers::aqa:
        attributes_.value = value;
        break;
      case registers::asq:
      case registers::asq + 4:
        set_half(submission_base_, registers::asq);
        break;
      case registers::acq:
      case registers::acq + 4:
        set_half(completion_base_, registers::acq);
        break;
      default:
        if (offset_bytes > registers::cq_head_doorbell(0, 0)) ring(offset_bytes, value);
    }
    {
      std::lock_guard const lock(mutex_);
      if (offset_bytes == registers::sq_tail_doorbell(0, 0)) tail_ = value;
      if (offset_bytes == registers::cq_head_doorbell(0, 0)) head_ = value;
      serve_admin();
      raise_events_locked();
    }
    // What the relay's thread found while this one had the lock. Fence: pairs with the one in `raise_events`.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    raise_events();
  }
  std::uint32_t* doorbell(std::uint32_t offset_bytes) override {
    try {
      return relay_.word(offset_bytes);
    } catch (std::out_of_range const&) {
      throw refused_input("doorbell offset", std::to_string(offset_bytes),
                          fmt::format("the controller has {} queue pairs", ids_.size()));
    }
  }

  /// Called by the relay's thread too.
  void ring(std::uint32_t offset_bytes, std::uint32_t value) {
    std::size_t const word = (offset_bytes - registers::doorbell_base) / sizeof(std::uint32_t);
    if (offset_bytes % sizeof(std::uint32_t) != 0 || word >= targets_.size()) return;
    // Acquire: pairs with the release in `aim`: the queue exists.
    std::uint32_t* const to = targets_[word].load(std::memory_order_acquire);
    if (to == nullptr) return;
    // Relaxed: it comes before the release in `aim`.
    if (value < sizes_[word].load(std::memory_order_relaxed)) return native::st_mmio(to, value);
    bad_doorbell_.store(true, std::memory_order_relaxed);  // the fence orders it
    raise_events();
  }
  /// Where doorbells of a queue go from now on; null: nowhere. When it returns, none is under way to where they went.
  void aim(std::uint32_t offset_bytes, std::uint32_t* to, std::uint32_t entries = 0) {
    std::size_t const word = (offset_bytes - registers::doorbell_base) / sizeof(std::uint32_t);
    if (to != nullptr) sizes_[word].store(entries, std::memory_order_relaxed);
    // Release: pairs with the acquire in `ring`.
    targets_[word].store(to, std::memory_order_release);
    if (to == nullptr) relay_.forward_stored();
  }

  /// Tells the client of a doorbell value that its queue does not have, which the drive never sees. Called by the
  /// relay's thread too. If the lock is taken, the one that has it looks again.
  void raise_events() {
    // Pairs with the one in `write32`: either this thread gets the lock, or that one sees the flag.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!bad_doorbell_.load(std::memory_order_relaxed)) return;
    std::unique_lock const lock(mutex_, std::try_to_lock);
    if (lock) raise_events_locked();
  }
  void raise_events_locked() {
    if (!bad_doorbell_.load(std::memory_order_relaxed) || event_masked_ || events_.empty()) return;
    bad_doorbell_.store(false, std::memory_order_relaxed);
    event_masked_ = true;
    // Type 0 (error status), information 1 (invalid doorbell write value), log page 01h.
    constexpr std::uint32_t event = 1u << 8 | static_cast<std::uint32_t>(nvme::log_page_id::error_information) << 16;
    completions_.emplace_back(events_.front(), completion{0, event});
    events_.erase(events_.begin());
    post();
  }

  // ---- bring-up, reset and shutdown

  void configure(nvme::controller_configuration to) {
    std::lock_guard const lock(mutex_);
    bool const was_enabled = configuration_.enabled();
    configuration_ = to;
    if (was_enabled && !to.enabled()) {
      reset();
    } else if (!was_enabled && to.enabled()) {
      enable();
    }
    // What the drive has in a cache stays there: the whole controller is shut down when the daemon ends.
    if (to.enabled() && to.shutdown() != nvme::shutdown_notification::none) {
      status_.value = nvme::controller_status::make(status_.ready(), status_.fatal(), nvme::shutdown_status::complete);
    }
  }
  void fail() { status_.value = nvme::controller_status::make(status_.ready(), true, status_.shutdown()); }

  void enable() {
    std::byte* const submission =
        space_->at(submission_base_, attributes_.sq_entries() * sizeof(nvme::submission_entry));
    std::byte* const ring = space_->at(completion_base_, attributes_.cq_entries() * sizeof(nvme::completion_entry));
    bool const usable = submission != nullptr && ring != nullptr && submission_base_ % page_bytes == 0 &&
                        completion_base_ % page_bytes == 0 && configuration_.page_bytes() == page_bytes &&
                        configuration_.command_set() == 0 && configuration_.arbitration() == 0 &&
                        attributes_.sq_entries() >= 2 && attributes_.cq_entries() >= 2;
    if (!usable) {
      status_.value = nvme::controller_status::make(false, true, nvme::shutdown_status::none);
      return;
    }
    try {
      // An earlier reset may not have got rid of them.
      if (!delete_queues()) throw operation_failed("the controller has not let go of all queues");
      generation_ = of_->answering();
    } catch (operation_failed const&) {
      status_.value = nvme::controller_status::make(false, true, nvme::shutdown_status::none);
      return;
    }
    bad_doorbell_.store(false, std::memory_order_relaxed);
    event_masked_ = false;
    features_.clear();
    sq_entries_ = attributes_.sq_entries();
    entries_ = reinterpret_cast<nvme::submission_entry const*>(submission);
    tail_ = head_ = sq_head_ = 0;
    ring_ = emulator::completion_ring({.slot = 0,
                                       .entries = reinterpret_cast<nvme::completion_entry*>(ring),
                                       .size = attributes_.cq_entries(),
                                       .head_doorbell = &head_});
    status_.value = nvme::controller_status::make(true, false, nvme::shutdown_status::none);
  }
  void reset() {
    completions_.clear();
    events_.clear();
    entries_ = nullptr;
    use_cache_quietly();
    bool const gone = delete_queues();
    // Ready until the drive has let go, so that the client keeps its memory.
    status_.value = nvme::controller_status::make(!gone, !gone, nvme::shutdown_status::none);
  }
  /// Returns whether the drive has let go of all queues, and so of the memory that their commands named.
  bool delete_queues() noexcept {
    std::uint64_t const before = of_->generation();
    bool const deleted = delete_one_by_one();
    try {
      // What was never answered may still write the page here. The other clients see that their controllers have
      // failed, and bring them up again.
      if (!deleted || unanswered_ == before) of_->reset(before);
    } catch (operation_failed const&) {
      return false;
    }
    for (auto* const kind : {&submission_, &completion_}) std::fill(kind->begin(), kind->end(), queue{});
    // Those too that a reset deleted: the next queues with these ids may be another client's.
    for (auto& target : targets_) target.store(nullptr, std::memory_order_release);  // pairs with `ring`
    relay_.forward_stored();
    return true;
  }
  bool delete_one_by_one() noexcept {
    try {
      for (auto* const kind : {&submission_, &completion_}) {
        for (std::uint32_t id = 1; id < kind->size(); ++id) {
          if ((*kind)[id].exists && delete_queue(*kind, id).status_field != 0) return false;
        }
      }
      return true;
    } catch (operation_failed const&) {
      return false;  // the controller does not answer
    }
  }

  // ---- admin commands

  void serve_admin() {
    if (entries_ == nullptr || !status_.ready()) return;
    for (post(); completions_.empty() && tail_ < sq_entries_ && tail_ != sq_head_; post()) {
      nvme::submission_entry command;
      native::copy(&command, entries_ + sq_head_, sizeof command);
      sq_head_ = sq_head_ + 1 == sq_entries_ ? 0 : sq_head_ + 1;
      if (outcome const result = execute(command)) completions_.emplace_back(command.command_id(), *result);
    }
  }
  void post() {
    auto const self = simt::team<native>::here();
    ring_.look_at_head<native>(self);
    for (std::uint32_t free = ring_.known_free(); free != 0 && !completions_.empty(); --free) {
      auto const& [command_id, what] = completions_.front();
      auto const places = ring_.take(1, 0);
      ring_.prepare(self, places, 1, what.result,
                    nvme::completion_entry::make_dw2(static_cast<std::uint16_t>(sq_head_), 0));
      ring_.publish<native>(places, 0, command_id, what.status_field);
      completions_.pop_front();
    }
  }

  outcome execute(nvme::submission_entry const& command) {
    if (command.fused() != 0 || command.psdt() != 0) {
      return completion{refuse(generic_status::invalid_field_in_command)};
    }
    if (generation_ != of_->generation()) {
      fail();
      return completion{refuse(generic_status::internal_error)};
    }
    try {
      switch (static_cast<admin_opcode>(command.opcode())) {
        case admin_opcode::create_io_completion_queue:
          return create_completion_queue(command);
        case admin_opcode::create_io_submission_queue:
          return create_submission_queue(command);
        case admin_opcode::delete_io_completion_queue:
          return delete_by_client(completion_, command);
        case admin_opcode::delete_io_submission_queue:
          return delete_by_client(submission_, command);
        case admin_opcode::abort:
          return abort(command);
        case admin_opcode::identify:
          return identify(command);
        case admin_opcode::get_log_page:
          return get_log_page(command);
        case admin_opcode::set_features:
          return set_features(command);
        case admin_opcode::get_features:
          return get_features(command);
        case admin_opcode::asynchronous_event_request:
          return request_event(command);
        default:
          return completion{refuse(generic_status::invalid_command_opcode)};
      }
    } catch (driver::command_error const& refused) {
      return completion{refused.status_field()};
    } catch (operation_failed const&) {
      fail();
      return completion{refuse(generic_status::internal_error)};
    }
  }
  /// Runs a command on the whole controller.
  completion run(nvme::submission_entry const& command) {
    std::uint64_t const now = of_->generation();
    try {
      nvme::completion_entry const done = of_->run(command);
      return {done.status_field(), done.dw0};
    } catch (driver::controller_failure const&) {
      unanswered_ = now;
      throw;
    }
  }
  /// Runs it with this process's page as its data.
  completion run_with_page(nvme::submission_entry command) {
    page_.clear();
    command.prp1 = page_.bus_address();
    command.prp2 = 0;
    return run(command);
  }
  /// Copies from that page to where the command's PRPs say: at most one page, so at most two of them.
  completion transfer_out(nvme::submission_entry const& command, std::size_t bytes) {
    std::size_t const first = std::min<std::size_t>(bytes, page_bytes - command.prp1 % page_bytes);
    std::byte* const one = command.prp1 % 4 != 0 ? nullptr : space_->at(command.prp1, first);
    std::byte* const two = bytes == first                   ? one
                           : command.prp2 % page_bytes != 0 ? nullptr
                                                            : space_->at(command.prp2, bytes - first);
    if (one == nullptr || two == nullptr) return {refuse(generic_status::data_transfer_error)};
    native::copy(one, page_.as<std::byte>(), first);
    if (bytes != first) native::copy(two, page_.as<std::byte>() + first, bytes - first);
    return {};
  }

  bool valid_queue_id(std::uint32_t id) const { return id != 0 && id <= ids_.size(); }
  std::uint16_t whole_id(std::uint32_t id) const { return ids_[id - 1]; }
  std::uint32_t* whole_doorbell(std::uint32_t (*offset_of)(std::uint32_t, std::uint32_t), std::uint32_t id) {
    return of_->drive().registers().doorbell(offset_of(whole_id(id), of_->host().capabilities().doorbell_stride()));
  }
  /// What both Create commands have in common.
  completion check_queue(nvme::submission_entry const& command, std::size_t entry_bytes) const {
    std::uint32_t const size = (command.cdw10 >> 16) + 1;
    if (size < 2 || size > of_->host().identity().max_queue_entries) {
      return {refuse(command_specific_status::invalid_queue_size)};
    }
    if (command.prp1 % page_bytes != 0) return {refuse(generic_status::prp_offset_invalid)};
    bool const contiguous = (command.cdw11 & nvme::queue_physically_contiguous) != 0;
    if (!contiguous || command.prp1 == 0 || space_->at(command.prp1, size * entry_bytes) == nullptr) {
      return {refuse(generic_status::invalid_field_in_command)};
    }
    return {};
  }
  completion create_completion_queue(nvme::submission_entry command) {
    std::uint32_t const id = command.cdw10 & 0xffff;
    if (!valid_queue_id(id) || completion_[id].exists)
      return {refuse(command_specific_status::invalid_queue_identifier)};
    if (completion const bad = check_queue(command, sizeof(nvme::completion_entry)); bad.status_field != 0) return bad;
    if (command.cdw11 >> 16 > ids_.size()) return {refuse(command_specific_status::invalid_interrupt_vector)};
    command.cdw10 = (command.cdw10 & 0xffff0000) | whole_id(id);
    command.cdw11 = nvme::queue_physically_contiguous;  // without an interrupt
    completion const made = run(command);
    if (made.status_field != 0) return made;
    completion_[id] = {.exists = true};
    aim(registers::cq_head_doorbell(id, 0), whole_doorbell(&registers::cq_head_doorbell, id),
        (command.cdw10 >> 16) + 1);
    return made;
  }
  completion create_submission_queue(nvme::submission_entry command) {
    std::uint32_t const id = command.cdw10 & 0xffff, cq_id = command.cdw11 >> 16;
    if (!valid_queue_id(id) || submission_[id].exists)
      return {refuse(command_specific_status::invalid_queue_identifier)};
    if (!valid_queue_id(cq_id) || !completion_[cq_id].exists) {
      return {refuse(command_specific_status::completion_queue_invalid)};
    }
    if (completion const bad = check_queue(command, sizeof(nvme::submission_entry)); bad.status_field != 0) return bad;
    command.cdw10 = (command.cdw10 & 0xffff0000) | whole_id(id);
    command.cdw11 = nvme::queue_physically_contiguous | static_cast<std::uint32_t>(whole_id(cq_id)) << 16;
    completion const made = run(command);
    if (made.status_field != 0) return made;
    submission_[id] = {.exists = true, .cq_id = cq_id};
    ++completion_[cq_id].users;
    aim(registers::sq_tail_doorbell(id, 0), whole_doorbell(&registers::sq_tail_doorbell, id),
        (command.cdw10 >> 16) + 1);
    return made;
  }
  completion delete_by_client(std::vector<queue>& of_kind, nvme::submission_entry const& command) {
    std::uint32_t const id = command.cdw10 & 0xffff;
    if (!valid_queue_id(id) || !of_kind[id].exists) return {refuse(command_specific_status::invalid_queue_identifier)};
    if (of_kind[id].users != 0) return {refuse(command_specific_status::invalid_queue_deletion)};
    return delete_queue(of_kind, id);
  }
  /// Also after a reset of the whole controller: the pair is this client's alone, so the drive may say that there is no
  /// such queue.
  completion delete_queue(std::vector<queue>& of_kind, std::uint32_t id) {
    bool const takes = &of_kind == &submission_;
    std::uint32_t const offset_bytes = takes ? registers::sq_tail_doorbell(id, 0) : registers::cq_head_doorbell(id, 0);
    std::size_t const word = (offset_bytes - registers::doorbell_base) / sizeof(std::uint32_t);
    std::uint32_t* const target = targets_[word].load(std::memory_order_relaxed);  // which this thread stored
    aim(offset_bytes, nullptr);
    nvme::submission_entry command;
    command.cdw0 =
        nvme::make_cdw0(takes ? admin_opcode::delete_io_submission_queue : admin_opcode::delete_io_completion_queue, 0);
    command.cdw10 = whole_id(id);
    completion const done = run(command);
    std::uint16_t const status = done.status_field & nvme::status_code_mask;
    if (status != 0 && status != nvme::status_field(command_specific_status::invalid_queue_identifier)) {
      aim(offset_bytes, target, sizes_[word].load(std::memory_order_relaxed));
      return done;
    }
    if (takes) --completion_[of_kind[id].cq_id].users;
    of_kind[id] = {};
    return {};
  }
  completion abort(nvme::submission_entry const& command) {
    std::uint32_t const id = command.cdw10 & 0xffff;
    if (!valid_queue_id(id) || !submission_[id].exists) return {refuse(generic_status::invalid_field_in_command)};
    bool const aborted = of_->abort(whole_id(id), static_cast<std::uint16_t>(command.cdw10 >> 16));
    return {0, aborted ? 0u : 1u};
  }
  completion identify(nvme::submission_entry const& command) {
    completion const done = run_with_page(command);
    if (done.status_field != 0) return done;
    if ((command.cdw10 & 0xff) == static_cast<std::uint32_t>(nvme::identify_cns::identify_controller)) {
      // What would change the drive for the other clients too.
      auto* const its = page_.as<nvme::identify_controller>();
      its->oacs = 0;
      if (!of_->host().identity().write_zeroes) {
        constexpr auto write_zeroes = static_cast<std::uint16_t>(nvme::optional_nvm_command::write_zeroes);
        its->oncs = static_cast<std::uint16_t>(its->oncs & ~write_zeroes);
      }
      its->acl = 0;
      its->aerl = max_events - 1;
    }
    return transfer_out(command, page_bytes);
  }
  completion get_log_page(nvme::submission_entry command) {
    std::uint64_t const dwords = (command.cdw10 >> 16 | std::uint64_t{command.cdw11 & 0xffff} << 16) + 1;
    auto const page = static_cast<nvme::log_page_id>(command.cdw10 & 0xff);
    if (!may_read(page)) return {refuse(command_specific_status::invalid_log_page)};
    if (dwords > page_bytes / 4) return {refuse(generic_status::invalid_field_in_command)};
    constexpr std::uint32_t retain_event = 1 << 15;
    bool const retains = (command.cdw10 & retain_event) != 0;
    command.cdw10 |= retain_event;  // the drive's own events are for nobody
    completion done = run_with_page(command);
    if (done.status_field == 0) done = transfer_out(command, dwords * 4);
    bool const errors = page == nvme::log_page_id::error_information;
    if (done.status_field == 0 && errors && !retains) event_masked_ = false;
    return done;
  }
  /// To read some other pages has an effect: it makes the drive keep a report, for one.
  static bool may_read(nvme::log_page_id page) {
    return page == nvme::log_page_id::error_information || page == nvme::log_page_id::smart_health_information ||
           page == nvme::log_page_id::firmware_slot_information ||
           page == nvme::log_page_id::commands_supported_and_effects;
  }
  std::uint32_t granted() const {
    auto const count = static_cast<std::uint32_t>(ids_.size());
    return nvme::number_of_queues::make(count, count);
  }
  completion set_features(nvme::submission_entry const& command) {
    auto const id = static_cast<feature_id>(command.cdw10 & 0xff);
    if (!has_feature(id)) return {refuse(generic_status::invalid_field_in_command)};
    if ((command.cdw10 & nvme::feature_save) != 0) {
      return {refuse(command_specific_status::feature_identifier_not_saveable)};
    }
    switch (id) {
      case feature_id::number_of_queues: {
        auto const exists = [](queue const& q) { return q.exists; };
        if ((command.cdw11 & 0xffff) == 0xffff || command.cdw11 >> 16 == 0xffff) {
          return {refuse(generic_status::invalid_field_in_command)};
        }
        if (std::any_of(submission_.begin(), submission_.end(), exists) ||
            std::any_of(completion_.begin(), completion_.end(), exists)) {
          return {refuse(generic_status::command_sequence_error)};
        }
        return {0, granted()};
      }
      case feature_id::volatile_write_cache:
        return use_cache((command.cdw11 & 1) != 0);
      case feature_id::asynchronous_event_configuration:
      case feature_id::temperature_threshold:
        features_[id] = command.cdw11;  // of events, and the client gets none of the drive's own
        return {};
      default:
        return {refuse(command_specific_status::feature_not_changeable)};  // it would change for all clients
    }
  }
  completion use_cache(bool on) {
    if (on == uses_cache_) return {};
    if (on) uses_cache_ = true;  // whether the drive takes it or not
    of_->use_cache(on);
    uses_cache_ = on;
    return {};
  }
  void use_cache_quietly() noexcept {
    try {
      use_cache(true);
    } catch (operation_failed const&) {
      // The drive has failed. Its cache stays off, which loses nothing.
    }
  }
  static bool has_feature(feature_id id) {
    switch (id) {
      case feature_id::number_of_queues:
      case feature_id::arbitration:
      case feature_id::power_management:
      case feature_id::temperature_threshold:
      case feature_id::error_recovery:
      case feature_id::volatile_write_cache:
      case feature_id::interrupt_coalescing:
      case feature_id::interrupt_vector_configuration:
      case feature_id::write_atomicity_normal:
      case feature_id::asynchronous_event_configuration:
        return true;
      default:
        return false;  // among them those whose value is longer than a completion
    }
  }
  completion get_features(nvme::submission_entry const& command) {
    auto const id = static_cast<feature_id>(command.cdw10 & 0xff);
    if (!has_feature(id)) return {refuse(generic_status::invalid_field_in_command)};
    bool const current = (command.cdw10 >> 8 & 7) == static_cast<std::uint32_t>(nvme::feature_select::current);
    if (id == feature_id::number_of_queues) return {0, granted()};
    auto const own = features_.find(id);
    return current && own != features_.end() ? completion{0, own->second} : run_with_page(command);
  }
  outcome request_event(nvme::submission_entry const& command) {
    if (events_.size() >= max_events) {
      return completion{refuse(command_specific_status::asynchronous_event_request_limit_exceeded)};
    }
    events_.push_back(command.command_id());
    return std::nullopt;
  }

  std::shared_ptr<whole_controller> const of_;
  std::vector<std::uint16_t> const ids_;
  std::unique_ptr<client_space> const space_;
  driver::dma_buffer page_;
  std::uint64_t capabilities_ = 0;
  nvme::controller_configuration configuration_;
  nvme::controller_status status_;
  nvme::admin_queue_attributes attributes_;
  std::uint64_t submission_base_ = 0, completion_base_ = 0;
  std::uint64_t generation_ = 0;  ///< of the whole controller, when this one was enabled
  std::uint64_t unanswered_ = 0;  ///< the generation in which the controller did not answer; 0: it always has
  nvme::submission_entry const* entries_ = nullptr;
  std::uint32_t sq_entries_ = 0, tail_ = 0, head_ = 0, sq_head_ = 0;
  emulator::completion_ring ring_;
  std::vector<queue> submission_, completion_;                    ///< by id; there is no queue 0
  std::deque<std::pair<std::uint16_t, completion>> completions_;  ///< not posted yet
  std::vector<std::uint16_t> events_;                             ///< Asynchronous Event Requests
  bool event_masked_ = false;                                     ///< one was raised, and the error log not read yet
  std::map<feature_id, std::uint32_t> features_;
  bool uses_cache_ = true;
  bool left_ = false, let_go_ = false;
  /// Of what admin commands use: the relay's thread completes event requests. Recursive, because the thread that has it
  /// may do the relay's work.
  std::recursive_mutex mutex_;
  std::atomic<bool> bad_doorbell_{false};
  std::vector<std::atomic<std::uint32_t*>> targets_;  ///< where each doorbell goes
  std::vector<std::atomic<std::uint32_t>> sizes_;     ///< and the entries of its ring
  driver::doorbell_relay relay_;                      ///< last: its thread calls `ring`
};

class shared_controller final : public shared_drive {
 public:
  shared_controller(std::unique_ptr<device> whole, std::uint64_t admin_timeout_ns)
      : whole_(std::make_shared<whole_controller>(std::move(whole), admin_timeout_ns)) {}

  std::unique_ptr<client_controller> join(join_request const& wanted, arena_maker const& make_arena) override {
    std::vector<std::uint16_t> ids = whole_->take(wanted.queues);
    try {
      auto space = std::make_unique<client_space>(whole_->drive().dma(), make_arena);
      return std::make_unique<part_of_controller>(whole_, ids, std::move(space));
    } catch (...) {
      whole_->give_back(ids);
      throw;
    }
  }
  std::uint32_t nsid() const override { return whole_->drive().nsid(); }
  bool translates() const override { return true; }
  nlohmann::json report() override { return whole_->drive().report(); }
  /// A drive that does not end its shutdown may not have written back its cache.
  bool close() override {
    try {
      whole_->host().shutdown();
      return true;
    } catch (operation_failed const&) {
      return false;
    }
  }

 private:
  std::shared_ptr<whole_controller> const whole_;
};

}  // namespace

std::unique_ptr<shared_drive> share(std::unique_ptr<device> whole, std::uint64_t admin_timeout_ns) {
  return std::make_unique<shared_controller>(std::move(whole), admin_timeout_ns);
}

}  // namespace forebay::drive::served
