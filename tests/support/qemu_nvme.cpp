// SPDX-License-Identifier: Apache-2.0
#include "support/qemu_nvme.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>

#include "forebay/detail/driver/doorbell_relay.hpp"
#include "forebay/detail/memory/shared.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"

namespace forebay::test {

namespace {

constexpr char const* program = "qemu-system-x86_64";
constexpr int answer_timeout_ms = 30'000;
constexpr std::uint64_t bar_address = 0xe0000000;  // in the PCI hole of a machine with little RAM
constexpr std::uint32_t pci_slot = 4;
/// Below lie the holes and tables of a PC.
constexpr std::uint64_t first_usable_page = 1 << 20;

// The names by which the child finds its files.
constexpr int memory_fd = 4, firmware_fd = 5, qtest_fd = 6, disk_fd = 7, monitor_fd = 8;

std::optional<std::string> find_program() {
  char const* const path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/usr/bin:/bin";
  while (!rest.empty()) {
    std::size_t const colon = std::min(rest.find(':'), rest.size());
    std::string candidate = std::string(rest.substr(0, colon)) + "/" + program;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return std::nullopt;
}

/// One file descriptor, closed when it goes.
class descriptor {
 public:
  explicit descriptor(int fd) : fd_(fd) {}
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&&) = delete;
  ~descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

descriptor memory_file(char const* name, std::uint64_t bytes) {
  descriptor fd(memfd_create(name, MFD_CLOEXEC));
  if (fd.get() < 0 || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    throw operation_failed(fmt::format("memfd {} of {} bytes: {}", name, bytes, std::strerror(errno)));
  }
  return fd;
}

/// A socket for lines of text, both ways.
class line_socket {
 public:
  explicit line_socket(descriptor fd) : fd_(std::move(fd)) {}

  void send(std::string const& line) {
    std::string_view rest = line;
    while (!rest.empty()) {
      ssize_t const sent = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) throw operation_failed(fmt::format("QEMU has gone: {}", std::strerror(errno)));
      rest.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  std::string receive() {
    for (;;) {
      if (std::size_t const end = received_.find('\n'); end != std::string::npos) {
        std::string line = received_.substr(0, end);
        received_.erase(0, end + 1);
        return line;
      }
      pollfd waiting{fd_.get(), POLLIN, 0};
      int const ready = poll(&waiting, 1, answer_timeout_ms);
      if (ready < 0 && errno == EINTR) continue;
      if (ready == 0) throw operation_failed(fmt::format("QEMU did not answer within {} ms", answer_timeout_ms));
      std::array<char, 4096> chunk;
      ssize_t const got = recv(fd_.get(), chunk.data(), chunk.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) throw operation_failed("QEMU has gone: its socket is closed");
      received_.append(chunk.data(), static_cast<std::size_t>(got));
    }
  }

 private:
  descriptor fd_;
  std::string received_;
};

std::pair<descriptor, descriptor> socket_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw operation_failed(fmt::format("socketpair: {}", std::strerror(errno)));
  }
  return {descriptor(ends[0]), descriptor(ends[1])};
}

std::string drive_description(qemu_options const& options) {
  nlohmann::json file = {
      {"driver", "file"}, {"filename", fmt::format("/proc/self/fd/{}", disk_fd)}, {"locking", "off"}};
  if (!options.errors.empty() || options.breakpoints) {
    nlohmann::json rules = nlohmann::json::array();
    for (injected_error const& e : options.errors) {
      nlohmann::json rule = {{"event", "none"}, {"iotype", e.iotype}, {"errno", e.error}, {"once", e.once}};
      if (e.sector) rule["sector"] = *e.sector;
      rules.push_back(std::move(rule));
    }
    file["node-name"] = "f";
    file = {{"driver", "blkdebug"}, {"image", file}};
    if (!rules.empty()) file["inject-error"] = rules;
  }
  return nlohmann::json{{"driver", "raw"}, {"node-name", "d"}, {"discard", "unmap"}, {"file", file}}.dump();
}

/// The names of the device that has the drive.
char const* name_of_drive(qemu_options const& options) {
  return options.nsid == 1 ? "nv" : "ns";
}

/// One namespace, or two of which the first has another size and drops what is written to it.
std::vector<std::string> devices(qemu_options const& options) {
  std::string const blocks = fmt::format("logical_block_size={0},physical_block_size={0}", options.block_bytes);
  std::string const controller =
      fmt::format("nvme,addr={:#x},serial={},id=nv,max_ioqpairs={},msix_qsize={},mdts={}", pci_slot, options.serial,
                  options.io_queue_pairs, options.io_queue_pairs + 1, options.mdts);
  if (options.nsid == 1) return {"-device", fmt::format("{},drive=d,{}", controller, blocks)};
  return {"-blockdev", "null-co,node-name=other,size=2097152,read-zeroes=on",
          "-device",   controller,
          "-device",   "nvme-ns,bus=nv,drive=other,nsid=1",
          "-device",   fmt::format("nvme-ns,bus=nv,id=ns,drive=d,nsid={},{}", options.nsid, blocks)};
}

std::vector<std::string> command_line(qemu_options const& options) {
  std::vector<std::string> words = {program,
                                    "-nodefaults",
                                    "-no-user-config",
                                    "-display",
                                    "none",
                                    "-S",  // no processor ever runs: the device works by itself
                                    "-bios",
                                    fmt::format("/proc/self/fd/{}", firmware_fd),
                                    "-machine",
                                    "q35,accel=tcg,memory-backend=m,vmport=off,smbus=off",
                                    "-m",
                                    fmt::format("size={}k", options.memory_bytes / 1024),
                                    "-object",
                                    fmt::format("memory-backend-file,id=m,size={},mem-path=/proc/self/fd/{},share=on",
                                                options.memory_bytes, memory_fd),
                                    "-chardev",
                                    fmt::format("socket,id=qtest,fd={}", qtest_fd),  // no other id is found by -qtest
                                    "-qtest",
                                    "chardev:qtest",
                                    "-qtest-log",
                                    "none",
                                    "-chardev",
                                    fmt::format("socket,id=monitor,fd={}", monitor_fd),
                                    "-mon",
                                    "chardev=monitor,mode=control",
                                    "-blockdev",
                                    drive_description(options)};
  for (std::string& word : devices(options)) words.push_back(std::move(word));
  return words;
}

}  // namespace

/// The QEMU process and the two sockets to it.
class qemu_nvme::process {
 public:
  process(qemu_options const& options, int memory) : drive_name_(name_of_drive(options)) {
    std::optional<std::string> const path = find_program();
    if (!path) throw operation_failed(*unavailable());
    descriptor const firmware = memory_file("forebay-firmware", 64 << 10);
    descriptor const disk = memory_file("forebay-disk", options.drive_bytes);
    auto [qtest, qtest_child] = socket_pair();
    auto [monitor, monitor_child] = socket_pair();
    std::vector<std::string> words = command_line(options);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t const parent = getpid();
    pid_ = fork();
    if (pid_ < 0) throw operation_failed(fmt::format("fork: {}", std::strerror(errno)));
    if (pid_ == 0) {
      // Only async-signal-safe calls from here to exec. Copies above the target numbers keep one dup2 from closing the
      // source of the next.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(127);
      std::array<int, 5> const from = {memory, firmware.get(), qtest_child.get(), disk.get(), monitor_child.get()};
      std::array<int, 5> const to = {memory_fd, firmware_fd, qtest_fd, disk_fd, monitor_fd};
      std::array<int, 5> safe;
      for (std::size_t i = 0; i < from.size(); ++i) safe[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 32);
      for (std::size_t i = 0; i < from.size(); ++i) {
        if (dup2(safe[i], to[i]) < 0) _exit(127);
      }
      execv(path->c_str(), argv.data());
      _exit(127);
    }
    qtest_ = std::make_unique<line_socket>(std::move(qtest));
    monitor_ = std::make_unique<line_socket>(std::move(monitor));
  }

