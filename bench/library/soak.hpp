// SPDX-License-Identifier: Apache-2.0
//! \file
//! Threads that read and write drives for any length of time, by every path of the library, while some commands fail:
//! the work of each thread, and what the drives must hold in the end.
//!
//! A page is written by one thread only. That thread notes what it has written in a copy of the whole storage, word by
//! word. So its own reads must return exactly that, and the drives must hold it in the end. Other threads' reads of the
//! page must return some word that belongs there: a word says in its upper bits where it belongs. After a write that
//! failed, the owner reads the page again: it holds what was there before, or what was to be there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/common/random.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#include "forebay/error.hpp"
#include "forebay/status.hpp"
#include "forebay/storage.hpp"

namespace forebay::bench {

/// The kinds of step that a thread takes.
enum class soak_step : std::uint8_t {
  load_own,
  load_any,
  store,
  prefetch,
  read_own,
  read_any,
  write_page,
  write_page_to_drive,
  write_part,
  share_overwrite,
  share_update,
};
inline constexpr std::uint32_t soak_steps = 11;
inline constexpr char const* soak_step_names[soak_steps] = {
    "load_own",   "load_any",        "store",       "prefetch",
    "read_own",   "read_any",        "write_page",  "write_page_to_drive",
    "write_part", "share_overwrite", "share_update"};

/// Zeroed by the host.
struct soak_result {
  std::uint64_t done[soak_steps] = {};
  std::uint64_t failed[soak_steps] = {};  ///< of those: with a status that reached the thread
  std::uint64_t wrong = 0;                ///< words that are not what they must be
  std::uint64_t strange = 0;              ///< statuses that no fault explains
  std::uint64_t unsettled = 0;            ///< pages that could not be read again, or buffers not taken back
  std::uint64_t refused_prefetches = 0;
  std::uint32_t first_strange = 0;       ///< bits of a status
  std::uint32_t first_strange_step = 0;  ///< and what it ended
  std::uint32_t first_unsettled = 0;     ///< bits of a status, of the last of many attempts
  std::uint32_t first_unsettled_step = 0;
};

struct soak_work {
  std::uint32_t steps = 0;   ///< of each thread; 0: until the time is over
  std::uint64_t run_ns = 0;  ///< 0: until the steps are done
  std::uint64_t seed = 1;
  std::uint32_t first_thread = 0;  ///< of this launch, among those of all streams
  std::uint32_t all_threads = 0;   ///< of all streams together: no more than there are pages
  std::uint32_t failing_drive = 0;
  std::uint32_t drives = 1;  ///< each has a page in turn
};

/// Word `i` of the storage, written the `number`-th time by its owner.
FOREBAY_DEVICE constexpr std::uint64_t soak_word(std::uint64_t i, std::uint64_t number) {
  return (i + 1) << 24 | (number & 0xffffff);
}
FOREBAY_DEVICE constexpr bool belongs(std::uint64_t word, std::uint64_t i) {
  return word >> 24 == i + 1;
}

/// `Storage`: a `storage_ref` whose pools have users' buffers.
template <class M, class Storage>
struct soak_kernel {
  static constexpr unsigned max_threads_per_block = 256;
  Storage storage;
  buffer_ref buffers;  ///< a page for each thread of the launch
  soak_work work;
  std::uint64_t* written;  ///< what the storage must hold, word by word
  std::uint32_t* numbers;  ///< of each thread of all streams: how often it has written
  soak_result* result;

  FOREBAY_DEVICE void operator()() const {
    std::uint64_t const thread = work.first_thread + M::thread_rank();
    std::uint64_t const stop_ns = work.run_ns == 0 ? ~std::uint64_t{0} : M::clock_ns() + work.run_ns;
    apps::splitmix64 draws(work.seed, thread);
    for (std::uint32_t k = 0; (work.steps == 0 || k < work.steps) && M::clock_ns() < stop_ns; ++k) {
      std::uint64_t const draw = draws.next();
      step(choose(static_cast<std::uint32_t>(draw % 100)), thread, draw >> 8);
    }
  }

 private:
  using view_type = typename Storage::template view_type<std::uint64_t>;

  FOREBAY_DEVICE static soak_step choose(std::uint32_t percent) {
    constexpr std::uint32_t weights[soak_steps] = {24, 10, 22, 10, 8, 5, 7, 4, 4, 3, 3};  // in a hundred
    std::uint32_t s = 0;
    for (std::uint32_t below = weights[0]; percent >= below; below += weights[s]) ++s;
    return static_cast<soak_step>(s);
  }

