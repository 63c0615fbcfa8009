// SPDX-License-Identifier: Apache-2.0
#include "apps/common/in_flight.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "apps/virtual_time.hpp"
#include "forebay/detail/simt/run.hpp"

namespace forebay::apps {
namespace {

constexpr std::uint64_t us = 1000;

TEST(in_flight_share, every_place_is_one_threads_and_counts_differ_by_at_most_one) {
  for (std::uint32_t total : {1u, 2u, 7u, 32u, 33u, 1000u}) {
    for (std::uint32_t threads = 1; threads <= total; threads += 1 + threads / 3) {
      std::uint32_t next = 0, least = total, most = 0;
      for (std::uint32_t rank = 0; rank < threads; ++rank) {
        in_flight_share const share = in_flight_share::of(total, threads, rank);
        ASSERT_EQ(share.first, next) << total << ' ' << threads << ' ' << rank;
        next += share.count;
        least = std::min(least, share.count);
        most = std::max(most, share.count);
      }
      EXPECT_EQ(next, total);
      EXPECT_LE(most - least, 1u);
    }
  }
}

/// A request whose progress a test observes and controls, in virtual time.
struct fake_request {
  std::uint64_t ready_at_ns;  ///< simt::no_deadline: never
  status outcome;
  std::uint32_t waits = 0;
  bool detached = false;
};

class fake_token {
 public:
  fake_token() = default;
  fake_token(std::vector<fake_request>& of, std::size_t number) : of_(&of), number_(number) {}
  bool ready(std::uint32_t) const { return testing::virtual_time::clock_ns() >= it().ready_at_ns; }
  status wait(std::uint64_t deadline_ns) {
    if (deadline_ns < it().ready_at_ns) return fault::timed_out;
    ++it().waits;
    return it().outcome;
  }
  void detach() { it().detached = true; }

 private:
  fake_request& it() const { return (*of_)[number_]; }
  std::vector<fake_request>* of_ = nullptr;
  std::size_t number_ = 0;
};

/// One thread that starts `commands` commands, as many at a time as it has slots.
class in_flight_test : public ::testing::Test {
 protected:
  using M = testing::virtual_time;
  using slot = in_flight_slot<fake_token, std::uint32_t>;
  struct ending {
    std::uint32_t command;
    status outcome;
    std::uint64_t at_ns, begun_ns, submitted_ns;
  };

  in_flight_test() {
    M::now_ns = 5'000'000;
    M::before_waiting = nullptr;
  }

  class work {
   public:
    work(in_flight_test& test, std::uint32_t slots)
        : test_(test), slots_(slots), of_all_(slots + 3), commands(of_all_.data(), {3, slots}, test.timeout_ns) {}

    bool begin(std::uint32_t i) {
      if (next_ == test_.commands) return false;
      commands[i].command = next_++;
      commands.begin(i, *this);
      return true;
    }
    fake_token submit(std::uint32_t i) {
      std::uint32_t const command = commands[i].command;
      M::now_ns += test_.submission_ns;
      test_.submitted.push_back(command);
      test_.requests.push_back(test_.answer(command));
      test_.most = std::max(test_.most, commands.count() + 1);
      return {test_.requests, test_.requests.size() - 1};
    }
    void finish(std::uint32_t i, status outcome, std::uint64_t now_ns) {
      slot const& s = commands[i];
      EXPECT_FALSE(s.in_flight);
      test_.endings.push_back({s.command, outcome, now_ns, s.begun_ns, s.submitted_ns});
      if (outcome.ok()) begin(i);
    }
    void run() {
      for (std::uint32_t i = 0; i < slots_; ++i) begin(i);
      while (commands.count() != 0) commands.wait(*this);
    }

   private:
    in_flight_test& test_;
    std::uint32_t slots_;
    std::uint32_t next_ = 0;
    std::vector<slot> of_all_;

   public:
    in_flight<M, slot> commands;
  };

