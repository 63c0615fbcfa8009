// SPDX-License-Identifier: Apache-2.0
#include "client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "forebay/detail/simt/fiber.hpp"
#include "forebay/detail/simt/launch.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/status_text.hpp"

namespace forebay::residency {
namespace {

using clock = watchdog::clock;
using simt::native;

constexpr std::uint32_t usual_cpu_threads = 256;
constexpr std::uint32_t piece_blocks_max = 8;
constexpr std::uint64_t chunk_bytes = 4 << 20;  // of the host's own reads and writes: one piece of `storage`'s

class cpu_runner final : public wave_runner {
 public:
  std::uint32_t usual_threads() const override { return usual_cpu_threads; }
  void run(storage& s, work const& what) override {
    storage_lease const running = s.lease();
    simt::launch<simt::fiber>({.blocks = (what.whole.threads + 31) / 32, .threads_per_block = 32},
                              wave<simt::fiber>{s.ref<simt::fiber>(), what.buffer.ref(), what.whole, what.versions,
                                                what.sums, what.number, what.rounds},
                              {.resident_lanes = 128});  // fewer than there are, as on a GPU
  }
};

std::unique_ptr<wave_runner> runner_for(storage const& s, watchdog& dog) {
  return s.on_gpu() ? on_gpu(s, dog) : on_cpu(dog);
}

storage_options options_of(client_options const& o) {
  storage_options s;
  s.drives = {o.drive};
  s.device = o.device;
  // As many requests as threads of a GPU can have in flight.
  s.queues.records = 1 << 18;
  return s;
}

/// Calls `step(address, bytes)` for pieces of [first, first + bytes).
template <class Step>
void in_chunks(std::uint64_t first, std::uint64_t bytes, Step&& step) {
  for (std::uint64_t at = 0; at < bytes; at += chunk_bytes) step(first + at, std::min(chunk_bytes, bytes - at));
}

}  // namespace

std::unique_ptr<wave_runner> on_cpu(watchdog&) {
  return std::make_unique<cpu_runner>();
}

plan make_plan(client_options const& options, std::uint64_t drive_bytes, std::uint32_t block_bytes,
               std::uint32_t threads) {
  plan p;
  p.seed = options.seed;
  p.client = options.client;
  p.block_bytes = block_bytes;
  p.threads = threads;
  std::uint64_t const blocks = drive_bytes / block_bytes;
  p.common_bytes = blocks / 8 * block_bytes;
  std::uint64_t const share = (blocks - blocks / 8) / options.clients;
  p.run_blocks = share / threads;
  if (p.run_blocks == 0 || p.common_bytes == 0) {
    throw refused_input(
        "drive", options.drive,
        fmt::format("{} threads of {} clients need a drive of more than {} bytes; give a larger size, "
                    "or fewer threads",
                    threads, options.clients, std::uint64_t{threads} * options.clients * block_bytes * 8 / 7));
  }
  p.own_first = p.common_bytes + options.client * share * block_bytes;
  p.piece_blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(p.run_blocks, piece_blocks_max));
  return p;
}

void lay_down_common(storage& s, plan const& p, watchdog::watched& me) {
  std::vector<std::byte> chunk(chunk_bytes);
  in_chunks(p.common_first, p.common_bytes, [&](std::uint64_t at, std::uint64_t bytes) {
    me.now("writes the common blocks from the host");
    for (std::uint64_t i = 0; i < bytes; i += p.block_bytes) {
      apps::fill_pattern<native>(chunk.data() + i, p.block_bytes, at + i, p.seed, static_cast<apps::generation>(1));
    }
    s.pwrite(chunk.data(), bytes, at);
  });
}

std::uint64_t wrong_common_blocks(storage& s, plan const& p, watchdog::watched& me) {
  std::vector<std::byte> chunk(chunk_bytes);
  std::uint64_t wrong = 0;
  in_chunks(p.common_first, p.common_bytes, [&](std::uint64_t at, std::uint64_t bytes) {
    me.now("reads the common blocks from the host");
    s.pread(chunk.data(), bytes, at);
    for (std::uint64_t i = 0; i < bytes; i += p.block_bytes) {
      if (!holds<native>(chunk.data() + i, p, at + i, 1)) ++wrong;
    }
  });
  return wrong;
}

traffic& traffic::operator+=(traffic const& other) {
  read_commands += other.read_commands;
  write_commands += other.write_commands;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  return *this;
}

traffic traffic::operator-(traffic const& other) const {
  return {read_commands - other.read_commands, write_commands - other.write_commands, bytes_read - other.bytes_read,
          bytes_written - other.bytes_written};
}

nlohmann::json to_json(traffic const& t) {
  return {{"read_commands", t.read_commands},
          {"write_commands", t.write_commands},
          {"bytes_read", t.bytes_read},
          {"bytes_written", t.bytes_written}};
}

