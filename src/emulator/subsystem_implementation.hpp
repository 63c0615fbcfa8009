// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "forebay/detail/emulator/admin.hpp"
#include "forebay/detail/emulator/dma_regions.hpp"
#include "forebay/detail/emulator/spaces.hpp"
#include "forebay/detail/emulator/subsystem.hpp"

namespace forebay::emulator {

/// What one controller is made of, beside what it shares.
struct controller_parts {
  controller_parts(subsystem_options const& options, std::uint32_t queue_count, std::uint32_t slot,
                   std::uint16_t controller_id, memory::resource& unit_memory, media const& drive, io_engine& engine,
                   memory::resource& client_memory, memory::resource* gpu_memory, memory::resource* doorbell_memory,
                   std::function<void()> wake, durability sync)
      : first_slot(slot),
        queues(queue_count),
        regions(unit_memory),
        host_regions(gpu_memory != nullptr ? std::make_unique<dma_regions>() : nullptr),
        dma(regions, client_memory, gpu_memory, host_regions.get(), drive.pieces),
        registers(queue_count, client_memory, std::move(wake), doorbell_memory),
        commands({.serial = options.serial,
                  .model = options.model,
                  .controller_id = controller_id,
                  .max_queues = queue_count,
                  .max_queue_entries = options.max_queue_entries,
                  .mdts = options.mdts},
                 registers, regions, host_regions ? *host_regions : regions, drive, engine, slot, std::move(sync)) {}

  std::uint32_t const first_slot;
  std::uint32_t const queues;
  dma_regions regions;                        ///< its own: no other controller's commands reach its client's memory
  std::unique_ptr<dma_regions> host_regions;  ///< of them: what the admin thread reaches; null: all
  emulator::dma_space dma;
  register_file registers;
  admin commands;
  bool leaving = false;
  bool gone = false;
};

/// What one thread sleeps on until others wake it.
class alarm_clock {
 public:
  void ring() {
    {
      std::lock_guard const lock(mutex_);
      rung_ = true;
    }
    wake_.notify_one();
  }
  /// Returns after `most_ns`, or once it has rung since the last call.
  void wait(std::uint64_t most_ns) {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::chrono::nanoseconds(most_ns), [this] { return rung_; });
    rung_ = false;
  }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool rung_ = false;
};

class subsystem::implementation {
 public:
  implementation(subsystem_options const& options, std::unique_ptr<backing_store> store,
                 engine_maker const& make_engine);
  ~implementation();
  bool close() noexcept;
  implementation(implementation const&) = delete;
  implementation& operator=(implementation const&) = delete;

  subsystem_options const& options() const { return options_; }
  engine_runner& runner() { return *runner_; }
  std::uint32_t free_queues();
  bool waiters_serve() const { return engine_options_.waiters_serve; }
  std::optional<file_access> access() const { return store_->access(); }
  std::uint64_t populate(std::uint64_t bytes, std::stop_token const& cancel) { return store_->populate(bytes, cancel); }

  std::unique_ptr<controller_parts> join(std::uint32_t queues, memory::resource& client_memory,
                                         memory::resource* gpu_memory, memory::resource* doorbell_memory);
  /// Ends a controller. Returns false if the engine did not let go of it in time and may still touch its memory. Then
  /// the parts are never destroyed, and their queue pairs stay taken.
  bool leave(std::unique_ptr<controller_parts> parts) noexcept;

 private:
  bool stopping() const { return stop_.load(std::memory_order_relaxed); }
  void stop();
  std::function<void(bool)> cache_switch();
  void run_admin();
  void run_relay();
  bool step_all();
  void run_write_back();
  bool write_back();
  void tell_of_lost_pages();
  void tell_of_refused_writes();
  void fail(std::string const& what);
  void tell(std::string const& what) const noexcept;

  subsystem_options const options_;
  std::unique_ptr<backing_store> store_;
  media media_;
  bool told_of_lost_pages_ = false;      ///< of the thread that writes back
  bool told_of_refused_writes_ = false;  ///< likewise
  bool closed_ = false;
  bool closed_well_ = true;
  std::uint32_t written_back_ = 0;             ///< the value of `sync_words::requested` that was served last
  std::atomic<std::uint64_t> syncs_asked_{0};  ///< by controllers that shut down
  std::atomic<std::uint64_t> syncs_done_{0};   ///< of them
  std::atomic<bool> sync_failed_{false};       ///< of any sync, at any time
  memory::resource* gpu_memory_;               ///< null for an engine on CPU threads
  std::shared_ptr<memory::allocation> link_;   ///< null: there is none
  engine_options const engine_options_;
  std::unique_ptr<engine_runner> runner_;

  alarm_clock admin_alarm_;
  alarm_clock write_back_alarm_;

  std::mutex mutex_;  ///< guards what follows, and every admin step
  std::condition_variable left_;
  std::vector<controller_parts*> controllers_;
  std::vector<bool> slot_used_;
  std::uint16_t next_controller_id_ = 1;
  std::string failure_;  ///< of the engine; empty: none

  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace forebay::emulator
