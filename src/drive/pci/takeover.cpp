// SPDX-License-Identifier: Apache-2.0
#include "takeover.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "forebay/detail/nvme/registers.hpp"
#include "forebay/error.hpp"
#include "quirks.hpp"

namespace forebay::drive::pci {
namespace {

constexpr off_t command_register = 4;
constexpr std::uint16_t bus_master = 0x4;
constexpr std::uint16_t memory_and_bus_master = 0x2 | bus_master;
/// No driver has this name, so none takes the function while this process has it.
constexpr char const* nobody = "forebay";
constexpr int guard_patience_ms = 30'000;

/// What messages to the guard are about; its answer is about the same, or `failed`.
constexpr char keeps = 'k', lets_go = 'l', taken = 't', done = 'd', failed = 'f';

/// To the guard, and its answer.
struct message {
  char what;
  std::uint64_t id;  ///< of memory that it keeps: where the guard has it
  std::uint64_t bytes;
  std::uint64_t number = 0;  ///< of the question: the answer to an earlier one may come late
};

/// What the guard tells at the end: the first step that failed, and why.
struct outcome {
  char step[32];
  int error;
};

bool write_at(int folder, char const* file, char const* text) {
  int const to = ::openat(folder, file, O_WRONLY | O_CLOEXEC);
  if (to < 0) return false;
  bool const written = ::write(to, text, std::strlen(text)) == static_cast<ssize_t>(std::strlen(text));
  int const error = errno;
  ::close(to);
  errno = error;
  return written;
}

/// Calls it again when a signal interrupted it.
template <class Call>
auto without_interruption(Call const& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// The guard. It is the child of a process that may have had other threads: so it allocates nothing, takes no lock, and
/// calls only what is safe in a handler of signals. It names the function by its folder, which it has open: another
/// device that takes its place on the bus has another folder.
class guard {
 public:
  /// All that it will need, made ready before the fork.
  guard(function const& of, way how, std::string const& driver_before, std::string const& override_before)
      : how_(how),
        address_(of.at().text()),
        driver_before_(driver_before),
        override_before_(override_before + "\n"),
        override_own_(how == way::vfio ? vfio_driver : nobody),
        bind_(driver_before.empty() ? "" : of.where().buses + "/drivers/" + driver_before + "/bind"),
        registers_bytes_(of.bar0_bytes()),
        ready_delay_ns_(quirks_of(of.vendor(), of.device()).ready_delay_ns) {}

  [[noreturn]] void run(int socket, int client, int folder, int config) {
    separate(socket, client, folder, config);
    (void)::send(socket_number, &taken, 1, MSG_NOSIGNAL);
    wait_for_the_end();
    undo();
    // Its copies in children of the client would keep the lock.
    ::flock(config_number, LOCK_UN);
    (void)::send(socket_number, &outcome_, sizeof outcome_, MSG_NOSIGNAL);
    ::_exit(0);
  }

 private:
  static constexpr int socket_number = 3, client_number = 4, folder_number = 5, config_number = 6;

  /// Keeps nothing of its parent that anything might wait for. All signals are blocked already.
  void separate(int socket, int client, int folder, int config) {
    ::setsid();
    ::prctl(PR_SET_NAME, "forebay-guard");
    // It keeps some memory by open files.
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
      files.rlim_cur = files.rlim_max;
      ::setrlimit(RLIMIT_NOFILE, &files);
    }
    int const score = ::open("/proc/self/oom_score_adj", O_WRONLY);
    if (score >= 0) (void)!::write(score, "-1000", 5);  // the system must take memory from others first
    int const null = ::open("/dev/null", O_RDWR);
    for (int standard = 0; standard < 3; ++standard) ::dup2(null, standard);
    // Out of the way of the numbers that they get.
    int const from[] = {::dup(socket), ::dup(client), ::dup(folder), ::dup(config)};
    int high[4];
    for (int i = 0; i < 4; ++i) {
      high[i] = ::fcntl(from[i], F_DUPFD, config_number + 1);
      if (high[i] < 0) ::_exit(1);  // the client sees that it does not start
    }
    for (int i = 0; i < 4; ++i) ::dup2(high[i], socket_number + i);
    if (::syscall(SYS_close_range, static_cast<unsigned>(config_number) + 1, ~0u, 0u) == 0) return;
    for (int number = config_number + 1; number < 65536; ++number) ::close(number);
  }

  /// Returns when the client is done or gone.
  void wait_for_the_end() {
    for (;;) {
      pollfd wanted[] = {{socket_number, POLLIN, 0}, {client_number, POLLIN, 0}};
      if (::poll(wanted, 2, -1) < 0) {
        timespec const a_while{0, 10'000'000};
        ::nanosleep(&a_while, nullptr);
        continue;
      }
      if ((wanted[1].revents & POLLIN) != 0) return;
      if (wanted[0].revents == 0) continue;
      message order{};
      iovec part{&order, sizeof order};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
      msghdr envelope{};
      envelope.msg_iov = &part;
      envelope.msg_iovlen = 1;
      envelope.msg_control = control;
      envelope.msg_controllen = sizeof control;
      ssize_t const length = ::recvmsg(socket_number, &envelope, 0);
      if (length < 0 && errno == EINTR) continue;
      if (length <= 0 || order.what == done) return;
      bool good = false;
      if (order.what == keeps) {
        cmsghdr const* const with = (envelope.msg_flags & MSG_CTRUNC) != 0 ? nullptr : CMSG_FIRSTHDR(&envelope);
        if (with != nullptr && with->cmsg_type == SCM_RIGHTS) {
          int file = -1;
          std::memcpy(&file, CMSG_DATA(with), sizeof file);
          order.id = keep(file);
          good = order.id != 0;
        }
      } else if (order.what == lets_go) {
        good = let_go(order.id, order.bytes);
      } else if (order.what == taken) {
        good = map_registers();
        has_taken_ = good;
      }
      if (!good) order.what = failed;
      (void)::send(socket_number, &order, sizeof order, MSG_NOSIGNAL);
    }
  }

  /// By a mapping, of which a process may have more than open files; or, if that cannot be mapped, as a dma-buf cannot
  /// everywhere, by the file. Returns the mapping's address, or twice the file's number and one. 0: it cannot.
  static std::uint64_t keep(int file) {
    struct stat about{};
    if (::fstat(file, &about) != 0) return 0;
    void* const mapped = about.st_size <= 0 ? MAP_FAILED
                                            : ::mmap(nullptr, static_cast<std::size_t>(about.st_size), PROT_NONE,
                                                     MAP_SHARED | MAP_NORESERVE, file, 0);
    if (mapped == MAP_FAILED) return static_cast<std::uint64_t>(file) << 1 | 1;
    ::close(file);
    return reinterpret_cast<std::uint64_t>(mapped);
  }
  static bool let_go(std::uint64_t id, std::uint64_t bytes) {
    if ((id & 1) != 0) return ::close(static_cast<int>(id >> 1)) == 0;
    return ::munmap(reinterpret_cast<void*>(id), bytes) == 0;
  }
  bool map_registers() {
    int const file = ::openat(folder_number, "resource0", O_RDWR | O_CLOEXEC);
    if (file < 0) return false;
    void* const mapped = ::mmap(nullptr, registers_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (mapped == MAP_FAILED) return false;
    bar_ = static_cast<char volatile*>(mapped);
    return true;
  }

  /// Looks at what is, and not at what the client may have done.
  void undo() {
    if (has_taken_) {
      disable();
      step("stop its access to memory", stop_bus_master());
      (void)write_at(folder_number, "enable", "0");  // fails if the client had not enabled it yet
    }
    char bound[64] = {};
    bool const is_bound = driver(bound, sizeof bound);
    bool const never_taken = is_bound && std::strcmp(bound, driver_before_.c_str()) == 0;
    if (!never_taken && is_bound && how_ == way::vfio && std::strcmp(bound, vfio_driver) == 0) {
      step("unbind vfio-pci", write_at(folder_number, "driver/unbind", address_.c_str()));
    }
    restore_override();
    if (!never_taken && !bind_.empty()) {
      int const to = ::open(bind_.c_str(), O_WRONLY | O_CLOEXEC);
      // The address may be that of another device by now.
      struct stat now{};
      bool const there = ::fstatat(folder_number, "config", &now, 0) == 0;
      step("bind its driver again", there && to >= 0 && ::write(to, address_.c_str(), address_.size()) > 0);
    }
  }
  bool driver(char* name, std::size_t bytes) const {
    char link[256];
    ssize_t const length = ::readlinkat(folder_number, "driver", link, sizeof link - 1);
    if (length <= 0) return false;
    link[length] = '\0';
    char const* const slash = std::strrchr(link, '/');
    std::strncpy(name, slash == nullptr ? link : slash + 1, bytes - 1);
    return true;
  }
  /// Only what the client wrote there.
  void restore_override() {
    int const file = ::openat(folder_number, "driver_override", O_RDONLY | O_CLOEXEC);
    char text[64] = {};
    ssize_t const length = file < 0 ? -1 : ::read(file, text, sizeof text - 1);
    if (file >= 0) ::close(file);
    std::size_t const own = override_own_.size();
    if (length < 0 || std::strncmp(text, override_own_.c_str(), own) != 0 || text[own] != '\n') return;
    step("restore its driver_override", write_at(folder_number, "driver_override", override_before_.c_str()));
  }

  /// Disables the controller: then it lets go of all memory. NVM Express Base Specification 1.4, section 3.1.5.
  void disable() {
    auto const at = [&](std::uint32_t offset) { return reinterpret_cast<std::uint32_t volatile*>(bar_ + offset); };
    std::uint32_t const configuration = *at(nvme::registers::cc);
    if (configuration == nvme::removed_value) return;  // it has left the bus
    *at(nvme::registers::cc) = configuration & ~nvme::controller_configuration::enable_bit;
    timespec delay{static_cast<time_t>(ready_delay_ns_ / 1'000'000'000),
                   static_cast<long>(ready_delay_ns_ % 1'000'000'000)};
    while (::nanosleep(&delay, &delay) != 0 && errno == EINTR) {
    }
    nvme::controller_capabilities const capabilities{*at(nvme::registers::cap)};
    std::uint64_t const limit_ms = capabilities.timeout_ns() / 1'000'000 + 1000;
    for (std::uint64_t waited_ms = 0; waited_ms < limit_ms; ++waited_ms) {
      std::uint32_t const status = *at(nvme::registers::csts);
      if (status == nvme::removed_value || (status & 1) == 0) return;
      timespec const a_while{0, 1'000'000};
      ::nanosleep(&a_while, nullptr);
    }
    errno = ETIMEDOUT;
    step("disable its controller", false);
  }
  bool stop_bus_master() {
    std::uint16_t command = 0;
    if (::pread(config_number, &command, sizeof command, command_register) != sizeof command) return false;
    command = static_cast<std::uint16_t>(command & ~bus_master);
    return ::pwrite(config_number, &command, sizeof command, command_register) == sizeof command;
  }
  void step(char const* what, bool succeeded) {
    if (succeeded || outcome_.step[0] != '\0') return;
    outcome_.error = errno;
    std::strncpy(outcome_.step, what, sizeof outcome_.step - 1);
  }

  way const how_;
  std::string const address_, driver_before_, override_before_, override_own_, bind_;
  std::uint64_t const registers_bytes_;
  std::uint64_t const ready_delay_ns_;
  char volatile* bar_ = nullptr;
  bool has_taken_ = false;
  outcome outcome_{};
};

[[noreturn]] void refuse(function const& of, std::string const& what) {
  int const error = errno;
  if (error == EACCES || error == EPERM || error == EROFS) {
    throw refused_input(
        "drive", "pci:" + of.at().text(),
        fmt::format("cannot {}: {}; run as root, with a /sys that may be written", what, std::strerror(error)));
  }
  throw operation_failed(fmt::format("pci:{}: cannot {}: {}", of.at().text(), what, std::strerror(error)));
}

/// Sends a message, maybe with a file, waits for the answer and returns its id.
std::uint64_t tell(function const& of, open_file const& guard, message const& order, int file = -1) {
  static std::atomic<std::uint64_t> questions{0};
  message answer = order;
  // Relaxed: the number only differs from all others.
  answer.number = questions.fetch_add(1, std::memory_order_relaxed) + 1;
  std::uint64_t const number = answer.number;
  iovec part{&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr envelope{};
  envelope.msg_iov = &part;
  envelope.msg_iovlen = 1;
  if (file >= 0) {
    envelope.msg_control = control;
    envelope.msg_controllen = sizeof control;
    cmsghdr* const with = CMSG_FIRSTHDR(&envelope);
    with->cmsg_level = SOL_SOCKET;
    with->cmsg_type = SCM_RIGHTS;
    with->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(with), &file, sizeof file);
  }
  auto constexpr whole = static_cast<ssize_t>(sizeof answer);
  bool const sent = without_interruption([&] { return ::sendmsg(guard.get(), &envelope, MSG_NOSIGNAL); }) == whole;
  while (sent && without_interruption([&] { return ::recv(guard.get(), &answer, sizeof answer, 0); }) == whole) {
    if (answer.number != number) continue;
    if (answer.what != order.what) break;
    return answer.id;
  }
  throw operation_failed(fmt::format("pci:{}: its guard is gone, or cannot do its part", of.at().text()));
}

/// All signals, for the calling thread.
class blocked_signals {
 public:
  blocked_signals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~blocked_signals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  blocked_signals(blocked_signals const&) = delete;
  blocked_signals& operator=(blocked_signals const&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

void refuse_taken(function const& of) {
  throw refused_input("drive", "pci:" + of.at().text(),
                      "it is taken already, by this process or another; close it there first");
}

open_file lock_of(function const& of, int flags) {
  open_file file(::open((of.folder() + "/config").c_str(), flags | O_CLOEXEC));
  if (!file) refuse(of, "open its configuration");
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) refuse_taken(of);
  return file;
}

takeover::takeover(function const& of, way how, check const& may) : of_(of) {
  // What vfio-pci has already may be used without root, which alone may write there.
  lock_ = lock_of(of, how == way::vfio && of.driver() == vfio_driver ? O_RDONLY : O_RDWR);
  std::vector<open_file> const held = may(of);
  driver_before_ = of.driver();
  if (driver_before_ == vfio_driver && how == way::vfio) return;
  std::ifstream(of.folder() + "/driver_override") >> override_before_;
  if (override_before_ == "(null)") override_before_.clear();
  start_guard(how);
  try {
    detach(how);
  } catch (...) {
    try {
      finish();
    } catch (operation_failed const&) {
      // What is thrown on tells why.
    }
    throw;
  }
}

takeover::~takeover() {
  try {
    finish();
  } catch (operation_failed const&) {
    // Nothing is left to be told.
  }
}

void takeover::start_guard(way how) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) refuse(of_, "talk to a guard");
  open_file to(ends[0]);
  open_file its_end(ends[1]);
  // A guard that does not answer, because it is stopped, must not stop this process too.
  timeval const patience{guard_patience_ms / 1000, 0};
  ::setsockopt(to.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  open_file const folder(::open(of_.folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) refuse(of_, "open its folder");
  open_file const me(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!me) refuse(of_, "let a guard watch this process (pidfd_open, from Linux 5.3)");
  guard made(of_, how, driver_before_, override_before_);
  {
    // So that none ends the guard, or runs a handler of this process in it.
    blocked_signals const blocked;
    // A child of a child: this process need not wait for it, and a wait for any child does not find it.
    pid_t const between = ::fork();
    if (between < 0) refuse(of_, "start a guard");
    if (between == 0) {
      pid_t const guarding = ::fork();
      if (guarding == 0) made.run(its_end.get(), me.get(), folder.get(), lock_.get());
      ::_exit(guarding < 0 ? 1 : 0);
    }
    (void)without_interruption([&] { return ::waitpid(between, nullptr, 0); });
  }
  its_end = open_file();
  // Once it is separate: else its copy of this process's end would keep the socket open.
  char here = 0;
  if (without_interruption([&] { return ::recv(to.get(), &here, 1, 0); }) != 1) {
    throw operation_failed(fmt::format("pci:{}: its guard did not start", of_.at().text()));
  }
  socket_ = std::move(to);
}

void takeover::detach(way how) {
  open_file const folder(::open(of_.folder().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto const write = [&](char const* file, std::string const& text, std::string const& what) {
    if (!write_at(folder.get(), file, text.c_str())) refuse(of_, what);
  };
  std::string const address = of_.at().text();
  write("driver_override", how == way::vfio ? vfio_driver : nobody, "say which driver it is to have");
  if (!driver_before_.empty()) write("driver/unbind", address, "take it from the driver " + driver_before_);
  if (how == way::vfio) {
    write((of_.where().buses + "/drivers_probe").c_str(), address, "give it to vfio-pci");
    if (of_.driver() != vfio_driver) {
      throw refused_input("access", "vfio",
                          "vfio-pci does not take " + address + "; see the kernel's messages (dmesg)");
    }
    return;
  }
  tell(of_, socket_, {taken, 0, 0});  // before it can access memory
  write("enable", "1", "enable it");
  std::uint16_t command = 0;
  if (::pread(lock_.get(), &command, sizeof command, command_register) != sizeof command) refuse(of_, "read its state");
  command |= memory_and_bus_master;
  if (::pwrite(lock_.get(), &command, sizeof command, command_register) != sizeof command) {
    refuse(of_, "let it access memory");
  }
}

std::uint64_t takeover::keep(int file) {
  std::lock_guard const lock(asking_);
  return tell(of_, socket_, {keeps, 0, 0}, file);
}

void takeover::let_go(std::uint64_t id, std::size_t bytes) noexcept {
  try {
    std::lock_guard const lock(asking_);
    tell(of_, socket_, {lets_go, id, bytes});
  } catch (std::exception const&) {
    // Its guard keeps the memory for longer than it must.
  }
}

void takeover::finish() {
  lock_ = open_file();
  if (!socket_) return;
  open_file const to = std::exchange(socket_, open_file());
  outcome found{};
  message const order{done, 0, 0};
  if (without_interruption([&] { return ::send(to.get(), &order, sizeof order, MSG_NOSIGNAL); }) < 0) {
    throw operation_failed(fmt::format("pci:{}: its guard is gone, and nothing was undone", of_.at().text()));
  }
  auto const length = without_interruption([&] { return ::recv(to.get(), &found, sizeof found, 0); });
  if (length < 0 && errno == EAGAIN) {
    throw operation_failed(fmt::format(
        "pci:{}: its guard waits, perhaps for a child of this process that has it open too", of_.at().text()));
  }
  if (length != sizeof found) {
    throw operation_failed(fmt::format("pci:{}: its guard died before it was done", of_.at().text()));
  }
  if (found.step[0] == '\0') return;
  throw operation_failed(fmt::format("pci:{}: cannot {}: {}", of_.at().text(), found.step, std::strerror(found.error)));
}

}  // namespace forebay::drive::pci
