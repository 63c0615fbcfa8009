// SPDX-License-Identifier: Apache-2.0
//! \file
//! Litmus tests: what each memory model allows, which planted bugs it finds, and that it passes the correct programs.
#include <gmock/gmock.h>

#include <functional>

#include "forebay/detail/simt/run.hpp"

namespace forebay::simt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr memory_model all_models[] = {memory_model::sequential, memory_model::store_buffers,
                                       memory_model::race_detector, memory_model::stale_reads};
constexpr std::uint64_t schedules = 300;

template <class Predicate>
void wait_for(Predicate&& predicate) {
  fiber::check(fiber::wait_until(predicate, no_deadline), "waits without a deadline end by their predicate");
}

/// A program that checks itself, with its memory fresh in every run.
struct program {
  grid shape;
  std::function<void()> reset;
  std::function<void()> kernel;
  std::vector<agent> agents = {};
};

/// How many of the schedules fail; `what` receives the first failure.
int failures(program const& p, memory_model memory, std::string* what = nullptr) {
  int failed = 0;
  for (std::uint64_t seed = 0; seed < schedules; ++seed) {
    p.reset();
    simt::random sticky(seed, 4);
    pct priorities(seed, 3, 60);
    auto const result = run({.memory = memory}, seed % 2 == 0 ? static_cast<scheduler&>(sticky) : priorities, p.shape,
                            p.kernel, p.agents);
    if (result) continue;
    if (failed++ == 0 && what != nullptr) *what = result.what;
  }
  return failed;
}

void expect_passes_everywhere(program const& p) {
  for (auto const memory : all_models) {
    std::string what;
    EXPECT_EQ(failures(p, memory, &what), 0) << static_cast<int>(memory) << ": " << what;
  }
}

/// Message passing from lane 0 to lane `to`: data, then a flag.
struct message_passing {
  std::uint32_t data = 0, flag = 0;
  order store = order::release, load = order::acquire;
  bool release_fence = false, acquire_fence = false;
  std::uint32_t to = 1;

  template <scope Store = scope::device, scope Load = Store, scope Fence = Store>
  program make(grid shape = {1, 2, 0}) {
    return {shape, [this] { data = flag = 0; },
            [this] {
              if (fiber::thread_rank() == 0) {
                fiber::st(&data, 42u);
                if (release_fence) fiber::fence(Fence, order::release);
                atomic<fiber, Store>(flag).store(1, store);
              } else if (fiber::thread_rank() == to) {
                wait_for([this] { return atomic<fiber, Load>(flag).load(load) == 1; });
                if (acquire_fence) fiber::fence(Fence, order::acquire);
                fiber::check(fiber::ld(&data) == 42, "the data came before the flag");
              }
            }};
  }
};

TEST(MessagePassing, ReleaseAndAcquirePass) {
  expect_passes_everywhere(message_passing{}.make());
}

TEST(MessagePassing, FencesPass) {
  message_passing m{.store = order::relaxed, .load = order::relaxed, .release_fence = true, .acquire_fence = true};
  expect_passes_everywhere(m.make());
}

TEST(MessagePassing, AMissingReleaseIsFound) {
  message_passing m{.store = order::relaxed};
  EXPECT_EQ(failures(m.make(), memory_model::sequential), 0) << "sequential runs cannot show it";
  EXPECT_GT(failures(m.make(), memory_model::store_buffers), 0);
  EXPECT_EQ(failures(m.make(), memory_model::race_detector), static_cast<int>(schedules)) << "in every schedule";
  EXPECT_GT(failures(m.make(), memory_model::stale_reads), 0);
}

TEST(MessagePassing, AMissingAcquireIsFound) {
  message_passing m{.load = order::relaxed};
  EXPECT_EQ(failures(m.make(), memory_model::store_buffers), 0) << "loads are in order there";
  std::string what;
  EXPECT_EQ(failures(m.make(), memory_model::race_detector, &what), static_cast<int>(schedules));
  EXPECT_THAT(what,
              AllOf(HasSubstr("lane 1: data race: read at memory_model_test.cpp:"),
                    HasSubstr("is not ordered after the write by block 0 warp 0 lane 0 at memory_model_test.cpp:")));
}