  ~process() {
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  /// Reads the greeting, without which the monitor takes no commands.
  void greet() {
    auto const greeting = nlohmann::json::parse(monitor_->receive());
    auto const& v = greeting.at("QMP").at("version").at("qemu");
    version = fmt::format("{}.{}.{}", v.at("major").get<int>(), v.at("minor").get<int>(), v.at("micro").get<int>());
    qmp("qmp_capabilities", nlohmann::json::object());
  }

  nlohmann::json qmp(std::string const& command, nlohmann::json const& arguments) {
    std::lock_guard const lock(monitor_mutex_);
    monitor_->send(nlohmann::json{{"execute", command}, {"arguments", arguments}}.dump() + "\n");
    for (;;) {
      auto const answer = nlohmann::json::parse(monitor_->receive());
      if (answer.contains("return")) return answer["return"];
      if (answer.contains("error")) {
        throw operation_failed(fmt::format("QEMU: {}: {}", command, answer["error"].value("desc", "")));
      }
    }
  }

  /// One command of qemu-io on the drive. It prints nothing unless it fails.
  void drive_command(std::string const& command) {
    auto const said =
        qmp("human-monitor-command", {{"command-line", fmt::format("qemu-io -d {} \"{}\"", drive_name_, command)}});
    if (said != "") throw operation_failed(fmt::format("QEMU: {}: {}", command, said.dump()));
  }

  /// One qtest command; returns what follows "OK".
  std::string qtest(std::string const& command) {
    qtest_->send(command + "\n");
    for (;;) {
      std::string const answer = qtest_->receive();
      if (answer.starts_with("IRQ")) continue;
      if (!answer.starts_with("OK")) throw operation_failed(fmt::format("QEMU: {}: {}", command, answer));
      return answer.size() > 3 ? answer.substr(3) : "";
    }
  }

  void signal(int number) { ::kill(pid_, number); }

  std::string version;

 private:
  std::string drive_name_;
  pid_t pid_ = -1;
  std::mutex monitor_mutex_;
  std::unique_ptr<line_socket> qtest_;
  std::unique_ptr<line_socket> monitor_;
};

/// BAR0 over qtest, and the relay of doorbells.
class qemu_nvme::bar final : public driver::register_space {
 public:
  bar(process& of, qemu_options const& options)
      : process_(of),
        queue_entries_max_(options.queue_entries_max),
        ready_timeout_(options.ready_timeout),
        relay_(*options.client_memory, 2 * (options.io_queue_pairs + 1),
               [this](std::uint32_t offset_bytes, std::uint32_t value) { ring(offset_bytes, value); }) {
    // What firmware and kernel would do: give BAR0 an address, let the function decode it and master the bus.
    std::uint32_t const identity = configuration_read(0);
    if (identity == 0xffffffff) throw operation_failed("QEMU has no PCI function where its NVMe controller should be");
    configuration_write(0x10, static_cast<std::uint32_t>(bar_address));
    configuration_write(0x14, static_cast<std::uint32_t>(bar_address >> 32));
    configuration_write(0x04, configuration_read(0x04) | 0x6);
  }

