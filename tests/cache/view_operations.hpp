// SPDX-License-Identifier: Apache-2.0
//! \file
//! Operations of a schedule's lanes through array views, cursors and windows, with checks of what each lane must see.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "forebay/detail/simt/run.hpp"
#include "forebay/status.hpp"

namespace forebay::test {

/// The operations of lane `me` of a `cache_schedule`. The words of the storage are numbered from its first page on.
template <class Schedule>
class view_operations {
  using client = typename Schedule::client;
  static constexpr std::uint32_t words_per_page = Schedule::words_per_page;
  /// A page is no multiple of it, so some elements lie in two pages.
  struct triple {
    std::uint64_t words[3];
  };

 public:
  /// `random` is the lane's own.
  view_operations(Schedule& schedule, std::uint32_t me, simt::random_source& random)
      : s_(schedule), me_(me), random_(random), words_(std::uint64_t{s_.page_count()} * words_per_page) {}

  /// One operation near `page`; the lane has nothing pinned.
  void one(std::uint64_t page) {
    // Now and then one that a lane may be overwriting.
    std::uint32_t const whole = std::min(s_.shape_.whole_pages, s_.shape_.pages);
    if (whole != 0 && random_.below(4) == 0) page = s_.shape_.pages - 1 - random_.below(whole);
    switch (random_.below(7)) {
      case 0:
        return load(random_word(page));
      case 1:
        return store(page);
      case 2:
        return add(page);
      case 3:
        return load_many(page);
      case 4:
        return load_triple(page);
      case 5:
        return overwrite(page);
      default:
        return with_cursor(page);
    }
  }

  /// One operation of all lanes of a full warp, which have nothing pinned; `common` draws the same numbers for all of
  /// them.
  void together(simt::random_source& common) {
    std::uint64_t const first = common.below(static_cast<std::uint32_t>(words_));
    switch (common.below(6)) {
      case 0:
      case 5:
        return load_together(common);
      case 1:
        return with_window<std::uint64_t const>(common, first);
      case 2:
        return with_window<std::uint64_t>(common, first);
      case 3:
        return with_warp_cursor<std::uint64_t const>(common, first);
      default:
        return with_warp_cursor<std::uint64_t>(common, first);
    }
  }

 private:
  static std::uint64_t page_of(std::uint64_t word) { return word / words_per_page; }
  static std::uint32_t in_page(std::uint64_t word) { return static_cast<std::uint32_t>(word % words_per_page); }
  std::uint64_t random_word(std::uint64_t page) { return page * words_per_page + random_.below(words_per_page); }
  void see(std::uint64_t word, std::uint64_t value, char const* what) {
    s_.verify(me_, page_of(word), in_page(word), value, what);
  }
  bool is_own(std::uint64_t word) const { return s_.owner_of(page_of(word), in_page(word)) == me_; }

  /// A view that begins at some word at or before `word`, and the index of `word` in it.
  template <class T>
  auto view_with(std::uint64_t word, std::uint64_t begin, std::uint64_t& index) const {
    index = word - begin;
    return s_.storage().template array<T>(begin * 8);
  }

  /// Words of one page or two, or of up to seven. Lanes that want the same page read it together.
  void load_together(simt::random_source& common) {
    for (std::uint32_t loads = 2 + common.below(6); loads != 0; --loads) {
      std::uint64_t const first = common.below(static_cast<std::uint32_t>(words_));
      std::uint32_t const pages = common.below(2) == 0 ? 1 : 6;
      std::uint64_t const word = (first + random_.below(pages * words_per_page)) % words_;
      // The race detector watches reads of the lane's own words only: those of others may change meanwhile.
      std::uint32_t const own = random_.below(2) == 0 ? s_.own_word(me_, page_of(word), random_) : words_per_page;
      load(own == words_per_page ? word : page_of(word) * words_per_page + own);
    }
  }
  void load(std::uint64_t word) {
    std::uint64_t index = 0;
    auto const view = view_with<std::uint64_t const>(word, begin_before(random_, word), index);
    std::uint64_t value = 0;
    s_.reads_along_[me_] = !is_own(word);
    status const outcome = view.try_load(index, value);
    s_.reads_along_[me_] = false;
    if (!outcome.ok()) return s_.failed(outcome);
    see(word, value, "C6: a load through a view");
  }
  static std::uint64_t begin_before(simt::random_source& random, std::uint64_t word) {
    return random.below(2) == 0 ? 0 : random.below(static_cast<std::uint32_t>(word) + 1);
  }

