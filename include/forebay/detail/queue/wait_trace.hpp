// SPDX-License-Identifier: Apache-2.0
//! \file
//! What each thread holds and what it waits for, recorded in debug builds.
//!
//! With `FOREBAY_DEBUG_WAITS` (the CMake option of that name sets it) the library's waits, locks and pins leave a note
//! in a table, which the host reads while kernels run. Without it kernels contain no code for this and spend no
//! register on it.
#pragma once

#include <cstdint>

#include "forebay/detail/simt/vocabulary.hpp"

namespace forebay {

#if defined(FOREBAY_DEBUG_WAITS) && FOREBAY_DEBUG_WAITS
inline constexpr bool debug_waits = true;
#else
inline constexpr bool debug_waits = false;
#endif

/// What a thread waits for. The `subject` of each is in brackets.
enum class wait_kind : std::uint32_t {
  nothing,
  set_lock,        ///< the lock of a set of the cache [the set]
  unpinned_frame,  ///< that no thread has some frame of a set pinned [the set]
  page_unpinned,   ///< that no thread has a frame pinned [the frame]
  page_read,       ///< that a frame's page has been read [the frame]
  page_settled,    ///< that a frame is neither read nor written [the frame]
  queue_room,      ///< room in the queue pairs of a request [the first of them]
  frame_command,   ///< room in the queue pairs of a drive, for the command of a frame [the frame]
  record,          ///< the completions of a request [the record]
};

/// One thread's notes. Only that thread writes them, from the moment it enters its name until it removes the name. Its
/// name is there while the thread holds or waits for something.
struct alignas(128) traced_thread {
  static constexpr std::uint32_t listed_max = 24;
  /// In `held`: the entry is the lock of a set. Else an entry is 1 + a frame that is pinned; 0: nothing.
  static constexpr std::uint32_t lock_bit = 1u << 31;

  std::uint64_t name;  ///< 0: no thread's; else the grid in the high half, 1 + the thread's rank in it in the low one
  std::uint64_t since_ns;  ///< `M::clock_ns()` when the wait began
  std::uint32_t changes;   ///< grows with each change and never goes back; odd during a change
  std::uint32_t what;      ///< a `wait_kind`
  std::uint32_t subject;
  std::uint32_t unlisted;  ///< how many things it holds that the list has no room for
  std::uint32_t held[listed_max];

  std::uint32_t grid() const { return static_cast<std::uint32_t>(name >> 32); }
  std::uint32_t rank() const { return static_cast<std::uint32_t>(name) - 1; }
};
static_assert(sizeof(traced_thread) == 128);

/// Lies in the memory of the threads that it describes; all zero to begin with. Empty if nothing is traced.
struct wait_table {
  traced_thread* threads = nullptr;
  std::uint32_t capacity = 0;
  std::uint32_t* untraced = nullptr;  ///< notes that were lost because the table had no room
};

/// The calling thread's notes. At every moment the thread holds what it notes as held, and waits for what it notes as
/// awaited: a pin is noted after the thread got it, and crossed out before the thread gives it up.
template <class M, bool On = debug_waits>
class wait_trace {
 public:
  FOREBAY_DEVICE explicit wait_trace(wait_table const* table) : table_(table) {}

  FOREBAY_DEVICE void pinned(std::uint32_t frame) const { simt::out_of_line (&hold)(table_, frame + 1); }
  FOREBAY_DEVICE void unpinned(std::uint32_t frame) const { simt::out_of_line (&let_go)(table_, frame + 1); }
  FOREBAY_DEVICE void locked(std::uint32_t set) const {
    simt::out_of_line (&hold)(table_, traced_thread::lock_bit | set);
  }
  FOREBAY_DEVICE void unlocked(std::uint32_t set) const {
    simt::out_of_line (&let_go)(table_, traced_thread::lock_bit | set);
  }

  /// The calling thread waits while this object lives.
  class wait {
   public:
    FOREBAY_DEVICE wait(wait_table const* table, wait_kind what, std::uint32_t subject)
        : entry_(simt::out_of_line(&begin_wait)(table, what, subject)) {}
    wait(wait const&) = delete;
    wait& operator=(wait const&) = delete;
    FOREBAY_DEVICE ~wait() {
      if (entry_ != nullptr) simt::out_of_line (&end_wait)(entry_);
    }

   private:
    traced_thread* entry_;
  };
  [[nodiscard]] FOREBAY_DEVICE wait waits_for(wait_kind what, std::uint32_t subject) const {
    return wait(table_, what, subject);
  }

 private:
  /// How many entries, from the one that its name selects, a thread's notes may be in.
  static constexpr std::uint32_t places = 32;

  template <class T>
  FOREBAY_DEVICE static auto word(T& object) {
    return simt::atomic<M, simt::scope::system>(object);
  }
  FOREBAY_DEVICE static std::uint64_t name() { return std::uint64_t{M::grid_id()} << 32 | (M::thread_rank() + 1u); }

