// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "channel.hpp"
#include "chunks.hpp"
#include "forebay/detail/drive/served.hpp"
#include "forebay/error.hpp"
#include "server.hpp"

namespace forebay::drive {
namespace {

using nlohmann::json;
using served::channel;
using served::chunk;
using served::message;
using served::open_file;
using clock = std::chrono::steady_clock;

constexpr int write_back_limit_ms = 120'000;
constexpr int gpu_check_interval_ms = 100;
constexpr int open_check_interval_ms = 5;
constexpr int end_check_interval_ms = 2;
constexpr auto soon = std::chrono::seconds(1);  // an engine that dies within it may never get further
constexpr std::uint32_t most_quick_deaths = 8;  // before it ever served; then there is data to keep

std::string const ended_well = "ended";

/// The memory of each drive, by name, with its size: files that this process holds and its children inherit.
using kept_files = std::map<std::string, std::pair<open_file, std::size_t>>;

open_file duplicate(int file) {
  open_file copy(::fcntl(file, F_DUPFD_CLOEXEC, 3));
  if (!copy) throw operation_failed(std::string("cannot duplicate a file: ") + std::strerror(errno));
  return copy;
}

/// In the engine's process: takes memory that the supervisor kept, or makes it and has the supervisor keep it.
class keep_with_supervisor final : public served::memory_keeper {
 public:
  keep_with_supervisor(kept_files const& kept, channel& supervisor) : kept_(kept), supervisor_(supervisor) {}

  std::unique_ptr<chunk> memory_of(std::string const& drive, std::size_t bytes,
                                   served::chunk_place const& where) override {
    if (auto const found = kept_.find(drive); found != kept_.end() && found->second.second == bytes) {
      return std::make_unique<chunk>(duplicate(found->second.first.get()), bytes, where);
    }
    auto made = std::make_unique<chunk>(bytes, where);
    int const file = made->file();
    supervisor_.send({{"keep", drive}, {"bytes", bytes}}, {&file, 1});
    return made;
  }
  void forget(std::string const& drive) override { supervisor_.send({{"forget", drive}}); }
  bool was_there(std::string const& drive) const override { return kept_.contains(drive); }

 private:
  kept_files const& kept_;
  channel& supervisor_;
};

/// What the engine's process runs. It is called by one thread at a time of those that serve, and by the main one.
int run_engine(int listening, serve_options const& options, kept_files const& kept, std::uint32_t restarts,
               channel& supervisor) {
  try {
    // Lazily loaded code waits at its first launch for the GPU to go idle, which it never does while it has a drive.
    ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    keep_with_supervisor keeper(kept, supervisor);
    served::server server(listening, &keeper, restarts);
    // Drives open on another thread, while this one receives the order to stop; an open in progress then ends early.
    auto opening = std::async(std::launch::async, [&] {
      for (std::string const& uri : options.drives) server.open(uri);
    });
    bool stopped = false;
    for (;;) {
      pollfd wanted{supervisor.file(), POLLIN, 0};
      if (::poll(&wanted, 1, opening.valid() ? open_check_interval_ms : gpu_check_interval_ms) > 0) {
        auto const order = supervisor.receive(served::no_time_limit);
        stopped = true;
        server.stop();
        if (opening.valid()) opening.wait();
        if (!order) return server.close() ? EXIT_SUCCESS : EXIT_FAILURE;
        supervisor.send({{"drives", server.report()}});
        continue;
      }
      if (opening.valid() && !stopped && opening.wait_for(std::chrono::seconds(0)) == std::future_status::ready) {
        opening.get();
        supervisor.send({{"ready", true}});
      }
      try {
        server.check_gpus();
      } catch (operation_failed const& failed) {
        // MPS ends the kernels of all processes when one process ends with a kernel running. Nothing works here any
        // more. The data that can be saved is in memory that the supervisor keeps.
        supervisor.send({{"notice", failed.what()}});
        ::_exit(EXIT_FAILURE);
      }
    }
  } catch (...) {
    try {
      supervisor.send(served::describe_current_exception());
    } catch (...) {
      // There is nobody left to tell.
    }
    return EXIT_FAILURE;
  }
}

/// Turns SIGINT, SIGTERM and SIGHUP into a file to poll, while it lives. A write to a pipe that nobody reads fails,
/// instead of ending the daemon by a signal.
class end_signals {
 public:
  end_signals() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
      throw operation_failed(std::string("cannot make a pipe: ") + std::strerror(errno));
    }
    read_ = open_file(ends[0]);
    write_ = open_file(ends[1]);
    told = ends[1];
    struct sigaction action{};
    action.sa_handler = [](int) {
      int const error = errno;
      [[maybe_unused]] ssize_t const n = ::write(told, "", 1);
      errno = error;
    };
    ::sigaction(SIGINT, &action, &interrupt_);
    ::sigaction(SIGTERM, &action, &terminate_);
    ::sigaction(SIGHUP, nullptr, &hang_up_);
    if (hang_up_.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
    action.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &action, &pipe_);
  }
  ~end_signals() {
    ::sigaction(SIGINT, &interrupt_, nullptr);
    ::sigaction(SIGTERM, &terminate_, nullptr);
    ::sigaction(SIGHUP, &hang_up_, nullptr);
    ::sigaction(SIGPIPE, &pipe_, nullptr);
  }
  end_signals(end_signals const&) = delete;
  end_signals& operator=(end_signals const&) = delete;
  int file() const { return read_.get(); }