  FOREBAY_DEVICE std::uint32_t words_in_page() const { return storage.page_bytes() / 8; }
  FOREBAY_DEVICE std::uint64_t pages() const { return storage.size_bytes() / storage.page_bytes(); }
  FOREBAY_DEVICE buffer_ref mine() const {
    return buffers.subspan(std::uint64_t{M::thread_rank()} * storage.page_bytes(), storage.page_bytes());
  }
  FOREBAY_DEVICE std::uint64_t* mine_words() const { return reinterpret_cast<std::uint64_t*>(mine().data()); }
  /// Draws one of the thread's own pages.
  FOREBAY_DEVICE std::uint64_t own_page(std::uint64_t thread, std::uint64_t draw) const {
    std::uint64_t const have = (pages() - thread + work.all_threads - 1) / work.all_threads;
    return thread + draw % have * work.all_threads;
  }

  FOREBAY_DEVICE void step(soak_step what, std::uint64_t thread, std::uint64_t draw) const {
    std::uint32_t const words = words_in_page();
    std::uint64_t const page = what == soak_step::load_any || what == soak_step::read_any || what == soak_step::prefetch
                                   ? draw % pages()
                                   : own_page(thread, draw);
    std::uint64_t const first = page * words;
    std::uint32_t const word = static_cast<std::uint32_t>(draw >> 40) % words;
    auto const view = storage.template array<std::uint64_t>();
    status outcome;
    switch (what) {
      case soak_step::load_own:
      case soak_step::load_any: {
        std::uint64_t value = 0;
        outcome = view.try_load(first + word, value);
        if (outcome.ok()) {
          expect(what == soak_step::load_own ? value == M::ld(written + first + word) : belongs(value, first + word));
        }
        break;
      }
      case soak_step::store: {
        std::uint64_t const value = soak_word(first + word, ++numbers[thread]);
        outcome = view.try_store(first + word, value);
        // A page that could not be read was not written.
        if (outcome.ok()) M::st(written + first + word, value);
        break;
      }
      case soak_step::prefetch:
        // Relaxed: a counter.
        if (!view.prefetch(first)) simt::atomic<M>(result->refused_prefetches).fetch_add(1, simt::order::relaxed);
        break;
      case soak_step::read_own:
      case soak_step::read_any:
        outcome = storage.read_async(mine(), page * storage.page_bytes(), storage.page_bytes()).wait();
        if (outcome.ok()) check_buffer(first, what == soak_step::read_own);
        break;
      case soak_step::write_page:
      case soak_step::write_page_to_drive:
      case soak_step::write_part: {
        bool const part = what == soak_step::write_part;
        std::uint32_t const from = part ? word : 0, count = part ? (words - word + 1) / 2 : words;
        std::uint32_t const number = fill(first + from, count, thread);
        outcome = storage
                      .write_async(mine().subspan(0, count * 8ull), (first + from) * 8, count * 8ull,
                                   what == soak_step::write_page ? write_until::cache : write_until::drive)
                      .wait();
        note(view, first + from, count, number, outcome, what);
        break;
      }
      case soak_step::share_overwrite: {
        std::uint32_t const number = fill(first, words, thread);
        auto shared = storage.share(mine(), page * storage.page_bytes(), sharing_use::overwrite);
        outcome = shared.outcome();
        if (outcome.ok()) {
          note(view, first, words, number, outcome, what);
          outcome = take_back(shared, what);
        } else {
          note(view, first, words, number, outcome, what);
        }
        break;
      }
      case soak_step::share_update: {
        auto shared = storage.share(mine(), page * storage.page_bytes(), sharing_use::read);
        outcome = shared.wait();
        if (outcome.ok()) {
          outcome = shared.will_write();
          auto* const data = reinterpret_cast<std::uint64_t*>(shared.data());
          std::uint32_t const number = ++numbers[thread];
          for (std::uint32_t w = word; w < words; w += 7) {
            expect(M::ld(data + w) == M::ld(written + first + w));
            M::st(data + w, soak_word(first + w, number));
            M::st(written + first + w, soak_word(first + w, number));
          }
        }
        status const back = take_back(shared, what);
        if (outcome.ok()) outcome = back;
        break;
      }
    }
    tell(what, page, outcome);
  }

  /// Tries until the buffer is the thread's again. Returns the status of the first attempt, which is the one that
  /// counts.
  template <class Shared>
  FOREBAY_DEVICE status take_back(Shared& shared, soak_step what) const {
    status const first = shared.take_back();
    status last = first;
    if (!last.ok()) (void)M::wait_until([&] { return (last = shared.take_back()).ok(); }, M::clock_ns() + patience_ns);
    if (!last.ok()) give_up(last, what);
    return first;
  }