  /// The calling thread's entry; with `make`, takes a free one if there is none yet. Null: none.
  FOREBAY_DEVICE static traced_thread* find(wait_table const* table, bool make) {
    std::uint32_t const capacity = table->capacity;
    if (capacity == 0) return nullptr;
    std::uint64_t const mine = name();
    std::uint32_t const first = (M::thread_rank() + M::grid_id() * 0x9e3779b1u) % capacity;
    std::uint32_t const count = capacity < places ? capacity : places;
    for (bool claim = false;; claim = true) {
      for (std::uint32_t k = 0; k < count; ++k) {
        traced_thread& entry = table->threads[first + k < capacity ? first + k : first + k - capacity];
        // Relaxed: no other thread stores this thread's name.
        std::uint64_t found = word(entry.name).load(simt::order::relaxed);
        if (found == mine) return &entry;
        // Acquire pairs with the release in leave(): the previous owner's notes are crossed out.
        if (claim && found == 0 && word(entry.name).compare_exchange(found, mine, simt::order::acquire)) return &entry;
      }
      if (claim || !make) break;
    }
    // Relaxed: a statistic.
    if (make) word(*table->untraced).fetch_add(1, simt::order::relaxed);
    return nullptr;
  }

  /// Makes `changes` odd, and even again when it ends.
  class change {
   public:
    FOREBAY_DEVICE explicit change(traced_thread& entry) : entry_(entry) {
      // Relaxed: the fence orders it before the notes.
      count_ = word(entry.changes).load(simt::order::relaxed) + 1;
      word(entry.changes).store(count_, simt::order::relaxed);
      // Release: a reader that reads one of the new notes and then `changes` finds it odd, or a later value.
      M::fence(simt::scope::system, simt::order::release);
    }
    change(change const&) = delete;
    change& operator=(change const&) = delete;
    // Release pairs with the acquire of a reader that reads `changes` first: the notes that it reads next are at least
    // as new.
    FOREBAY_DEVICE ~change() { word(entry_.changes).store(count_ + 1, simt::order::release); }

   private:
    traced_thread& entry_;
    std::uint32_t count_;
  };

  // Relaxed throughout: `change` orders the notes.
  FOREBAY_COLD static void hold(wait_table const* table, std::uint32_t thing) {
    traced_thread* const entry = find(table, true);
    if (entry == nullptr) return;
    change const noted(*entry);
    for (std::uint32_t& listed : entry->held) {
      if (word(listed).load(simt::order::relaxed) != 0) continue;
      word(listed).store(thing, simt::order::relaxed);
      return;
    }
    word(entry->unlisted).store(word(entry->unlisted).load(simt::order::relaxed) + 1, simt::order::relaxed);
  }
  FOREBAY_COLD static void let_go(wait_table const* table, std::uint32_t thing) {
    traced_thread* const entry = find(table, false);
    if (entry == nullptr) return;
    {
      change const noted(*entry);
      cross_out(*entry, thing);
    }
    leave(*entry);
  }
  FOREBAY_DEVICE static void cross_out(traced_thread& entry, std::uint32_t thing) {
    for (std::uint32_t& listed : entry.held) {
      if (word(listed).load(simt::order::relaxed) != thing) continue;
      word(listed).store(0, simt::order::relaxed);
      return;
    }
    std::uint32_t const unlisted = word(entry.unlisted).load(simt::order::relaxed);
    if (unlisted != 0) word(entry.unlisted).store(unlisted - 1, simt::order::relaxed);
  }
  FOREBAY_COLD static traced_thread* begin_wait(wait_table const* table, wait_kind what, std::uint32_t subject) {
    traced_thread* const entry = find(table, true);
    if (entry == nullptr) return nullptr;
    change const noted(*entry);
    word(entry->what).store(static_cast<std::uint32_t>(what), simt::order::relaxed);
    word(entry->subject).store(subject, simt::order::relaxed);
    word(entry->since_ns).store(M::clock_ns(), simt::order::relaxed);
    return entry;
  }
  FOREBAY_COLD static void end_wait(traced_thread* entry) {
    {
      change const noted(*entry);
      word(entry->what).store(static_cast<std::uint32_t>(wait_kind::nothing), simt::order::relaxed);
    }
    leave(*entry);
  }
  /// Removes the thread's name from an entry that says nothing any more.
  FOREBAY_DEVICE static void leave(traced_thread& entry) {
    if (word(entry.what).load(simt::order::relaxed) != static_cast<std::uint32_t>(wait_kind::nothing)) return;
    if (word(entry.unlisted).load(simt::order::relaxed) != 0) return;
    for (std::uint32_t& listed : entry.held) {
      if (word(listed).load(simt::order::relaxed) != 0) return;
    }
    // Release pairs with the acquire in find().
    word(entry.name).store(0, simt::order::release);
  }

  wait_table const* table_;
};

/// The same without a trace: does nothing.
template <class M>
class wait_trace<M, false> {
 public:
  FOREBAY_DEVICE explicit wait_trace(wait_table const*) {}
  FOREBAY_DEVICE void pinned(std::uint32_t) const {}
  FOREBAY_DEVICE void unpinned(std::uint32_t) const {}
  FOREBAY_DEVICE void locked(std::uint32_t) const {}
  FOREBAY_DEVICE void unlocked(std::uint32_t) const {}
  struct wait {};
  [[nodiscard]] FOREBAY_DEVICE wait waits_for(wait_kind, std::uint32_t) const { return {}; }
};

}  // namespace forebay
