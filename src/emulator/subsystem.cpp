// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/emulator/subsystem.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "forebay/detail/emulator/link.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "subsystem_implementation.hpp"

namespace forebay::emulator {
namespace {

using simt::native;

constexpr std::uint64_t stay_awake_ns = 2'000'000;  // after the last work, before it waits to be woken
/// How long the admin thread sleeps between two looks: longer each time. On a small machine a look takes time from the
/// disk's own threads.
constexpr std::uint64_t shortest_nap_ns = 5'000'000;
constexpr std::uint64_t longest_nap_ns = 50'000'000;
constexpr auto relay_nap = std::chrono::microseconds(50);
constexpr std::uint64_t relay_linger_ns = 1'000'000'000;  // commands of a host thread may take as long

subsystem_options checked(subsystem_options options) {
  auto const refuse_unless = [](bool good, char const* field, auto value, std::string const& remedy) {
    if (!good) throw refused_input(field, std::to_string(value), remedy);
  };
  timing_parameters const& timing = options.timing;
  refuse_unless(options.units >= 1 && options.units <= 1024, options.gpu ? "sms" : "threads", options.units,
                "give 1 to 1024");
  refuse_unless(options.max_queues >= 1 && options.max_queues <= 65534, "queues", options.max_queues,
                "give 1 to 65534");
  refuse_unless(options.max_queue_entries >= 2 && options.max_queue_entries <= 65536, "queue entries",
                options.max_queue_entries, "give 2 to 65536");
  refuse_unless(options.mdts >= 1 && options.mdts <= 16, "mdts", options.mdts, "give 1 to 16");
  refuse_unless(timing.channels >= 1 && timing.channels <= timing_parameters::max_channels, "channels", timing.channels,
                "give 1 to 64");
  refuse_unless(timing.channel_stride_bytes >= 512, "channel_stride_bytes", timing.channel_stride_bytes,
                "give at least 512");
  for (operation_cost const* cost : {&timing.read, &timing.write, &timing.other}) {
    refuse_unless(cost->granule_bytes >= 1, "granule_bytes", cost->granule_bytes, "give at least 1");
  }
  if (options.serial.size() > 20) throw refused_input("serial", options.serial, "give at most 20 characters");
  if (options.model.size() > 40) throw refused_input("model", options.model, "give at most 40 characters");
  return options;
}

engine_options engine_options_of(subsystem_options const& options, media const& drive, memory::allocation const* link) {
  engine_options out;
  out.units = options.units;
  out.queue_slots = options.max_queues;
  out.max_transfer_bytes = std::uint64_t{4096} << options.mdts;
  out.timing = options.timing;
  if (link != nullptr) {
    out.timing.link_byte_fs = memory::find_link_speed(options.link).byte_fs();
    out.link_free_ps = link->as<std::uint64_t>();
  }
  out.faults = options.faults;
  out.frontend = options.frontend;
  // A drive with times of its own needs a thread that keeps them. And where the unit itself moves the data, a thread
  // beside the client's makes both faster.
  out.waiters_serve = options.waiters_serve && drive.pieces != nullptr && out.timing.immediate();
  return out;
}

std::unique_ptr<engine_runner> make(engine_maker const& make_engine, subsystem_options const& options,
                                    engine_options const& of_engine, media const& drive) {
  if (make_engine) return make_engine(of_engine, drive);
  return options.gpu ? run_on_gpu(of_engine, drive, *options.gpu, options.cancel)
                     : run_on_threads(of_engine, drive, options.cancel);
}

/// Keeps the pointer reachable, so that a leak checker reports no leak.
void keep_for_ever(std::unique_ptr<controller_parts> parts) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<controller_parts>>;
  std::lock_guard const lock(mutex);
  kept.push_back(std::move(parts));
}

/// Keeps the engine running while its owner has something for it, and a while longer.
class hold_while_busy {
 public:
  hold_while_busy(engine_runner& runner, std::uint64_t linger_ns) : runner_(runner), linger_ns_(linger_ns) {}
  ~hold_while_busy() { let_go(); }
  hold_while_busy(hold_while_busy const&) = delete;
  hold_while_busy& operator=(hold_while_busy const&) = delete;

  void busy() {
    last_ns_ = native::clock_ns();
    if (holding_) return;
    try {
      runner_.hold();
      holding_ = true;
    } catch (operation_failed const&) {
      // The next busy moment tries again; a client that waits for an answer has a deadline.
    }
  }
  void idle() {
    if (native::clock_ns() - last_ns_ > linger_ns_) let_go();
  }

 private:
  void let_go() {
    if (holding_) runner_.release();
    holding_ = false;
  }
  engine_runner& runner_;
  std::uint64_t const linger_ns_;
  std::uint64_t last_ns_ = 0;
  bool holding_ = false;
};

}  // namespace