  std::uint32_t read32(std::uint32_t offset_bytes) override {
    std::lock_guard const lock(mutex_);
    if (killed_) return nvme::removed_value;
    if (paused_) return frozen_.at(offset_bytes);
    return read_locked(offset_bytes);
  }

  void write32(std::uint32_t offset_bytes, std::uint32_t value) override {
    // The write cannot overtake a doorbell that was stored before it, as it could not on a bus: the doorbell might be
    // that of a queue which this write deletes.
    relay_.forward_stored();
    std::lock_guard const lock(mutex_);
    if (paused_) {
      held_writes_.emplace_back(offset_bytes, value);
      return;
    }
    write_locked(offset_bytes, value);
  }

  std::uint32_t* doorbell(std::uint32_t offset_bytes) override { return relay_.word(offset_bytes); }

  void pause() {
    std::lock_guard const lock(mutex_);
    for (std::uint32_t offset = 0; offset <= nvme::registers::acq + 4; offset += 4)
      frozen_[offset] = read_locked(offset);
    paused_ = true;
    process_.signal(SIGSTOP);
  }

  void resume() {
    std::lock_guard const lock(mutex_);
    process_.signal(SIGCONT);
    paused_ = false;
    for (auto const& [offset, value] : held_writes_) write_locked(offset, value);
    held_writes_.clear();
    for (auto const& [offset, value] : held_rings_) write_locked(offset, value);
    held_rings_.clear();
  }

  void kill() {
    std::lock_guard const lock(mutex_);
    killed_ = true;
    process_.signal(SIGKILL);
  }

  bool answers() {
    std::lock_guard const lock(mutex_);
    return !paused_ && !killed_;
  }

 private:
  /// A doorbell that was relayed.
  void ring(std::uint32_t offset_bytes, std::uint32_t value) noexcept {
    std::lock_guard const lock(mutex_);
    if (paused_) {
      held_rings_[offset_bytes] = value;
      return;
    }
    try {
      write_locked(offset_bytes, value);
    } catch (operation_failed const&) {
      // QEMU is gone: a thread that waits for completions finds out by the deadline and by the registers.
      killed_ = true;
    }
  }

