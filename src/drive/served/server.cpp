// SPDX-License-Identifier: Apache-2.0
#include "server.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <iterator>
#include <random>
#include <tuple>
#include <unordered_map>

#include "../emulated/specification.hpp"
#include "../pci/pci_drive.hpp"
#include "claims.hpp"
#include "forebay/detail/emulator/engine_runner.hpp"
#include "forebay/error.hpp"
#include "lent_memory.hpp"
#include "shared_controller.hpp"
#include "shared_emulated.hpp"

namespace forebay::drive::served {
namespace {

using nlohmann::json;

std::uint64_t address(void const* p) {
  return reinterpret_cast<std::uint64_t>(p);
}

/// A whole number of a request, from 0 to `most`. A client of another make may send anything.
std::uint64_t number(json const& request, char const* field, std::uint64_t most = ~std::uint64_t{0}) {
  json const& value = request.at(field);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() <= most) return value.get<std::uint64_t>();
  throw refused_input(field, value.dump(), fmt::format("send a whole number from 0 to {}", most));
}
std::uint32_t number32(json const& request, char const* field) {
  return static_cast<std::uint32_t>(number(request, field, ~std::uint32_t{0}));
}
memory::allocation_handle handle_of(json const& request) {
  memory::allocation_handle handle{};
  json const& value = request.at("handle");
  bool good = value.is_array() && value.size() == handle.size();
  for (std::size_t i = 0; good && i < handle.size(); ++i) {
    good = value[i].is_number_unsigned() && value[i].get<std::uint64_t>() <= 255;
    if (good) handle[i] = value[i].get<std::uint8_t>();
  }
  if (good) return handle;
  throw refused_input("handle", value.dump().substr(0, 100), fmt::format("send {} bytes", handle.size()));
}
void* pointer(json const& request) {
  return reinterpret_cast<void*>(number(request, "address"));
}

/// The memory of one drive, as a resource that is asked once. It ends with this object, and not with the drive: of
/// memory that a GPU reaches, CUDA lets go only while no engine is on a GPU, and when a daemon ends, those of its other
/// drives still are.
class kept_memory final : public memory::resource {
 public:
  kept_memory(memory_keeper& keeper, std::string drive, chunk_place const& where)
      : keeper_(keeper), drive_(std::move(drive)), where_(where) {}
  ~kept_memory() override {
    if (!kept_ || where_.kind == memory::kind::host) return;
    try {
      emulator::without_resident_engines([this] { kept_.reset(); });
    } catch (std::exception const&) {
      // An engine could not leave: its GPU has failed, and the memory goes with the process.
      (void)kept_.release();
    }
  }
  kept_memory(kept_memory const&) = delete;
  kept_memory& operator=(kept_memory const&) = delete;

  memory::kind kind() const override { return where_.kind; }
  void* allocate(std::size_t bytes, std::size_t) override {
    kept_ = keeper_.memory_of(drive_, bytes, where_);
    return kept_->data();
  }
  void deallocate(void*) noexcept override {}
  void copy_in(void* to, void const* from_host, std::size_t bytes) override {
    if (where_.kind == memory::kind::device) return memory::device(where_.gpu).copy_in(to, from_host, bytes);
    std::memcpy(to, from_host, bytes);
  }
  void copy_out(void* to_host, void const* from, std::size_t bytes) override {
    if (where_.kind == memory::kind::device) return memory::device(where_.gpu).copy_out(to_host, from, bytes);
    std::memcpy(to_host, from, bytes);
  }

