// SPDX-License-Identifier: Apache-2.0
#include "storage/host_transfers.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "forebay/error.hpp"
#include "forebay/status_text.hpp"
#include "storage/client.hpp"

namespace forebay::detail {
namespace {

/// What passes through it, of each kind of memory, at a time.
constexpr std::uint64_t arena_bytes = 16 << 20;
constexpr std::uint64_t piece_min_bytes = 64 << 10, piece_max_bytes = 1 << 20;
/// Of what is under way. A drive that takes long gets less, so that a cancelled transfer soon ends.
constexpr std::uint64_t budget_min_bytes = 1 << 20, budget_first_bytes = 4 << 20, budget_max_bytes = 64 << 20;
constexpr std::uint64_t piece_short_ns = 50'000'000, piece_long_ns = 200'000'000;
/// The host's queues are at most 256 entries deep, and one entry stays free.
constexpr std::size_t pieces_max = 255;
/// A look at the inbox at least so often; news end the wait anyway.
constexpr std::uint64_t look_ns = 100'000'000;

operation_failed kept_waiting() {
  return operation_failed(
      "the transfer could not go on: a call to CUDA waited for its stream and kept the transfer waiting, as cudaFree, "
      "torch.cuda.empty_cache() and the first launch of a kernel do; let the transfer end first, or for a first launch "
      "set CUDA_MODULE_LOADING=EAGER before the program starts");
}

}  // namespace

host_transfers::host_transfers(host_io& io, client& of, buffer_source const& buffers,
                               std::shared_ptr<opened_drives> drives, gpu_source cuda, int gpu,
                               std::uint64_t patience_ns)
    : io_(io),
      client_(of),
      buffers_(buffers),
      drives_(std::move(drives)),
      cuda_(cuda),
      gpu_(gpu),
      registrations_(buffers, gpu),
      patience_ns_(patience_ns),
      turns_(io.layout().drive_count),
      budget_bytes_(budget_first_bytes) {}

void host_transfers::stop() {
  {
    std::lock_guard const lock(mutex_);
    stopping_ = true;
  }
  news_.notify_all();
  if (thread_.joinable()) thread_.join();
  {
    std::lock_guard const lock(mutex_);
    guard_ends_ = true;  // now that the other has ended
  }
  no_guard_.notify_all();
  if (guard_.joinable()) guard_.join();
}

std::shared_ptr<host_transfer_state> host_transfers::start(bool reads, void* memory, std::uint64_t bytes,
                                                           std::uint64_t at, host_transfer_options const& options) {
  auto t = std::make_shared<host_transfer_state>();
  t->reads = reads;
  t->memory = static_cast<std::byte*>(memory);
  t->bytes = bytes;
  t->at = at;
  t->ended = options.ended;
  if (options.on_gpu && bytes != 0) {
    if (cuda_() == nullptr) {
      throw refused_input("buffer", "memory of a GPU",
                          "there is no GPU, or CUDA is not built in: pass memory of the host");
    }
    memory_place const place = cuda_()->place_of(memory);
    if (place.gpu < 0) {
      throw refused_input("buffer", "address " + std::to_string(reinterpret_cast<std::uintptr_t>(memory)),
                          "CUDA knows no memory of a GPU there: pass memory that was not freed");
    }
    t->gpu = place.gpu;
    t->drives_reach_gpu = place.gpu == gpu_ && !place.managed;
    std::uint64_t const room = place.first + place.bytes - reinterpret_cast<std::uintptr_t>(memory);
    if (bytes > room) {
      throw refused_input("buffer", std::to_string(bytes) + " bytes",
                          "its allocation on cuda:" + std::to_string(place.gpu) + " ends after " +
                              std::to_string(room) + " of them: pass memory of one allocation");
    }
    t->direct = registrations_.covering(*cuda_(), place, memory, bytes);
  }
  if (options.stream) {
    if (cuda_() == nullptr) {
      throw refused_input("stream", std::to_string(*options.stream),
                          "there is no GPU, or CUDA is not built in: leave the stream out");
    }
    // Relaxed, here and below, as in `cancel_all`.
    std::uint32_t const cancels = cancels_.load(std::memory_order_relaxed);
    t->order = cuda_()->order(*options.stream, t->gpu, [&] {
      return cancels_.load(std::memory_order_relaxed) != cancels || (options.interrupted && options.interrupted());
    });
    if (t->order == nullptr) throw transfer_cancelled();
    // Not before: a `cudaFree` of another thread may wait for the engines to leave, and the streams before this one for
    // that `cudaFree`.
    t->hold = std::make_unique<drive_hold>(drives_);
    t->order->begin();
  }
  std::lock_guard const lock(mutex_);
  bool const needs_guard = t->order != nullptr && !guard_.joinable();
  if (!thread_.joinable() || needs_guard) {
    try {
      if (needs_guard) guard_ = std::thread([this] { guard(); });
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    } catch (std::system_error const& e) {
      throw operation_failed(std::string("no thread can be started for a transfer (") + e.what() +
                             "): raise the limit of processes (ulimit -u)");
    }
  }
  std::erase_if(all_, [](auto const& other) { return other.expired(); });
  all_.push_back(t);
  inbox_.push_back(t);
  // Release: `take_news` locks the mutex for what it finds; the flag only says that it should.
  has_news_.store(true, std::memory_order_release);
  news_.notify_one();
  return t;
}

void host_transfers::cancel_all() {
  // Relaxed: callers that wait for their turn only look whether it has changed.
  cancels_.fetch_add(1, std::memory_order_relaxed);
  std::lock_guard const lock(mutex_);
  for (auto const& other : all_) {
    if (auto const t = other.lock()) t->cancelled.store(true, std::memory_order_relaxed);
  }
}

host_transfer_counts host_transfers::counts() const {
  return {host_bytes_.load(), gpu_direct_bytes_.load(), gpu_copied_bytes_.load(), gpu_staged_bytes_.load()};
}

void host_transfers::reset_counts() {
  host_bytes_ = gpu_direct_bytes_ = gpu_copied_bytes_ = gpu_staged_bytes_ = 0;
}

void host_transfers::run() {
  for (;;) {
    // While transfers wait for streams alone, the engines need not run.
    bool const needs_drives =
        !pieces_.empty() || std::any_of(waiting_.begin(), waiting_.end(), [](auto const& t) { return t->begun; });
    if (!needs_drives) hold_.reset();
    if (pieces_.empty() && waiting_.empty()) {
      // Relaxed, as in `step`: only the time matters.
      looked_at_ns_.store(0, std::memory_order_relaxed);
      std::unique_lock lock(mutex_);
      news_.wait(lock, [&] { return !inbox_.empty() || stopping_; });
      if (inbox_.empty()) return;
    }
    // False after a while in which nothing happened; then it begins to look often again.
    static_cast<void>(native::wait_until([&] { return step(); }, native::clock_ns() + look_ns));
  }
}

void host_transfers::guard() {
  // Several looks, and not one long time: a process that was stopped meanwhile has looked once.
  constexpr std::uint32_t looks = 4;
  std::uint64_t last_ns = 0;
  std::uint32_t unchanged = 0;
  std::unique_lock lock(mutex_);
  while (!no_guard_.wait_for(lock, std::chrono::nanoseconds(patience_ns_ / looks), [&] { return guard_ends_; })) {
    std::uint64_t const now_ns = looked_at_ns_.load(std::memory_order_relaxed);
    unchanged = now_ns != 0 && now_ns == last_ns ? unchanged + 1 : 0;
    last_ns = now_ns;
    if (unchanged < looks) continue;
    for (auto const& other : all_) {
      auto const t = other.lock();
      if (t == nullptr) continue;
      std::lock_guard const its(t->mutex);
      if (t->order == nullptr) continue;
      t->given_up = true;
      t->order->let_go();
    }
  }
}

/// Does what can be done at once. Returns whether there was anything.
bool host_transfers::step() {
  looked_at_ns_.store(native::clock_ns(), std::memory_order_relaxed);
  bool any = take_news();
  for (std::size_t i = 0; i < pieces_.size();) {
    piece& p = pieces_[i];
    stage const before = p.now;
    bool over = false, keeps_memory = false;
    try {
      over = advance(p);
    } catch (...) {
      fail(*p.of, std::current_exception());
      over = true;
      keeps_memory = !lost_request_.empty();
    }
    any = any || over || p.now != before;
    if (!over) {
      ++i;
      continue;
    }
    end_piece(p, keeps_memory);
    if (i + 1 != pieces_.size()) p = std::move(pieces_.back());
    pieces_.pop_back();
  }
  return send() || any;
}

bool host_transfers::take_news() {
  if (!has_news_.exchange(false, std::memory_order_acquire)) return false;
  std::lock_guard const lock(mutex_);
  for (auto const& t : inbox_) {
    if (allows_captures_ || (t->gpu < 0 && t->order == nullptr)) continue;
    cuda_()->allow_captures();
    allows_captures_ = true;
  }
  waiting_.insert(waiting_.end(), inbox_.begin(), inbox_.end());
  inbox_.clear();
  return true;
}

/// Makes requests for transfers in turn, so that a long one does not keep the others waiting.
bool host_transfers::send() {
  bool any = false;
  for (std::size_t passed = 0; passed < waiting_.size();) {
    std::shared_ptr<host_transfer_state> const t = waiting_.front();
    sending result = sending::not_now;
    try {
      // Relaxed: a transfer that sees it late sends a piece more.
      if (t->cancelled.load(std::memory_order_relaxed)) throw transfer_cancelled();
      if (t->given_up) throw kept_waiting();
      if (t->failure == nullptr && t->sent_bytes < t->bytes) {
        if (!lost_request_.empty()) {
          throw operation_failed("storage: an earlier request never completed (" + lost_request_ +
                                 "): the host's buffer still belongs to it; open the storage again");
        }
        result = send_piece(t);
      }
    } catch (...) {
      fail(*t, std::current_exception());
    }
    if (result == sending::no_room) break;
    waiting_.pop_front();
    if (t->failure != nullptr || t->sent_bytes == t->bytes) {
      if (t->in_flight == 0) end_transfer(*t);
      any = true;
      passed = 0;
      continue;
    }
    waiting_.push_back(t);
    if (result == sending::sent) {
      any = true;
      passed = 0;
    } else {
      ++passed;
    }
  }
  return any;
}

host_transfers::sending host_transfers::send_piece(std::shared_ptr<host_transfer_state> const& t) {
  if (!t->begun) {
    if (t->order != nullptr && !t->order->reached()) return sending::not_now;
    // Not another one where the transfer brought its own: to take it may have to wait for a `cudaFree` of the program,
    // which waits for the stream.
    if (!hold_ && t->hold == nullptr) hold_.emplace(drives_);
    begin_transfer(*t);
  }
  if (pieces_.size() >= pieces_max) return sending::no_room;
  std::uint64_t const block = std::uint64_t{1} << io_.layout().block_shift;
  std::uint64_t const size = piece_bytes();
  piece p;
  p.of = t;
  p.from = t->at + t->sent_bytes;
  p.to = std::min(t->at + t->bytes, (p.from / size + 1) * size);
  if (t->direct != nullptr) {
    // What is not whole blocks, or does not begin at a multiple of 4 bytes, passes through the host.
    std::uint64_t const whole_end = p.to / block * block;
    bool const aligned = reinterpret_cast<std::uintptr_t>(user(p)) % 4 == 0;
    p.direct = aligned && p.from % block == 0 && whole_end > p.from;
    if (p.direct) p.to = whole_end;
    if (!p.direct && aligned) p.to = std::min(p.to, (p.from / block + 1) * block);
  }
  p.begin = p.from / block * block;
  p.end = std::min((p.to + block - 1) / block * block, io_.layout().size_bytes);
  if (!pieces_.empty() && under_way_bytes_ + (p.end - p.begin) > budget_bytes_) return sending::no_room;
  if (!p.direct) {
    auto const slot = arena(*t).take(p.end - p.begin);
    if (!slot) return sending::no_room;
    p.slot = *slot;
  }
  if (!t->reads && !io_.written().try_take(p.begin, p.end)) {
    if (!p.direct) arena(*t).give(p.slot, p.end - p.begin);
    return sending::not_now;
  }
  under_way_bytes_ += p.end - p.begin;
  t->sent_bytes = p.to - t->at;
  ++t->in_flight;
  p.started_ns = native::clock_ns();
  pieces_.push_back(std::move(p));
  piece& made = pieces_.back();
  try {
    if (t->reads) {
      request(made, nvme::io_opcode::read, stage::moves);
    } else if (is_partial(made)) {
      request(made, nvme::io_opcode::read, stage::reads_blocks);
    } else {
      fill(made);
    }
  } catch (...) {
    fail(*t, std::current_exception());
    end_piece(made, false);
    pieces_.pop_back();
  }
  return sending::sent;
}

void host_transfers::begin_transfer(host_transfer_state& t) {
  // Before, so that a write-back cannot overwrite what is written, and so that a read sees what the cache holds.
  if (t.reads) {
    client_.clean(t.at, t.bytes);
  } else {
    client_.forget(t.at, t.bytes);
  }
  t.begun = true;
}

/// Goes on with a piece if its request or its copy has ended. Returns whether the piece is over.
bool host_transfers::advance(piece& p) {
  switch (p.now) {
    case stage::reads_blocks:
      if (!request_has_ended(p)) return false;
      if (p.of->failure != nullptr) return true;  // another piece failed, or the transfer was cancelled
      fill(p);
      return false;
    case stage::copies_in:
      if (!p.copy->ended()) return false;
      p.copy.reset();
      request(p, nvme::io_opcode::write, stage::moves);
      return false;
    case stage::moves:
      if (!request_has_ended(p)) return false;
      if (!p.of->reads || p.direct) return true;
      if (p.of->gpu < 0) {
        std::memcpy(user(p), bounced(p), p.to - p.from);
        return true;
      }
      p.copy = cuda_()->copy(p.of->gpu, user(p), bounced(p), p.to - p.from);
      p.now = stage::copies_out;
      return false;
    case stage::copies_out:
      return p.copy->ended();
  }
  return true;
}

/// Brings what is to be written to where the drive reads it, and then has the drive write it.
void host_transfers::fill(piece& p) {
  if (!p.direct && p.of->gpu >= 0) {
    p.copy = cuda_()->copy(p.of->gpu, bounced(p), user(p), p.to - p.from);
    p.now = stage::copies_in;
    return;
  }
  if (!p.direct) std::memcpy(bounced(p), user(p), p.to - p.from);
  request(p, nvme::io_opcode::write, stage::moves);
}

void host_transfers::request(piece& p, nvme::io_opcode opcode, stage now) {
  p.opcode = opcode;
  p.now = now;
  auto const all = io_.ref(turns_[io_.layout().piece_at(p.begin, 1).drive]++);
  std::uint64_t const bytes = p.end - p.begin;
  buffer_ref buffer;
  if (p.direct) {
    auto const offset = static_cast<std::uint64_t>(user(p) - p.of->direct->data());
    buffer = p.of->direct->host_ref().subspan(offset, bytes);
  } else {
    buffer = arena(*p.of).ref(p.slot, bytes);
  }
  p.request = opcode == nvme::io_opcode::read ? all.read_async(buffer, p.begin, bytes)
                                              : all.write_async(buffer, p.begin, bytes);
  auto const queues = io_.queues().ref<native>();
  p.deadline_ns = native::clock_ns() + queues.timeout_ns();
  p.patience = queues.patience;
  p.progress = queues.progress({0, queues.pair_count(), 1});
}

/// As `host_io::finish`, without waiting: a request that takes too long is recovered, for as long as its drives
/// complete anything.
bool host_transfers::request_has_ended(piece& p) {
  status result;
  if (p.request.ready()) {
    result = p.request.wait(0);
  } else {
    std::uint64_t const now_ns = native::clock_ns();
    if (now_ns < p.deadline_ns) return false;
    // This asks for recovery.
    result = p.request.wait(now_ns);
    auto const queues = io_.queues().ref<native>();
    if (result.kind() == fault::timed_out && p.patience != 0) {
      std::uint32_t const progress = queues.progress({0, queues.pair_count(), 1});
      bool const alive = static_cast<std::int32_t>(progress - p.progress) > 0;
      if (alive) p.progress = progress;
      p.patience = alive ? queues.patience : p.patience - 1;
      p.deadline_ns = now_ns + queues.recovery_time_ns();
      return false;
    }
  }
  if (result.ok()) return true;
  std::string const event = io_.described(p.opcode, p.begin, p.end) + ": " + to_string(result);
  if (result.kind() == fault::timed_out) {
    lost_request_ = event;
    p.request.detach();
    if (p.direct) io_.keep(p.of->direct);
  }
  throw operation_failed(event);
}

/// `keeps_memory`: the drive may yet use it.
void host_transfers::end_piece(piece& p, bool keeps_memory) {
  host_transfer_state& t = *p.of;
  std::uint64_t const bytes = p.end - p.begin;
  if (!p.direct && !keeps_memory) arena(t).give(p.slot, bytes);
  if (!t.reads) io_.written().release(p.begin, p.end);
  under_way_bytes_ -= bytes;
  if (t.failure == nullptr) {
    adapt(native::clock_ns() - p.started_ns);
    (t.gpu < 0               ? host_bytes_
     : p.direct              ? gpu_direct_bytes_
     : passes_through_gpu(t) ? gpu_copied_bytes_
                             : gpu_staged_bytes_) += p.to - p.from;
  }
  --t.in_flight;
  if (t.in_flight != 0 || (t.failure == nullptr && t.sent_bytes != t.bytes)) return;
  // One that has failed may be among those that wait to send more; `send` ends it.
  if (t.failure != nullptr &&
      std::any_of(waiting_.begin(), waiting_.end(), [&](auto const& other) { return other.get() == &t; })) {
    return;
  }
  end_transfer(t);
}

void host_transfers::fail(host_transfer_state& t, std::exception_ptr why) {
  if (t.failure == nullptr) t.failure = std::move(why);
}

void host_transfers::end_transfer(host_transfer_state& t) {
  if (!t.reads && t.begun) {
    try {
      client_.forget(t.at, t.bytes);  // so that the next access of a kernel reads what was written
    } catch (...) {
      fail(t, std::current_exception());
    }
  }
  {
    std::lock_guard const lock(t.mutex);
    t.order.reset();
  }
  if (t.given_up) fail(t, std::make_exception_ptr(kept_waiting()));
  t.hold.reset();
  t.direct.reset();
  {
    std::lock_guard const lock(t.mutex);
    t.done = true;
    t.outcome = t.failure;
  }
  t.over.notify_all();
  if (t.ended) t.ended(t.failure);
  t.ended = nullptr;
}

void host_transfers::adapt(std::uint64_t took_ns) {
  if (took_ns < piece_short_ns) {
    budget_bytes_ = std::min(2 * budget_bytes_, budget_max_bytes);
  } else if (took_ns > piece_long_ns) {
    budget_bytes_ = std::max(budget_bytes_ / 2, budget_min_bytes);
  }
}

std::uint64_t host_transfers::piece_bytes() const {
  return std::clamp(budget_bytes_ / 16, piece_min_bytes, piece_max_bytes);
}

bounce_arena& host_transfers::arena(host_transfer_state const& t) {
  if (passes_through_gpu(t)) return *gpu_arena_;
  auto& found = t.gpu < 0 ? host_arena_ : locked_arena_;
  if (!found) {
    found = t.gpu < 0 ? std::make_shared<bounce_arena>(buffers_.allocate(arena_bytes)) : locked_arena();
    io_.keep(found);
  }
  return *found;
}

/// Whether its bounce memory is the GPU's own, from which a copy takes a hundredth of the time that it takes from the
/// host's. A drive that is served reaches such memory too, where it does not reach the user's.
bool host_transfers::passes_through_gpu(host_transfer_state const& t) {
  if (!t.drives_reach_gpu || no_gpu_arena_) return false;
  if (gpu_arena_) return true;
  try {
    gpu_arena_ = std::make_shared<bounce_arena>(buffers_.allocate(arena_bytes, true));
    io_.keep(gpu_arena_);
  } catch (std::exception const&) {
    no_gpu_arena_ = true;  // the GPU, or the daemon, has no more; or another drive does not reach what the first gave
  }
  return gpu_arena_ != nullptr;
}

/// One from which a GPU copies by itself.
std::shared_ptr<bounce_arena> host_transfers::locked_arena() const {
  if (!client_.device().on_gpu()) {
    // What the drives give is ordinary memory then.
    try {
      memory::allocation locked(cuda_()->locked_memory(), arena_bytes, page_bytes);
      auto registered = buffers_.register_pages(locked.data(), arena_bytes);
      return std::make_shared<bounce_arena>(std::move(registered), std::move(locked));
    } catch (refused_input const&) {
      // A served drive reaches only what its daemon gives.
    }
  }
  return std::make_shared<bounce_arena>(buffers_.allocate(arena_bytes));
}

}  // namespace forebay::detail

namespace forebay {

bool host_transfer::ended() const {
  std::lock_guard const lock(state_->mutex);
  return state_->done;
}

void host_transfer::wait() const {
  std::unique_lock lock(state_->mutex);
  state_->over.wait(lock, [&] { return state_->done; });
  if (state_->outcome != nullptr) std::rethrow_exception(state_->outcome);
}

void host_transfer::cancel() const {
  // Relaxed: the service thread looks at it again and again.
  state_->cancelled.store(true, std::memory_order_relaxed);
}

}  // namespace forebay
