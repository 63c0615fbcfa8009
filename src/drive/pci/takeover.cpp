// SPDX-License-Identifier: Apache-2.0
#include "takeover.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "forebay/detail/nvme/registers.hpp"
#include "forebay/error.hpp"

namespace forebay::drive::pci {
namespace {

constexpr off_t command_register = 4;
constexpr std::uint16_t bus_master = 0x4;
constexpr std::uint16_t memory_and_bus_master = 0x2 | bus_master;
/// No driver has this name, so none takes the function while this process has it.
constexpr char const* nobody = "forebay";

/// What the guard tells at the end: the first step that failed, and why.
struct outcome {
  char step[32];
  int error;
};

bool write_text(char const* file, char const* text) {
  int const to = ::open(file, O_WRONLY | O_CLOEXEC);
  if (to < 0) return false;
  bool const written = ::write(to, text, std::strlen(text)) == static_cast<ssize_t>(std::strlen(text));
  int const error = errno;
  ::close(to);
  errno = error;
  return written;
}

/// The guard. It is the child of a process that may have had other threads: so it allocates nothing, takes no lock, and
/// calls only what is safe in a handler of signals.
class guard {
 public:
  /// All that it will need, made ready before the fork.
  guard(function const& of, way how, std::string const& driver_before)
      : how_(how),
        address_(of.at().text()),
        config_(of.folder() + "/config"),
        registers_(of.folder() + "/resource0"),
        enable_(of.folder() + "/enable"),
        override_(of.folder() + "/driver_override"),
        unbind_(of.folder() + "/driver/unbind"),
        bind_(driver_before.empty() ? "" : of.where().buses + "/drivers/" + driver_before + "/bind"),
        registers_bytes_(of.bar0_bytes()) {}

  [[noreturn]] void run(int socket, int client) {
    separate(socket, client);
    char const here = 1;
    (void)::send(socket_number, &here, 1, MSG_NOSIGNAL);
    wait_for_the_end();
    undo();
    ::close(lock_number);  // before the client learns that it may take the function again
    (void)::send(socket_number, &outcome_, sizeof outcome_, MSG_NOSIGNAL);
    ::_exit(0);
  }

 private:
  static constexpr int socket_number = 3, client_number = 4, lock_number = 5;

  /// Keeps nothing of its parent that somebody might wait for, and hears none of the signals for it.
  void separate(int socket, int client) {
    ::setsid();
    ::prctl(PR_SET_NAME, "forebay-guard");
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    int const null = ::open("/dev/null", O_RDWR);
    for (int standard = 0; standard < 3; ++standard) ::dup2(null, standard);
    // Out of the way of the numbers that they get.
    int const high_socket = ::fcntl(socket, F_DUPFD, 64);
    int const high_client = client < 0 ? -1 : ::fcntl(client, F_DUPFD, 64);
    int const high_lock = ::fcntl(lock_, F_DUPFD, 64);
    ::dup2(high_socket, socket_number);
    if (high_client >= 0) {
      ::dup2(high_client, client_number);
    } else {
      ::close(client_number);
    }
    ::dup2(high_lock, lock_number);
    ::syscall(SYS_close_range, 6u, ~0u, 0u);
  }

  /// Returns when the client is done or gone. Until then it takes files, which it keeps by not closing them.
  void wait_for_the_end() {
    for (;;) {
      pollfd wanted[] = {{socket_number, POLLIN, 0}, {client_number, POLLIN, 0}};
      if (::poll(wanted, 2, -1) < 0 && errno != EINTR) return;
      if ((wanted[1].revents & POLLIN) != 0) return;
      if (wanted[0].revents == 0) continue;
      char byte = 0;
      iovec part{&byte, 1};
      alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      ssize_t const length = ::recvmsg(socket_number, &message, 0);
      if (length <= 0) return;
      if (message.msg_controllen == 0) return;  // a message without a file: the client is done
      (void)::send(socket_number, &byte, 1, MSG_NOSIGNAL);
    }
  }

  void undo() {
    if (how_ == way::sysfs) {
      disable();
      step("stop its access to memory", stop_bus_master());
      step("disable it", write_text(enable_.c_str(), "0"));
    }
    if (::access(unbind_.c_str(), F_OK) == 0) step("unbind vfio-pci", write_text(unbind_.c_str(), address_.c_str()));
    step("clear its driver_override", write_text(override_.c_str(), "\n"));
    if (!bind_.empty()) step("bind its driver again", write_text(bind_.c_str(), address_.c_str()));
  }

