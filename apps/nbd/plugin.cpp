// SPDX-License-Identifier: Apache-2.0
//! \file
//! The plugin of nbdkit behind `forebay drive export-nbd`.
//!
//!     nbdkit -f --filter=blocksize nbdkit-forebay-plugin.so URI [read-only=true] [allow-destroy=true]
//!         [report=FD] [until=FD]
//!
//! With `report` it writes a line of JSON to that file descriptor whenever something is known: {"opened": {...}} or
//! {"refused": {"field", "value", "remedy"}}, {"failed": "..."}, and at the end {"closed": the storage's report}. With
//! `until`, the reading end of a pipe, it ends nbdkit once the pipe has no writer any more. A signal does that too, but
//! then nbdkit waits until each client has left.
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

#include "apps/nbd/error_number.hpp"
#include "apps/nbd/exported_drive.hpp"
#include "forebay/error.hpp"
#include "forebay/status_text.hpp"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

namespace forebay::nbd {
namespace {

using nlohmann::json;

options wanted;
int report_file = -1;
int until_file = -1;

std::unique_ptr<exported_drive> drive;
/// What clients ask also when the drive is closed already.
struct {
  std::uint64_t size_bytes = 0;
  std::uint32_t block_bytes = 0;
  bool writable = false;
} geometry;

/// The requests under way. Thread-safe.
class requests {
 public:
  /// False once there are to be no more.
  bool begin() {
    std::lock_guard const lock(mutex_);
    if (!over_) ++count_;
    return !over_;
  }
  void end() {
    std::lock_guard const lock(mutex_);
    if (--count_ == 0) none_.notify_all();
  }
  /// Returns when the last one has ended.
  void finish() {
    std::unique_lock lock(mutex_);
    over_ = true;
    none_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  std::uint32_t count_ = 0;
  bool over_ = false;
};
requests under_way;

/// To the program that started nbdkit, or else to the person who did.
void tell(json const& what, std::string const& message) {
  if (report_file < 0) {
    if (!message.empty()) nbdkit_error("%s", message.c_str());
    return;
  }
  std::string const line = what.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  for (std::size_t done = 0; done < line.size();) {
    ssize_t const n = ::write(report_file, line.data() + done, line.size() - done);
    if (n < 0 && errno != EINTR) return;  // nobody reads it
    if (n > 0) done += static_cast<std::size_t>(n);
  }
}

/// Returns whether `action` ended without an exception, and tells of one.
template <class Action>
bool told(Action&& action) {
  try {
    action();
    return true;
  } catch (refused_input const& e) {
    tell({{"refused", {{"field", e.field()}, {"value", e.value()}, {"remedy", e.remedy()}}}}, e.what());
  } catch (std::exception const& e) {
    tell({{"failed", e.what()}}, e.what());
  }
  return false;
}

void close_drive() {
  under_way.finish();
  if (drive == nullptr) return;
  told([] {
    status const flushed = geometry.writable ? drive->flush() : status();
    json const report = json::parse(drive->report());
    drive.reset();
    tell({{"closed", report}}, "");
    if (flushed.ok()) return;
    throw operation_failed("the drive did not take the last flush: " + to_string(flushed) +
                           "; what was written since the one before may be lost");
  });
  drive.reset();
}

/// Ends the opening of the drive, or else closes it and ends nbdkit, once the pipe `until` has no writer any more.
class lifeline {
 public:
  lifeline() : thread_([this](std::stop_token const& over) { run(over); }) {}

  std::stop_token cancelled() const { return cancelled_.get_token(); }
  /// The drive is open, or cannot be opened.
  void opening_is_over() { opened_.count_down(); }

 private:
  void run(std::stop_token const& over) {
    pollfd pipe{until_file, 0, 0};
    while (::poll(&pipe, 1, 100) <= 0) {
      if (over.stop_requested()) return;
    }
    cancelled_.request_stop();
    opened_.wait();
    close_drive();
    nbdkit_shutdown();
    // nbdkit sends its last replies, and then waits for clients, which may stay for ever.
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    if (!never.wait_for(lock, over, std::chrono::milliseconds(250), [&] { return over.stop_requested(); })) {
      ::_exit(EXIT_SUCCESS);
    }
  }