subsystem::implementation::implementation(subsystem_options const& options, std::unique_ptr<backing_store> store,
                                          engine_maker const& make_engine)
    : options_(checked(options)),
      store_(std::move(store)),
      media_(store_->view()),
      gpu_memory_(options_.gpu ? &memory::device(options_.gpu->ordinal) : nullptr),
      link_(options_.link.empty() ? nullptr
                                  : shared_link(gpu_memory_ != nullptr ? *gpu_memory_ : memory::host(),
                                                memory::find_link_speed(options_.link))),
      engine_options_(engine_options_of(options_, media_, link_.get())),
      runner_(make(make_engine, options_, engine_options_, media_)),
      slot_used_(options_.max_queues) {
  try {
    threads_.emplace_back([this] { run_admin(); });
    if (media_.sync != nullptr) threads_.emplace_back([this] { run_write_back(); });
    if (options_.gpu) threads_.emplace_back([this] { run_relay(); });
  } catch (...) {
    stop();
    throw;
  }
}

subsystem::implementation::~implementation() {
  close();
}

bool subsystem::implementation::close() noexcept {
  if (std::exchange(closed_, true)) return closed_well_;
  stop();
  if (media_.sync == nullptr) return true;
  tell_of_refused_writes();
  // What was written reaches the file even if no client ever flushed.
  try {
    // An operating system reports pages that it could not write only once: the next sync may succeed without them.
    // Relaxed: `stop()` has joined the thread that sets it.
    closed_well_ = store_->sync() && !sync_failed_.load(std::memory_order_relaxed);
    if (!closed_well_) tell("its file could not be written: what was written since the last good flush is lost");
  } catch (operation_failed const& failed) {
    closed_well_ = false;
    tell(std::string("what was written since the last good flush is lost: ") + failed.what());
  }
  return closed_well_;
}

std::unique_ptr<controller_parts> subsystem::implementation::join(std::uint32_t queues, memory::resource& client_memory,
                                                                  memory::resource* gpu_memory,
                                                                  memory::resource* doorbell_memory) {
  std::lock_guard const lock(mutex_);
  if (!failure_.empty()) throw operation_failed("the engine of the drive has failed: " + failure_);
  std::uint32_t first = 0, found = 0;
  for (std::uint32_t slot = 0; slot < slot_used_.size() && found < queues; ++slot) {
    if (slot_used_[slot]) {
      found = 0;
    } else if (found++ == 0) {
      first = slot;
    }
  }
  if (found < queues || queues == 0) {
    auto const free = std::count(slot_used_.begin(), slot_used_.end(), false);
    throw refused_input("queues", std::to_string(queues),
                        "the drive has " + std::to_string(slot_used_.size()) + " I/O queue pairs, of which " +
                            std::to_string(free) + " are free; ask for less, or open the drive with more");
  }
  if (gpu_memory_ != nullptr) {
    if (gpu_memory == nullptr) gpu_memory = gpu_memory_;
    if (doorbell_memory == nullptr) doorbell_memory = gpu_memory;
  }
  auto parts = std::make_unique<controller_parts>(
      options_, queues, first, next_controller_id_++, gpu_memory_ != nullptr ? *gpu_memory_ : memory::host(), media_,
      runner_->engine(), client_memory, gpu_memory, doorbell_memory, [this] { admin_alarm_.ring(); },
      durability{.ask =
                     [this] {
                       if (media_.sync == nullptr) return std::uint64_t{0};
                       // Release pairs with the acquire in write_back(): what was written before is there.
                       std::uint64_t const mine = syncs_asked_.fetch_add(1, std::memory_order_release) + 1;
                       write_back_alarm_.ring();
                       return mine;
                     },
                 .done = [this](std::uint64_t t) -> std::optional<bool> {
                   // Acquire pairs with the release in write_back(), for the failure too.
                   if (syncs_done_.load(std::memory_order_acquire) < t) return std::nullopt;
                   return !sync_failed_.load(std::memory_order_relaxed);
                 },
                 .use_cache = cache_switch()});
  std::fill_n(slot_used_.begin() + first, queues, true);
  controllers_.push_back(parts.get());
  return parts;
}

/// None for a drive without a file, and for an engine on a GPU, whose Flush copies the file's changes first.
std::function<void(bool)> subsystem::implementation::cache_switch() {
  if (media_.sync == nullptr || gpu_memory_ != nullptr) return {};
  return [word = &media_.sync->without_cache](bool on) {
    // Relaxed: see `dispatcher_execution::understand`.
    simt::atomic<native, simt::scope::system>(*word).fetch_add(on ? ~std::uint32_t{0} : 1, simt::order::relaxed);
  };
}

