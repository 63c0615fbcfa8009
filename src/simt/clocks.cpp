// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <unordered_map>
#include <vector>

#include "memory.hpp"

namespace forebay::simt::detail {

namespace {

using clock_vector = std::vector<std::uint32_t>;
using shared_clock = std::shared_ptr<clock_vector const>;
constexpr std::size_t scopes = 3;

bool acquires(order o) {
  return o == order::acquire || o == order::acq_rel || o == order::seq_cst;
}
std::size_t index(scope s) {
  return static_cast<std::size_t>(s);
}
scope narrower(scope a, scope b) {
  return std::min(a, b);
}

void join(clock_vector& into, clock_vector const& other) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], other[i]);
}

/// Happens-before after the PTX memory model, section "Causality order". A release makes everything that its lane did
/// or learnt known to an acquire that reads from it, if the scopes of both include the other lane. A later release at a
/// wide scope passes on what the lane learnt at a narrow one, since a clock holds all of it. Conflicting accesses that
/// are not ordered fail the run, unless both are atomic at scopes that include each other.
class clocks final : public memory {
 public:
  clocks(memory_host& host, std::vector<scope_position> positions, bool stale_reads)
      : host_(host), positions_(std::move(positions)), stale_reads_(stale_reads), lanes_(positions_.size()) {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i].now.assign(lanes_.size(), 0);
      lanes_[i].now[i] = 1;
    }
    fenced_.assign(lanes_.size(), 0);
  }

  std::uint64_t load(lane& l, void const* address, std::uint32_t bytes, order o, scope s, location where) override {
    auto& a = touch(l, address, bytes, false, s, where);
    std::size_t k = a.history.size() - 1;
    if (stale_reads_ && o != order::seq_cst) k = choose_message(l, a);
    if (stale_reads_) see(l, a, a.dropped + k);
    learn(l, a.history[k], o, s);
    return a.history[k].value;
  }

  void store(lane& l, void* address, std::uint32_t bytes, std::uint64_t value, order o, scope s,
             location where) override {
    auto& a = touch(l, address, bytes, true, s, where);
    publish(l, a, value, o, s, nullptr);
    write_bytes(address, bytes, value);
    host_.changed(address);
  }

  void modify_begin(lane& l, void* address, std::uint32_t bytes, order o, scope s, location where) override {
    auto& a = touch(l, address, bytes, true, s, where);
    learn(l, a.history.back(), o, s);
  }

  void modify_end(lane& l, void* address, std::uint32_t, std::uint64_t value, bool stored, order o, scope s) override {
    auto& a = atom_at(address);
    if (stored) {
      message const previous = a.history.back();
      publish(l, a, value, o, s, &previous);
    } else if (stale_reads_) {
      see(l, a, a.dropped + a.history.size() - 1);
    }
  }

  std::uint64_t plain_load(lane& l, void const* address, std::uint32_t bytes, location where) override {
    plain_access(l, address, bytes, false, where);
    return read_bytes(address, bytes);
  }

  void plain_store(lane& l, void* address, std::uint32_t bytes, std::uint64_t value, location where) override {
    auto& c = plain_access(l, address, bytes, true, where);
    if (stale_reads_) overwrite(l, c, address, bytes);
    write_bytes(address, bytes, value);
    host_.changed(address);
    for (auto& a : c.atoms) {
      if (a == nullptr || (mask_of(a->address, a->bytes) & mask_of(address, bytes)) == 0) continue;
      // A plain store ends the release sequences of this word.
      append(l, *a, message{read_bytes(a->address, a->bytes), l.id, lanes_[l.id].now[l.id], scope::system, {}});
    }
  }

  void fence(lane& l, order o, scope s) override {
    auto& state = lanes_[l.id];
    if (acquires(o))
      for (std::size_t needed = 0; needed <= index(s); ++needed)
        if (!state.read_relaxed[needed].empty()) join(state.now, state.read_relaxed[needed]);
    if (o == order::seq_cst) {
      join(fenced_, state.now);
      state.at_fence = fenced_;
    }
    if (releases(o)) {
      state.released[index(s)] = std::make_shared<clock_vector const>(state.now);
      ++state.now[l.id];
    }
  }

  void synchronised(std::span<lane* const> members) override {
    clock_vector all = lanes_[members.front()->id].now;
    for (auto* l : members) join(all, lanes_[l->id].now);
    for (auto* l : members) {
      lanes_[l->id].now = all;
      ++lanes_[l->id].now[l->id];
    }
  }

  void grid_ended(lane& l) override {
    for (std::size_t i = 0; i < lanes_.size(); ++i)
      if (positions_[i].device == 0) join(lanes_[l.id].now, lanes_[i].now);
  }

  std::uint64_t visible(lane const&, void const* address, std::uint32_t bytes) const override {
    return read_bytes(address, bytes);
  }
  std::uint64_t speculative_load(lane& l, void const* address, std::uint32_t bytes) override {
    std::uint64_t value = read_bytes(address, bytes);
    if (!stale_reads_) return value;
    // As on machines whose stores become visible to all threads at once: a thread that sees a value sees what the
    // writer had seen when it stored the value. No order that would excuse a race follows from it.
    auto& known = lanes_[l.id].at_fence;
    if (known.empty()) known.assign(lanes_.size(), 0);
    auto& c = cell_at(address);
    std::size_t const version = choose_version(l, c);
    if (version == c.overwritten.size()) {
      for (auto const& r : c.records)
        if (r.write && (r.mask & mask_of(address, bytes)) != 0) join(known, *r.known);
    } else if (version != 0) {
      join(known, *c.overwritten[version - 1].known);
    }
    auto const offset = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address) % 8);
    for (std::size_t i = c.overwritten.size(); i > version; --i) {
      old_value const& old = c.overwritten[i - 1];
      for (std::uint32_t byte = 0; byte < bytes; ++byte) {
        if ((old.mask >> (offset + byte) & 1) == 0) continue;
        std::uint64_t const replaced = old.value >> (offset + byte) * 8 & 0xff;
        value = (value & ~(std::uint64_t{0xff} << byte * 8)) | replaced << byte * 8;
      }
    }
    return value;
  }

 private:
  struct lane_clocks {
    clock_vector now;
    std::array<shared_clock, scopes> released;      // at the last release fence of each scope
    std::array<clock_vector, scopes> read_relaxed;  // by the narrowest scope at which an acquire fence learns it
    clock_vector at_fence;                          // what the last sequentially consistent fence must show
    shared_clock known;                             // known before the last plain store
  };
  /// One value that a word had.
  struct message {
    std::uint64_t value;
    std::uint32_t lane;  // nobody: from before the run
    std::uint32_t time;
    scope reach;
    std::array<shared_clock, scopes> sync;  // by the widest reach of the release that made it
  };
  /// Notes that a lane read or wrote message `number`, or a newer one, at that time of its own clock.
  struct sighting {
    std::size_t number;
    std::uint32_t time;
  };
  struct atom {
    void* address;
    std::uint32_t bytes;
    std::vector<message> history;  // oldest first
    std::size_t dropped = 0;
    std::vector<std::vector<sighting>> seen;  // by lane, oldest first
    clock_vector read_at, written_at;         // by lane
    location read_where, written_where;
    std::vector<scope> used_at;  // by lane, the last time
    scope narrowest = scope::system;
    std::uint32_t first_lane;
    scope spread = scope::block;  // the scope that includes every lane that used it
  };
  struct plain_record {
    std::uint32_t lane;
    std::uint32_t time;
    std::uint8_t mask;
    bool write;
    location where;
    shared_clock known;  ///< of a write, where reads may be stale: what the writer knew before it
  };
  /// A value that a plain store replaced.
  struct old_value {
    std::uint64_t value;  ///< of the bytes in `mask`, each at its place in the cell
    std::uint32_t lane;   ///< whose store it was
    std::uint32_t time;   ///< of that lane
    std::uint8_t mask;    ///< the bytes that were stored: the bytes beside them may be anything
    shared_clock known;   ///< what the writer knew before that store
  };
  /// Eight bytes of memory.
  struct cell {
    std::vector<plain_record> records;
    std::vector<old_value> overwritten;          // oldest first
    std::size_t dropped = 0;                     // of them
    std::vector<std::size_t> versions_seen;      // by lane: it never sees an older one again
    std::array<std::unique_ptr<atom>, 2> atoms;  // at offset 0 and 4
  };
  static constexpr std::uint32_t nobody = ~0u;
  static constexpr std::size_t history_length = 6;
  static constexpr std::size_t sightings_kept = 8;

  static std::uint8_t mask_of(void const* address, std::uint32_t bytes) {
    return static_cast<std::uint8_t>(((1u << bytes) - 1) << (reinterpret_cast<std::uintptr_t>(address) % 8));
  }
  cell& cell_at(void const* address) { return cells_[reinterpret_cast<std::uintptr_t>(address) / 8]; }

  /// The narrowest scope that includes both lanes.
  scope between(std::uint32_t a, std::uint32_t b) const {
    if (a == b) return scope::block;
    if (positions_[a].device != positions_[b].device) return scope::system;
    return positions_[a].block == positions_[b].block ? scope::block : scope::device;
  }
  bool ordered(lane const& l, std::uint32_t other, std::uint32_t time) const {
    return other == l.id || time <= lanes_[l.id].now[other];
  }

  atom& atom_at(void const* address) {
    return *cell_at(address).atoms[reinterpret_cast<std::uintptr_t>(address) % 8 / 4];
  }

  /// The word at `address`, after checking the access of `l` against all earlier ones.
  atom& touch(lane& l, void const* address, std::uint32_t bytes, bool write, scope s, location where) {
    auto& c = cell_at(address);
    auto const mask = mask_of(address, bytes);
    for (auto const& r : c.records)
      if ((r.mask & mask) != 0 && (write || r.write) && !ordered(l, r.lane, r.time))
        race(write ? "atomic write" : "atomic read", where, r.lane, r.write ? "plain write" : "plain read", r.where);
    auto& slot = c.atoms[reinterpret_cast<std::uintptr_t>(address) % 8 / 4];
    if (slot == nullptr || slot->bytes != bytes) {
      slot = std::make_unique<atom>();
      slot->address = const_cast<void*>(address);
      slot->bytes = bytes;
      slot->history.push_back({read_bytes(address, bytes), nobody, 0, scope::system, {}});
      slot->seen.resize(stale_reads_ ? lanes_.size() : 0);
      slot->read_at.assign(lanes_.size(), 0);
      slot->written_at.assign(lanes_.size(), 0);
      slot->used_at.assign(lanes_.size(), scope::system);
      slot->first_lane = l.id;
    }
    auto& a = *slot;
    a.spread = std::max(a.spread, between(a.first_lane, l.id));
    a.narrowest = narrower(a.narrowest, s);
    // Most words are always used at a scope that includes all their users.
    if (a.narrowest < a.spread) check_scopes(l, a, write, s, where);
    (write ? a.written_at : a.read_at)[l.id] = lanes_[l.id].now[l.id];
    (write ? a.written_where : a.read_where) = where;
    a.used_at[l.id] = s;
    return a;
  }

  void check_scopes(lane& l, atom const& a, bool write, scope s, location where) {
    for (std::uint32_t other = 0; other < lanes_.size(); ++other) {
      std::uint32_t const time = std::max(a.written_at[other], write ? a.read_at[other] : 0);
      if (time == 0 || ordered(l, other, time)) continue;
      scope const needed = between(l.id, other);
      if (narrower(s, a.used_at[other]) >= needed) continue;
      static constexpr char const* names[] = {"block", "device", "system"};
      host_.report(std::string("data race: atomic ") + (write ? "write" : "read") + " at " + names[index(s)] +
                       " scope at " + describe(where) + " and an atomic access at " + names[index(a.used_at[other])] +
                       " scope by " + host_.name(other) + " at " +
                       describe(a.written_at[other] == time ? a.written_where : a.read_where) +
                       " do not include each other: " + names[index(needed)] + " scope is needed",
                   where);
      host_.stop();
    }
  }

  cell& plain_access(lane& l, void const* address, std::uint32_t bytes, bool write, location where) {
    auto& c = cell_at(address);
    auto const mask = mask_of(address, bytes);
    char const* const kind = write ? "write" : "read";
    for (auto const& r : c.records)
      if ((r.mask & mask) != 0 && (write || r.write) && !ordered(l, r.lane, r.time))
        race(kind, where, r.lane, r.write ? "write" : "read", r.where);
    for (auto const& a : c.atoms) {
      if (a == nullptr || (mask_of(a->address, a->bytes) & mask) == 0) continue;
      for (std::uint32_t other = 0; other < lanes_.size(); ++other) {
        if (!ordered(l, other, a->written_at[other])) race(kind, where, other, "atomic write", a->written_where);
        if (write && !ordered(l, other, a->read_at[other])) race(kind, where, other, "atomic read", a->read_where);
      }
    }
    // A write that is ordered after a record conflicts with every access that the record conflicts with.
    std::erase_if(c.records, [&](plain_record const& r) {
      return (r.mask & ~mask) == 0 && (write || (r.lane == l.id && !r.write));
    });
    c.records.push_back(
        {l.id, lanes_[l.id].now[l.id], mask, write, where, write && stale_reads_ ? known_to(l) : nullptr});
    return c;
  }

  void race(char const* kind, location where, std::uint32_t other, char const* other_kind, location other_where) {
    host_.report(std::string("data race: ") + kind + " at " + describe(where) + " is not ordered after the " +
                     other_kind + " by " + host_.name(other) + " at " + describe(other_where),
                 where);
    host_.stop();
  }

  shared_clock known_to(lane const& l) {
    auto& state = lanes_[l.id];
    // An access that the lane makes before its clock advances may come after the store.
    --state.now[l.id];
    if (state.known == nullptr || *state.known != state.now) {
      state.known = std::make_shared<clock_vector const>(state.now);
    }
    ++state.now[l.id];
    return state.known;
  }

  void overwrite(lane const& l, cell& c, void const* address, std::uint32_t bytes) {
    std::uint64_t const shift = reinterpret_cast<std::uintptr_t>(address) % 8 * 8;
    c.overwritten.push_back(
        {read_bytes(address, bytes) << shift, l.id, lanes_[l.id].now[l.id], mask_of(address, bytes), known_to(l)});
    if (c.overwritten.size() <= history_length) return;
    c.overwritten.erase(c.overwritten.begin());
    ++c.dropped;
  }
  /// Chooses the value that a load of the lane sees, if nothing orders the load but what the lane has acquired. Returns
  /// an index: `overwritten` has the value there, or, if the index is its size, the value is the one in memory.
  std::size_t choose_version(lane const& l, cell& c) {
    std::size_t const newest = c.overwritten.size();
    if (newest == 0) return 0;
    if (c.versions_seen.empty()) c.versions_seen.assign(lanes_.size(), 0);
    std::size_t& seen = c.versions_seen[l.id];
    std::size_t oldest = seen > c.dropped ? seen - c.dropped : 0;
    auto const& fence = lanes_[l.id].at_fence;
    for (std::size_t i = newest; i > oldest; --i) {
      old_value const& by = c.overwritten[i - 1];
      if (ordered(l, by.lane, by.time) || by.time <= fence[by.lane]) oldest = i;
    }
    std::size_t chosen = newest;
    if (oldest != newest && host_.choice(4) == 0) {
      chosen = oldest + host_.choice(static_cast<std::uint32_t>(newest - oldest + 1));
    }
    seen = c.dropped + chosen;
    return chosen;
  }

  void see(lane const& l, atom& a, std::size_t number) {
    auto& seen = a.seen[l.id];
    if (!seen.empty() && seen.back().number >= number) return;
    if (seen.size() == sightings_kept) seen.erase(seen.begin());
    seen.push_back({number, lanes_[l.id].now[l.id]});
  }

  /// The newest message that the lane, or anybody before it in causality order, has seen (coherence).
  std::size_t newest_seen(lane const& l, atom const& a) const {
    std::size_t newest = 0;
    for (std::uint32_t other = 0; other < a.seen.size(); ++other) {
      for (auto s = a.seen[other].rbegin(); s != a.seen[other].rend() && s->number > newest; ++s) {
        if (ordered(l, other, s->time)) newest = s->number;
      }
    }
    return newest;
  }

  /// Returns an index into the history. The message there is no older than what the lane knows of, nor than what it, or
  /// a lane before it in causality order, has read here.
  std::size_t choose_message(lane& l, atom& a) {
    auto const& state = lanes_[l.id];
    std::size_t const newest = a.history.size() - 1;
    std::size_t const seen = newest_seen(l, a);
    std::size_t oldest = seen > a.dropped ? seen - a.dropped : 0;
    for (std::size_t i = newest; i > oldest; --i) {
      auto const& m = a.history[i];
      bool const known = m.lane == nobody || ordered(l, m.lane, m.time) ||
                         (!state.at_fence.empty() && m.time <= state.at_fence[m.lane]);
      if (known) oldest = i;
    }
    if (oldest == newest || host_.choice(4) != 0) return newest;
    return oldest + host_.choice(static_cast<std::uint32_t>(newest - oldest + 1));
  }

  void learn(lane& l, message const& m, order o, scope s) {
    if (m.lane == nobody) return;
    scope const needed = between(l.id, m.lane);
    if (m.reach < needed) return;
    auto& state = lanes_[l.id];
    for (std::size_t reach = index(needed); reach < scopes; ++reach) {
      if (m.sync[reach] == nullptr) continue;
      if (acquires(o) && s >= needed) {
        join(state.now, *m.sync[reach]);
      } else {
        auto& pending = state.read_relaxed[index(needed)];
        if (pending.empty()) pending.assign(lanes_.size(), 0);
        join(pending, *m.sync[reach]);
      }
    }
  }

  /// `previous`: the message that a read-modify-write read; its write continues the release sequence of that message.
  void publish(lane& l, atom& a, std::uint64_t value, order o, scope s, message const* previous) {
    auto& state = lanes_[l.id];
    message m{value, l.id, state.now[l.id], s, {}};
    auto add = [&](std::size_t reach, clock_vector const& clock) {
      auto joined = std::make_shared<clock_vector>(clock);
      if (m.sync[reach] != nullptr) join(*joined, *m.sync[reach]);
      m.sync[reach] = std::move(joined);
    };
    if (releases(o)) add(index(s), state.now);
    for (std::size_t reach = 0; reach < scopes; ++reach)
      if (state.released[reach] != nullptr) add(std::min(reach, index(s)), *state.released[reach]);
    if (previous != nullptr && previous->lane != nobody) {
      scope const needed = between(l.id, previous->lane);
      for (std::size_t reach = index(needed); reach < scopes; ++reach)
        if (previous->sync[reach] != nullptr && narrower(s, previous->reach) >= needed)
          add(std::min(reach, index(s)), *previous->sync[reach]);
    }
    append(l, a, std::move(m));
  }

  void append(lane& l, atom& a, message m) {
    a.history.push_back(std::move(m));
    ++lanes_[l.id].now[l.id];
    if (a.history.size() > (stale_reads_ ? history_length : 1)) {
      a.history.erase(a.history.begin());
      ++a.dropped;
    }
    if (stale_reads_) see(l, a, a.dropped + a.history.size() - 1);
  }

  memory_host& host_;
  std::vector<scope_position> positions_;
  bool stale_reads_;
  std::vector<lane_clocks> lanes_;
  clock_vector fenced_;
  std::unordered_map<std::uintptr_t, cell> cells_;
};

}  // namespace

std::unique_ptr<memory> make_clocks(memory_host& host, std::vector<scope_position> positions, bool stale_reads) {
  return std::make_unique<clocks>(host, std::move(positions), stale_reads);
}

}  // namespace forebay::simt::detail