  std::uint32_t commands = 1;
  std::uint64_t timeout_ns = 1000 * us;
  std::uint64_t submission_ns = 0;
  std::function<fake_request(std::uint32_t)> answer = [](std::uint32_t) {
    return fake_request{.ready_at_ns = M::now_ns, .outcome = {}};
  };
  std::vector<fake_request> requests;
  std::vector<std::uint32_t> submitted;
  std::vector<ending> endings;
  std::uint32_t most = 0;
};

TEST_F(in_flight_test, finishes_each_command_once_in_the_order_of_completion_and_starts_another_in_its_place) {
  commands = 1000;
  answer = [](std::uint32_t command) {
    return fake_request{.ready_at_ns = M::now_ns + command * 7919 % 13 * us, .outcome = {}};
  };
  work(*this, 5).run();
  ASSERT_EQ(endings.size(), 1000u);
  EXPECT_EQ(most, 5u);
  std::vector<std::uint32_t> seen;
  for (ending const& e : endings) {
    seen.push_back(e.command);
    EXPECT_EQ(e.at_ns, e.begun_ns + e.command * 7919 % 13 * us) << "the first look that can see it does";
  }
  EXPECT_FALSE(std::ranges::is_sorted(seen));
  std::ranges::sort(seen);
  for (std::uint32_t i = 0; i < 1000; ++i) EXPECT_EQ(seen[i], i);
  for (fake_request const& r : requests) EXPECT_EQ(r.waits, 1u);
}

TEST_F(in_flight_test, what_found_no_room_is_submitted_again_and_keeps_the_time_at_which_it_began) {
  submission_ns = 2 * us;
  std::uint32_t refusals = 3;
  answer = [&](std::uint32_t) {
    if (refusals == 0) return fake_request{.ready_at_ns = M::now_ns + 10 * us, .outcome = {}};
    --refusals;
    return fake_request{.ready_at_ns = M::now_ns, .outcome = refusals == 1 ? fault::busy : fault::no_record};
  };
  std::uint64_t const start_ns = M::now_ns;
  work(*this, 1).run();
  ASSERT_EQ(endings.size(), 1u);
  EXPECT_EQ(submitted.size(), 4u);
  EXPECT_TRUE(endings[0].outcome.ok());
  EXPECT_EQ(endings[0].begun_ns, start_ns);
  EXPECT_EQ(endings[0].submitted_ns, endings[0].at_ns - 10 * us);
  EXPECT_GE(endings[0].submitted_ns, start_ns + 4 * submission_ns);
}

TEST_F(in_flight_test, a_command_that_never_finds_room_ends_with_that_status) {
  timeout_ns = 50 * us;
  answer = [](std::uint32_t) { return fake_request{.ready_at_ns = M::now_ns, .outcome = fault::no_record}; };
  std::uint64_t const start_ns = M::now_ns;
  work(*this, 1).run();
  ASSERT_EQ(endings.size(), 1u);
  EXPECT_EQ(endings[0].outcome, status(fault::no_record));
  EXPECT_EQ(M::now_ns, start_ns + timeout_ns);
}

TEST_F(in_flight_test, gives_up_when_nothing_came_back_for_as_long_as_the_timeout_and_not_before) {
  commands = 6;
  timeout_ns = 100 * us;
  // Two requests stay away. Those that come back, 90 us apart, each postpone the end.
  answer = [](std::uint32_t command) {
    return fake_request{.ready_at_ns = command < 2 ? simt::no_deadline : M::now_ns + 90 * us, .outcome = {}};
  };
  std::uint64_t const start_ns = M::now_ns;
  work(*this, 3).run();
  ASSERT_EQ(endings.size(), 6u);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(endings[i].outcome.ok());
    EXPECT_EQ(endings[i].command, i + 2);
  }
  for (std::uint32_t i = 4; i < 6; ++i) EXPECT_EQ(endings[i].outcome, status(fault::timed_out));
  EXPECT_EQ(M::now_ns, start_ns + 4 * 90 * us + timeout_ns);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(requests[i].detached, i < 2) << i;
}

TEST_F(in_flight_test, what_has_come_back_when_the_others_are_given_up_is_finished_with_its_own_outcome) {
  commands = 3;
  timeout_ns = 100 * us;
  answer = [](std::uint32_t command) {
    // The last one is ready exactly at the deadline: a waiter that looks once more sees it.
    return fake_request{.ready_at_ns = command < 2 ? simt::no_deadline : M::now_ns + 100 * us,
                        .outcome = status::from_nvme(0x281)};
  };
  std::uint64_t const start_ns = M::now_ns;
  work(*this, 3).run();
  ASSERT_EQ(endings.size(), 3u);
  EXPECT_EQ(endings[0].outcome, status::from_nvme(0x281));
  EXPECT_EQ(endings[0].at_ns, start_ns + 100 * us);
  for (std::uint32_t i = 1; i < 3; ++i) EXPECT_EQ(endings[i].outcome, status(fault::timed_out));
  EXPECT_FALSE(requests[2].detached);
}

TEST_F(in_flight_test, returns_at_the_callers_deadline_and_when_it_is_woken) {
  answer = [](std::uint32_t) { return fake_request{.ready_at_ns = M::now_ns + 500 * us, .outcome = {}}; };
  work flights(*this, 2);
  std::uint64_t const start_ns = M::now_ns;
  auto const never = [] { return false; };
  flights.commands.wait(flights, start_ns + 20 * us, never);  // nothing is in flight: only the deadline ends it
  EXPECT_EQ(M::now_ns, start_ns + 20 * us);
  flights.begin(0);
  flights.commands.wait(flights, start_ns + 50 * us, never);
  EXPECT_EQ(M::now_ns, start_ns + 50 * us);
  flights.commands.wait(flights, simt::no_deadline, [&] { return M::now_ns >= start_ns + 70 * us; });
  EXPECT_EQ(M::now_ns, start_ns + 70 * us);
  EXPECT_TRUE(endings.empty());
  flights.commands.wait(flights);
  EXPECT_EQ(endings.size(), 1u);
  EXPECT_EQ(M::now_ns, start_ns + 520 * us);
}

/// Requests that another thread completes: 0 free, 1 submitted, 2 completed.
struct shared_token {
  using M = simt::fiber;
  std::uint32_t* state;
  std::uint64_t const* data;