std::uint32_t subsystem::implementation::free_queues() {
  std::lock_guard const lock(mutex_);
  std::uint32_t most = 0, run = 0;
  for (bool const used : slot_used_) {
    run = used ? 0 : run + 1;
    most = std::max(most, run);
  }
  return most;
}

bool subsystem::implementation::leave(std::unique_ptr<controller_parts> parts) noexcept {
  {
    std::lock_guard const lock(mutex_);
    parts->leaving = true;
  }
  admin_alarm_.ring();
  std::unique_lock lock(mutex_);
  left_.wait_for(lock, std::chrono::nanoseconds(options_.leave_timeout_ns),
                 [&] { return parts->gone || !failure_.empty(); });
  std::erase(controllers_, parts.get());
  if (parts->gone) {
    std::fill_n(slot_used_.begin() + parts->first_slot, parts->queues, false);
    return true;
  }
  // An engine that is only late still writes completions and data there: lost memory is better than wrong memory.
  tell("its engine does not answer: the memory of a controller that has gone is kept, and " +
       std::to_string(parts->queues) + " queue pairs stay taken");
  keep_for_ever(std::move(parts));
  return false;
}

void subsystem::implementation::stop() {
  // Relaxed: the flag carries nothing; joining the threads orders what they did.
  stop_.store(true, std::memory_order_relaxed);
  admin_alarm_.ring();
  write_back_alarm_.ring();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

bool subsystem::implementation::step_all() {
  std::lock_guard const lock(mutex_);
  bool worked = false;
  for (controller_parts* const parts : controllers_) {
    if (!parts->leaving) {
      if (parts->commands.step()) worked = true;
    } else if (!parts->gone) {
      worked = true;
      parts->gone = parts->commands.step_away();
      if (parts->gone) left_.notify_all();
    }
  }
  return worked;
}

void subsystem::implementation::run_admin() {
  // Register writes wake this thread. It naps for invalid doorbells and the end of a shutdown, for which it must look
  // itself.
  std::uint64_t nap_ns = shortest_nap_ns;
  hold_while_busy engine(*runner_, stay_awake_ns);
  std::uint64_t awake_until_ns = 0;
  try {
    while (!stopping()) {
      bool const worked = native::wait_until([this] { return step_all() || stopping(); }, awake_until_ns);
      if (worked) {
        engine.busy();
        awake_until_ns = native::clock_ns() + stay_awake_ns;
        nap_ns = shortest_nap_ns;
        continue;
      }
      engine.idle();
      admin_alarm_.wait(std::exchange(nap_ns, std::min(2 * nap_ns, longest_nap_ns)));
    }
  } catch (operation_failed const& failed) {
    fail(failed.what());
  }
}

/// A thread of its own, because a write to a file may take longer than hosts wait for an answer of a live controller.
void subsystem::implementation::run_write_back() {
  // Units that move the data themselves ask by a word in memory. For others a medium makes it durable.
  std::uint64_t const nap_ns = media_.pieces == nullptr ? 200'000 : longest_nap_ns;
  hold_while_busy engine(*runner_, stay_awake_ns);
  try {
    while (!stopping()) {
      tell_of_lost_pages();
      tell_of_refused_writes();
      if (write_back()) {
        engine.busy();
        continue;
      }
      engine.idle();
      write_back_alarm_.wait(nap_ns);
    }
  } catch (operation_failed const& failed) {
    // The store may have begun, and takes as written what it did not write. Relaxed: joining this thread publishes it.
    sync_failed_.store(true, std::memory_order_relaxed);
    fail(failed.what());
  }
}

/// Brings the doorbells of host threads to a GPU.
void subsystem::implementation::run_relay() {
  hold_while_busy engine(*runner_, relay_linger_ns);
  std::uint64_t awake_until_ns = 0;
  auto const relay = [this] {
    std::lock_guard const lock(mutex_);
    bool any = false;
    for (controller_parts* const parts : controllers_) any = parts->registers.relay() || any;
    return any;
  };
  try {
    while (!stopping()) {
      if (relay()) {
        engine.busy();
        awake_until_ns = native::clock_ns() + stay_awake_ns;
        continue;
      }
      // Yields for all of this time and does not back off: a nap would add itself to the latency of the next command.
      if (native::clock_ns() < awake_until_ns) {
        std::this_thread::yield();
        continue;
      }
      engine.idle();
      std::this_thread::sleep_for(relay_nap);
    }
  } catch (operation_failed const& failed) {
    fail(failed.what());
  }
}

/// Called when the engine can no longer be used.
void subsystem::implementation::fail(std::string const& what) {
  std::lock_guard const lock(mutex_);
  if (!failure_.empty()) return;
  failure_ = what.empty() ? "unknown" : what;
  tell("its engine has failed: " + failure_);
  for (controller_parts* const parts : controllers_) {
    parts->registers.set(nvme::registers::csts, nvme::controller_status::make(true, true, nvme::shutdown_status::none));
  }
  left_.notify_all();
}

void subsystem::implementation::tell(std::string const& what) const noexcept {
  std::fprintf(stderr, "forebay: drive %s: %s\n", options_.serial.c_str(), what.c_str());
}

void subsystem::implementation::tell_of_lost_pages() {
  if (told_of_lost_pages_ || !media_.has_lost<native>(0, media_.bytes)) return;
  told_of_lost_pages_ = true;
  tell(
      "pages of its file cannot be had: the disk is full or has bad sectors, or the file was cut shorter. Commands on "
      "them fail, and so does every Flush. Make room, or give the file its size again, and open the drive again");
}

void subsystem::implementation::tell_of_refused_writes() {
  if (told_of_refused_writes_ || media_.read_only || media_.end_bytes >= media_.bytes) return;
  // Relaxed: it orders nothing.
  auto const refused = simt::atomic<native, simt::scope::system>(media_.sync->refused_beyond_end);
  if (refused.load(simt::order::relaxed) == 0) return;
  told_of_refused_writes_ = true;
  tell("its file ends at byte " + std::to_string(media_.end_bytes) +
       ", within the last block, and a write had more than zeros beyond: it failed, and so does every such write. Give "
       "the file a longer size with `forebay drive create --resize` of the Python package");
}

/// Serves the Flush commands and the controllers that wait for the file. Returns whether there were any.
bool subsystem::implementation::write_back() {
  memory::resource& where = store_->where();
  bool const near = where.kind() != memory::kind::device;
  std::uint32_t wanted = 0;
  if (near) {
    // Acquire: pairs with the units' release when they raise it; the writes before the Flush are in place.
    wanted = simt::atomic<native, simt::scope::system>(media_.sync->requested).load(simt::order::acquire);
  } else {
    where.copy_out(&wanted, &media_.sync->requested, sizeof wanted);
  }
  // Acquire pairs with the release of the thread that asks.
  std::uint64_t const asked = syncs_asked_.load(std::memory_order_acquire);
  // Relaxed: this thread alone writes it.
  if (wanted == written_back_ && asked == syncs_done_.load(std::memory_order_relaxed)) return false;
  std::uint32_t const failed = store_->sync() ? 0 : 1;
  // Relaxed: the release of `syncs_done_` publishes it. Once failed, failed for ever.
  if (failed != 0 && !sync_failed_.exchange(true, std::memory_order_relaxed)) {
    tell("what was written cannot be made durable: the operating system failed to write its file");
  }
  written_back_ = wanted;
  if (near) {
    // Relaxed: the release below publishes it. Once failed, failed for ever.
    auto const word = simt::atomic<native, simt::scope::system>(media_.sync->failed);
    if (failed != 0) word.store(1, simt::order::relaxed);
    // Release: pairs with the units' acquire before they complete a Flush.
    simt::atomic<native, simt::scope::system>(media_.sync->completed).store(wanted, simt::order::release);
  } else {
    if (failed != 0) where.copy_in(&media_.sync->failed, &failed, sizeof failed);
    where.copy_in(&media_.sync->completed, &wanted, sizeof wanted);
  }
  // Release pairs with the acquire of the thread that asked.
  syncs_done_.store(asked, std::memory_order_release);
  if (asked != 0) admin_alarm_.ring();
  return true;
}

subsystem::subsystem(subsystem_options const& options, std::unique_ptr<backing_store> store,
                     engine_maker const& make_engine)
    : implementation_(std::make_unique<implementation>(options, std::move(store), make_engine)) {}
subsystem::~subsystem() = default;

subsystem_options const& subsystem::options() const {
  return implementation_->options();
}
std::uint32_t subsystem::free_queues() const {
  return implementation_->free_queues();
}
void subsystem::hold() {
  implementation_->runner().hold();
}
void subsystem::release() noexcept {
  implementation_->runner().release();
}
void subsystem::order_data() {
  implementation_->runner().engine().order_data();
}
bool subsystem::waiters_serve() const {
  return implementation_->waiters_serve();
}
bool subsystem::close() noexcept {
  return implementation_->close();
}
std::optional<file_access> subsystem::access() const {
  return implementation_->access();
}

std::uint64_t subsystem::populate(std::uint64_t bytes, std::stop_token const& cancel) {
  return implementation_->populate(bytes, cancel);
}
std::unique_ptr<statistics> subsystem::collect() {
  auto sum = std::make_unique<statistics>();
  implementation_->runner().engine().collect(*sum);
  return sum;
}

}  // namespace forebay::emulator