  /// Puts new words for `count` words of the storage, from `first` on, into the thread's buffer. Returns their number.
  FOREBAY_DEVICE std::uint32_t fill(std::uint64_t first, std::uint32_t count, std::uint64_t thread) const {
    std::uint32_t const number = ++numbers[thread];
    for (std::uint32_t w = 0; w < count; ++w) M::st(mine_words() + w, soak_word(first + w, number));
    return number;
  }
  FOREBAY_DEVICE void check_buffer(std::uint64_t first, bool own) const {
    std::uint32_t const words = words_in_page();
    bool right = true;
    for (std::uint32_t w = 0; w < words; ++w) {
      std::uint64_t const value = M::ld(mine_words() + w);
      right = right && (own ? value == M::ld(written + first + w) : belongs(value, first + w));
    }
    expect(right);
  }

  /// Notes a write that ended with `outcome`. If it failed, the content of the page tells whether it was made.
  FOREBAY_DEVICE void note(view_type const& view, std::uint64_t first, std::uint32_t count, std::uint32_t number,
                           status outcome, soak_step what) const {
    bool made = outcome.ok();
    if (!made) {
      std::uint64_t value = 0;
      status read;
      (void)M::wait_until([&] { return (read = view.try_load(first, value)).ok(); }, M::clock_ns() + patience_ns);
      if (!read.ok()) return give_up(read, what);
      made = value == soak_word(first, number);
    }
    if (!made) return;
    for (std::uint32_t w = 0; w < count; ++w) M::st(written + first + w, soak_word(first + w, number));
  }

  FOREBAY_DEVICE void expect(bool right) const {
    if (!right) add(result->wrong);
  }
  FOREBAY_DEVICE void tell(soak_step what, std::uint64_t page, status outcome) const {
    auto const s = static_cast<std::uint32_t>(what);
    add(result->done[s]);
    if (outcome.ok()) return;
    add(result->failed[s]);
    // The status of the drive that fails, for a page that lies there.
    if (outcome.kind() == fault::none && page % work.drives == work.failing_drive) return;
    add(result->strange);
    note_first(result->first_strange, result->first_strange_step, outcome, what);
  }
  FOREBAY_DEVICE void give_up(status outcome, soak_step what) const {
    add(result->unsettled);
    note_first(result->first_unsettled, result->first_unsettled_step, outcome, what);
  }
  FOREBAY_DEVICE static void note_first(std::uint32_t& bits, std::uint32_t& step, status outcome, soak_step what) {
    std::uint32_t none = 0;
    // Relaxed: a note for the host.
    if (!simt::atomic<M>(bits).compare_exchange(none, outcome.bits(), simt::order::relaxed)) return;
    M::st(&step, static_cast<std::uint32_t>(what));
  }
  FOREBAY_DEVICE static void add(std::uint64_t& counter) {
    simt::atomic<M>(counter).fetch_add(1, simt::order::relaxed);  // a counter
  }

  static constexpr std::uint64_t patience_ns = 30'000'000'000;
};

/// Calls `use`, and again if the failing drive makes it fail. Returns how often it failed, `tries` at most.
template <class Use>
std::uint64_t in_spite_of_failures(Use&& use, std::uint64_t tries = 1000) {
  for (std::uint64_t failed = 0; failed < tries; ++failed) {
    try {
      use();
      return failed;
    } catch (operation_failed const&) {
    }
  }
  return tries;
}

/// Compares the drives byte by byte: returns how many words differ from `written`. Throws `operation_failed` if they
/// cannot be flushed or read.
inline std::uint64_t soak_wrong_words(storage& drives, std::vector<std::uint64_t> const& written,
                                      std::uint64_t* failed_flushes = nullptr) {
  constexpr std::uint64_t tries = 1000;
  std::uint64_t const flushes = in_spite_of_failures([&] { drives.flush(); }, tries);
  if (flushes == tries) throw operation_failed("the drives cannot be flushed");
  if (failed_flushes != nullptr) *failed_flushes += flushes;
  std::uint64_t wrong = 0;
  std::vector<std::uint64_t> found(std::size_t{1} << 17);
  for (std::size_t at = 0; at < written.size(); at += found.size()) {
    std::size_t const count = std::min(found.size(), written.size() - at);
    if (in_spite_of_failures([&] { drives.pread(found.data(), count * 8, at * 8); }, tries) == tries) {
      throw operation_failed("the drives cannot be read");
    }
    for (std::size_t i = 0; i < count; ++i) wrong += found[i] != written[at + i] ? 1 : 0;
  }
  return wrong;
}

}  // namespace forebay::bench