 private:
  static inline sig_atomic_t volatile told = -1;
  open_file read_, write_;
  struct sigaction interrupt_{}, terminate_{}, hang_up_{}, pipe_{};
};

/// The process that has the drives, as its supervisor sees it.
class engine_process {
 public:
  engine_process(int listening, serve_options const& options, kept_files const& kept, std::uint32_t restarts)
      : started_(clock::now()), control_(start(listening, options, kept, restarts), served::from_daemon) {}
  ~engine_process() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    wait();
  }
  engine_process(engine_process const&) = delete;
  engine_process& operator=(engine_process const&) = delete;

  channel& control() { return control_; }
  bool died_soon() const { return clock::now() - started_ < soon; }

  /// Tells it that nobody listens any more, upon which it ends; kills it if that takes too long. Returns in words how
  /// it ended.
  std::string wait() {
    control_.hang_up();
    auto const limit = clock::now() + std::chrono::milliseconds(write_back_limit_ms);
    int status = 0;
    while (::waitpid(process_, &status, WNOHANG) == 0) {
      if (clock::now() > limit) ::kill(process_, SIGKILL);
      ::poll(nullptr, 0, end_check_interval_ms);
    }
    process_ = 0;
    if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? ended_well : fmt::format("ended with status {}", WEXITSTATUS(status));
  }

 private:
  open_file start(int listening, serve_options const& options, kept_files const& kept, std::uint32_t restarts) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw operation_failed(std::string("cannot make a socket: ") + std::strerror(errno));
    }
    open_file ours(ends[0]), theirs(ends[1]);
    process_ = ::fork();
    if (process_ < 0) throw operation_failed(std::string("cannot start a process: ") + std::strerror(errno));
    if (process_ == 0) {
      // A terminal's interrupt goes to all of its processes. This one ignores it, and ends when the supervisor says so
      // or has gone.
      ::signal(SIGINT, SIG_IGN);
      ::signal(SIGTERM, SIG_IGN);
      ::signal(SIGHUP, SIG_IGN);
      ours = open_file();
      channel supervisor(std::move(theirs), served::from_daemon);
      ::_exit(run_engine(listening, options, kept, restarts, supervisor));
    }
    return ours;
  }

  clock::time_point started_;
  pid_t process_ = 0;
  channel control_;
};

class supervisor {
 public:
  explicit supervisor(serve_options const& options)
      : options_(options),
        listening_(served::listen_at(options.socket)),
        socket_(served::identity_of(options.socket)) {}
  ~supervisor() {
    // If another process removed the file, another daemon may have its socket there.
    if (socket_ && served::identity_of(options_.socket) == socket_) ::unlink(options_.socket.c_str());
  }
  supervisor(supervisor const&) = delete;
  supervisor& operator=(supervisor const&) = delete;