/// The same, with a reader whose load of the data is no race: it may see old bytes until it has acquired the flag.
program speculative_reader(std::uint32_t& data, std::uint32_t& flag, order load) {
  return {{1, 2, 0},
          [&] { data = flag = 0; },
          [&, load] {
            if (fiber::thread_rank() == 0) {
              fiber::st(&data, 42u);
              atomic<fiber>(flag).store(1, order::release);
              return;
            }
            wait_for([&] { return atomic<fiber>(flag).load(load) == 1; });
            fiber::check(fiber::ld_speculative(&data) == 42, "the data came before the flag");
          }};
}

TEST(SpeculativeLoads, SeeWhatWasAcquired) {
  std::uint32_t data = 0, flag = 0;
  expect_passes_everywhere(speculative_reader(data, flag, order::acquire));
}

TEST(SpeculativeLoads, MaySeeOldBytesThatWereNot) {
  std::uint32_t data = 0, flag = 0;
  EXPECT_EQ(failures(speculative_reader(data, flag, order::relaxed), memory_model::sequential), 0);
  EXPECT_GT(failures(speculative_reader(data, flag, order::relaxed), memory_model::stale_reads), 0);
}

TEST(SpeculativeLoads, NeverReadBackwards) {
  std::uint64_t word = 0;
  program const p{{1, 3, 0},
                  [&] { word = 0; },
                  [&] {
                    if (fiber::thread_rank() == 0) {
                      for (std::uint64_t i = 1; i <= 20; ++i) fiber::st(&word, i);
                      return;
                    }
                    std::uint64_t last = 0;
                    for (int i = 0; i < 20; ++i) {
                      std::uint64_t const now = fiber::ld_speculative(&word);
                      fiber::check(now >= last, "values of one word come in order");
                      last = now;
                    }
                  }};
  for (auto const memory : {memory_model::sequential, memory_model::stale_reads}) {
    std::string what;
    EXPECT_EQ(failures(p, memory, &what), 0) << what;
  }
}

TEST(SpeculativeLoads, WhoSeesAValueSeesWhatItsWriterHadSeen) {
  // Claim, data, look at the claim: as a page that leaves a frame while it is read there.
  std::uint64_t data = 0;
  std::uint32_t claimed = 0;
  program const p{{1, 2, 0},
                  [&] {
                    data = 0;
                    claimed = 0;
                  },
                  [&] {
                    if (fiber::thread_rank() == 0) {
                      atomic<fiber>(claimed).store(1, order::relaxed);
                      fiber::fence(scope::device, order::release);
                      fiber::st(&data, std::uint64_t{7});
                      return;
                    }
                    std::uint64_t const seen = fiber::ld_speculative(&data);
                    std::uint32_t const after = atomic<fiber>(claimed).load(order::relaxed);
                    fiber::check(seen == 0 || after == 1, "the claim came before the data");
                  }};
  for (auto const memory : {memory_model::sequential, memory_model::stale_reads}) {
    std::string what;
    EXPECT_EQ(failures(p, memory, &what), 0) << what;
  }
}

TEST(SpeculativeLoads, TellNothingOfWhatTheWriterDidAfterwards) {
  // The writer has stored `data` and then changed `claimed`: a thread that sees the first need not see the second.
  std::uint64_t data = 0;
  std::uint32_t claimed = 0, stored = 0;
  bool fenced = true;
  program const p{{1, 2, 0},
                  [&] {
                    data = 0;
                    claimed = stored = 0;
                  },
                  [&] {
                    if (fiber::thread_rank() == 0) {
                      fiber::st(&data, std::uint64_t{7});
                      if (fenced) fiber::fence(scope::device, order::release);
                      atomic<fiber>(claimed).store(1, order::relaxed);
                      atomic<fiber>(stored).store(1, order::relaxed);
                      return;
                    }
                    // Relaxed: the claim has been stored, and nothing orders that store for this lane.
                    (void)fiber::wait_until([&] { return atomic<fiber>(stored).load(order::relaxed) == 1; },
                                            no_deadline);
                    std::uint64_t const seen = fiber::ld_speculative(&data);
                    std::uint32_t const after = atomic<fiber>(claimed).load(order::relaxed);
                    fiber::check(seen == 0 || after == 1, "the claim came after the data");
                  }};
  for (bool const with : {true, false}) {
    fenced = with;
    EXPECT_EQ(failures(p, memory_model::sequential), 0);
    EXPECT_GT(failures(p, memory_model::stale_reads), 0) << (with ? "with" : "without") << " a fence between the two";
  }
}

