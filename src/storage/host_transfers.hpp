// SPDX-License-Identifier: Apache-2.0
//! \file
//! Transfers of the host that go on in the background, many at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "forebay/detail/queue/io_queues_ref.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/host_transfer.hpp"
#include "forebay/token.hpp"
#include "storage/bounce_arena.hpp"
#include "storage/gpu_access.hpp"
#include "storage/gpu_registrations.hpp"
#include "storage/host_io.hpp"
#include "storage/opened_drives.hpp"

namespace forebay::detail {

class client;

/// One transfer. The service thread alone uses what has no lock, once it has taken the transfer over.
struct host_transfer_state {
  bool reads = true;
  std::byte* memory = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t at = 0;                             ///< of the storage
  int gpu = -1;                                     ///< whose memory it is; -1: the host's
  bool drives_reach_gpu = false;                    ///< that GPU's memory, where they gave it themselves
  std::shared_ptr<registered_memory const> direct;  ///< null: the bytes pass through bounce memory
  std::unique_ptr<drive_hold> hold;                 ///< while a stream waits
  std::unique_ptr<stream_order> order;              ///< null: no stream waits
  std::function<void(std::exception_ptr)> ended;
  std::atomic<bool> cancelled{false};
  std::atomic<bool> given_up{false};  ///< the stream was let go on before the end

  std::uint64_t sent_bytes = 0;  ///< for which a request was made, or has ended
  std::uint32_t in_flight = 0;   ///< requests
  bool begun = false;
  std::exception_ptr failure;

  std::mutex mutex;  ///< guards what follows, and the end of `order`
  std::condition_variable over;
  bool done = false;
  std::exception_ptr outcome;
};

/// Which way bytes went.
struct host_transfer_counts {
  std::uint64_t host_bytes = 0;        ///< from or to memory of the host
  std::uint64_t gpu_direct_bytes = 0;  ///< between drives and memory of a GPU
  std::uint64_t gpu_copied_bytes = 0;  ///< of a GPU's memory, through memory of that GPU that the drives reach
  std::uint64_t gpu_staged_bytes = 0;  ///< of a GPU's memory, through page-locked memory of the host
};

/// Moves transfers in pieces, as many at a time as the drives take. One thread, which the first transfer starts, makes
/// the requests, looks for their ends, and copies. Thread-safe.
///
/// Pieces end at multiples of their size, so that no two of a transfer write one block. How many bytes are under way
/// follows from how long pieces take: a transfer that is cancelled soon ends, on a slow drive too.
///
/// A call of the program to CUDA may wait for a stream and meanwhile keep all other calls waiting, as `cudaFree` does.
/// If the stream waits for a transfer, neither goes on. So a second thread looks whether the first one does. After a
/// while it lets the streams go on, and the transfers fail.
class host_transfers {
 public:
  /// Returns null where there is no GPU. Called for the first memory of a GPU, and the first stream.
  using gpu_source = gpu_access* (*)();

  static constexpr std::uint64_t usual_patience_ns = 10'000'000'000;

  /// All must outlive it. `of`: its cache is kept right. `gpu`: whose memory the drives reach; -1: none. `patience_ns`:
  /// with a call to CUDA that does not return.
  host_transfers(host_io& io, client& of, buffer_source const& buffers, std::shared_ptr<opened_drives> drives,
                 gpu_source cuda, int gpu, std::uint64_t patience_ns = usual_patience_ns);
  /// Waits until all transfers have ended.
  ~host_transfers() { stop(); }
  void stop();

  /// All bytes must lie within the storage. `memory` is the host's or a GPU's. Throws `refused_input` for memory that
  /// ends too early and for a wrong stream, `operation_failed` if the system gives no thread, and `transfer_cancelled`
  /// if a call that waits for other streams is interrupted, or `cancel_all` is called meanwhile.
  std::shared_ptr<host_transfer_state> start(bool reads, void* memory, std::uint64_t bytes, std::uint64_t at,
                                             host_transfer_options const& options);
  void cancel_all();
  host_transfer_counts counts() const;
  std::size_t registered_allocations() const { return registrations_.count(); }
  void reset_counts();