  json run() {
    for (std::uint32_t restarts = 0, quick_deaths = 0;; ++restarts) {
      engine_process engine(listening_.get(), options_, kept_, restarts);
      auto const reports = watch(engine, signals_.file());
      if (reports) {
        if (std::string const how = engine.wait(); how != ended_well) {
          throw operation_failed("not all drives were written back: the process that serves them " + how);
        }
        return {{"socket", options_.socket}, {"restarts", restarts}, {"drives", *reports}};
      }
      std::string const how = engine.wait();
      quick_deaths = engine.died_soon() ? quick_deaths + 1 : 0;
      if (!announced_ && quick_deaths == most_quick_deaths) {
        throw operation_failed(fmt::format("the process that serves the drives {} again and again", how));
      }
      tell(fmt::format("the process that serves the drives {}; it is started again (restarts: {})", how, restarts + 1));
      if (quick_deaths > 1) {
        pollfd wanted[] = {{signals_.file(), POLLIN, 0}, {options_.lifeline, 0, 0}};
        ::poll(wanted, 2, std::min(50 << std::min(quick_deaths, 8u), 500));  // what came is still there for `watch`
      }
    }
  }

 private:
  /// The reports of all drives once a signal has ended the serving; none when the engine died.
  std::optional<json> watch(engine_process& engine, int signal_file) {
    bool ending = false;
    for (;;) {
      pollfd wanted[] = {{engine.control().file(), POLLIN, 0}, {signal_file, POLLIN, 0}, {options_.lifeline, 0, 0}};
      int const ready = ::poll(wanted, ending ? 1 : 3, ending ? write_back_limit_ms : served::no_time_limit);
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) throw operation_failed("the drives could not be written back in time; some flush never ended");
      if (wanted[0].revents != 0) {
        std::optional<message> told;
        try {
          told = engine.control().receive(served::no_time_limit);
        } catch (operation_failed const&) {
          // The engine died in the middle of a message.
        }
        if (!told) return std::nullopt;
        if (auto const drives = told->body.find("drives"); drives != told->body.end()) {
          engine.control().hang_up();
          return *drives;
        }
        if (announced_ && (told->body.contains("failed") || told->body.contains("refused"))) {
          // A GPU that was lost may not be usable again so soon.
          tell("the drives cannot be opened again: " + told->body.dump());
          return std::nullopt;
        }
        take(*told);
      } else if (wanted[1].revents != 0 || wanted[2].revents != 0) {
        ending = true;
        try {
          engine.control().send({{"stop", true}});
        } catch (operation_failed const&) {
          // The engine has died: the next receive reports that it is gone.
        }
      }
    }
  }

  void take(message& told) {
    served::rethrow(told.body);
    if (auto const keep = told.body.find("keep"); keep != told.body.end() && !told.files.empty()) {
      kept_.insert_or_assign(keep->get<std::string>(),
                             std::pair(std::move(told.files.front()), told.body.at("bytes").get<std::size_t>()));
    }
    if (auto const forget = told.body.find("forget"); forget != told.body.end())
      kept_.erase(forget->get<std::string>());
    if (auto const line = told.body.find("notice"); line != told.body.end()) tell(line->get<std::string>());
    if (told.body.contains("ready") && !announced_) {
      announced_ = true;
      quietly(options_.ready);
    }
  }

  void tell(std::string const& line) const { quietly(options_.notice, line); }
  /// The receiver of the message may have gone.
  template <class... Arguments>
  static void quietly(std::function<void(Arguments...)> const& tell, std::type_identity_t<Arguments> const&... what) {
    try {
      if (tell) tell(what...);
    } catch (std::exception const&) {
      // Then nobody is told.
    }
  }

  serve_options const& options_;
  end_signals const signals_;  ///< before the socket, which a signal must not leave behind
  open_file listening_;
  std::optional<served::file_identity> const socket_;
  kept_files kept_;
  bool announced_ = false;
};

}  // namespace

std::string daemon_socket() {
  auto const set = [](char const* name) -> std::string {
    char const* const value = std::getenv(name);
    return value != nullptr ? value : "";
  };
  if (auto const daemon = set("FOREBAY_DAEMON"); !daemon.empty()) return daemon;
  if (auto const folder = set("XDG_RUNTIME_DIR"); !folder.empty()) return folder + "/forebay.sock";
  return fmt::format("/tmp/forebay-{}.sock", ::geteuid());
}

json serve(serve_options const& options) {
  // Each client takes some files, and each drive in memory one.
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);  // as many as are allowed will do too
  }
  return supervisor(options).run();
}

}  // namespace forebay::drive