TEST(StoreBuffers, ALanesStackIsItsOwn) {
  program const p{{1, 2, 0},
                  [] {},
                  [] {
                    std::uint64_t local = 1;
                    fiber::st(&local, std::uint64_t{2});
                    // The compiler knows no way in which it could change.
                    fiber::check(*static_cast<std::uint64_t volatile*>(&local) == 2,
                                 "a variable has what it was given");
                    local = 3;
                    fiber::fence(scope::device, order::release);
                    fiber::check(*static_cast<std::uint64_t volatile*>(&local) == 3, "an old store comes too late");
                  }};
  expect_passes_everywhere(p);
}

TEST(MessagePassing, BlockScopeIsEnoughWithinABlockOnly) {
  message_passing within, across{.to = 32};
  expect_passes_everywhere(within.make<scope::block>());
  EXPECT_GT(failures(across.make<scope::block>({2, 32, 0}), memory_model::race_detector), 0);
  EXPECT_GT((failures(across.make<scope::block, scope::device>({2, 32, 0}), memory_model::race_detector)), 0);
  EXPECT_GT((failures(across.make<scope::device, scope::block>({2, 32, 0}), memory_model::race_detector)), 0);
  expect_passes_everywhere(across.make<scope::device>({2, 32, 0}));
}

TEST(MessagePassing, AFenceOfTooNarrowAScopeIsFound) {
  message_passing across{
      .store = order::relaxed, .load = order::relaxed, .release_fence = true, .acquire_fence = true, .to = 32};
  EXPECT_EQ(failures(across.make<scope::system, scope::system, scope::block>({2, 32, 0}), memory_model::race_detector),
            static_cast<int>(schedules));
  expect_passes_everywhere(across.make<scope::system, scope::system, scope::device>({2, 32, 0}));
}

TEST(MessagePassing, ScopesOfAtomicsThatDoNotIncludeEachOtherAreARace) {
  std::uint32_t counter = 0;
  program p{
      {2, 1, 0}, [&] { counter = 0; }, [&] { atomic<fiber, scope::block>(counter).fetch_add(1, order::relaxed); }};
  std::string what;
  EXPECT_EQ(failures(p, memory_model::race_detector, &what), static_cast<int>(schedules));
  EXPECT_THAT(what, AllOf(HasSubstr("block scope"), HasSubstr("device scope is needed")));
}

/// A lane writes an entry and rings a doorbell; an agent, a drive, reads both.
template <class Ring>
program doorbell(std::array<std::uint64_t, 8>& entry, std::uint32_t& bell, Ring ring) {
  return {{1, 1, 0},
          [&] {
            entry.fill(0);
            bell = 0;
          },
          [&entry, ring] {
            std::array<std::uint64_t, 8> command;
            command.fill(9);
            fiber::copy(entry.data(), command.data(), sizeof command);
            ring();
          },
          {{"drive", [&] {
              wait_for([&] { return atomic<fiber, scope::system>(bell).load(order::acquire) == 1; });
              for (auto const& word : entry)
                fiber::check(fiber::ld(&word) == 9, "the whole entry came before the doorbell");
            }}}};
}

TEST(Doorbell, AFenceAtSystemScopeBeforeItPasses) {
  std::array<std::uint64_t, 8> entry;
  std::uint32_t bell;
  expect_passes_everywhere(doorbell(entry, bell, [&] {
    fiber::fence(scope::system, order::release);
    fiber::st_mmio(&bell, 1);
  }));
}