 private:
  using native = simt::native;
  enum class stage : std::uint8_t {
    reads_blocks,  ///< before a write that covers parts of them
    copies_in,     ///< from a GPU's memory
    moves,
    copies_out,  ///< to a GPU's memory
  };
  /// A request, with the part of a transfer that it moves.
  struct piece {
    std::shared_ptr<host_transfer_state> of;
    std::uint64_t begin = 0, end = 0;  ///< blocks
    std::uint64_t from = 0, to = 0;    ///< what is wanted of them
    bool direct = false;
    std::uint64_t slot = 0;  ///< where in the arena; not for a direct one
    stage now = stage::moves;
    host_io::token_type request;
    nvme::io_opcode opcode = nvme::io_opcode::read;
    std::uint64_t started_ns = 0, deadline_ns = 0;
    std::uint32_t patience = 0;
    std::uint32_t progress = 0;
    std::unique_ptr<gpu_work> copy;
  };
  enum class sending : std::uint8_t { sent, not_now, no_room };

  void run();
  void guard();
  bool step();
  bool take_news();
  bool send();
  sending send_piece(std::shared_ptr<host_transfer_state> const& t);
  void begin_transfer(host_transfer_state& t);
  bool advance(piece& p);
  void fill(piece& p);
  void request(piece& p, nvme::io_opcode opcode, stage now);
  bool request_has_ended(piece& p);
  bool is_partial(piece const& p) const { return p.begin != p.from || p.end != p.to; }
  void end_piece(piece& p, bool keeps_memory);
  void fail(host_transfer_state& t, std::exception_ptr why);
  void end_transfer(host_transfer_state& t);
  void adapt(std::uint64_t took_ns);
  std::uint64_t piece_bytes() const;
  bounce_arena& arena(host_transfer_state const& t);
  bool passes_through_gpu(host_transfer_state const& t);
  std::shared_ptr<bounce_arena> locked_arena() const;
  std::byte* user(piece const& p) const { return p.of->memory + (p.from - p.of->at); }
  std::byte* bounced(piece const& p) { return arena(*p.of).data(p.slot) + (p.from - p.begin); }

  host_io& io_;
  client& client_;
  buffer_source const& buffers_;
  std::shared_ptr<opened_drives> const drives_;
  gpu_source const cuda_;
  int const gpu_;
  gpu_registrations registrations_;
  std::atomic<std::uint32_t> cancels_{0};  ///< calls of `cancel_all`
  std::atomic<std::uint64_t> host_bytes_{0}, gpu_direct_bytes_{0}, gpu_copied_bytes_{0}, gpu_staged_bytes_{0};

  std::mutex mutex_;  ///< guards what follows
  std::condition_variable news_;
  std::vector<std::shared_ptr<host_transfer_state>> inbox_;
  std::vector<std::weak_ptr<host_transfer_state>> all_;
  bool stopping_ = false;
  std::thread thread_;
  std::condition_variable no_guard_;
  bool guard_ends_ = false;
  std::thread guard_;

  std::uint64_t const patience_ns_;
  std::atomic<std::uint64_t> looked_at_ns_{0};  ///< when the thread began to look at its work; 0: it has none
  std::atomic<bool> has_news_{false};           ///< so that the thread need not lock to see that there is none

  // Of the thread.
  std::deque<std::shared_ptr<host_transfer_state>> waiting_;  ///< with bytes for which no request was made
  std::vector<piece> pieces_;
  std::uint64_t under_way_bytes_ = 0;
  std::vector<std::uint32_t> turns_;  ///< requests that were made, by the drive on which they begin
  std::uint64_t budget_bytes_;
  std::shared_ptr<bounce_arena> host_arena_, locked_arena_, gpu_arena_;
  bool no_gpu_arena_ = false;  ///< the drives gave none
  std::optional<drive_hold> hold_;
  bool allows_captures_ = false;  ///< of CUDA graphs, on other threads
  std::string lost_request_;      ///< if not empty: it never ended, and the drive may yet use its memory
};

}  // namespace forebay::detail
