// SPDX-License-Identifier: Apache-2.0
//! \file
//! One schedule of the page directory: seeded programs of lanes that read, write, hold, prefetch, flush and forget
//! pages of emulated drives that delay, reorder and fail, and everything that must hold meanwhile and afterwards.
//!
//! Each 8-byte word of the drives is written by one lane only, with growing numbers; any lane reads it. So a reader
//! knows the least number that it must see. Some pages are one lane's from end to end, so that they can be overwritten
//! whole.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache_books.hpp"
#include "cache_machines.hpp"
#include "cache_shapes.hpp"
#include "forebay/cached_storage_ref.hpp"
#include "forebay/detail/cache/cache_ref.hpp"
#include "forebay/detail/cache/clean.hpp"
#include "forebay/detail/queue/drain.hpp"
#include "forebay/detail/simt/run.hpp"
#include "forebay/status.hpp"
#include "support/queue_audit.hpp"
#include "support/queue_schedule.hpp"
#include "support/recovery_agent.hpp"
#include "view_operations.hpp"

namespace forebay::test {

/// The lanes' programs.
template <class Policy, class Pools, class Rules>
class cache_schedule : cache_books<Policy, Pools, Rules> {
  friend class view_operations<cache_schedule>;
  using base = cache_books<Policy, Pools, Rules>;
  using base::add_counters;
  using base::asked_wrong;
  using base::block_bytes;
  using base::books_;
  using base::buffer;
  using base::buffers_per_lane;
  using base::cache;
  using base::commands_of;
  using base::encode;
  using base::failed;
  using base::failed_unseen;
  using base::frame_count;
  using base::has_written;
  using base::index_of;
  using base::inspect;
  using base::is_in_frame;
  using base::is_late;
  using base::is_whole;
  using base::lane_count_;
  using base::memory_model_;
  using base::next_number;
  using base::not_drained_;
  using base::not_settled_;
  using base::on_drive;
  using base::outcome_;
  using base::own_word;
  using base::owner_of;
  using base::page_bytes;
  using base::page_count;
  using base::page_shift;
  using base::pages_per_request;
  using base::place_of;
  using base::queue_count;
  using base::queues_;
  using base::returned_;
  using base::serve;
  using base::sets;
  using base::settled_wrong;
  using base::shape_;
  using base::state_;
  using base::storage;
  using base::verify;
  using base::word_in;
  using base::words_per_page;
  using typename base::agent_machine;
  using typename base::cache_type;
  using typename base::client;
  using typename base::held_page;
  using typename base::lane_books;
  using typename base::lent_page;
  using typename base::page_type;
  using typename base::storage_type;

 public:
  cache_schedule(cache_shape const& shape, std::uint64_t seed) : base(shape), seed_(seed) {}

  cache_outcome run(simt::scheduler& scheduler, simt::memory_model memory) {
    std::function<void()> hook = [this] { about_to_wait(); };
    client::about_to_wait() = &hook;
    client::reads_along() = &reads_along_;
    std::function<bool(void const*)> in_frame = [this](void const* address) { return is_in_frame(address); };
    cache_drive::in_frame() = &in_frame;
    memory_model_ = memory;
    std::vector<simt::agent> agents;
    for (std::uint32_t d = 0; d < shape_.drives; ++d) {
      for (std::uint32_t unit = 0; unit < shape_.units; ++unit) {
        agents.push_back({"drive " + std::to_string(d) + " unit " + std::to_string(unit),
                          [this, d, unit] { serve(d, unit); }, true, 1 + d});
      }
    }
    recovery_agent recovery(*queues_, shape_.recovery, [this](std::uint32_t pair) { return place_of(pair); });
    if (shape_.recovery != recovery_policy::none) {
      agents.push_back({"recovery", [&] { recovery.run(); }, true, 1 + shape_.drives});
    }
    simt::run_options options;
    options.memory = memory;
    options.max_steps = shape_.max_steps;
    options.record = false;
    auto const result = simt::run(options, scheduler, shape_.lanes, [this] { lane(); }, std::move(agents));
    client::about_to_wait() = nullptr;
    client::reads_along() = nullptr;
    cache_drive::in_frame() = nullptr;

    outcome_.ok = result.ok;
    outcome_.what = result.what;
    outcome_.steps = result.steps;
    for (std::uint32_t i = 0; i < queue_count(); ++i) outcome_.commands += commands_of(i);
    add_counters();
    if (outcome_.ok && result.timeouts != 0 && !shape_.has_timeout() && shape_.impatient == 0) {
      outcome_.what = "a wait reached its deadline";
    }
    if (outcome_.ok && outcome_.what.empty()) outcome_.what = asked_wrong(recovery);
    if (outcome_.ok && outcome_.what.empty()) outcome_.what = settled_wrong();
    outcome_.ok = outcome_.what.empty();
    return outcome_;
  }