  std::stop_source cancelled_;
  std::latch opened_{1};
  std::jthread thread_;
};
std::optional<lifeline> parent;

/// What a client gets for a request: 0, or -1 with its errno.
template <class Request>
int answer(char const* what, Request&& request) {
  if (!under_way.begin()) {
    nbdkit_set_error(ESHUTDOWN);
    return -1;
  }
  int error = 0;
  try {
    status const outcome = request();
    if (!outcome.ok()) {
      nbdkit_debug("%s: %s", what, to_string(outcome).c_str());
      error = error_number(outcome);
    }
  } catch (std::exception const& e) {
    nbdkit_error("%s: %s", what, e.what());
    error = ENOMEM;
  }
  under_way.end();
  if (error != 0) nbdkit_set_error(error);
  return error == 0 ? 0 : -1;
}

int config(char const* key, char const* value) {
  std::string_view const name = key;
  int number = 0;
  if (name == "uri") {
    wanted.uri = value;
  } else if (name == "read-only" || name == "allow-destroy") {
    if ((number = nbdkit_parse_bool(value)) == -1) return -1;
    (name == "read-only" ? wanted.read_only : wanted.allow_destroy) = number != 0;
  } else if (name == "report" || name == "until") {
    return nbdkit_parse_int(key, value, name == "report" ? &report_file : &until_file);
  } else {
    nbdkit_error("%s: the plugin has no such parameter; it has uri, read-only, allow-destroy, report and until", key);
    return -1;
  }
  return 0;
}

int after_fork() {
  if (until_file >= 0) {
    parent.emplace();
    wanted.cancel = parent->cancelled();
  }
  bool const opened = told([] {
    drive = std::make_unique<exported_drive>(wanted);
    geometry = {drive->size_bytes(), drive->block_bytes(), drive->writable()};
    tell({{"opened", {{"size_bytes", geometry.size_bytes}, {"block_bytes", geometry.block_bytes}}}}, "");
  });
  if (parent) parent->opening_is_over();
  return opened ? 0 : -1;
}

void cleanup() {
  parent.reset();
  close_drive();
}

void* open(int) {
  return NBDKIT_HANDLE_NOT_NEEDED;
}
int64_t get_size(void*) {
  return static_cast<int64_t>(geometry.size_bytes);
}
int block_size(void*, uint32_t* minimum, uint32_t* preferred, uint32_t* maximum) {
  *minimum = geometry.block_bytes;
  *preferred = 4096;
  *maximum = 32 << 20;
  return 0;
}
int can_write(void*) {
  return geometry.writable ? 1 : 0;
}
int yes(void*) {
  return 1;
}
int no(void*) {
  return 0;
}
/// The drive's durability is that of a Flush: nbdkit flushes after a request with FUA.
int can_fua(void*) {
  return NBDKIT_FUA_EMULATE;
}

int pread(void*, void* to, uint32_t bytes, uint64_t offset, uint32_t) {
  return answer("read", [&] { return drive->read(to, bytes, offset); });
}
int pwrite(void*, void const* from, uint32_t bytes, uint64_t offset, uint32_t) {
  return answer("write", [&] { return drive->write(from, bytes, offset); });
}
int flush(void*, uint32_t) {
  return answer("flush", [] { return drive->flush(); });
}
int trim(void*, uint32_t bytes, uint64_t offset, uint32_t) {
  return answer("trim", [&] { return drive->deallocate(bytes, offset); });
}
/// Where the drive does not know Write Zeroes, nbdkit writes zeros.
int zero(void*, uint32_t bytes, uint64_t offset, uint32_t) {
  return answer("zero", [&] { return drive->write_zeroes(bytes, offset); });
}

nbdkit_plugin make_plugin() {
  nbdkit_plugin p{};
  p.name = "forebay";
  p.longname = "Forebay drives";
  p.description = "a drive of Forebay, emulated or in a file";
  p.config = config;
  p.config_help =
      "[uri=]<URI>           the drive (required)\n"
      "read-only=<BOOL>      open it for reading only\n"
      "allow-destroy=<BOOL>  export it even if it has a catalogue\n"
      "report=<FD>           where to write lines of JSON about it\n"
      "until=<FD>            a pipe: end when it has no writer any more\n";
  p.magic_config_key = "uri";
  p.after_fork = after_fork;
  p.cleanup = cleanup;
  p.open = open;
  p.get_size = get_size;
  p.block_size = block_size;
  p.can_write = can_write;
  p.can_flush = yes;
  p.can_trim = yes;
  p.can_zero = yes;
  p.can_fast_zero = yes;
  p.can_fua = can_fua;
  p.can_multi_conn = yes;  // one drive serves all connections, and a Flush is for the whole drive
  p.is_rotational = no;
  p.pread = pread;
  p.pwrite = pwrite;
  p.flush = flush;
  p.trim = trim;
  p.zero = zero;
  return p;
}

nbdkit_plugin plugin = make_plugin();

}  // namespace
}  // namespace forebay::nbd

NBDKIT_REGISTER_PLUGIN(forebay::nbd::plugin)