traffic traffic_from(nlohmann::json const& j) {
  return {j.at("read_commands"), j.at("write_commands"), j.at("bytes_read"), j.at("bytes_written")};
}

client::client(client_options const& options, watchdog& dog)
    : options_(options),
      me_(dog, "client"),
      storage_(options_of(options)),
      runner_(runner_for(storage_, dog)),
      plan_(make_plan(options, storage_.size_bytes(), storage_.block_bytes(),
                      options.threads != 0 ? options.threads : runner_->usual_threads())),
      versions_(storage_.device_memory(), plan_.threads * plan_.run_blocks * sizeof(std::uint32_t), 256),
      sums_(storage_.device_memory(), sizeof(totals), 256),
      buffer_(storage_.allocate_device_buffer(plan_.threads * plan_.buffer_bytes())) {
  std::vector<std::uint32_t> const none(versions_.size_bytes() / sizeof(std::uint32_t));
  versions_.from().copy_in(versions_.data(), none.data(), versions_.size_bytes());
  totals const zero;
  sums_.from().copy_in(sums_.data(), &zero, sizeof zero);
}

void client::run_wave(std::uint64_t number, std::uint32_t rounds) {
  me_.now(fmt::format("wave {} of {} rounds", number, rounds));
  runner_->run(storage_, {buffer_, plan_, versions_.as<std::uint32_t>(), sums_.as<totals>(), number, rounds});
  if (totals const t = counted(); t.failed != 0) {
    throw operation_failed(fmt::format("wave {}: {} threads had commands that failed, one with {}", number, t.failed,
                                       to_string(status::from_bits(t.first_failure))));
  }
}

void client::lay_down() {
  run_wave(0, 1);
}

void client::run(double seconds, std::uint32_t waves, std::function<void(std::string const&)> const& tell) {
  auto const elapsed = [&](clock::time_point since) {
    return std::chrono::duration<double>(clock::now() - since).count();
  };
  std::uint32_t rounds = 2;
  runner_->begin_beside(storage_);
  auto const begun = clock::now();
  try {
    while (waves != 0 ? waves_ < waves : elapsed(begun) < seconds) {
      auto const started = clock::now();
      run_wave(++waves_, rounds);
      double const took = elapsed(started);
      tell(
          fmt::format("{:.0f} s: {} waves, the last of {} rounds took {:.3f} s", elapsed(begun), waves_, rounds, took));
      // Long enough that other work on the GPU meets a full GPU, short enough that there are many waves.
      if (waves == 0 && took < 0.25 && rounds < 1 << 20) rounds *= 2;
      if (took > 1 && rounds > 1) rounds /= 2;
    }
  } catch (...) {
    try {
      beside_ = runner_->end_beside();
    } catch (operation_failed const&) {
      // The first failure is reported.
    }
    throw;
  }
  me_.now("ends what went on beside the waves");
  beside_ = runner_->end_beside();
}

void client::run_for_ever(std::function<void()> const& begun) {
  std::thread waiting([&] {
    bool const at_work =
        native::wait_until([&] { return counted().begun > plan_.threads; }, native::clock_ns() + 60'000'000'000);
    if (at_work) begun();
  });
  run_wave(++waves_, ~0u);
  waiting.join();
}

totals client::counted() const {
  totals t;
  sums_.from().copy_out(&t, sums_.data(), sizeof t);
  return t;
}

traffic client::kernel_traffic() const {
  totals const t = counted();
  return {t.read_commands, t.write_commands, t.bytes_read, t.bytes_written};
}

traffic client::drive_traffic() const {
  return traffic_from(report()["drives"][0]["statistics"]);
}

traffic client::host_reads(std::uint64_t bytes) const {
  traffic t;
  std::uint64_t const most = storage_.layout().command_bytes_max;
  in_chunks(0, bytes, [&](std::uint64_t, std::uint64_t n) { t.read_commands += (n + most - 1) / most; });
  t.bytes_read = bytes;
  return t;
}

std::uint64_t client::wrong_blocks_at_rest(traffic& expected) {
  std::vector<std::uint32_t> versions(versions_.size_bytes() / sizeof(std::uint32_t));
  versions_.from().copy_out(versions.data(), versions_.data(), versions_.size_bytes());
  std::vector<std::byte> chunk(chunk_bytes);
  std::uint64_t wrong = 0;
  in_chunks(plan_.own_first, plan_.own_bytes(), [&](std::uint64_t at, std::uint64_t bytes) {
    me_.now("reads its blocks back from the host");
    storage_.pread(chunk.data(), bytes, at);
    for (std::uint64_t i = 0; i < bytes; i += plan_.block_bytes) {
      std::uint64_t const block = (at + i - plan_.own_first) / plan_.block_bytes;
      if (!holds<native>(chunk.data() + i, plan_, at + i, versions[block])) ++wrong;
    }
  });
  expected += host_reads(plan_.own_bytes());
  return wrong;
}

}  // namespace forebay::residency
