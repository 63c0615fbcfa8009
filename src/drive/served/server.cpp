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
#include <cstring>
#include <functional>
#include <random>
#include <unordered_map>

#include "forebay/emulator/controller.hpp"
#include "forebay/error.hpp"

namespace forebay::drive::served {
namespace {

using nlohmann::json;

constexpr std::uint32_t usual_queues = 16;
constexpr std::uint32_t usual_gpu_queues = 128;

std::uint64_t address(void const* p) {
  return reinterpret_cast<std::uint64_t>(p);
}
void* pointer(json const& request) {
  return reinterpret_cast<void*>(request.at("address").get<std::uint64_t>());
}

/// The memory of one drive, as a resource that is asked once.
class kept_memory final : public memory::resource {
 public:
  kept_memory(memory_keeper& keeper, std::string drive, chunk_place const& where)
      : keeper_(keeper), drive_(std::move(drive)), where_(where) {}

  memory::kind kind() const override { return where_.kind; }
  void* allocate(std::size_t bytes, std::size_t) override {
    kept_ = keeper_.memory_of(drive_, bytes, where_);
    return kept_->data();
  }
  void deallocate(void*) noexcept override { kept_.reset(); }
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

/// Where the bytes of a drive are to be; the URI's values are checked when it starts.
chunk_place place_of(uri const& from, int gpu) {
  std::string const backing = from.value("backing").value_or("memory");
  if (backing == "hbm") return {memory::kind::device, gpu};
  if (backing == "host") return {memory::kind::pinned, gpu};
  if (backing.starts_with("peer:")) {
    return {memory::kind::device, static_cast<int>(parse_count("backing", backing.substr(5), 0, 1023))};
  }
  return {};
}

}  // namespace

struct server::served_drive {
  std::unique_ptr<kept_memory> memory;  ///< before the drive, which lives in it
  std::shared_ptr<emulated_drive> drive;
  std::mutex joining;  ///< between asking for how many queues are free, and taking them
};

/// One client: its controller, its memory, and the thread that answers it.
class server::session {
 public:
  session(server& of, open_file socket) : of_(of), channel_(std::move(socket)), thread_([this] { run(); }) {}
  ~session() {
    channel_.hang_up();
    thread_.join();
  }
  session(session const&) = delete;
  session& operator=(session const&) = delete;

  // Acquire: pairs with the release at the end of `run`, after which the thread only returns.
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  void hang_up() { channel_.hang_up(); }