 private:
  void lane() {
    std::uint32_t const me = client::thread_rank();
    simt::random_source random(emulator::mix(seed_ ^ 0x3c6ef372fe94f82bu) + me);
    if (shape_.burst) meet();
    for (std::uint32_t i = 0; i < shape_.operations; ++i) {
      operate(me, random, i);
      inspect();
    }
    simt::random_source common(emulator::mix(seed_ ^ 0xa54ff53a5f1d36f1u) + me / 32);
    for (std::uint32_t i = 0; i < shape_.warp_operations; ++i) {
      pin_nothing(me);
      view_operations<cache_schedule>(*this, me, random).together(common);
      if (random.below(4) == 0) operate(me, random, i);
      inspect();
    }
    while (!books_[me].held.empty()) let_go(me, 0);
    end_sharing(me, false);
    close();
  }

  /// A barrier of all lanes: what came before it in any lane comes before what follows it.
  void meet() {
    // Acquire and release pair with those of the other lanes.
    std::uint32_t const before = simt::atomic<agent_machine>(arrived_).fetch_add(1, simt::order::acq_rel);
    std::uint32_t const all = (before / lane_count_ + 1) * lane_count_;
    client::check(
        client::wait_until([&] { return simt::atomic<agent_machine>(arrived_).load(simt::order::acquire) >= all; },
                           simt::no_deadline),
        "meeting");
  }