  std::uint32_t read_locked(std::uint32_t offset_bytes) {
    auto value = static_cast<std::uint32_t>(
        std::stoul(process_.qtest(fmt::format("readl {:#x}", bar_address + offset_bytes)), nullptr, 16));
    if (offset_bytes == nvme::registers::cap) {
      constexpr std::uint32_t mqes = 0xffff, to_shift = 24;
      if (queue_entries_max_ != 0) value = (value & ~mqes) | std::min(value & mqes, queue_entries_max_ - 1);
      if (ready_timeout_ != 0) value = (value & ~(0xffu << to_shift)) | ready_timeout_ << to_shift;
    }
    return value;
  }

  void write_locked(std::uint32_t offset_bytes, std::uint32_t value) {
    if (killed_) return;
    process_.qtest(fmt::format("writel {:#x} {:#x}", bar_address + offset_bytes, value));
  }

  static std::uint32_t configuration_address(std::uint32_t offset) {
    return std::uint32_t{1} << 31 | pci_slot << 11 | offset;
  }
  std::uint32_t configuration_read(std::uint32_t offset) {
    process_.qtest(fmt::format("outl 0xcf8 {:#x}", configuration_address(offset)));
    return static_cast<std::uint32_t>(std::stoul(process_.qtest("inl 0xcfc"), nullptr, 16));
  }
  void configuration_write(std::uint32_t offset, std::uint32_t value) {
    process_.qtest(fmt::format("outl 0xcf8 {:#x}", configuration_address(offset)));
    process_.qtest(fmt::format("outl 0xcfc {:#x}", value));
  }

  process& process_;
  std::uint32_t const queue_entries_max_;
  std::uint32_t const ready_timeout_;
  std::mutex mutex_;                               ///< one qtest command at a time, and all below but `relay_`
  std::map<std::uint32_t, std::uint32_t> frozen_;  ///< the registers at `pause()`
  std::vector<std::pair<std::uint32_t, std::uint32_t>> held_writes_;
  /// Doorbells come after those: a stopped controller has not looked at a queue when a reset deletes it.
  std::map<std::uint32_t, std::uint32_t> held_rings_;
  bool paused_ = false;
  bool killed_ = false;
  driver::doorbell_relay relay_;  ///< last: its thread uses the others
};

std::optional<std::string> qemu_nvme::unavailable() {
  if (find_program()) return std::nullopt;
  return fmt::format("{} is not installed: apt-get install --no-install-recommends qemu-system-x86", program);
}

std::shared_ptr<shared_memory> qemu_nvme::make_ram(qemu_options const& options) {
  page_locks locks;
  if (options.client_memory->kind() == memory::kind::pinned) locks = {memory::lock_pages, memory::unlock_pages};
  return std::make_shared<shared_memory>(options.memory_bytes, first_usable_page, options.seed, std::move(locks));
}

qemu_nvme::qemu_nvme(qemu_options const& options) : qemu_nvme(options, make_ram(options)) {}

qemu_nvme::qemu_nvme(qemu_options const& options, std::shared_ptr<shared_memory> ram)
    : options_(options), memory_(std::move(ram)) {
  options_.memory_bytes = memory_->size_bytes();
  process_ = std::make_unique<process>(options_, memory_->file_descriptor());
  process_->greet();
  bar_ = std::make_unique<bar>(*process_, options_);
  memory_->accept_touched_pages();
}

qemu_nvme::~qemu_nvme() = default;

driver::register_space& qemu_nvme::registers() {
  return *bar_;
}
shared_memory& qemu_nvme::dma() {
  return *memory_;
}
std::string qemu_nvme::version() const {
  return process_->version;
}
nlohmann::json qemu_nvme::qmp(std::string const& command, nlohmann::json const& arguments) {
  return process_->qmp(command, arguments);
}
nlohmann::json qemu_nvme::qmp(std::string const& command) {
  return qmp(command, nlohmann::json::object());
}
qemu_traffic qemu_nvme::traffic() {
  for (nlohmann::json const& drive : qmp("query-blockstats")) {
    if (drive.value("node-name", "") != "d") continue;
    nlohmann::json const& stats = drive.at("stats");
    return {stats.at("rd_operations"), stats.at("wr_operations"), stats.at("rd_bytes"), stats.at("wr_bytes")};
  }
  throw operation_failed("QEMU: query-blockstats: the drive is not there");
}
void qemu_nvme::hold(std::string const& event) {
  process_->drive_command("break " + event + " held");
}
void qemu_nvme::let_go() {
  process_->drive_command("resume held");
}
void qemu_nvme::pause() {
  bar_->pause();
}
void qemu_nvme::resume() {
  bar_->resume();
}
bool qemu_nvme::answers() const {
  return bar_->answers();
}
void qemu_nvme::kill() {
  bar_->kill();
}

}  // namespace forebay::test