TEST(Doorbell, AMissingFenceIsFound) {
  std::array<std::uint64_t, 8> entry;
  std::uint32_t bell;
  auto const p = doorbell(entry, bell, [&] { fiber::st_mmio(&bell, 1); });
  EXPECT_GT(failures(p, memory_model::store_buffers), 0);
  EXPECT_EQ(failures(p, memory_model::race_detector), static_cast<int>(schedules));
}

TEST(Doorbell, AFenceAtDeviceScopeIsFound) {
  std::array<std::uint64_t, 8> entry;
  std::uint32_t bell;
  auto const p = doorbell(entry, bell, [&] {
    fiber::fence(scope::device, order::release);
    fiber::st_mmio(&bell, 1);
  });
  EXPECT_EQ(failures(p, memory_model::race_detector), static_cast<int>(schedules));
}

TEST(Doorbell, AnEntryWrittenAfterItIsFound) {
  std::uint32_t entry = 0, bell = 0;
  program const p{{1, 1, 0},
                  [&] { entry = bell = 0; },
                  [&] {
                    fiber::fence(scope::system, order::release);
                    fiber::st_mmio(&bell, 1);
                    fiber::st(&entry, 9u);
                  },
                  {{"drive", [&] {
                      wait_for([&] { return atomic<fiber, scope::system>(bell).load(order::acquire) == 1; });
                      fiber::check(fiber::ld(&entry) == 9, "the entry came before the doorbell");
                    }}}};
  for (auto const memory : all_models) EXPECT_GT(failures(p, memory), 0) << static_cast<int>(memory);
}

/// Lane 0 hands an entry at `hand` scope to lane `to`, which tells an agent at system scope (PTX: causality is
/// transitive).
template <scope Hand>
program relay(std::uint32_t& entry, std::uint32_t& handed, std::uint32_t& bell, std::uint32_t to) {
  return {{2, 32, 0},
          [&] { entry = handed = bell = 0; },
          [&, to] {
            if (fiber::thread_rank() == 0) {
              fiber::st(&entry, 9u);
              atomic<fiber, Hand>(handed).store(1, order::release);
            } else if (fiber::thread_rank() == to) {
              wait_for([&] { return atomic<fiber, Hand>(handed).load(order::acquire) == 1; });
              atomic<fiber, scope::system>(bell).store(1, order::release);
            }
          },
          {{"drive", [&] {
              wait_for([&] { return atomic<fiber, scope::system>(bell).load(order::acquire) == 1; });
              fiber::check(fiber::ld(&entry) == 9, "the entry came before the doorbell");
            }}}};
}

TEST(Causality, ReachesThroughNarrowScopesToWiderOnes) {
  std::uint32_t entry, handed, bell;
  expect_passes_everywhere(relay<scope::block>(entry, handed, bell, 1));
  expect_passes_everywhere(relay<scope::device>(entry, handed, bell, 32));
}

TEST(Causality, DoesNotReachThroughAScopeThatExcludesTheRelay) {
  std::uint32_t entry, handed, bell;
  EXPECT_GT(failures(relay<scope::block>(entry, handed, bell, 32), memory_model::race_detector), 0);
}

TEST(Causality, ReleaseSequencesPassThroughReadModifyWrites) {
  std::uint32_t data = 0, word = 0;
  program const p{{1, 3, 0},
                  [&] { data = word = 0; },
                  [&] {
                    auto view = atomic<fiber>(word);
                    switch (fiber::thread_rank()) {
                      case 0:
                        fiber::st(&data, 42u);
                        view.fetch_add(1, order::release);
                        break;
                      case 1:
                        view.fetch_add(2, order::relaxed);
                        break;
                      default:
                        wait_for([&] { return view.load(order::acquire) == 3; });
                        fiber::check(fiber::ld(&data) == 42, "whoever added last");
                    }
                  }};
  expect_passes_everywhere(p);
}