  /// The deadline for a call that names one. None if no command takes for ever; otherwise, or if the caller is in a
  /// hurry, a short one.
  std::uint64_t deadline(simt::random_source& random) {
    if (random.below(100) < shape_.impatient) return client::clock_ns() + random.below(20'000);
    return patient_deadline();
  }
  std::uint64_t patient_deadline() { return shape_.has_timeout() ? cache().default_deadline_ns() : simt::no_deadline; }
  /// Calls `attempt`, which has a deadline, until it succeeds.
  template <class Attempt>
  void insist(char const* what, Attempt&& attempt) {
    for (int tries = 0;; ++tries) {
      client::check(tries < 200, what);
      status const outcome = attempt();
      if (outcome.ok()) return;
      // Others may have to do something first.
      if (is_late(outcome)) (void)client::wait_until([] { return false; }, client::clock_ns() + 1'000);
    }
  }

  void operate(std::uint32_t me, simt::random_source& random, std::uint32_t step) {
    lane_books& books = books_[me];
    {
      unobserved const quiet;
      ++outcome_.operations;
    }
    std::uint64_t const page = shape_.burst           ? step % shape_.pages
                               : random.below(2) == 0 ? random.below(std::min(shape_.hot_pages, shape_.pages))
                                                      : random.below(shape_.pages);
    if (!books.held.empty() && random.below(3) == 0)
      let_go(me, random.below(static_cast<std::uint32_t>(books.held.size())));
    std::uint32_t draw = random.below(100);
    auto const is = [&](std::uint32_t percent) {
      bool const hit = draw < percent;
      draw = hit ? 1000 : draw - percent;
      return hit;
    };
    if (is(shape_.try_read)) return look_without_pin(me, page, random);
    if (is(shape_.write)) return hold(me, page, true, random);
    if (is(shape_.prefetch)) return prefetch(me, page);
    if (is(shape_.flush)) return flush(me, random);
    // A lent page is pinned until its owner takes it back, and the owner may be waiting for a page that this lane pins.
    if (is(shape_.invalidate)) return (void)cache().invalidate(page, deadline(random));
    if (is(shape_.read_async)) return read_async(me, page, random);
    if (is(shape_.write_async)) return write_async(me, page, random);
    if (is(shape_.views)) {
      pin_nothing(me);
      return view_operations<cache_schedule>(*this, me, random).one(page);
    }
    if constexpr (Pools::has_users) {
      if (is(shape_.share)) return share(me, page, random);
      if (is(shape_.reclaim)) return reclaim(me, random);
    }
    hold(me, page, false, random);
  }

  void read_async(std::uint32_t me, std::uint64_t page, simt::random_source& random) {
    constexpr std::uint32_t block_words = block_bytes / 8;
    std::uint64_t const all = std::uint64_t{shape_.pages} * words_per_page;
    std::uint64_t const first = page * words_per_page + random.below(words_per_page / block_words) * block_words;
    std::uint64_t const room = std::min<std::uint64_t>(all - first, pages_per_request * words_per_page);
    std::uint64_t const count =
        (1 + random.below(static_cast<std::uint32_t>(room / block_words))) * std::uint64_t{block_words};
    buffer_ref const to = buffer(me * buffers_per_lane, pages_per_request);
    auto token = storage().read_async(to, first * 8, count * 8);
    status outcome = token.wait(deadline(random));
    while (outcome.kind() == fault::timed_out) {
      failed(outcome);
      if (random.below(2) == 0) return give_up(token, to);
      outcome = token.wait(deadline(random));
    }
    if (!outcome.ok()) return failed(outcome);
    for (std::uint64_t k = 0; k < count; ++k) {
      verify(me, (first + k) / words_per_page, static_cast<std::uint32_t>((first + k) % words_per_page),
             client::ld(reinterpret_cast<std::uint64_t const*>(to.data()) + k), "C6: an asynchronous read");
    }
  }

  /// A request that no lane waits for any more, and its buffer, which is the lane's again after a flush.
  void give_up(typename storage_type::read_token& token, buffer_ref const& to) {
    token.detach();
    client::check(cache().queues().settle(0, 1) == 0, "a command that recovery could end was given up");
    for (std::uint64_t at = 0; at < to.size_bytes(); at += 8) {
      client::st(reinterpret_cast<std::uint64_t*>(to.data() + at), ~std::uint64_t{0});
    }
  }

  void write_async(std::uint32_t me, std::uint64_t page, simt::random_source& random) {
    std::uint32_t first = 0;
    std::uint32_t count = words_per_page;
    if (!is_whole(page)) {
      first = own_word(me, page, random);
      if (first == words_per_page) return;
      count = 1;
    } else {
      page = whole_page_of(me, page);
      if (!is_all_of(me, page)) return;
      if (random.below(3) == 0) {
        first = random.below(words_per_page);
        count = 1 + random.below(words_per_page - first);
      }
    }
    pin_nothing(me);
    buffer_ref const from = buffer(me * buffers_per_lane, pages_per_request);
    lane_books& books = books_[me];
    std::uint32_t number = 0;
    for (std::uint32_t k = 0; k < count; ++k) number = std::max(number, books.written[index_of(page, first + k)] + 1);
    for (std::uint32_t k = 0; k < count; ++k) {
      client::st(reinterpret_cast<std::uint64_t*>(from.data()) + k, encode(page, first + k, number));
    }
    bool const to_drive = random.below(2) == 0;
    auto token = storage().write_async(from, page * page_bytes + first * 8, count * 8,
                                       to_drive ? write_until::drive : write_until::cache);
    // Whatever the outcome, the cache has the write or has refused it: the next step finds out.
    status outcome = token.wait(deadline(random));
    if (!outcome.ok() && !wrote(page, first, number)) return failed(outcome);
    unobserved const quiet;
    for (std::uint32_t k = 0; k < count; ++k) {
      books.written[index_of(page, first + k)] = number;
      returned_[index_of(page, first + k)] = number;
      client::check(!outcome.ok() || !to_drive || static_cast<std::uint32_t>(on_drive(page, first + k)) == number,
                    "C2: a write says that it is on the drive, and is not");
    }
    if (!outcome.ok()) failed(outcome);
  }
  /// Whether a write whose token reports a failure is in the cache all the same, because only its write-back failed.
  bool wrote(std::uint64_t page, std::uint32_t word, std::uint32_t number) {
    page_pin pinned;
    insist("a page can never be pinned", [&] {
      pinned = cache().pin(page, access::read, when_full::wait);
      return is_late(pinned.outcome) ? pinned.outcome : status();
    });
    std::uint64_t value = 0;
    if (pinned.outcome.ok()) {
      value = client::ld(word_in(pinned.frame, word));
      cache().unpin(pinned.frame);
    } else {
      // The page is in no frame, so its state when it was evicted is on the drive.
      unobserved const quiet;
      value = on_drive(page, word);
    }
    return value == encode(page, word, number);
  }

  /// A page that lane `me` owns from end to end, near `page`; `page` where it owns none.
  std::uint64_t whole_page_of(std::uint32_t me, std::uint64_t page) const {
    for (std::uint64_t p = shape_.pages - std::min(shape_.whole_pages, shape_.pages); p < shape_.pages; ++p) {
      if (p % lane_count_ == me && (p >= page || p + lane_count_ >= shape_.pages)) return p;
    }
    return page;
  }
  bool is_all_of(std::uint32_t me, std::uint64_t page) const { return is_whole(page) && owner_of(page, 0) == me; }

  void share(std::uint32_t me, std::uint64_t page, simt::random_source& random) {
    lane_books& books = books_[me];
    if (books.buffers.empty()) return end_sharing(me, random.below(2) == 0);
    pin_nothing(me);
    std::uint32_t const index = books.buffers.back();
    buffer_ref const lent = buffer(index, 1);
    bool overwrite = false;
    if (is_whole(page)) {
      page = whole_page_of(me, page);
      overwrite = is_all_of(me, page) && random.below(2) == 0;
    }
    std::uint32_t number = 0;
    if (overwrite) {
      for (std::uint32_t w = 0; w < words_per_page; ++w)
        number = std::max(number, books.written[index_of(page, w)] + 1);
      for (std::uint32_t w = 0; w < words_per_page; ++w) {
        client::st(reinterpret_cast<std::uint64_t*>(lent.data()) + w, encode(page, w, number));
      }
    }
    page_type shared = storage().share(lent, page * page_bytes, overwrite ? sharing_use::overwrite : sharing_use::read);
    if (shared.is_own()) books.buffers.pop_back();
    status const outcome = shared.outcome().ok() ? shared.wait(deadline(random)) : shared.outcome();
    books.lent.push_back({page, index, overwrite, shared});
    if (!outcome.ok()) {
      end_sharing(me, false);
      return failed(outcome);
    }
    if (overwrite) {
      for (std::uint32_t w = 0; w < words_per_page; ++w) books.written[index_of(page, w)] = number;
    }
    for (std::uint32_t w = 0; w < words_per_page; ++w) look_in_shared(me, page, shared, w);
    std::uint32_t const word = own_word(me, page, random);
    if (word < words_per_page && random.below(2) == 0) {
      client::check(shared.will_write().ok(), "a shared page that may be written");
      books.lent.back().written = true;
      client::st(reinterpret_cast<std::uint64_t*>(shared.data()) + word,
                 encode(page, word, ++books.written[index_of(page, word)]));
      look_in_shared(me, page, shared, word);
    }
    if (random.below(3) == 0) end_sharing(me, random.below(2) == 0);
  }
  void look_in_shared(std::uint32_t me, std::uint64_t page, page_type const& shared, std::uint32_t word) {
    auto const* const at = reinterpret_cast<std::uint64_t const*>(shared.data()) + word;
    verify(me, page, word, owner_of(page, word) == me ? client::ld(at) : client::ld_speculative(at),
           "C6: a read of a shared page");
  }

  /// Lets go of all that this lane has pinned, except its own buffers, so that it does not keep another lane waiting
  /// while it waits itself.
  void pin_nothing(std::uint32_t me) {
    lane_books& books = books_[me];
    while (!books.held.empty()) let_go(me, 0);
    for (lent_page& lent : books.lent) {
      if (!lent.shared.is_own()) end_sharing(me, lent, true);
    }
    std::erase_if(books.lent, [](lent_page const& lent) { return !lent.shared.is_own(); });
  }
  /// `abandon`: leaves buffers to the lane that reclaims them, or to the end.
  void end_sharing(std::uint32_t me, bool abandon) {
    pin_nothing(me);
    for (lent_page& lent : books_[me].lent) end_sharing(me, lent, abandon);
    books_[me].lent.clear();
  }
  void end_sharing(std::uint32_t me, lent_page& lent, bool abandon) {
    lane_books& books = books_[me];
    {
      unobserved const quiet;
      for (std::uint32_t w = 0; lent.written && w < words_per_page; ++w) {
        if (owner_of(lent.page, w) == me) returned_[index_of(lent.page, w)] = books.written[index_of(lent.page, w)];
      }
    }
    if (!lent.shared.is_own()) return lent.shared.leave();
    hand_over();
    {
      unobserved const quiet;
      abandoned_.push_back(lent.shared);
    }
    if (abandon) return;
    insist("C2: a buffer is never given back", [&] { return lent.shared.take_back(patient_deadline()); });
    // Now it is this lane's alone.
    for (std::uint32_t w = 0; w < words_per_page; ++w) {
      client::st(reinterpret_cast<std::uint64_t*>(buffer(lent.buffer, 1).data()) + w, ~std::uint64_t{0});
    }
    books.buffers.push_back(lent.buffer);
  }
  void reclaim(std::uint32_t me, simt::random_source& random) {
    end_sharing(me, false);
    hand_over();
    page_type shared;
    {
      unobserved const quiet;
      if (abandoned_.empty()) return;
      std::size_t const which = random.below(static_cast<std::uint32_t>(abandoned_.size()));
      shared = abandoned_[which];
      abandoned_.erase(abandoned_.begin() + static_cast<std::ptrdiff_t>(which));
    }
    status const outcome = shared.take_back(deadline(random));
    if (outcome.ok()) return;
    // Others may have had it pinned until the deadline.
    if (outcome.kind() != fault::no_frame || shape_.impatient == 0) failed(outcome);
    hand_over();
    unobserved const quiet;
    abandoned_.push_back(shared);
  }

  /// Called before a shared page goes into `abandoned_`, and before one is taken from there. So the accesses of its
  /// lanes are ordered as if a program had handed the page over. Acquire and release pair with those of other lanes.
  void hand_over() { simt::atomic<agent_machine>(handed_over_).fetch_add(1, simt::order::acq_rel); }

  void look_without_pin(std::uint32_t me, std::uint64_t page, simt::random_source& random) {
    std::uint32_t const word = random.below(words_per_page);
    std::uint64_t value = 0;
    if (cache().try_read(page, word * 8, value)) verify(me, page, word, value, "C6: a read without a pin");
  }

  void prefetch(std::uint32_t me, std::uint64_t page) {
    books_[me].must_not_wait = true;
    (void)cache().prefetch(page);
    books_[me].must_not_wait = false;
  }

  void hold(std::uint32_t me, std::uint64_t page, bool write, simt::random_source& random) {
    lane_books& books = books_[me];
    while (books.held.size() >= shape_.guards) let_go(me, 0);
    page_pin const pinned = cache().pin(page, write ? access::write : access::read);
    if (!pinned.outcome.ok()) return failed(pinned.outcome);
    client::check(pinned.frame < frame_count(), "C1: a pin without a frame");
    books.held.push_back({page, pinned.frame, write});
    std::uint32_t const word = own_word(me, page, random);
    if (write && word < words_per_page) write_to(me, page, pinned.frame, word);
    std::uint32_t const other = random.below(words_per_page);
    look_at(me, page, pinned.frame, other);
    if (word < words_per_page) look_at(me, page, pinned.frame, word);
    if (random.below(2) == 0) let_go(me, books.held.size() - 1);
  }

  void write_to(std::uint32_t me, std::uint64_t page, std::uint32_t frame, std::uint32_t word) {
    std::uint32_t const number = ++books_[me].written[index_of(page, word)];
    client::st(word_in(frame, word), encode(page, word, number));
  }
  void look_at(std::uint32_t me, std::uint64_t page, std::uint32_t frame, std::uint32_t word) {
    // Others may write their words at this time: a reader may see any of their values, as with any two threads.
    verify(me, page, word,
           owner_of(page, word) == me ? client::ld(word_in(frame, word)) : client::ld_speculative(word_in(frame, word)),
           "C6: a read through a pin");
  }

  void let_go(std::uint32_t me, std::size_t which) {
    lane_books& books = books_[me];
    held_page const held = books.held[which];
    // As late as a write can be.
    std::uint32_t const word = me % words_per_page;
    if (held.written && owner_of(held.page, word) == me) write_to(me, held.page, held.frame, word);
    look_at(me, held.page, held.frame, word);
    {
      unobserved const quiet;
      client::check(page_word{state_.words[held.frame]}.names(state_.mapping.locate(held.page).tag),
                    "C3: a pinned frame was given to another page");
    }
    cache().unpin(held.frame);
    books.held.erase(books.held.begin() + static_cast<std::ptrdiff_t>(which));
    if (!held.written) return;
    unobserved const quiet;
    for (std::uint32_t w = 0; w < words_per_page; ++w) {
      if (owner_of(held.page, w) == me) returned_[index_of(held.page, w)] = books.written[index_of(held.page, w)];
    }
  }

  /// C2: what returned before it is on the drive afterwards.
  void flush(std::uint32_t me, simt::random_source& random) {
    std::vector<std::uint32_t>& owed = books_[me].owed;
    {
      unobserved const quiet;
      std::copy(returned_.begin(), returned_.end(), owed.begin());
    }
    status const worst = random.below(2) == 0 ? clean_each(random) : persist_each();
    if (!worst.ok()) return failed(worst);
    // This lane's writes came before; those of others may not have.
    unobserved const quiet;
    for (std::uint64_t page = 0; page < shape_.pages; ++page) {
      for (std::uint32_t w = 0; w < words_per_page; ++w) {
        if (owner_of(page, w) != me) continue;
        client::check(static_cast<std::uint32_t>(on_drive(page, w)) >= owed[index_of(page, w)],
                      "C2: a flush returns, and a write before it is not on the drive");
      }
    }
  }
  /// As a kernel would flush, with a deadline for each frame.
  status clean_each(simt::random_source& random) {
    status worst;
    for (std::uint32_t frame = 0; frame < frame_count(); ++frame) {
      status const outcome = cache().clean(frame, deadline(random));
      if (!outcome.ok()) worst = outcome;
    }
    return worst;
  }
  /// As the host's flush does, however long the drives take for all of it.
  status persist_each() {
    clean_result* result = nullptr;
    {
      // For as long as the schedule: a lane's stores may reach it late.
      unobserved const quiet;
      result = results_.emplace_back(std::make_unique<clean_result>()).get();
    }
    {
      auto const frames = this->frames();
      cleaner<client, Rules> const work(frames, result);
      for (std::uint32_t frame = 0; frame < frame_count(); ++frame) {
        std::uint64_t const page = frames.page_to_clean(frame);
        if (page == frames.no_page) continue;
        work.persist(page, [&](std::uint64_t deadline_ns) { return frames.clean(frame, deadline_ns); });
      }
    }
    return worst_of(*result);
  }
  frames_ref<client, Rules> frames() {
    return frames_ref<client, Rules>(&state_, state_.words, state_.fingerprints, state_.frame_memory.data(),
                                     state_.mapping, page_shift);
  }
  status worst_of(clean_result& result) const {
    status worst;
    for (std::uint32_t d = 0; d < shape_.drives; ++d) {
      // Relaxed: the lane that wrote it has synchronized with this lane since.
      std::uint32_t const bits = simt::atomic<client>(result.drives[d].first_failure).load(simt::order::relaxed);
      if (bits != 0) worst = status::from_bits(bits);
    }
    if (is_late(worst)) {
      client::check(shape_.withholds(), "C2: the write-back of a healthy drive ends before all is written");
    }
    return worst;
  }

  void about_to_wait() {
    std::uint32_t const me = client::thread_rank();
    unobserved const quiet;
    if (me < lane_count_) client::check(!books_[me].must_not_wait, "C5: a prefetch waits");
    // Under store buffers the store that unlocks may still be on its way.
    for (std::uint32_t set = 0; set < shape_.sets && memory_model_ != simt::memory_model::store_buffers; ++set) {
      client::check(sets()[set].lock != me + 1, "Q4: a thread waits while it holds the lock of a set");
    }
  }

  /// By all lanes: everything that was written must reach the drives, however often they fail. As `~storage` does it.
  void close() {
    meet();
    if (client::thread_rank() == 0) {
      for (page_type& shared : abandoned_) {
        insist("C2: a buffer is never given back", [&] { return shared.take_back(patient_deadline()); });
      }
    }
    for (std::size_t round = 0;; ++round) {
      client::check(round < cleaned_.size(), "C2: a page never reaches the drive");
      meet();
      clean_kernel<client, Rules>{frames(), &cleaned_[round]}();
      meet();
      if (worst_of(cleaned_[round]).ok()) break;
    }
    settle_kernel<client, typename cache_type::targets_type>{cache().queues(), &not_settled_}();
    meet();
    drain_kernel<client, typename cache_type::targets_type>{cache().queues(), shape_.timeout_ns, &not_drained_}();
  }

  std::uint64_t const seed_;
  std::vector<char> reads_along_ = std::vector<char>(lane_count_, 0);
  std::vector<page_type> abandoned_;
  std::uint32_t handed_over_ = 0;
  std::uint32_t arrived_ = 0;
  std::vector<clean_result> cleaned_ = std::vector<clean_result>(64);  // a round at the end each
  std::vector<std::unique_ptr<clean_result>> results_;                 // of flushes
};

/// Builds and runs the schedule that shape, seed and mode describe.
template <class Policy, class Pools = frame_pools<>, class Rules = cache_rules>
cache_outcome run_cache_schedule(cache_shape const& shape, std::uint64_t seed, schedule_mode mode) {
  auto s = std::make_unique<cache_schedule<Policy, Pools, Rules>>(shape, seed);
  using policy = schedule_mode::policy;
  std::uint64_t const operations = std::uint64_t{shape.lanes.blocks} * shape.lanes.threads_per_block * shape.operations;
  switch (mode.scheduler) {
    case policy::sticky_random: {
      simt::random scheduler(seed, 8);
      return s->run(scheduler, mode.memory);
    }
    case policy::random: {
      simt::random scheduler(seed, 2);
      return s->run(scheduler, mode.memory);
    }
    case policy::round_robin: {
      simt::round_robin scheduler;
      return s->run(scheduler, mode.memory);
    }
    case policy::pct3:
    case policy::pct5:
      break;
  }
  simt::pct scheduler(seed, mode.scheduler == policy::pct3 ? 3 : 5, 100 * operations);
  return s->run(scheduler, mode.memory);
}

}  // namespace forebay::test