 private:
  memory_keeper& keeper_;
  std::string drive_;
  chunk_place const where_;
  std::unique_ptr<chunk> kept_;
};

/// The names by which a daemon knows its drives: URIs with the same name are one drive. A drive that is in the memory
/// of its client's GPU, or serves one, exists once for each GPU.
std::string name_of(uri const& from, int gpu) {
  if (from.scheme() == "pci") return pci::name_of(from);
  backing_kind const kind = backing_of(from).kind;
  if (kind != backing_kind::hbm && kind != backing_kind::host) return from.text();
  return fmt::format("{} for GPU {}", from.text(), gpu);
}

/// Where the bytes of a drive are to be; the URI's other values are checked when it starts.
chunk_place place_of(uri const& from, int gpu) {
  switch (backing const where = backing_of(from); where.kind) {
    case backing_kind::hbm:
      return {memory::kind::device, gpu};
    case backing_kind::host:
      return {memory::kind::pinned, gpu};
    case backing_kind::peer:
      return {memory::kind::device, where.peer};
    case backing_kind::memory:
    case backing_kind::file:
      break;
  }
  return {};
}

}  // namespace

struct server::served_drive {
  std::mutex starting;                  ///< held by the one that starts it
  bool failed = false;                  ///< with `starting`: it could not be started, and is in the map no more
  std::unique_ptr<kept_memory> memory;  ///< before the drive, which lives in it
  std::shared_ptr<shared_drive> drive;  ///< set with `starting` and `drives_mutex_`; read with either
  std::mutex joining;                   ///< while a client joins
  claims claimed;
};

/// One client: its controller, its memory, and the thread that answers it.
class server::session {
 public:
  session(server& of, open_file socket)
      : of_(of), process_(peer_of(socket).pid), channel_(std::move(socket), from_client), thread_([this] { run(); }) {}
  ~session() {
    channel_.stop_receiving();
    thread_.join();
  }
  session(session const&) = delete;
  session& operator=(session const&) = delete;