  void store(std::uint64_t page) {
    std::uint32_t const own = s_.own_word(me_, page, random_);
    if (own == words_per_page) return;
    std::uint64_t const word = page * words_per_page + own;
    std::uint64_t index = 0;
    auto const view = view_with<std::uint64_t>(word, begin_before(random_, word), index);
    std::uint32_t const number = s_.next_number(me_, page, own);
    status const outcome = view.try_store(index, Schedule::encode(page, own, number));
    if (!outcome.ok()) return s_.failed(outcome);
    s_.has_written(me_, page, own, number);
  }

  void add(std::uint64_t page) {
    std::uint32_t const own = s_.own_word(me_, page, random_);
    if (own == words_per_page) return;
    std::uint64_t const word = page * words_per_page + own;
    std::uint64_t index = 0;
    auto const view = view_with<std::uint64_t>(word, 0, index);
    std::uint32_t const number = s_.next_number(me_, page, own);
    std::uint64_t const before = view.fetch_add(index, 1);
    // The view reports to the host why it failed, and to the caller only that it did.
    if (before == 0) return s_.failed_unseen();
    see(word, before, "C6: what a word was that is added to");
    s_.has_written(me_, page, own, number);
  }

  void load_many(std::uint64_t page) {
    constexpr std::uint32_t most = 3 * words_per_page;
    std::uint64_t const word = random_word(page);
    auto const count = 1 + random_.below(static_cast<std::uint32_t>(std::min<std::uint64_t>(most, words_ - word)));
    std::uint64_t index = 0;
    auto const view = view_with<std::uint64_t const>(word, begin_before(random_, word), index);
    std::uint64_t values[most];
    status const outcome = view.load(index, count, values);
    if (!outcome.ok()) return s_.failed(outcome);
    for (std::uint32_t k = 0; k < count; ++k) see(word + k, values[k], "C6: a load of many elements");
  }

  void load_triple(std::uint64_t page) {
    std::uint64_t const begin = random_.below(3);
    // The drives may have a page more than the schedule.
    auto const view = view_of<triple>({begin, words_});
    std::uint64_t const word = random_word(page);
    std::uint64_t const index = std::min((std::max(word, begin) - begin) / 3, view.size() - 1);
    std::uint64_t const first = begin + index * 3;
    bool const all_own = is_own(first) && is_own(first + 1) && is_own(first + 2);
    if (all_own && random_.below(2) == 0) return store_triple(view, index, first);
    triple value{};
    status const outcome = view.try_load(index, value);
    if (!outcome.ok()) return s_.failed(outcome);
    for (std::uint32_t k = 0; k < 3; ++k) see(first + k, value.words[k], "C6: a load of an element in parts");
  }
  template <class View>
  void store_triple(View const& view, std::uint64_t index, std::uint64_t first) {
    triple value{};
    std::uint32_t numbers[3];
    for (std::uint32_t k = 0; k < 3; ++k) {
      numbers[k] = s_.next_number(me_, page_of(first + k), in_page(first + k));
      value.words[k] = Schedule::encode(page_of(first + k), in_page(first + k), numbers[k]);
    }
    status const outcome = view.try_store(index, value);
    for (std::uint32_t k = 0; k < 3; ++k) {
      // The part in the first page is written even if the second page cannot be had.
      std::uint64_t const page = page_of(first + k);
      std::uint32_t const word = in_page(first + k);
      if (outcome.ok() || s_.wrote(page, word, numbers[k])) s_.has_written(me_, page, word, numbers[k]);
    }
    if (!outcome.ok()) s_.failed(outcome);
  }

  /// Words [begin, end) of the storage, which a view is of.
  struct range {
    std::uint64_t begin;
    std::uint64_t end;
  };
  /// One with `word` in it: of all to the end of the storage, or of fewer.
  range range_around(simt::random_source& random, std::uint64_t word) const {
    std::uint64_t const begin = begin_before(random, word);
    std::uint64_t const after = random.below(static_cast<std::uint32_t>(words_ - word));
    return {begin, random.below(2) == 0 ? words_ : word + 1 + after};
  }
  template <class T>
  auto view_of(range r) const {
    return s_.storage().template array<T>(r.begin * 8, (r.end - r.begin) * 8 / sizeof(T));
  }

