// SPDX-License-Identifier: Apache-2.0
#include "storage/host_io.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "forebay/error.hpp"
#include "forebay/status_text.hpp"
#include "storage/kernels_on_cpu.hpp"

namespace forebay::detail {
namespace {

constexpr std::uint64_t bounce_bytes = 4 << 20;

/// Pairs as deep as the kernels' pairs on the same drive, but at most 256 deep.
queue_group_plan plan_of(drive_plan const& of, relay_thread const& relay, memory::resource& shared_memory) {
  queue_group_plan plan;
  plan.relay = &relay;
  for (drive_queues const& q : of.queues) {
    plan.queues.push_back({of.host_pairs, std::min(q.depth, 256u), std::nullopt});
  }
  plan.records = 1024;
  plan.state_memory = &memory::host();
  plan.shared_memory = &shared_memory;
  return plan;
}

}  // namespace

host_io::host_io(std::shared_ptr<opened_drives> drives, relay_thread const& relay, drive_plan const& plan,
                 memory::resource& shared_memory, storage_options const& options, buffer_source const& buffers)
    : drives_(std::move(drives)),
      layout_(plan.layout),
      file_extents_(plan.file_extents),
      turns_(plan.host_pairs),
      writable_(plan.writable),
      bounce_(buffers.allocate(bounce_bytes)),
      group_(*drives_, plan_of(plan, relay, shared_memory), options, buffers) {
  layout_.pairs_per_drive = plan.host_pairs;
  if (!file_extents_.empty()) layout_.file_extents = file_extents_.data();
  layout_.file_extent_count = static_cast<std::uint32_t>(file_extents_.size());
  for (std::uint32_t turn = 0; turn < plan.host_pairs; ++turn) {
    for (std::uint32_t drive = 0; drive < layout_.drive_count; ++drive) {
      turns_[turn].push_back({layout_.pairs_of(drive).at(turn), 1});
    }
  }
}

host_io::ref_type host_io::ref(std::uint32_t turn) const {
  auto const queues = group_.queues().ref<simt::native, uneven_rules<>>();
  // Recovery deletes a pair whose drive does not abort its commands.
  auto const lives = [&](std::vector<pair_range> const& pairs) {
    return std::none_of(pairs.begin(), pairs.end(), [&](pair_range const& p) { return queues.pair(p.first).dead(); });
  };
  std::size_t const first = turn % turns_.size();
  std::size_t chosen = first;
  while (!lives(turns_[chosen])) {
    chosen = (chosen + 1) % turns_.size();
    if (chosen == first) break;
  }
  storage_layout layout = layout_;
  layout.drive_pairs = turns_[chosen].data();
  return {queues, layout, 0, layout.size_bytes, writable_};
}

/// Waits for as long as the drives complete anything, and then until recovery has settled the request, so that the
/// bounce buffer is free again. `what()`: describes the request, for `operation_failed`.
template <class What>
void host_io::finish(token_type t, What&& what, std::uint64_t limit_ns) {
  using simt::native;
  auto const queues = group_.queues().ref<native>();
  alive_watch<native> alive(queues, {0, queues.pair_count()});
  status result = t.wait(native::clock_ns() + limit_ns);
  for (std::uint32_t left = queues.patience; result.kind() == fault::timed_out && left != 0; --left) {
    if (alive.has_completed()) left = queues.patience;
    result = t.wait(native::clock_ns() + queues.recovery_time_ns());
  }
  if (result.ok()) return;
  std::string const event = what() + ": " + to_string(result);
  if (result.kind() == fault::timed_out) {
    lost_request_ = event;
    t.detach();
  }
  throw operation_failed(event);
}

/// A transfer between the bounce buffer and blocks [begin, end).
void host_io::transfer(nvme::io_opcode opcode, std::uint64_t begin, std::uint64_t end) {
  bool const reads = opcode == nvme::io_opcode::read;
  auto const all = ref();
  finish(
      reads ? all.read_async(bounce_->host_ref(), begin, end - begin)
            : all.write_async(bounce_->host_ref(), begin, end - begin),
      [&] { return described(opcode, begin, end); }, group_.queues().limits().timeout_ns);
}

void host_io::keep(std::shared_ptr<void const> memory) {
  std::lock_guard const lock(kept_mutex_);
  kept_.push_back(std::move(memory));
}

std::string host_io::described(nvme::io_opcode opcode, std::uint64_t begin, std::uint64_t end) const {
  return std::string(opcode == nvme::io_opcode::read ? "read" : "write") + " of " + std::to_string(end - begin) +
         " bytes at " + std::to_string(begin) + " of " + names_of(drives_of(begin, end));
}

/// The drives on which bytes [begin, end) lie.
std::vector<std::uint32_t> host_io::drives_of(std::uint64_t begin, std::uint64_t end) const {
  std::vector<std::uint32_t> found;
  for (std::uint64_t at = begin; at < end && found.size() < layout_.drive_count;) {
    storage_layout::piece const p = layout_.piece_at(at, end - at);
    if (std::find(found.begin(), found.end(), p.drive) == found.end()) found.push_back(p.drive);
    at += p.bytes;
  }
  return found;
}

std::string host_io::names_of(std::vector<std::uint32_t> const& drives) const {
  std::string names;
  for (std::uint32_t const drive : drives) names += (names.empty() ? "drive '" : ", '") + (*drives_)[drive].uri + "'";
  return names;
}

/// Runs `step(begin, end, from, to)` for pieces of [at, at + bytes): blocks [begin, end) of at most the bounce buffer's
/// size, of which bytes [from, to) are wanted.
template <class Step>
void host_io::in_pieces(std::uint64_t at, std::uint64_t bytes, Step step) {
  if (!lost_request_.empty()) {
    throw operation_failed("storage: an earlier request never completed (" + lost_request_ +
                           "): the host's buffer still belongs to it; open the storage again");
  }
  std::uint64_t const block = std::uint64_t{1} << layout_.block_shift;
  for (std::uint64_t from = at; from < at + bytes;) {
    std::uint64_t const begin = from / block * block;
    std::uint64_t const to = std::min(at + bytes, begin + bounce_bytes);
    step(begin, std::min((to + block - 1) / block * block, layout_.size_bytes), from, to);
    from = to;
  }
}

void host_io::read(void* to, std::uint64_t bytes, std::uint64_t at) {
  drive_hold const running(drives_);
  std::lock_guard lock(mutex_);
  in_pieces(at, bytes, [&](std::uint64_t begin, std::uint64_t end, std::uint64_t from, std::uint64_t until) {
    transfer(nvme::io_opcode::read, begin, end);
    std::memcpy(static_cast<std::byte*>(to) + (from - at), bounce_->data() + (from - begin), until - from);
  });
}

void host_io::write(void const* data, std::uint64_t bytes, std::uint64_t at) {
  drive_hold const running(drives_);
  std::lock_guard lock(mutex_);
  in_pieces(at, bytes, [&](std::uint64_t begin, std::uint64_t end, std::uint64_t from, std::uint64_t until) {
    written_range const mine(written_, begin, end);
    if (begin != from || end != until) transfer(nvme::io_opcode::read, begin, end);
    std::memcpy(bounce_->data() + (from - begin), static_cast<std::byte const*>(data) + (from - at), until - from);
    transfer(nvme::io_opcode::write, begin, end);
  });
}

void host_io::flush() {
  drive_hold const running(drives_);
  std::lock_guard lock(mutex_);
  std::vector<std::uint32_t> all(layout_.drive_count);
  std::iota(all.begin(), all.end(), 0u);
  finish(ref().flush_async(), [&] { return "flush of " + names_of(all); }, group_.queues().limits().flush_timeout_ns);
}

void host_io::read_patiently(void* to, std::uint64_t bytes, std::uint64_t at) {
  constexpr std::uint64_t timeout_ns = 10'000'000'000;
  constexpr int attempts = 8;
  command_limits const wanted = group_.queues().limits();
  group_.queues().set_limits({std::max(wanted.timeout_ns, timeout_ns), std::max(wanted.flush_timeout_ns, timeout_ns)});
  for (int attempt = 1;; ++attempt) {
    try {
      read(to, bytes, at);
      break;
    } catch (operation_failed const&) {
      if (attempt == attempts || !lost_request_.empty()) throw;
    }
  }
  group_.queues().set_limits(wanted);
}

bool host_io::drain(std::uint64_t timeout_ns) const {
  return drain_on_cpu(group_.queues(), nullptr, timeout_ns);
}

}  // namespace forebay::detail