TEST(Causality, BarriersOrderMemoryAndBallotsDoNot) {
  std::uint32_t words[64] = {};
  auto make = [&](std::function<void()> meet) {
    return program{{1, 32, 0},
                   [&] { std::fill_n(words, 64, 0u); },
                   [&, meet] {
                     std::uint32_t const me = fiber::thread_rank();
                     fiber::st(&words[me], me + 1);
                     meet();
                     fiber::check(fiber::ld(&words[(me + 1) % 32]) == (me + 1) % 32 + 1, "my neighbour's word");
                   }};
  };
  expect_passes_everywhere(make([] { fiber::this_warp().sync(); }));
  expect_passes_everywhere(make([] { fiber::this_block().sync(); }));
  auto const ballot = make([] { static_cast<void>(fiber::this_warp().ballot(true)); });
  EXPECT_GT(failures(ballot, memory_model::store_buffers), 0);
  EXPECT_EQ(failures(ballot, memory_model::race_detector), static_cast<int>(schedules));
}

program locked_counter(std::uint32_t& lock, std::uint32_t& count, order unlock, bool atomic_inside) {
  return {{1, 4, 0},
          [&] { lock = count = 0; },
          [&, unlock, atomic_inside] {
            wait_for([&] {
              std::uint32_t expected = 0;
              return atomic<fiber>(lock).compare_exchange(expected, 1, order::acquire);
            });
            if (atomic_inside) {
              std::uint32_t const before = atomic<fiber>(count).load(order::relaxed);
              atomic<fiber>(count).store(before + 1, order::relaxed);
            } else {
              fiber::st(&count, fiber::ld(&count) + 1);
            }
            atomic<fiber>(lock).store(0, unlock);
            if (fiber::thread_rank() != 0) return;
            wait_for([&] { return atomic<fiber>(count).load(order::acquire) == 4; });
          }};
}

TEST(Unlock, ReleasePasses) {
  std::uint32_t lock, count;
  expect_passes_everywhere(locked_counter(lock, count, order::release, true));
}

TEST(Unlock, RelaxedIsFound) {
  std::uint32_t lock, count;
  EXPECT_GT(failures(locked_counter(lock, count, order::relaxed, true), memory_model::store_buffers), 0);
  EXPECT_GT(failures(locked_counter(lock, count, order::relaxed, true), memory_model::stale_reads), 0);
  EXPECT_GT(failures(locked_counter(lock, count, order::relaxed, false), memory_model::race_detector), 0);
}

/// Store buffering: each lane stores to its word, then loads the other's. How often both loaded 0?
int both_missed(memory_model memory, order store, order load, bool fence) {
  int count = 0;
  for (std::uint64_t seed = 0; seed < schedules; ++seed) {
    std::uint32_t word[2] = {}, seen[2] = {};
    auto const result = run({.memory = memory}, simt::random(seed, 2), {1, 2, 0}, [&] {
      std::uint32_t const me = fiber::thread_rank();
      atomic<fiber>(word[me]).store(1, store);
      if (fence) fiber::fence(scope::device, order::seq_cst);
      seen[me] = atomic<fiber>(word[1 - me]).load(load);
    });
    EXPECT_TRUE(result) << result.what;
    count += seen[0] == 0 && seen[1] == 0;
  }
  return count;
}

TEST(StoreBuffering, HappensUnlessSequentiallyConsistent) {
  EXPECT_EQ(both_missed(memory_model::sequential, order::relaxed, order::relaxed, false), 0);
  EXPECT_EQ(both_missed(memory_model::race_detector, order::relaxed, order::relaxed, false), 0);
  for (auto const memory : {memory_model::store_buffers, memory_model::stale_reads}) {
    EXPECT_GT(both_missed(memory, order::relaxed, order::relaxed, false), 0) << static_cast<int>(memory);
    EXPECT_GT(both_missed(memory, order::release, order::acquire, false), 0) << static_cast<int>(memory);
    EXPECT_EQ(both_missed(memory, order::seq_cst, order::seq_cst, false), 0) << static_cast<int>(memory);
    EXPECT_EQ(both_missed(memory, order::relaxed, order::relaxed, true), 0) << static_cast<int>(memory);
  }
}

