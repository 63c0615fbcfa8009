// SPDX-License-Identifier: Apache-2.0
#include "storage/inspector.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "forebay/status_text.hpp"
#include "storage/wait_chains.hpp"

namespace forebay::detail {
namespace {

/// The most lines that one part of a dump has: the first of a million frames tell as much as all.
constexpr std::size_t lines_max = 64;

template <class Text>
std::string counted(std::uint64_t n, Text const& what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

/// Formats numbers as "3, 5 to 9".
std::string number_list(std::vector<std::uint64_t> numbers) {
  std::ranges::sort(numbers);
  auto const repeated = std::ranges::unique(numbers);
  numbers.erase(repeated.begin(), repeated.end());
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (last == i + 1) last = i;  // two numbers are shorter with a comma
    fmt::format_to(std::back_inserter(out), "{}{}", out.empty() ? "" : ", ", numbers[i]);
    if (last != i) fmt::format_to(std::back_inserter(out), " to {}", numbers[last]);
    i = last + 1;
  }
  return out;
}

class writer {
 public:
  template <class... Values>
  void line(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
    text_ += '\n';
  }
  /// Calls `print` for each of `things`, for at most `lines_max` of them.
  template <class Things, class Print>
  void each(Things const& things, Print const& print) {
    std::size_t n = 0;
    for (auto const& thing : things) {
      if (n++ == lines_max) {
        line("    ... and {} more", std::size(things) - lines_max);
        return;
      }
      print(thing);
    }
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string operation_text(nvme::submission_entry const& entry) {
  auto const with_range = [&](char const* name) {
    return fmt::format("{} of {} at LBA {}", name, counted(entry.block_count(), "block"), entry.slba());
  };
  switch (static_cast<nvme::io_opcode>(entry.opcode())) {
    case nvme::io_opcode::flush:
      return "flush";
    case nvme::io_opcode::read:
      return with_range("read");
    case nvme::io_opcode::write:
      return with_range("write");
    default:
      return fmt::format("opcode {:#04x}", entry.opcode());
  }
}

/// Names of frames and threads.
class names {
 public:
  names(cache_look const* cache, std::span<traced_thread const> threads) : cache_(cache) {
    if (cache != nullptr) {
      for (frame_look const& f : cache->frames) pages_.emplace(f.frame, f.page);
    }
    for (traced_thread const& t : threads) several_grids_ = several_grids_ || t.grid() != threads.front().grid();
  }

  bool stages() const { return cache_ != nullptr && cache_->staging_pages != 0; }

  std::string frame(std::uint32_t frame) const {
    std::uint32_t const in_sets = cache_ != nullptr ? cache_->sets * cache_ways : 0;
    std::string const where = frame < in_sets                             ? fmt::format("set {}", frame / cache_ways)
                              : cache_ == nullptr                         ? "of no cache"
                              : frame - in_sets < cache_->overflow_frames ? "overflow"
                                                                          : "a user's buffer";
    auto const page = pages_.find(frame);
    if (page == pages_.end()) return fmt::format("frame {} ({})", frame, where);
    return fmt::format("frame {} ({}, page {})", frame, where, page->second);
  }
  std::string target(std::uint32_t target) const {
    std::uint32_t const index = target & (cache_targets<void>::max_frames - 1);
    switch (target >> cache_targets<void>::index_bits) {
      case 0:
        return fmt::format("record {}", index);
      case 1:
        return frame(index);
      default:
        return frame(index) + ", written back";
    }
  }
  std::string thread(traced_thread const& t) const {
    if ((t.grid() & simt::host_grids) != 0) return fmt::format("host thread {}", t.grid() & ~simt::host_grids);
    return several_grids_ ? fmt::format("thread {} of grid {}", t.rank(), t.grid())
                          : fmt::format("thread {}", t.rank());
  }
  std::string thread_list(std::span<traced_thread const> threads, std::vector<std::size_t> const& which) const {
    bool const plain = !several_grids_ && std::ranges::none_of(which, [&](std::size_t i) {
      return (threads[i].grid() & simt::host_grids) != 0;
    });
    if (plain) {
      std::vector<std::uint64_t> ranks;
      for (std::size_t const i : which) ranks.push_back(threads[i].rank());
      return (which.size() == 1 ? "thread " : "threads ") + number_list(std::move(ranks));
    }
    std::string out;
    for (std::size_t const i : which) out += (out.empty() ? "" : ", ") + thread(threads[i]);
    return out;
  }

  std::string holdings(traced_thread const& t) const {
    std::vector<std::uint64_t> pages, frames, locks;
    for (std::uint32_t const held : t.held) {
      if (held == 0) continue;
      if ((held & traced_thread::lock_bit) != 0) {
        locks.push_back(held & ~traced_thread::lock_bit);
      } else if (auto const page = pages_.find(held - 1); page != pages_.end()) {
        pages.push_back(page->second);
      } else {
        frames.push_back(held - 1);
      }
    }
    std::string out;
    auto const add = [&](char const* one, char const* several, std::vector<std::uint64_t> numbers) {
      if (numbers.empty()) return;
      bool const is_one = numbers.size() == 1;
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", is_one ? one : several, number_list(std::move(numbers)));
    };
    add("page", "pages", std::move(pages));
    add("frame", "frames", std::move(frames));
    add("the lock of set", "the locks of sets", std::move(locks));
    if (t.unlisted != 0) out += fmt::format("{}{} more", out.empty() ? "" : ", ", t.unlisted);
    return out.empty() ? "nothing" : out;
  }

 private:
  cache_look const* cache_;
  std::unordered_map<std::uint32_t, std::uint64_t> pages_;
  bool several_grids_ = false;
};

/// `all_stuck`: `threads` is a circular wait.
std::string wait_text(names const& name, std::span<traced_thread const> threads, traced_thread const& t,
                      bool all_stuck) {
  switch (static_cast<wait_kind>(t.what)) {
    case wait_kind::nothing:
      return "waits for nothing";
    case wait_kind::set_lock: {
      auto const holders = lockers_of_set(threads, t.subject);
      return fmt::format("waits for the lock of set {}{}", t.subject,
                         holders.empty() ? "" : ", which is held by " + name.thread_list(threads, holders));
    }
    case wait_kind::unpinned_frame: {
      auto const holders = pinners_of_set(threads, t.subject);
      std::string const by = holders.empty() ? "others" : name.thread_list(threads, holders);
      return fmt::format("waits for a frame of set {}, {} pinned by {}", t.subject,
                         all_stuck ? "all of whose frames are" : "frames of which are", by);
    }
    case wait_kind::page_unpinned: {
      auto const holders = pinners_of_frame(threads, t.subject);
      return fmt::format("waits until nobody has {} pinned{}", name.frame(t.subject),
                         holders.empty() ? "" : ", which is pinned by " + name.thread_list(threads, holders));
    }
    case wait_kind::page_read:
      return "waits until " + name.frame(t.subject) + " has been read";
    case wait_kind::page_settled:
      return "waits until " + name.frame(t.subject) + " has been read or written back";
    case wait_kind::queue_room:
      return fmt::format("waits for room in queue pair {} or another one of its drive", t.subject);
    case wait_kind::frame_command:
      return fmt::format("waits for room in the queues{}, for a command for {}",
                         name.stages() ? ", or for a staging page" : "", name.frame(t.subject));
    case wait_kind::record:
      return fmt::format("waits for record {}", t.subject);
  }
  return fmt::format("waits for what has number {}", t.what);
}

std::string thread_text(names const& name, std::span<traced_thread const> threads, traced_thread const& t,
                        bool all_stuck, std::uint64_t now_ns) {
  std::string out = fmt::format("{} holds {} and ", name.thread(t), name.holdings(t));
  if (t.what != static_cast<std::uint32_t>(wait_kind::nothing) && now_ns >= t.since_ns) {
    out += fmt::format("for {} ms ", (now_ns - t.since_ns) / 1'000'000);
  }
  return out + wait_text(name, threads, t, all_stuck);
}

std::string cycle_text(names const& name, std::span<traced_thread const> threads, circular_wait const& found) {
  std::string out;
  for (std::size_t const i : found.cycle) out += name.thread(threads[i]) + " -> ";
  return out + name.thread(threads[found.cycle.front()]);
}

void write_queues(writer& out, inspected_queues const& group, queues_look const& look, names const& name) {
  std::uint32_t in_flight = 0;
  for (queue_pair_look const& pair : look.pairs) in_flight += static_cast<std::uint32_t>(pair.commands.size());
  out.line("queues of the {}: {}, {} in flight, {} of {} records open, {} free", group.whose,
           counted(look.pairs.size(), "pair"), counted(in_flight, "command"), look.records.size(), look.record_count,
           counted(look.free_list_pages, "PRP list page"));
  std::uint32_t idle = 0;
  for (std::size_t i = 0; i < look.pairs.size(); ++i) {
    queue_pair_look const& p = look.pairs[i];
    if (p.commands.empty() && p.in_flight() == 0 && !p.dead && p.protocol_errors == 0) {
      ++idle;
      continue;
    }
    out.line(
        "  pair {} (drive {}): SQ tail {}, doorbell {}, head {} of {}; CQ head {} of {}, phase {}, {} to consume{}{}{}",
        i, group.drive_of[i], p.sq_tail, p.sq_rung, p.sq_head, p.sq_entries, p.cq_head, p.cq_entries, p.phase,
        counted(p.posted, "completion"), p.consuming ? " and a thread at it" : "",
        p.dead ? "; declared dead by recovery" : "",
        p.protocol_errors != 0 ? fmt::format("; {}", counted(p.protocol_errors, "protocol error")) : "");
    out.each(p.commands, [&](command_look const& c) {
      out.line("    command {}: {}, for {}", c.id,
               c.entry_found ? operation_text(c.entry) : std::string("its entry has left the ring"),
               name.target(c.target));
    });
  }
  if (idle != 0) out.line("  {} idle", counted(idle, "pair"));
  out.each(look.records, [&](record_look const& r) {
    out.line("  record {}: {} outstanding{}{}", r.record, counted(r.outstanding, "command"),
             r.detached ? ", detached" : "",
             r.first_failure.ok() ? "" : ", first failure: " + to_string(r.first_failure));
  });
}

std::string state_text(frame_look const& f) {
  auto const command = [&] {
    return (f.note & cache_core::note_is_status) != 0 ? std::string(", no command yet")
                                                      : fmt::format(" through pair {}", f.note);
  };
  std::string out;
  switch (f.word.state()) {
    case page_state::invalid:
      out = "empty";
      break;
    case page_state::busy:
      out = "being read" + command();
      break;
    case page_state::failed:
      out = "could not be read: " + to_string(status::from_bits((f.note & cache_core::note_is_status) != 0
                                                                    ? f.note & ~cache_core::note_is_status
                                                                    : 0));
      break;
    case page_state::valid:
      out = f.word.is_writing() ? "being written back" + command() : "read";
      break;
  }
  if (f.word.is_dirty()) out += ", dirty";
  if (f.word.is_unused()) out += ", prefetched";
  return out;
}

void write_cache(writer& out, cache_look const& look, names const& name) {
  out.line("cache: {} of {} frames, {}, {}, pages of {} bytes; {}, {} of them dirty", counted(look.sets, "set"),
           cache_ways, counted(look.overflow_frames, "overflow frame"), counted(look.user_frames, "user frame"),
           look.page_bytes, counted(look.pages, "page"), look.dirty);
  if (look.staging_pages != 0) {
    out.line("  {} of {} are free", look.free_staging_pages, counted(look.staging_pages, "staging page"));
  }
  out.line("  first error: {}; {} failed", look.first_error.ok() ? "none" : to_string(look.first_error),
           counted(look.failed_write_backs, "write-back"));
  out.each(look.locks, [&](set_lock_look const& l) { out.line("  set {}: locked by thread {}", l.set, l.holder); });
  out.each(look.pinned_sets, [&](std::uint32_t set) { out.line("  set {}: every frame is pinned", set); });
  out.each(look.frames, [&](frame_look const& f) {
    out.line("  {}: {}, {}", name.frame(f.frame), state_text(f), counted(f.word.pins(), "pin"));
  });
}

void write_circular_wait(writer& out, std::span<traced_thread const> threads, names const& name, std::uint64_t now_ns) {
  circular_wait const found = find_circular_wait(threads);
  if (found.threads.empty()) return;
  out.line("circular wait: {} cannot go on before another of them has", counted(found.threads.size(), "thread"));
  std::vector<traced_thread> stuck;
  for (std::size_t const i : found.threads) stuck.push_back(threads[i]);
  out.each(stuck, [&](traced_thread const& t) { out.line("  {}", thread_text(name, stuck, t, true, now_ns)); });
  out.line("  cycle: {}", cycle_text(name, threads, found));
}

void write_threads(writer& out, waits_look waits, names const& name, std::uint64_t now_ns) {
  std::ranges::sort(waits.threads, {}, &traced_thread::name);
  out.line("traced threads: {} hold or wait for something{}", waits.threads.size(),
           waits.untraced != 0 ? fmt::format("; {} lost for want of room", counted(waits.untraced, "note")) : "");
  out.each(waits.threads,
           [&](traced_thread const& t) { out.line("  {}", thread_text(name, waits.threads, t, false, now_ns)); });
}

std::string dump_after(inspected const& what, std::span<traced_thread const> first, std::uint64_t now_ns) {
  std::vector<queues_look> queues;
  for (inspected_queues const& group : what.queues) queues.push_back(look_at(*group.queues, group.ring_memory));
  io_queues const& kernels = *what.queues.front().queues;
  std::optional<cache_look> cache;
  if (what.cache != nullptr) cache = look_at(what.cache, kernels.state_memory());
  waits_look const waits = look_at_waits(kernels);

  names const name(cache ? &*cache : nullptr, waits.threads);
  writer out;
  out.line("{}", what.title);
  write_circular_wait(out, unchanged(first, waits.threads), name, now_ns);
  for (std::size_t i = 0; i < queues.size(); ++i) write_queues(out, what.queues[i], queues[i], name);
  if (cache) write_cache(out, *cache, name);
  if (waits.traced) {
    write_threads(out, waits, name, now_ns);
  } else {
    out.line("threads: not traced; configure with FOREBAY_DEBUG_WAITS to know who holds what");
  }
  return out.take();
}

}  // namespace

std::string dump(inspected const& what, std::uint64_t now_ns) {
  waits_look const first = look_at_waits(*what.queues.front().queues);
  return dump_after(what, first.threads, now_ns);
}

progress_watch::progress_watch(inspected what, std::uint64_t interval_ns, std::uint32_t stuck_after)
    : what_(std::move(what)), interval_ns_(interval_ns), stuck_after_(stuck_after) {}

progress_watch::picture progress_watch::take_picture() const {
  picture now;
  for (inspected_queues const& group : what_.queues) {
    for (queue_pair_look const& pair : look_at_progress(*group.queues)) {
      now.counts.push_back(pair.submitted);
      now.counts.push_back(pair.ended);
      now.in_flight += pair.in_flight();
    }
  }
  now.threads = look_at_waits(*what_.queues.front().queues).threads;
  now.waiting = static_cast<std::uint32_t>(std::ranges::count_if(
      now.threads, [](traced_thread const& t) { return t.what != static_cast<std::uint32_t>(wait_kind::nothing); }));
  return now;
}

std::optional<stuck_report> progress_watch::report_circular_wait(picture const& now, std::uint64_t now_ns) {
  std::vector<traced_thread> const steady = unchanged(before_->threads, now.threads);
  circular_wait const found = find_circular_wait(steady);
  std::vector<std::uint64_t> signature;
  for (std::size_t const i : found.threads) {
    signature.push_back(steady[i].name);
    signature.push_back(steady[i].changes);
  }
  std::swap(signature, reported_);
  if (found.threads.empty() || signature == reported_) return std::nullopt;
  return stuck_report{
      true,
      fmt::format("{} cannot go on before another of them has: {}", counted(found.threads.size(), "thread"),
                  cycle_text(names(nullptr, steady), steady, found)),
      dump_after(what_, before_->threads, now_ns)};
}

std::optional<stuck_report> progress_watch::look(std::uint64_t now_ns) {
  picture now = take_picture();
  std::optional<stuck_report> report;
  if (before_) {
    report = report_circular_wait(now, now_ns);
    bool const moved = now.counts != before_->counts ||
                       unchanged(before_->threads, now.threads).size() != now.threads.size() ||
                       before_->threads.size() != now.threads.size();
    unmoved_looks_ = moved ? 0 : unmoved_looks_ + 1;
    if (reported_.empty() && unmoved_looks_ == stuck_after_ && (now.in_flight != 0 || now.waiting != 0)) {
      report = stuck_report{false,
                            fmt::format("nothing has moved for {} ms, though {} in flight and {} wait{}",
                                        interval_ns_ / 1'000'000 * stuck_after_,
                                        counted(now.in_flight, "command") + (now.in_flight == 1 ? " is" : " are"),
                                        counted(now.waiting, "traced thread"), now.waiting == 1 ? "s" : ""),
                            dump(what_, now_ns)};
    }
  }
  before_ = std::move(now);
  return report;
}

}  // namespace forebay::detail