  bool ready(std::uint32_t) const {
    // acquire: pairs with the drive's release, so that its data is there.
    return simt::atomic<M, simt::scope::system>(*state).load(simt::order::acquire) == 2;
  }
  status wait(std::uint64_t) {
    M::check(ready(1), "waited for what has completed");
    // relaxed: the slot is this thread's again.
    simt::atomic<M, simt::scope::system>(*state).store(0, simt::order::relaxed);
    return {};
  }
  void detach() {}
};

struct shared_drive {
  using slot = in_flight_slot<shared_token, std::uint64_t>;
  std::vector<std::uint32_t> states;
  std::vector<std::uint64_t> data;
  std::vector<slot> slots;
  explicit shared_drive(std::uint32_t total) : states(total), data(total), slots(total) {}
};

class scheduled_work {
 public:
  using M = simt::fiber;
  scheduled_work(shared_drive& drive, in_flight_share mine, std::uint32_t todo)
      : drive_(drive), todo_(todo), commands_(drive.slots.data(), mine, 1'000'000'000) {}

  std::uint32_t run() {
    for (std::uint32_t i = 0; i < commands_.size(); ++i) begin(i);
    while (commands_.count() != 0) commands_.wait(*this);
    return done_;
  }
  shared_token submit(std::uint32_t i) {
    std::uint32_t const n = commands_.number(i);
    M::st(&drive_.data[n], commands_[i].command);
    // release: pairs with the drive's acquire, so that it sees the data.
    simt::atomic<M, simt::scope::system>(drive_.states[n]).store(1, simt::order::release);
    return {&drive_.states[n], &drive_.data[n]};
  }
  void finish(std::uint32_t i, status outcome, std::uint64_t) {
    M::check(outcome.ok(), "nothing times out");
    M::check(M::ld(commands_[i].token.data) == ~commands_[i].command, "the drive's answer to this very command");
    ++done_;
    begin(i);
  }

 private:
  void begin(std::uint32_t i) {
    if (todo_ == 0) return;
    commands_[i].command = std::uint64_t{M::thread_rank()} << 32 | --todo_;
    commands_.begin(i, *this);
  }
  shared_drive& drive_;
  std::uint32_t todo_;
  std::uint32_t done_ = 0;
  in_flight<M, shared_drive::slot> commands_;
};

TEST(in_flight_schedule, threads_finish_all_their_commands_whatever_the_order_in_which_a_drive_completes_them) {
  constexpr simt::memory_model models[] = {simt::memory_model::sequential, simt::memory_model::store_buffers,
                                           simt::memory_model::race_detector, simt::memory_model::stale_reads};
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    constexpr std::uint32_t threads = 3, each = 9;
    std::uint32_t const total = threads + static_cast<std::uint32_t>(seed % 8);
    shared_drive drive(total);
    std::vector<std::uint32_t> done(threads);
    simt::random_source order(seed);
    auto const complete_all = [&] {
      using M = simt::fiber;
      for (std::uint32_t completed = 0; completed < threads * each; ++completed) {
        std::uint32_t n = order.below(total);
        (void)M::wait_until(
            [&] {
              for (std::uint32_t k = 0; k < total; ++k, n = (n + 1) % total) {
                // acquire: pairs with the release in `submit`.
                if (simt::atomic<M, simt::scope::system>(drive.states[n]).load(simt::order::acquire) == 1) return true;
              }
              return false;
            },
            simt::no_deadline);
        M::st(&drive.data[n], ~M::ld(&drive.data[n]));
        // release: pairs with the acquire in `ready`.
        simt::atomic<M, simt::scope::system>(drive.states[n]).store(2, simt::order::release);
      }
    };
    simt::run_options options;
    options.memory = models[seed % 4];
    options.record = false;
    simt::random scheduler(seed, 3);
    auto const result = simt::run(options, scheduler, {1, threads, 0},
                                  [&] {
                                    std::uint32_t const rank = simt::fiber::thread_rank();
                                    done[rank] =
                                        scheduled_work(drive, in_flight_share::of(total, threads, rank), each).run();
                                  },
                                  {{.name = "drive", .body = complete_all, .daemon = false, .domain = 0}});
    ASSERT_TRUE(result.ok) << result.what << "\n  seed " << seed;
    EXPECT_EQ(result.timeouts, 0u);
    for (std::uint32_t const count : done) EXPECT_EQ(count, each);
  }
}

}  // namespace
}  // namespace forebay::apps