  // Cursors and windows
  // -------------------------------------------------------------------------------------------------

  void with_cursor(std::uint64_t page) {
    range const r = range_around(random_, random_word(page));
    if (random_.below(3) == 0) return with_cursor_of_triples(page, r);
    if (random_.below(2) == 0) {
      auto const view = view_of<std::uint64_t>(r);
      auto cursor = view.thread_page();
      return walk(cursor, r, page, true);
    }
    auto const view = view_of<std::uint64_t const>(r);
    auto cursor = view.thread_page();
    walk(cursor, r, page, false);
  }
  /// Overwrites a page whose words are all this lane's. The view covers the page, or begins or ends within it. Other
  /// lanes read the page meanwhile.
  void overwrite(std::uint64_t page) {
    page = s_.whole_page_of(me_, page);
    if (!s_.is_all_of(me_, page)) return store(page);
    std::uint64_t const first = page * words_per_page;
    range r{0, words_};
    if (random_.below(4) == 0) r = range_around(random_, random_word(page));
    auto const view = view_of<std::uint64_t>(r);
    std::uint64_t const begin = std::max(first, r.begin), end = std::min(first + words_per_page, r.end);
    std::uint32_t numbers[words_per_page];
    {
      auto cursor = view.thread_page();
      status const outcome =
          cursor.seek_overwrite(begin + random_.below(static_cast<std::uint32_t>(end - begin)) - r.begin);
      if (!outcome.ok()) return s_.failed(outcome);
      client::check(cursor.first() + r.begin == begin && cursor.end() + r.begin == end,
                    "the elements within reach are those of the page");
      for (std::uint64_t word = begin; word < end; ++word) {
        std::uint32_t const number = numbers[word - begin] = s_.next_number(me_, page, in_page(word));
        client::st(&cursor[word - r.begin], Schedule::encode(page, in_page(word), number));
      }
      if (random_.below(2) == 0) cursor.release();
    }
    for (std::uint64_t word = begin; word < end; ++word) {
      s_.has_written(me_, page, in_page(word), numbers[word - begin]);
    }
    if (end - begin != words_per_page) return;
    unobserved const quiet;
    ++s_.outcome_.overwrites;
  }
  template <class Cursor>
  void walk(Cursor& cursor, range r, std::uint64_t page, bool writable) {
    for (std::uint32_t moves = 1 + random_.below(4); moves != 0; --moves) {
      std::uint64_t const word = std::clamp(random_word(page), r.begin, r.end - 1);
      status const outcome = cursor.seek(word - r.begin);
      if (!outcome.ok()) return s_.failed(outcome);
      look_around(cursor, r, word, writable);
      if (random_.below(3) == 0) cursor.release();
      page = (page + random_.below(3)) % s_.page_count();
    }
    client::check(cursor.seek(r.end - r.begin).kind() == fault::out_of_range, "an element behind the last one");
  }
  /// The whole page is within reach, and the words of other lanes in it may change at any time.
  template <class Cursor>
  void look_around(Cursor& cursor, range r, std::uint64_t word, bool writable) {
    std::uint64_t const page = page_of(word);
    client::check(cursor.first() + r.begin == std::max(page * words_per_page, r.begin) &&
                      cursor.end() + r.begin == std::min((page + 1) * words_per_page, r.end),
                  "the elements within reach are those of the page");
    for (std::uint32_t looks = 1 + random_.below(3); looks != 0; --looks) {
      auto const within = static_cast<std::uint32_t>(cursor.end() - cursor.first());
      look_at(cursor, r, r.begin + cursor.first() + random_.below(within));
    }
    std::uint32_t const own = s_.own_word(me_, page, random_);
    std::uint64_t const own_word = page * words_per_page + own;
    if (own == words_per_page || own_word < r.begin || own_word >= r.end) return;
    if (writable) write(cursor, r, own_word);
    look_at(cursor, r, own_word);
  }
  template <class Cursor>
  void look_at(Cursor& cursor, range r, std::uint64_t word) {
    auto const* const at = &cursor[word - r.begin];
    see(word, is_own(word) ? client::ld(at) : client::ld_speculative(at), "C6: a read through a cursor");
  }
  template <class Cursor>
  void write(Cursor& cursor, range r, std::uint64_t word) {
    if constexpr (!std::is_const_v<std::remove_pointer_t<decltype(cursor.data())>>) {
      std::uint64_t const page = page_of(word);
      std::uint32_t const number = s_.next_number(me_, page, in_page(word));
      client::st(&cursor[word - r.begin], Schedule::encode(page, in_page(word), number));
      s_.has_written(me_, page, in_page(word), number);
    }
  }
  void with_cursor_of_triples(std::uint64_t page, range r) {
    auto const view = view_of<triple const>(r);
    std::uint64_t const begin = r.begin;
    if (view.size() == 0) return;
    auto cursor = view.thread_page();
    for (std::uint32_t moves = 1 + random_.below(4); moves != 0; --moves) {
      std::uint64_t const index = std::min((std::max(random_word(page), begin) - begin) / 3, view.size() - 1);
      std::uint64_t const first = begin + index * 3;
      status const outcome = cursor.seek(index);
      if (page_of(first) != page_of(first + 2)) {
        client::check(outcome.kind() == fault::bad_alignment, "an element in two pages is within no cursor's reach");
        continue;
      }
      if (!outcome.ok()) return s_.failed(outcome);
      client::check(cursor.first() <= index && index < cursor.end(), "the element is within reach");
      client::check(page_of(begin + cursor.first() * 3) == page_of(first) &&
                        page_of(begin + cursor.end() * 3 - 1) == page_of(first),
                    "the elements within reach lie wholly in the page");
      client::check(cursor.first() == 0 || page_of(begin + cursor.first() * 3 - 3) != page_of(first),
                    "no element before them does");
      client::check(cursor.end() == view.size() || page_of(begin + cursor.end() * 3 + 2) != page_of(first),
                    "no element after them does");
      for (std::uint32_t k = 0; k < 3; ++k) {
        auto const* const at = &cursor[index].words[k];
        see(first + k, is_own(first + k) ? client::ld(at) : client::ld_speculative(at), "C6: a read through a cursor");
      }
    }
  }

