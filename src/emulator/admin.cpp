// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/admin.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <string>

#include "forebay/detail/emulator/decode.hpp"
#include "forebay/detail/emulator/prp.hpp"
#include "forebay/detail/nvme/feature.hpp"
#include "forebay/detail/nvme/identify.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/nvme/status_code.hpp"

namespace forebay::emulator {
namespace {

namespace registers = nvme::registers;
using nvme::admin_opcode;
using nvme::command_specific_status;
using nvme::feature_id;
using nvme::generic_status;
using simt::native;

template <class Code>
constexpr std::uint16_t refuse(Code code) {
  return static_cast<std::uint16_t>(nvme::status_field(code) | nvme::do_not_retry);
}

constexpr char firmware_revision[] = "0.1.0";

/// Copies `text` into a field of fixed width, padded with spaces.
template <std::size_t N>
void fill(char (&field)[N], std::string const& text) {
  std::memset(field, ' ', N);
  std::memcpy(field, text.data(), std::min(N, text.size()));
}

/// Sixteen bytes that tell drives with different serial numbers apart.
std::array<std::uint8_t, 16> unique_id(std::string const& serial) {
  std::uint64_t hash[2] = {0xcbf29ce484222325u, 0x84222325cbf29ce4u};
  for (char const c : serial) {
    for (auto& h : hash) h = mix(h ^ static_cast<std::uint8_t>(c));
  }
  std::array<std::uint8_t, 16> id;
  std::memcpy(id.data(), hash, sizeof hash);
  return id;
}

std::uint64_t read64(register_file& file, std::uint32_t offset_bytes) {
  return file.get(offset_bytes) | static_cast<std::uint64_t>(file.get(offset_bytes + 4)) << 32;
}

/// Whether `id` is a feature that this controller keeps.
bool has_feature(std::uint8_t id) {
  switch (static_cast<feature_id>(id)) {
    case feature_id::arbitration:
    case feature_id::power_management:
    case feature_id::temperature_threshold:
    case feature_id::error_recovery:
    case feature_id::volatile_write_cache:
    case feature_id::number_of_queues:
    case feature_id::interrupt_coalescing:
    case feature_id::interrupt_vector_configuration:
    case feature_id::write_atomicity_normal:
    case feature_id::asynchronous_event_configuration:
      return true;
    default:
      return false;
  }
}

std::uint32_t default_feature(std::uint8_t id, std::uint32_t max_queues) {
  switch (static_cast<feature_id>(id)) {
    case feature_id::arbitration:
      return 7;
    case feature_id::temperature_threshold:
      return 343;
    case feature_id::volatile_write_cache:
      return 1;
    case feature_id::number_of_queues:
      return nvme::number_of_queues::make(max_queues, max_queues);
    default:
      return 0;
  }
}

}  // namespace

admin::admin(admin_options const& options, register_file& file, dma_regions const& regions, dma_regions const& of_host,
             media const& drive, io_engine& engine, std::uint32_t first_slot, durability sync)
    : options_(options),
      registers_(file),
      host_regions_(of_host.host_table()),
      queue_regions_(regions.host_table()),
      unit_regions_(regions.table()),
      drive_(drive),
      engine_(engine),
      first_slot_(first_slot),
      sync_(std::move(sync)),
      sqs_(options.max_queues + 1),
      cqs_(options.max_queues + 1) {
  std::uint64_t const cap = nvme::controller_capabilities::make(options.max_queue_entries, true, 20, 0, 1, 0, 4);
  registers_.set(registers::cap, static_cast<std::uint32_t>(cap));
  registers_.set(registers::cap + 4, static_cast<std::uint32_t>(cap >> 32));
  registers_.set(registers::vs, nvme::controller_version::make(1, 4, 0));
}

bool admin::step() {
  nvme::controller_configuration const cc{registers_.get(registers::cc)};
  if (phase_ == phase::resetting) return finish_reset();
  if (!cc.enabled() && phase_ != phase::disabled) {
    begin_reset();
    return true;
  }
  if (shut_down(cc)) return true;
  if (cc.enabled() && phase_ == phase::disabled) {
    enable();
    return true;
  }
  if (phase_ != phase::ready) return false;
  raise_events();
  if (is_waiting_) {
    outcome const result = resume();
    if (!result) return true;
    is_waiting_ = false;
    complete(waiting_.command_id(), *result);
  }
  bool const posted = post();
  return fetch() || posted;
}

bool admin::shut_down(nvme::controller_configuration cc) {
  nvme::controller_status const csts{registers_.get(registers::csts)};
  auto const show = [&](nvme::shutdown_status status, bool failed = false) {
    registers_.set(registers::csts, nvme::controller_status::make(csts.ready(), csts.fatal() || failed, status));
  };
  switch (csts.shutdown()) {
    case nvme::shutdown_status::none:
      if (cc.shutdown() == nvme::shutdown_notification::none) return false;
      show(nvme::shutdown_status::occurring);
      return true;
    case nvme::shutdown_status::occurring:
      if (!shutdown_ticket_) shutdown_ticket_ = sync_.ask();
      if (auto const durable = sync_.done(*shutdown_ticket_)) {
        shutdown_ticket_.reset();
        // No completion can carry this failure; the fatal status exists for that.
        show(nvme::shutdown_status::complete, !*durable);
        return true;
      }
      return false;
    case nvme::shutdown_status::complete:
      break;
  }
  return false;
}

void admin::enable() {
  nvme::controller_configuration const cc{registers_.get(registers::cc)};
  nvme::admin_queue_attributes const aqa{registers_.get(registers::aqa)};
  std::uint64_t const asq = read64(registers_, registers::asq);
  std::uint64_t const acq = read64(registers_, registers::acq);
  page_bytes_ = cc.page_bytes();
  bool const usable =
      cc.command_set() == 0 && cc.arbitration() == 0 &&
      nvme::controller_capabilities{read64(registers_, registers::cap)}.max_page_bytes() >= page_bytes_ &&
      aqa.sq_entries() >= 2 && aqa.cq_entries() >= 2 && asq % page_bytes_ == 0 && acq % page_bytes_ == 0 &&
      host_regions_.contains<native>(asq, aqa.sq_entries() * sizeof(nvme::submission_entry)) &&
      host_regions_.contains<native>(acq, aqa.cq_entries() * sizeof(nvme::completion_entry));
  if (!usable) {
    phase_ = phase::failed;
    registers_.set(registers::csts, nvme::controller_status::make(false, true, nvme::shutdown_status::none));
    return;
  }
  sq_entries_ = reinterpret_cast<nvme::submission_entry const*>(asq);
  sq_size_ = aqa.sq_entries();
  sq_head_ = 0;
  bad_tail_ = 0;
  // Doorbell writes from before this queue existed do not count for it.
  registers_.set(registers::sq_tail_doorbell(0, 0), 0);
  registers_.set(registers::cq_head_doorbell(0, 0), 0);
  cq_ = completion_ring({.slot = 0,
                         .entries = reinterpret_cast<nvme::completion_entry*>(acq),
                         .size = aqa.cq_entries(),
                         .head_doorbell = registers_.doorbell(registers::cq_head_doorbell(0, 0))});
  for (std::uint32_t id = 0; id < features_.size(); ++id) {
    features_[id] = default_feature(static_cast<std::uint8_t>(id), options_.max_queues);
  }
  doorbell_errors_seen_ = engine_.invalid_doorbells();
  event_masked_ = false;
  phase_ = phase::ready;
  registers_.set(registers::csts, nvme::controller_status::make(true, false, nvme::shutdown_status::none));
}

bool admin::step_away() {
  if (phase_ != phase::resetting && phase_ != phase::disabled) begin_reset();
  if (phase_ == phase::resetting) finish_reset();
  return phase_ == phase::disabled;
}

void admin::use_cache(bool on) {
  if (on == uses_cache_ || !sync_.use_cache) return;
  uses_cache_ = on;
  sync_.use_cache(on);
}

void admin::begin_reset() {
  phase_ = phase::resetting;
  use_cache(true);
  shutdown_ticket_.reset();
  completions_.clear();
  event_requests_.clear();
}

bool admin::finish_reset() {
  bool all_gone = true;
  for (std::uint32_t id = 1; id < sqs_.size(); ++id) {
    queue_entry& sq = sqs_[id];
    if (!sq.exists) continue;
    if (is_waiting_ && is_asked_ && (waiting_.cdw10 & 0xffff) == id) {
      if (!engine_.answered(slot_of(id))) {
        all_gone = false;
        continue;
      }
      is_waiting_ = false;
      if (waiting_.opcode() == static_cast<std::uint8_t>(admin_opcode::delete_io_submission_queue)) {
        sq = {};
        continue;
      }
    }
    if (!sq.leaving) {
      sq.leaving = engine_.begin_detach(slot_of(id), true);
      if (!sq.leaving) {
        all_gone = false;
        continue;
      }
    }
    if (engine_.answered(slot_of(id))) {
      sq = {};
    } else {
      all_gone = false;
    }
  }
  if (!all_gone) return true;
  for (std::uint32_t id = 1; id < cqs_.size(); ++id) {
    cqs_[id] = {};
  }
  is_waiting_ = false;
  registers_.clear_doorbells();
  phase_ = phase::disabled;
  registers_.set(registers::csts, nvme::controller_status::make(false, false, nvme::shutdown_status::none));
  return true;
}

void admin::raise_events() {
  if (event_masked_ || event_requests_.empty()) return;
  std::uint64_t const seen = engine_.invalid_doorbells() + admin_doorbell_errors_;
  if (seen == doorbell_errors_seen_) return;
  doorbell_errors_seen_ = seen;
  event_masked_ = true;
  std::uint16_t const command_id = event_requests_.front();
  event_requests_.pop_front();
  // Type 0 (error status), information 1 (invalid doorbell write value), log page 01h.
  constexpr std::uint32_t event = 1u << 8 | static_cast<std::uint32_t>(nvme::log_page_id::error_information) << 16;
  completions_.emplace_back(command_id, completion{0, event});
}

bool admin::fetch() {
  std::uint32_t const tail = registers_.get(registers::sq_tail_doorbell(0, 0));
  if (tail >= sq_size_) {
    if (tail != bad_tail_) ++admin_doorbell_errors_;
    bad_tail_ = tail;
    return false;
  }
  // While completions cannot be posted, the controller takes no more commands.
  if (tail == sq_head_ || !completions_.empty()) return false;
  nvme::submission_entry command;
  native::copy(&command, sq_entries_ + sq_head_, sizeof command);
  sq_head_ = sq_head_ + 1 == sq_size_ ? 0 : sq_head_ + 1;
  if (outcome const result = execute(command)) complete(command.command_id(), *result);
  post();
  return true;
}

void admin::complete(std::uint16_t command_id, completion const& what) {
  if (what.status_field != 0) {
    nvme::error_information_entry error;
    error.error_count = ++error_count_;
    error.cmdid = command_id;
    error.status_field = static_cast<std::uint16_t>(what.status_field << 1);
    error.parameter_error_location = 0xffff;
    errors_.push_front(error);
    if (errors_.size() > error_log_entries) errors_.pop_back();
  }
  completions_.emplace_back(command_id, what);
}

bool admin::post() {
  if (completions_.empty()) return false;
  auto const self = simt::team<native>::here();
  if (!cq_.look_at_head<native>(self)) ++admin_doorbell_errors_;
  std::uint32_t free = cq_.known_free();
  bool const any = free != 0;
  for (; free != 0 && !completions_.empty(); --free) {
    std::uint16_t const command_id = completions_.front().first;
    completion const what = completions_.front().second;
    completion_ring::places const places = cq_.take(1, 0);
    cq_.prepare(self, places, 1, what.result,
                nvme::completion_entry::make_dw2(static_cast<std::uint16_t>(sq_head_), 0));
    cq_.publish<native>(places, 0, command_id, what.status_field);
    completions_.pop_front();
  }
  return any;
}

admin::outcome admin::execute(nvme::submission_entry const& command) {
  if (command.fused() != 0 || command.psdt() != 0) return completion{refuse(generic_status::invalid_field_in_command)};
  switch (static_cast<admin_opcode>(command.opcode())) {
    case admin_opcode::create_io_completion_queue:
      return create_completion_queue(command);
    case admin_opcode::create_io_submission_queue:
      return create_submission_queue(command);
    case admin_opcode::delete_io_completion_queue:
      return delete_completion_queue(command);
    case admin_opcode::delete_io_submission_queue:
      return delete_submission_queue(command);
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
}

admin::completion admin::check_queue(nvme::submission_entry const& command, std::uint64_t entry_bytes) const {
  std::uint32_t const size = (command.cdw10 >> 16) + 1;
  if (size < 2 || size > options_.max_queue_entries) return {refuse(command_specific_status::invalid_queue_size)};
  if ((command.cdw11 & nvme::queue_physically_contiguous) == 0) {
    return {refuse(generic_status::invalid_field_in_command)};
  }
  if (command.prp1 % page_bytes_ != 0) return {refuse(generic_status::prp_offset_invalid)};
  if (command.prp1 == 0 || !queue_regions_.contains<native>(command.prp1, size * entry_bytes)) {
    return {refuse(generic_status::invalid_field_in_command)};
  }
  return {};
}

admin::outcome admin::create_completion_queue(nvme::submission_entry const& command) {
  std::uint32_t const id = command.cdw10 & 0xffff;
  if (!valid_queue_id(id) || cqs_[id].exists)
    return completion{refuse(command_specific_status::invalid_queue_identifier)};
  nvme::controller_configuration const cc{registers_.get(registers::cc)};
  if (cc.cq_entry_bytes_log2() != 4) return completion{refuse(command_specific_status::invalid_queue_size)};
  if (completion const bad = check_queue(command, sizeof(nvme::completion_entry)); bad.status_field != 0) return bad;
  if (command.cdw11 >> 16 > options_.max_queues)
    return completion{refuse(command_specific_status::invalid_interrupt_vector)};
  std::uint32_t const doorbell = registers::cq_head_doorbell(id, 0);
  engine_.attach_completion_queue({.slot = slot_of(id),
                                   .entries = reinterpret_cast<nvme::completion_entry*>(command.prp1),
                                   .size = (command.cdw10 >> 16) + 1,
                                   .head_doorbell = registers_.fresh_doorbell(doorbell)});
  cqs_[id] = {.exists = true};
  return completion{};
}

admin::outcome admin::create_submission_queue(nvme::submission_entry const& command) {
  std::uint32_t const id = command.cdw10 & 0xffff;
  std::uint32_t const cq_id = command.cdw11 >> 16;
  if (!valid_queue_id(id) || sqs_[id].exists)
    return completion{refuse(command_specific_status::invalid_queue_identifier)};
  if (!valid_queue_id(cq_id) || !cqs_[cq_id].exists) {
    return completion{refuse(command_specific_status::completion_queue_invalid)};
  }
  nvme::controller_configuration const cc{registers_.get(registers::cc)};
  if (cc.sq_entry_bytes_log2() != 6) return completion{refuse(command_specific_status::invalid_queue_size)};
  if (completion const bad = check_queue(command, sizeof(nvme::submission_entry)); bad.status_field != 0) return bad;
  std::uint32_t const doorbell = registers::sq_tail_doorbell(id, 0);
  engine_.attach_submission_queue({.slot = slot_of(id),
                                   .id = static_cast<std::uint16_t>(id),
                                   .entries = reinterpret_cast<nvme::submission_entry const*>(command.prp1),
                                   .size = (command.cdw10 >> 16) + 1,
                                   .tail_doorbell = registers_.fresh_doorbell(doorbell),
                                   .cq_slot = slot_of(cq_id),
                                   .page_bytes = static_cast<std::uint32_t>(page_bytes_),
                                   .regions = unit_regions_});
  sqs_[id] = {.exists = true, .cq_id = cq_id};
  ++cqs_[cq_id].users;
  return completion{};
}

admin::outcome admin::delete_completion_queue(nvme::submission_entry const& command) {
  std::uint32_t const id = command.cdw10 & 0xffff;
  if (!valid_queue_id(id) || !cqs_[id].exists)
    return completion{refuse(command_specific_status::invalid_queue_identifier)};
  if (cqs_[id].users != 0) return completion{refuse(command_specific_status::invalid_queue_deletion)};
  cqs_[id] = {};
  return completion{};
}

admin::outcome admin::delete_submission_queue(nvme::submission_entry const& command) {
  std::uint32_t const id = command.cdw10 & 0xffff;
  if (!valid_queue_id(id) || !sqs_[id].exists)
    return completion{refuse(command_specific_status::invalid_queue_identifier)};
  waiting_ = command;
  is_waiting_ = true;
  is_asked_ = engine_.begin_detach(slot_of(id), false);
  return std::nullopt;
}

admin::outcome admin::abort(nvme::submission_entry const& command) {
  std::uint32_t const id = command.cdw10 & 0xffff;
  auto const command_id = static_cast<std::uint16_t>(command.cdw10 >> 16);
  if (id == 0) {
    // The only admin commands in flight are event requests.
    auto const found = std::find(event_requests_.begin(), event_requests_.end(), command_id);
    if (found == event_requests_.end()) return completion{0, 1};
    event_requests_.erase(found);
    completions_.emplace_back(command_id, completion{nvme::status_field(generic_status::command_abort_requested), 0});
    return completion{0, 0};
  }
  if (!valid_queue_id(id) || !sqs_[id].exists) return completion{0, 1};
  engine_.begin_abort(slot_of(id), command_id);
  waiting_ = command;
  is_waiting_ = is_asked_ = true;
  return std::nullopt;
}

admin::outcome admin::resume() {
  std::uint32_t const id = waiting_.cdw10 & 0xffff;
  if (!is_asked_) {
    is_asked_ = engine_.begin_detach(slot_of(id), false);
    return std::nullopt;
  }
  bool found = false;
  if (!engine_.answered(slot_of(id), &found)) return std::nullopt;
  if (waiting_.opcode() == static_cast<std::uint8_t>(admin_opcode::abort)) return completion{0, found ? 0u : 1u};
  --cqs_[sqs_[id].cq_id].users;
  sqs_[id] = {};
  return completion{};
}

admin::completion admin::transfer_out(nvme::submission_entry const& command, void const* data, std::uint64_t bytes) {
  std::vector<dma_segment> segments(max_segments(bytes, page_bytes_));
  prp_walk const walk = walk_prps<native>(simt::team<native>::here(), host_regions_, command.prp1, command.prp2, bytes,
                                          page_bytes_, segments.data());
  if (walk.status_field != 0) return {walk.status_field};
  auto const* from = static_cast<std::byte const*>(data);
  for (std::uint32_t i = 0; i < walk.count; ++i) {
    native::copy(reinterpret_cast<void*>(segments[i].address), from, segments[i].bytes);
    from += segments[i].bytes;
  }
  return {};
}

admin::outcome admin::identify(nvme::submission_entry const& command) {
  auto const id = unique_id(options_.serial);
  switch (static_cast<nvme::identify_cns>(command.cdw10 & 0xff)) {
    case nvme::identify_cns::identify_controller: {
      auto const data = std::make_unique<nvme::identify_controller>();
      fill(data->sn, options_.serial);
      fill(data->mn, options_.model);
      fill(data->fr, firmware_revision);
      data->mdts = options_.mdts;
      data->cntlid = options_.controller_id;
      data->ver = registers_.get(registers::vs);
      data->cntrltype = 1;
      data->acl = 3;
      data->aerl = max_events - 1;
      data->frmw = 3;  // one slot, read-only
      data->lpa = 6;   // Commands Supported and Effects; offsets and long lengths of log pages
      data->elpe = error_log_entries - 1;
      data->wctemp = 343;
      data->cctemp = 353;
      std::memcpy(data->tnvmcap, &drive_.bytes, sizeof drive_.bytes);
      data->sqes = 0x66;
      data->cqes = 0x44;
      data->nn = 1;
      data->oncs = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 4;  // Compare, Dataset Management, Write Zeroes, SEL of Get Features
      data->vwc = 1 | 3 << 1;                          // present; Flush takes the broadcast namespace id
      std::string const nqn = "nqn.2026-11.io.forebay:" + options_.serial;
      std::memcpy(data->subnqn, nqn.data(), nqn.size());
      data->psd[0].mp = 2500;
      return transfer_out(command, data.get(), sizeof *data);
    }
    case nvme::identify_cns::identify_namespace: {
      if (command.nsid != emulated_nsid) return completion{refuse(generic_status::invalid_namespace_or_format)};
      auto const data = std::make_unique<nvme::identify_namespace>();
      data->nsze = data->ncap = data->nuse = drive_.blocks();
      data->dlfeat = drive_.data == nullptr && drive_.pieces == nullptr ? 0 : 1;  // deallocated blocks read as zeros
      std::memcpy(data->nvmcap, &drive_.bytes, sizeof drive_.bytes);
      std::memcpy(data->nguid, id.data(), 16);
      std::memcpy(data->eui64, id.data(), 8);
      data->nsattr = drive_.read_only ? 1 : 0;
      data->lbaf[0].lbads = static_cast<std::uint8_t>(std::countr_zero(drive_.block_bytes));
      return transfer_out(command, data.get(), sizeof *data);
    }
    case nvme::identify_cns::active_namespace_list: {
      if (command.nsid >= 0xfffffffe) return completion{refuse(generic_status::invalid_namespace_or_format)};
      auto const data = std::make_unique<nvme::namespace_list>();
      if (command.nsid < emulated_nsid) data->nsid[0] = emulated_nsid;
      return transfer_out(command, data.get(), sizeof *data);
    }
    case nvme::identify_cns::namespace_identification_descriptor_list: {
      if (command.nsid != emulated_nsid) return completion{refuse(generic_status::invalid_namespace_or_format)};
      std::array<std::uint8_t, 4096> data{};
      data[0] = 1;  // EUI64
      data[1] = 8;
      std::memcpy(&data[4], id.data(), 8);
      data[12] = 2;  // NGUID
      data[13] = 16;
      std::memcpy(&data[16], id.data(), 16);
      return transfer_out(command, data.data(), data.size());
    }
    default:
      return completion{refuse(generic_status::invalid_field_in_command)};
  }
}

admin::outcome admin::get_log_page(nvme::submission_entry const& command) {
  std::uint64_t const bytes =
      ((command.cdw10 >> 16 | static_cast<std::uint64_t>(command.cdw11 & 0xffff) << 16) + 1) * 4;
  std::uint64_t const offset = command.cdw12 | static_cast<std::uint64_t>(command.cdw13) << 32;
  std::vector<std::byte> page;
  auto const append = [&](void const* data, std::size_t size) {
    auto const* const from = static_cast<std::byte const*>(data);
    page.insert(page.end(), from, from + size);
  };
  auto const log = static_cast<nvme::log_page_id>(command.cdw10 & 0xff);
  switch (log) {
    case nvme::log_page_id::error_information: {
      for (auto const& error : errors_) append(&error, sizeof error);
      page.resize(error_log_entries * sizeof(nvme::error_information_entry));
      break;
    }
    case nvme::log_page_id::smart_health_information: {
      if (command.nsid != 0 && command.nsid != nvme::broadcast_nsid && command.nsid != emulated_nsid) {
        return completion{refuse(generic_status::invalid_namespace_or_format)};
      }
      auto const sum = std::make_unique<statistics>();
      engine_.collect(*sum);
      counters const& n = sum->commands;
      auto const units = [](std::uint64_t moved) { return nvme::count128::from((moved / 512 + 999) / 1000); };
      nvme::smart_health_information data;
      constexpr std::uint16_t kelvin = 310;
      std::memcpy(data.composite_temperature, &kelvin, 2);
      data.available_spare = 100;
      data.available_spare_threshold = 10;
      data.data_units_read = units(n.bytes_read);
      data.data_units_written = units(n.bytes_written);
      data.host_read_commands = nvme::count128::from(n.read_commands);
      data.host_write_commands = nvme::count128::from(n.write_commands);
      data.power_cycles = nvme::count128::from(1);
      data.number_of_error_information_log_entries = nvme::count128::from(error_count_);
      append(&data, sizeof data);
      break;
    }
    case nvme::log_page_id::firmware_slot_information: {
      nvme::firmware_slot_information data;
      data.afi = 1;
      fill(data.frs[0], firmware_revision);
      append(&data, sizeof data);
      break;
    }
    case nvme::log_page_id::commands_supported_and_effects: {
      auto const data = std::make_unique<nvme::commands_supported_and_effects>();
      constexpr std::uint32_t supported = 1;
      constexpr std::uint32_t changes_content = 2;
      for (int const opcode : {0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c})
        data->admin[opcode] = supported;
      for (auto const opcode : {nvme::io_opcode::flush, nvme::io_opcode::read, nvme::io_opcode::compare}) {
        data->io[static_cast<int>(opcode)] = supported;
      }
      for (auto const opcode :
           {nvme::io_opcode::write, nvme::io_opcode::write_zeroes, nvme::io_opcode::dataset_management}) {
        data->io[static_cast<int>(opcode)] = supported | changes_content;
      }
      append(data.get(), sizeof *data);
      break;
    }
    default:
      return completion{refuse(command_specific_status::invalid_log_page)};
  }
  if (offset % 4 != 0 || offset > page.size() || bytes > (std::uint64_t{4096} << options_.mdts)) {
    return completion{refuse(generic_status::invalid_field_in_command)};
  }
  page.erase(page.begin(), page.begin() + static_cast<std::ptrdiff_t>(offset));
  page.resize(bytes);
  completion const result = transfer_out(command, page.data(), page.size());
  bool const retain = (command.cdw10 >> 15 & 1) != 0;
  if (result.status_field == 0 && log == nvme::log_page_id::error_information && !retain) event_masked_ = false;
  return result;
}

admin::outcome admin::set_features(nvme::submission_entry const& command) {
  auto const id = static_cast<std::uint8_t>(command.cdw10);
  if (!has_feature(id)) return completion{refuse(generic_status::invalid_field_in_command)};
  if ((command.cdw10 & nvme::feature_save) != 0) {
    return completion{refuse(command_specific_status::feature_identifier_not_saveable)};
  }
  switch (static_cast<feature_id>(id)) {
    case feature_id::number_of_queues: {
      if ((command.cdw11 & 0xffff) == 0xffff || command.cdw11 >> 16 == 0xffff) {
        return completion{refuse(generic_status::invalid_field_in_command)};
      }
      auto const exists = [](queue_entry const& queue) { return queue.exists; };
      if (std::any_of(sqs_.begin(), sqs_.end(), exists) || std::any_of(cqs_.begin(), cqs_.end(), exists)) {
        return completion{refuse(generic_status::command_sequence_error)};
      }
      return completion{0, features_[id]};
    }
    case feature_id::volatile_write_cache:
      if (drive_.sync != nullptr && (command.cdw11 & 1) == 0 && !sync_.use_cache) {
        return completion{refuse(command_specific_status::feature_not_changeable)};
      }
      use_cache((command.cdw11 & 1) != 0);
      break;
    case feature_id::power_management:
      if ((command.cdw11 & 31) != 0) return completion{refuse(generic_status::invalid_field_in_command)};
      break;
    default:
      break;
  }
  features_[id] = command.cdw11;
  return completion{};
}

admin::outcome admin::get_features(nvme::submission_entry const& command) {
  auto const id = static_cast<std::uint8_t>(command.cdw10);
  if (!has_feature(id)) return completion{refuse(generic_status::invalid_field_in_command)};
  switch (static_cast<nvme::feature_select>(command.cdw10 >> 8 & 7)) {
    case nvme::feature_select::current:
      return completion{0, features_[id]};
    case nvme::feature_select::default_value:
    case nvme::feature_select::saved:
      return completion{0, default_feature(id, options_.max_queues)};
    case nvme::feature_select::supported_capabilities:
      return completion{0, 1u << 2};  // changeable, not saveable
    default:
      return completion{refuse(generic_status::invalid_field_in_command)};
  }
}

admin::outcome admin::request_event(nvme::submission_entry const& command) {
  if (event_requests_.size() >= max_events) {
    return completion{refuse(command_specific_status::asynchronous_event_request_limit_exceeded)};
  }
  event_requests_.push_back(command.command_id());
  return std::nullopt;
}

}  // namespace forebay::emulator