TEST(Coherence, ALaneNeverReadsBackwards) {
  for (auto const memory : all_models) {
    std::uint32_t word = 0;
    program const p{{1, 4, 0},
                    [&] { word = 0; },
                    [&] {
                      if (fiber::thread_rank() == 0) {
                        for (std::uint32_t i = 1; i <= 20; ++i) atomic<fiber>(word).store(i, order::relaxed);
                        return;
                      }
                      std::uint32_t last = 0;
                      for (int i = 0; i < 20; ++i) {
                        std::uint32_t const now = atomic<fiber>(word).load(order::relaxed);
                        fiber::check(now >= last, "values of one word come in order");
                        last = now;
                      }
                    }};
    std::string what;
    EXPECT_EQ(failures(p, memory, &what), 0) << what;
  }
}

TEST(Coherence, ALaneReadsItsOwnStores) {
  std::uint64_t word = 0;
  program const p{{1, 1, 0},
                  [&] { word = 0; },
                  [&] {
                    auto* halves = reinterpret_cast<std::uint32_t*>(&word);
                    atomic<fiber>(word).store(0x1111111122222222, order::relaxed);
                    fiber::check(fiber::ld(&halves[0]) == 0x22222222 && fiber::ld(&halves[1]) == 0x11111111, "halves");
                    fiber::st(&halves[1], 3u);
                    fiber::check(fiber::ld(&word) == 0x0000000322222222, "a half over a whole");
                    vec16 wide[2] = {};
                    fiber::st(&wide[0], vec16{1, 2});
                    fiber::copy(&wide[1], &wide[0], 16);
                    fiber::check(fiber::ld(&wide[1]).high == 2, "sixteen bytes");
                  }};
  expect_passes_everywhere(p);
  EXPECT_EQ(word, 0x0000000322222222u);
}

TEST(Races, NeighboursInOneGranuleAreNone) {
  std::uint8_t bytes[8] = {};
  program const p{{1, 8, 0},
                  [&] { std::fill_n(bytes, 8, std::uint8_t{0}); },
                  [&] {
                    std::uint32_t const me = fiber::thread_rank();
                    for (int i = 0; i < 3; ++i)
                      fiber::st(&bytes[me], static_cast<std::uint8_t>(fiber::ld(&bytes[me]) + 1));
                  }};
  expect_passes_everywhere(p);
}

TEST(Races, PlainAndAtomicAccessesOfOneWordConflict) {
  std::uint32_t word = 0;
  program const p{{1, 2, 0},
                  [&] { word = 0; },
                  [&] {
                    if (fiber::thread_rank() == 0)
                      fiber::st(&word, 1u);
                    else
                      atomic<fiber>(word).fetch_add(1, order::acq_rel);
                  }};
  std::string what;
  EXPECT_EQ(failures(p, memory_model::race_detector, &what), static_cast<int>(schedules));
  EXPECT_THAT(what, HasSubstr("atomic write"));
}

TEST(Races, AgentsOfOneDomainAreOneDevice) {
  std::uint32_t data = 0, flag = 0;
  auto make = [&](std::uint32_t other_domain) {
    return program{{1, 1, 0},
                   [&] { data = flag = 0; },
                   [] {},
                   {{.name = "writer",
                     .body =
                         [&] {
                           fiber::st(&data, 1u);
                           atomic<fiber>(flag).store(1, order::release);
                         }},
                    {.name = "reader",
                     .body =
                         [&] {
                           wait_for([&] { return atomic<fiber>(flag).load(order::acquire) == 1; });
                           fiber::check(fiber::ld(&data) == 1, "data");
                         },
                     .domain = other_domain}}};
  };
  expect_passes_everywhere(make(0));
  EXPECT_GT(failures(make(1), memory_model::race_detector), 0);
}

TEST(Races, TheEndOfTheGridIsSeenByAgents) {
  std::uint32_t word = 0;
  program const p{{1, 32, 0},
                  [&] { word = 0; },
                  [&] {
                    if (fiber::thread_rank() == 7) fiber::st(&word, 5u);
                  },
                  {{"host", [&] {
                      wait_for([] { return fiber::stopping(); });
                      fiber::check(fiber::ld(&word) == 5, "what the grid wrote");
                    }}}};
  expect_passes_everywhere(p);
}

}  // namespace
}  // namespace forebay::simt