  template <class T>
  void with_warp_cursor(simt::random_source& common, std::uint64_t first) {
    range const r = range_around(common, first);
    auto const view = view_of<T>(r);
    auto cursor = view.warp_page();
    for (std::uint32_t moves = 1 + common.below(4); moves != 0; --moves) {
      status const outcome = cursor.seek(first - r.begin);
      if (!outcome.ok()) return failed_together(outcome);
      look_around(cursor, r, first, !std::is_const_v<T>);
      first = next(common, cursor, r, first);
      if (common.below(4) == 0) cursor.release();
    }
  }
  template <class T>
  void with_window(simt::random_source& common, std::uint64_t first) {
    constexpr std::uint32_t sizes[] = {0, 1, 2, 3, 8, 31, 32, 40};
    range const r = range_around(common, first);
    auto const view = view_of<T>(r);
    auto window = view.warp_pages(sizes[common.below(8)]);
    std::uint64_t const stop = first + common.below(static_cast<std::uint32_t>(words_ - first)) + 1;
    bool const names_stop = common.below(2) == 0;
    for (std::uint32_t moves = 1 + common.below(8); moves != 0; --moves) {
      status const outcome = names_stop ? window.seek(first - r.begin, stop - r.begin) : window.seek(first - r.begin);
      if (!outcome.ok()) return failed_together(outcome);
      look_around(window, r, first, !std::is_const_v<T>);
      first = next(common, window, r, first);
      if (common.below(6) == 0) window.release();
    }
  }
  /// Most go on to the next page, some stay, and some jump.
  template <class Cursor>
  std::uint64_t next(simt::random_source& common, Cursor const& cursor, range r, std::uint64_t word) const {
    std::uint32_t const draw = common.below(6);
    std::uint64_t const behind = r.begin + cursor.end();
    if (draw == 0) return word;
    return draw == 1 || behind == r.end ? r.begin + common.below(static_cast<std::uint32_t>(r.end - r.begin)) : behind;
  }
  /// All lanes get the same answer.
  void failed_together(status outcome) {
    auto const warp = client::this_warp();
    client::check(warp.shfl(outcome, 0) == outcome, "lanes of a warp hear of different outcomes");
    client::check(outcome.kind() != fault::no_frame, "warps with one window each wait for each other");
    if (warp.thread_rank() == 0) s_.failed(outcome);
  }

  Schedule& s_;
  std::uint32_t me_;
  simt::random_source& random_;
  std::uint64_t words_;
};

}  // namespace forebay::test