 private:
  void run() {
    try {
      while (auto request = channel_.receive(no_time_limit)) {
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
      // A client that has gone, or speaks nonsense, loses its connection.
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
    mapped_.clear();
    arenas_.clear();
    drive_.reset();
  }

  /// An engine that did not let go may still write to the client's memory: nobody else shall have it.
  void keep_for_ever() {
    static std::mutex mutex;
    static auto* const all = new std::vector<std::pair<decltype(arenas_), decltype(mapped_)>>;
    std::lock_guard const lock(mutex);
    all->emplace_back(std::move(arenas_), std::move(mapped_));
  }

  /// A reply carries the chunks that the client does not know yet.
  void send(json reply) {
    std::vector<int> files;
    for (auto const& arena : arenas_) {
      for (auto const& c : arena->take_new()) {
        reply["chunks"].push_back({{"address", address(c->data())},
                                   {"bytes", c->bytes()},
                                   {"kind", static_cast<int>(c->where().kind)},
                                   {"gpu", c->where().gpu}});
        files.push_back(c->file());
      }
    }
    channel_.send(reply, files);
  }

  json answer(json const& request) {
    std::string const what = request.at("do");
    if (what == "open") return open(request);
    if (!controller_) throw operation_failed("drive daemon: open a drive first");
    driver::register_space& registers = controller_->registers();
    driver::dma_space& dma = controller_->dma();
    if (what == "read") return {{"value", registers.read32(request.at("offset"))}};
    if (what == "write") {
      registers.write32(request.at("offset"), request.at("value"));
    } else if (what == "doorbell") {
      std::uint32_t const offset = request.at("offset");
      auto* const word = request.at("for_gpu") ? registers.doorbell_for_gpu(offset) : registers.doorbell(offset);
      return {{"address", address(word)}};
    } else if (what == "allocate") {
      std::size_t const bytes = request.at("bytes");
      void* const made = request.at("for_gpu") ? dma.allocate_for_gpu(bytes) : dma.allocate(bytes);
      return {{"address", address(made)}};
    } else if (what == "deallocate") {
      dma.deallocate(pointer(request));
    } else if (what == "clear") {
      std::size_t const bytes = request.at("bytes");
      check_shared(request, bytes);
      dma.clear(pointer(request), bytes);
    } else if (what == "map") {
      map(request);
    } else if (what == "unmap") {
      unmap(request);
    } else if (what == "report") {
      return {{"report", report()}};
    } else if (what == "reset_statistics") {
      since_.set(drive_->drive->shared()->collect());
    } else if (what == "close") {
      leave();  // who is answered may open the drive again, and finds its queue pairs free
    } else {
      throw operation_failed("drive daemon: it does not know the request '" + what + "'");
    }
    return json::object();
  }

  json open(json const& request) {
    std::uint32_t const protocol = request.at("protocol");
    if (protocol != protocol_version) {
      throw refused_input("protocol", std::to_string(protocol),
                          fmt::format("the drive daemon speaks {}: use the same version of Forebay for both, and start "
                                      "the daemon again",
                                      protocol_version));
    }
    if (controller_) throw operation_failed("drive daemon: this connection has a drive already");
    auto drive = of_.find(request.at("uri"), request.at("gpu"));
    std::lock_guard const alone(drive->joining);
    auto const gpu = drive->drive->gpu();
    std::uint32_t queues = request.at("queues");
    if (queues == 0) {
      queues = std::clamp(drive->drive->shared()->free_queues(), 1u, gpu ? usual_gpu_queues : usual_queues);
    }
    auto const arena = [this](chunk_place const& where) {
      arenas_.push_back(std::make_unique<chunk_arena>(of_.chunks_, where));
      return arenas_.back().get();
    };
    if (gpu) {
      memory::resource& host = *arena({memory::kind::pinned, 0});
      memory::resource* const doorbells = arena({memory::kind::device, *gpu});
      int const client_gpu = request.at("gpu");
      memory::resource* const data = client_gpu == *gpu ? doorbells : arena({memory::kind::device, client_gpu});
      controller_ = std::make_unique<emulator::controller>(drive->drive->shared(), queues, host, data, doorbells);
    } else {
      controller_ = std::make_unique<emulator::controller>(
          drive->drive->shared(), queues, *arena({.locked_there = request.at("with_gpu").get<bool>()}));
    }
    drive_ = std::move(drive);
    return {{"daemon", of_.id_}, {"gpu", gpu ? json(*gpu) : json()}};
  }

  std::shared_ptr<chunk> check_shared(json const& request, std::size_t bytes) {
    auto held = of_.chunks_.find(address(pointer(request)), bytes);
    if (held) return held;
    throw refused_input("mapped memory", fmt::format("{}+{}", address(pointer(request)), bytes),
                        "the drive daemon gave no such memory");
  }
  void map(json const& request) {
    std::size_t const bytes = request.at("bytes");
    auto held = check_shared(request, bytes);
    controller_->dma().map(pointer(request), bytes);
    mapped_.push_back({address(pointer(request)), bytes, std::move(held)});
  }
  void unmap(json const& request) {
    std::size_t const bytes = request.at("bytes");
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
    json document = since_.with([&](emulator::statistics const* since) { return drive_->drive->report(since); });
    document["restarts"] = of_.restarts_;
    return document;
  }

  struct mapped_range {
    std::uint64_t address;
    std::size_t bytes;
    std::shared_ptr<chunk> held;  ///< lives on even if the client that it was made for leaves first
  };
  static void* pointer_of(mapped_range const& m) { return reinterpret_cast<void*>(m.address); }

  server& of_;
  channel channel_;
  std::vector<std::unique_ptr<chunk_arena>> arenas_;
  std::shared_ptr<served_drive> drive_;
  std::unique_ptr<emulator::controller> controller_;
  std::vector<mapped_range> mapped_;
  baseline since_;
  std::atomic<bool> ended_{false};
  std::thread thread_;  ///< last: it uses all of them
};

server::server(int listening, std::vector<std::string> const& drives, memory_keeper* keeper, std::uint32_t restarts)
    : keeper_(keeper), restarts_(restarts), id_(std::uint64_t{std::random_device()()} << 32 | std::random_device()()) {
  for (std::string const& uri : drives) find(uri, 0);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw operation_failed(std::string("cannot make a pipe: ") + std::strerror(errno));
  stop_read_ = open_file(ends[0]);
  stop_write_ = open_file(ends[1]);
  acceptor_ = std::thread([this, listening] { accept_clients(listening); });
}

server::~server() {
  stop();
  // All engines before any of their memory: to take that from a GPU can wait for every kernel that is there.
  for (auto const& [name, d] : drives_) d->drive.reset();
}

void server::stop() {
  stop_write_ = open_file();
  if (acceptor_.joinable()) acceptor_.join();
  std::lock_guard const lock(sessions_mutex_);
  for (auto const& s : sessions_) s->hang_up();
  sessions_.clear();
}

json server::report() {
  std::lock_guard const lock(drives_mutex_);
  json all = json::array();
  for (auto const& [name, d] : drives_) all.push_back(d->drive->report(nullptr));
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

std::shared_ptr<server::served_drive> server::find(std::string const& text, int gpu) {
  uri const from = uri::parse(text);
  if (from.value("residency") != "served") {
    throw refused_input("drive", text, "a drive daemon serves drives with residency=served; add that");
  }
  std::lock_guard const lock(drives_mutex_);
  auto& found = drives_[{text, gpu}];
  if (found) return found;
  std::string const name = fmt::format("{} for GPU {}", text, gpu);
  try {
    auto made = std::make_shared<served_drive>();
    if (keeper_ != nullptr) made->memory = std::make_unique<kept_memory>(*keeper_, name, place_of(from, gpu));
    open_options options;
    options.gpu = gpu;
    made->drive = start_emulated(from, options, made->memory.get());
    if (auto const on = made->drive->gpu())
      gpu_words_.try_emplace(*on, memory::device(*on), sizeof(std::uint32_t), 128);
    return found = std::move(made);
  } catch (std::exception const& failed) {
    drives_.erase({text, gpu});
    // A process that started too soon after a GPU was lost may never reach it, where the next one does.
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
      std::lock_guard const lock(sessions_mutex_);
      sessions_.push_back(std::make_unique<session>(*this, std::move(socket)));
    } catch (std::exception const&) {
      // No thread, or no memory, for one more client: it is hung up on.
    }
  }
}

}  // namespace forebay::drive::served