  // Acquire: pairs with the release at the end of `run`, after which the thread only returns.
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  /// Begins its end. The client sees that only once the engine has let go of its memory: a client that saw it earlier
  /// would take its buffers back while they are still written.
  void stop() { channel_.stop_receiving(); }
  /// Returns once the session has ended. At `patience_ends` it closes the connection of a client that accepts no
  /// answer.
  void await_end(std::chrono::steady_clock::time_point patience_ends) {
    while (!ended()) {
      // Relaxed: only the time matters.
      if (sending_.load(std::memory_order_relaxed) && std::chrono::steady_clock::now() > patience_ends) {
        channel_.hang_up();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  int process() const { return process_; }

 private:
  void run() {
    try {
      // The first request has a time limit: a client that sends nothing must not keep others out.
      int limit_ms = patience_ms;
      while (auto request = channel_.receive(std::exchange(limit_ms, no_time_limit))) {
        json reply;
        try {
          reply = answer(request->body);
        } catch (json::exception const& e) {
          reply = {{"failed", std::string("drive daemon: a request that it does not understand: ") + e.what()}};
        } catch (std::exception const&) {
          reply = describe_current_exception();
        }
        send(std::move(reply));
      }
    } catch (std::exception const&) {
      // A client that has gone, or sends messages that are not valid, loses its connection.
    }
    leave();
    channel_.hang_up();
    // Release: pairs with the acquire in `ended`.
    ended_.store(true, std::memory_order_release);
  }

  void leave() {
    for (auto const& mapped : mapped_) controller_->dma().unmap(pointer_of(mapped), mapped.bytes);
    if (controller_ && !controller_->leave()) keep_for_ever();
    controller_.reset();  // the engine touches none of the client's memory any more
    if (drive_) drive_->claimed.remove_all(this);
    mapped_.clear();
    lent_.give_back();
    held_.clear();
    arenas_.clear();
    share_.host_bytes = share_.chunks = 0;
    drive_.reset();
  }

  /// An engine that did not let go may still write to the client's memory, so no other client may ever get it.
  void keep_for_ever() {
    static std::mutex mutex;
    static auto* const all = new std::vector<std::tuple<decltype(arenas_), decltype(held_), lent_memory>>;
    std::lock_guard const lock(mutex);
    all->emplace_back(std::move(arenas_), std::move(held_), std::move(lent_));
  }

  /// A reply carries the chunks that the client does not know yet.
  void send(json reply) {
    std::vector<int> files;
    for (auto const& arena : arenas_) {
      for (auto const& c : arena->take_new()) {
        reply["chunks"].push_back({{"address", address(c->data())},
                                   {"bytes", c->size_bytes()},
                                   {"key", c->key()},
                                   {"kind", static_cast<int>(c->where().kind)},
                                   {"page_bytes", c->where().page_bytes},
                                   {"gpu", c->where().gpu}});
        files.push_back(c->file());
      }
    }
    sending_.store(true, std::memory_order_relaxed);
    channel_.send(reply, files);
    sending_.store(false, std::memory_order_relaxed);
  }

  json answer(json const& request) {
    std::string const what = request.at("do");
    if (what == "open") return open(request);
    if (!controller_) throw operation_failed("drive daemon: open a drive first");
    driver::register_space& registers = controller_->registers();
    driver::dma_space& dma = controller_->dma();
    if (what == "read") return {{"value", registers.read32(number32(request, "offset"))}};
    if (what == "write") {
      registers.write32(number32(request, "offset"), number32(request, "value"));
    } else if (what == "doorbell") {
      std::uint32_t const offset = number32(request, "offset");
      auto* const word = request.at("for_gpu") ? registers.doorbell_for_gpu(offset) : registers.doorbell(offset);
      return {{"address", address(word)}};
    } else if (what == "allocate") {
      std::size_t const bytes = number(request, "bytes");
      void* const made = request.at("for_gpu") ? dma.allocate_for_gpu(bytes) : dma.allocate(bytes);
      return {{"address", address(made)}};
    } else if (what == "deallocate") {
      dma.deallocate(pointer(request));
    } else if (what == "clear") {
      std::size_t const bytes = number(request, "bytes");
      // In place, wherever the chunk is: a client may ask to clear all of it.
      check_shared(request, bytes)->drop(static_cast<std::byte*>(pointer(request)), bytes);
    } else if (what == "lend") {
      return lend(request);
    } else if (what == "map") {
      map(request);
    } else if (what == "stretches") {
      return stretches(request);
    } else if (what == "unmap") {
      unmap(request);
    } else if (what == "report") {
      return {{"report", report()}};
    } else if (what == "populate") {
      return {{"bytes", drive_->drive->populate(number(request, "bytes"), of_.stopping_.get_token())}};
    } else if (what == "claim") {
      return {{"taken_to", drive_->claimed.add(this, number(request, "first_byte"), number(request, "bytes"))}};
    } else if (what == "unclaim") {
      drive_->claimed.remove(this, number(request, "first_byte"), number(request, "bytes"));
    } else if (what == "reset_statistics") {
      controller_->reset_statistics();
    } else if (what == "close") {
      leave();  // before the answer: once it has that, the client may open the drive again and finds its pairs free
    } else {
      throw refused_input("do", what,
                          "the drive daemon knows no such request; use the same version of Forebay for both");
    }
    return json::object();
  }

  json open(json const& request) {
    std::uint32_t const protocol = number32(request, "protocol");
    if (protocol != protocol_version) {
      throw refused_input("protocol", std::to_string(protocol),
                          fmt::format("the drive daemon speaks {}: use the same version of Forebay for both, and start "
                                      "the daemon again",
                                      protocol_version));
    }
    if (controller_) throw operation_failed("drive daemon: this connection has a drive already");
    int const client_gpu = static_cast<int>(number(request, "gpu", 1023));
    bool const with_gpu = request.at("with_gpu").get<bool>();
    auto drive = of_.find(request.at("uri"), client_gpu, opener::client);
    std::lock_guard const alone(drive->joining);
    controller_ = drive->drive->join(
        {number32(request, "queues"), client_gpu, with_gpu},
        [this](chunk_place const& where, std::function<void(std::shared_ptr<chunk>)> made) -> chunk_arena& {
          arenas_.push_back(std::make_unique<chunk_arena>(of_.chunks_, share_, where, std::move(made)));
          return *arenas_.back();
        });
    drive_ = std::move(drive);
    auto const gpu = drive_->drive->gpu();
    return {{"daemon", of_.id_},
            {"gpu", gpu ? json(*gpu) : json()},
            {"nsid", drive_->drive->nsid()},
            {"translates", drive_->drive->translates()}};
  }

  std::shared_ptr<chunk> check_shared(json const& request, std::size_t bytes) {
    // Memory that came with another drive of the same client is valid too: the client knows its key.
    auto held = of_.chunks_.find(address(pointer(request)), bytes, number(request, "key"));
    if (held) return held;
    throw refused_input("mapped memory", fmt::format("{}+{}", address(pointer(request)), bytes),
                        "the drive daemon gave no such memory");
  }
  json lend(json const& request) {
    memory::allocation_handle const handle = handle_of(request);
    auto const gpu = drive_->drive->gpu();
    if (!gpu) {
      throw refused_input("buffer", "memory of a GPU",
                          "the engine of this drive runs on the CPU and does not reach it: use allocate_buffer()");
    }
    share_.require_one_more_chunk(of_.chunks_.limits());
    auto const& open = lent_.add(*gpu, handle);
    ++share_.chunks;
    return {{"address", address(open.data())}, {"bytes", open.size_bytes()}};
  }
  /// Where a whole chunk is on the bus.
  json stretches(json const& request) {
    auto const held = check_shared(request, number(request, "bytes"));
    json all = json::array();
    for (bus_stretch const& s : controller_->stretches_of(*held))
      all.push_back({s.offset_bytes, s.bytes, s.bus_address});
    return {{"address", address(held->data())}, {"stretches", std::move(all)}};
  }
  void map(json const& request) {
    std::size_t const bytes = number(request, "bytes");
    if (mapped_.size() == most_mapped) {
      throw operation_failed(fmt::format("drive daemon: a client may have {} stretches of memory mapped", most_mapped));
    }
    if (lent_.contains(address(pointer(request)), bytes)) {
      controller_->dma().map(pointer(request), bytes);
      mapped_.push_back({address(pointer(request)), bytes});
      return;
    }
    auto held = check_shared(request, bytes);
    memory::kind const out_of_reach = drive_->drive->gpu() ? memory::kind::host : memory::kind::device;
    if (held->where().kind == out_of_reach) {
      throw refused_input(
          "mapped memory", fmt::format("{}+{}", address(pointer(request)), bytes),
          "the engine of this drive does not reach it: use one storage for drives on a GPU, and another "
          "for those on the CPU");
    }
    if (std::find(held_.begin(), held_.end(), held) == held_.end()) held_.push_back(held);
    controller_->reach(held);
    controller_->dma().map(pointer(request), bytes);
    mapped_.push_back({address(pointer(request)), bytes});
  }
  void unmap(json const& request) {
    std::size_t const bytes = number(request, "bytes");
    auto const found = std::find_if(mapped_.begin(), mapped_.end(), [&](mapped_range const& m) {
      return m.address == address(pointer(request)) && m.bytes == bytes;
    });
    if (found == mapped_.end()) {
      throw refused_input("mapped memory", fmt::format("{}+{}", address(pointer(request)), bytes),
                          "unmap exactly a range that was mapped");
    }
    controller_->dma().unmap(pointer(request), bytes);
    mapped_.erase(found);
  }

  json report() {
    json document = controller_->report();
    document["restarts"] = of_.restarts_;
    return document;
  }

  struct mapped_range {
    std::uint64_t address;
    std::size_t bytes;
  };
  static constexpr std::size_t most_mapped = 65536;
  static void* pointer_of(mapped_range const& m) { return reinterpret_cast<void*>(m.address); }

  server& of_;
  int const process_;
  channel channel_;
  client_share share_;
  std::vector<std::unique_ptr<chunk_arena>> arenas_;
  std::shared_ptr<served_drive> drive_;
  std::unique_ptr<client_controller> controller_;
  std::vector<mapped_range> mapped_;
  /// All chunks that were ever mapped, until the engine has let go. Commands in flight may still name memory that was
  /// unmapped, and the connection that the memory came with may end first.
  std::vector<std::shared_ptr<chunk>> held_;
  lent_memory lent_;
  std::atomic<bool> sending_{false};
  std::atomic<bool> ended_{false};
  std::thread thread_;  ///< last: it uses all of them
};

server::server(int listening, memory_keeper* keeper, std::uint32_t restarts, client_limits const& limits)
    : keeper_(keeper),
      restarts_(restarts),
      id_(std::uint64_t{std::random_device()()} << 32 | std::random_device()()),
      chunks_(limits) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw operation_failed(std::string("cannot make a pipe: ") + std::strerror(errno));
  stop_read_ = open_file(ends[0]);
  stop_write_ = open_file(ends[1]);
  acceptor_ = std::thread([this, listening] { accept_clients(listening); });
}

server::~server() {
  stop();
  // Stops all engines before it frees any of their memory: freeing GPU memory can wait for every kernel on that GPU.
  for (auto const& [name, d] : drives_) d->drive.reset();
}

void server::stop() {
  stopping_.request_stop();
  stop_write_ = open_file();
  if (acceptor_.joinable()) acceptor_.join();
  std::lock_guard const lock(sessions_mutex_);
  for (auto const& s : sessions_) s->stop();
  auto const patience_ends = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (auto const& s : sessions_) s->await_end(patience_ends);
  sessions_.clear();
}

bool server::close() {
  stop();
  bool well = true;
  for (auto const& d : open_drives()) well = d->drive->close() && well;
  return well;
}

std::vector<std::shared_ptr<server::served_drive>> server::open_drives() {
  std::vector<std::shared_ptr<served_drive>> all;
  std::lock_guard const lock(drives_mutex_);
  for (auto const& [name, d] : drives_) {
    if (d->drive) all.push_back(d);
  }
  return all;
}

json server::report() {
  json all = json::array();
  for (auto const& d : open_drives()) all.push_back(d->drive->report());
  return all;
}

void server::check_gpus() {
  std::lock_guard const lock(drives_mutex_);
  if (!no_gpu_.empty()) throw operation_failed(no_gpu_);
  for (auto const& [gpu, word] : gpu_words_) {
    std::uint32_t there = 0;
    word.from().copy_out(&there, word.data(), sizeof there);
  }
}

void server::open(std::string const& uri) {
  find(uri, 0, opener::daemon);
}

std::shared_ptr<server::served_drive> server::find(std::string const& text, int gpu, opener by) {
  uri const from = uri::parse(text);
  bool const is_real = from.scheme() == "pci";
  if ((from.scheme() != "emulated" && !is_real) || from.value("residency") != "served") {
    throw refused_input("drive", text,
                        "a drive daemon serves emulated: and pci: drives with residency=served; name such a one");
  }
  std::string const name = name_of(from, gpu);
  for (;;) {
    std::shared_ptr<served_drive> found;
    {
      std::lock_guard const lock(drives_mutex_);
      auto const known = drives_.find(name);
      if (known != drives_.end()) {
        found = known->second;
      } else if (is_real && by == opener::client) {
        // To take a drive from the system is for the one that started the daemon.
        throw refused_input("drive", text, "the drive daemon does not have it; start the daemon with this drive");
      } else if (drives_.size() >= chunks_.limits().drives) {
        throw refused_input(
            "drive", text,
            fmt::format("the drive daemon has {} drives open, which is all that it may; use one of them, "
                        "or start another daemon",
                        drives_.size()));
      } else {
        found = drives_.emplace(name, std::make_shared<served_drive>()).first->second;
      }
    }
    // A client that opens another drive does not wait here.
    std::lock_guard const alone(found->starting);
    if (found->drive) return found;
    if (found->failed) continue;
    try {
      start(*found, from, gpu, name);
    } catch (...) {
      found->failed = true;
      std::lock_guard const lock(drives_mutex_);
      drives_.erase(name);
      throw;
    }
    return found;
  }
}

/// The caller holds `made.starting`.
void server::start(served_drive& made, uri const& from, int gpu, std::string const& name) {
  try {
    if (from.scheme() == "pci") {
      auto whole = share(pci::open_here(from, {}));
      std::lock_guard const lock(drives_mutex_);
      made.drive = std::move(whole);
      return;
    }
    chunk_place const where = place_of(from, gpu);
    if (keeper_ != nullptr) made.memory = std::make_unique<kept_memory>(*keeper_, name, where);
    open_options options;
    options.gpu = gpu;
    options.cancel = stopping_.get_token();
    auto drive = start_emulated(specify(from, gpu), options, made.memory.get());
    std::lock_guard const lock(drives_mutex_);
    if (auto const on = drive->gpu()) gpu_words_.try_emplace(*on, memory::device(*on), sizeof(std::uint32_t), 128);
    made.drive = share(std::move(drive));
  } catch (std::exception const& failed) {
    if (from.scheme() == "pci") throw;
    if (keeper_ != nullptr && !keeper_->was_there(name)) keeper_->forget(name);
    std::lock_guard const lock(drives_mutex_);
    // A process that started too soon after a GPU was lost may never reach the GPU; the next process does.
    if (gpu_words_.empty() && keeper_ != nullptr && place_of(from, gpu).kind != memory::kind::host &&
        keeper_->was_there(name)) {
      no_gpu_ = "a drive that was on a GPU cannot be opened again in this process: " + std::string(failed.what());
    }
    throw;
  }
}

void server::collect_ended() {
  std::vector<std::unique_ptr<session>> ended;
  std::lock_guard const lock(sessions_mutex_);
  auto const first = std::partition(sessions_.begin(), sessions_.end(), [](auto const& s) { return !s->ended(); });
  std::move(first, sessions_.end(), std::back_inserter(ended));
  sessions_.erase(first, sessions_.end());
}

void server::refuse_one_more(int process) {
  client_limits const& limits = chunks_.limits();
  std::lock_guard const lock(sessions_mutex_);
  if (sessions_.size() >= limits.connections) {
    throw refused_input("connections", std::to_string(sessions_.size()),
                        "the drive daemon takes no more; close some, or start another daemon");
  }
  auto const of_it =
      std::count_if(sessions_.begin(), sessions_.end(), [&](auto const& s) { return s->process() == process; });
  if (static_cast<std::size_t>(of_it) >= limits.connections_of_process) {
    throw refused_input("connections", std::to_string(of_it),
                        fmt::format("the drive daemon takes no more of process {}; close some", process));
  }
}

void server::accept_clients(int listening) {
  for (;;) {
    pollfd wanted[] = {{listening, POLLIN, 0}, {stop_read_.get(), 0, 0}};
    if (::poll(wanted, 2, no_time_limit) < 0 && errno != EINTR) return;
    if (wanted[1].revents != 0) return;
    if (wanted[0].revents == 0) continue;
    open_file socket(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
    collect_ended();
    if (!socket) {
      // Where no more files may be open, the client stays in the backlog for a while.
      ::poll(&wanted[1], 1, 100);
      continue;
    }
    try {
      refuse_one_more(peer_of(socket).pid);
      std::lock_guard const lock(sessions_mutex_);
      sessions_.push_back(std::make_unique<session>(*this, std::move(socket)));
    } catch (refused_input const&) {
      try {
        channel(std::move(socket), from_client).send(describe_current_exception());
      } catch (operation_failed const&) {
        // The client does not wait for the answer.
      }
    } catch (std::exception const&) {
      // There is no thread, or no memory, for one more client: its connection is closed.
    }
  }
}

}  // namespace forebay::drive::served