  /// Disables the controller: then it lets go of all memory. NVM Express Base Specification 1.4, section 3.1.5.
  void disable() {
    int const file = ::open(registers_.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return step("open its registers", false);
    void* const mapped = ::mmap(nullptr, registers_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) return step("map its registers", false);
    auto* const bar = static_cast<char volatile*>(mapped);
    auto const at = [&](std::uint32_t offset) { return reinterpret_cast<std::uint32_t volatile*>(bar + offset); };
    std::uint32_t const configuration = *at(nvme::registers::cc);
    if (configuration == nvme::removed_value) return;  // it has left the bus
    *at(nvme::registers::cc) = configuration & ~nvme::controller_configuration::enable_bit;
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
    int const file = ::open(config_.c_str(), O_RDWR | O_CLOEXEC);
    std::uint16_t command = 0;
    if (file < 0 || ::pread(file, &command, sizeof command, command_register) != sizeof command) return false;
    command = static_cast<std::uint16_t>(command & ~bus_master);
    return ::pwrite(file, &command, sizeof command, command_register) == sizeof command;
  }
  void step(char const* what, bool done) {
    if (done || outcome_.step[0] != '\0') return;
    outcome_.error = errno;
    std::strncpy(outcome_.step, what, sizeof outcome_.step - 1);
  }

 public:
  int lock_ = -1;

 private:
  way const how_;
  std::string const address_, config_, registers_, enable_, override_, unbind_, bind_;
  std::uint64_t const registers_bytes_;
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

}  // namespace

takeover::takeover(function const& of, way how) : of_(of), driver_before_(of.driver()) {
  lock_ = open_file(::open((of.folder() + "/config").c_str(), O_RDWR | O_CLOEXEC));
  if (!lock_) refuse(of, "open its configuration");
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    throw refused_input("drive", "pci:" + of.at().text(),
                        "another process has taken it: end that process, or let a drive daemon serve both");
  }
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
    // Nobody is there to be told.
  }
}

void takeover::start_guard(way how) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) refuse(of_, "talk to a guard");
  socket_ = open_file(ends[0]);
  open_file const its_end(ends[1]);
  guard made(of_, how, driver_before_);
  made.lock_ = lock_.get();
  open_file const me(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  // A child of a child: this process need not wait for it, and a wait for any child does not find it.
  pid_t const between = ::fork();
  if (between < 0) refuse(of_, "start a guard");
  if (between == 0) {
    pid_t const guarding = ::fork();
    if (guarding == 0) made.run(its_end.get(), me.get());
    ::_exit(guarding < 0 ? 1 : 0);
  }
  while (::waitpid(between, nullptr, 0) < 0 && errno == EINTR) continue;
  // Once it is separate: else its copy of this process's end would keep the socket open.
  pollfd wanted{socket_.get(), POLLIN, 0};
  char here = 0;
  if (::poll(&wanted, 1, 10'000) <= 0 || ::recv(socket_.get(), &here, 1, 0) != 1) {
    socket_ = open_file();
    throw operation_failed(fmt::format("pci:{}: its guard did not start", of_.at().text()));
  }
}

void takeover::detach(way how) {
  auto const tell = [&](std::string const& file, std::string const& text, std::string const& what) {
    if (!write_text(file.c_str(), text.c_str())) refuse(of_, what);
  };
  std::string const address = of_.at().text();
  tell(of_.folder() + "/driver_override", how == way::vfio ? "vfio-pci" : nobody, "say which driver it is to have");
  std::string const bound = of_.driver();
  if (!bound.empty() && !(how == way::vfio && bound == "vfio-pci")) {
    tell(of_.folder() + "/driver/unbind", address, "take it from the driver " + bound);
  }
  if (how == way::vfio) {
    tell(of_.where().buses + "/drivers_probe", address, "give it to vfio-pci");
    if (of_.driver() != "vfio-pci") {
      throw refused_input("access", "vfio", "vfio-pci does not take " + address + ": load the module vfio-pci");
    }
    return;
  }
  tell(of_.folder() + "/enable", "1", "enable it");
  std::uint16_t command = 0;
  if (::pread(lock_.get(), &command, sizeof command, command_register) != sizeof command) refuse(of_, "read its state");
  command |= memory_and_bus_master;
  if (::pwrite(lock_.get(), &command, sizeof command, command_register) != sizeof command) {
    refuse(of_, "let it access memory");
  }
}

void takeover::keep(open_file const& file) {
  char byte = 1;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const with = CMSG_FIRSTHDR(&message);
  with->cmsg_level = SOL_SOCKET;
  with->cmsg_type = SCM_RIGHTS;
  with->cmsg_len = CMSG_LEN(sizeof(int));
  int const number = file.get();
  std::memcpy(CMSG_DATA(with), &number, sizeof number);
  if (::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) != 1 || ::recv(socket_.get(), &byte, 1, 0) != 1) {
    throw operation_failed(fmt::format("pci:{}: its guard is gone", of_.at().text()));
  }
}

void takeover::finish() {
  if (!socket_) return;
  open_file const to = std::exchange(socket_, open_file());
  lock_ = open_file();
  char const done = 0;
  outcome found{};
  if (::send(to.get(), &done, 1, MSG_NOSIGNAL) != 1 || ::recv(to.get(), &found, sizeof found, 0) != sizeof found) {
    throw operation_failed(fmt::format("pci:{}: its guard is gone, and nothing was undone", of_.at().text()));
  }
  if (found.step[0] == '\0') return;
  throw operation_failed(fmt::format("pci:{}: cannot {}: {}", of_.at().text(), found.step, std::strerror(found.error)));
}

}  // namespace forebay::drive::pci
