// SPDX-License-Identifier: Apache-2.0
//! \file
//! The residency proof. Clients fill a machine with waves of storage I/O, beside other work of programs on a GPU.
//! Clients share a drive, are killed, exit, or lose the drive's engine. Every byte is checked, and both sides count
//! commands and bytes. The program ends by itself in any case: 0 all claims held, 1 one did not, 2 refused input, 4 it
//! hung.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "child.hpp"
#include "client.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/drive/served.hpp"
#include "forebay/detail/drive/uri.hpp"
#include "forebay/detail/emulator/engine_runner.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "support/qemu_scheme.hpp"

namespace forebay::residency {
namespace {

using nlohmann::json;
using simt::native;
using std::chrono::seconds;
using clock = std::chrono::steady_clock;

struct options {
  std::string scenario;
  std::vector<std::string> rest;  ///< of `serve` and `percent`
  client_options client;
  double seconds = 10;
  std::uint32_t waves = 0;
  bool serves = false;         ///< starts a daemon of its own
  std::string client_percent;  ///< CUDA_MPS_ACTIVE_THREAD_PERCENTAGE of clients
  std::string json_file;
  long limit_s = 0;
  long silence_s = 60;
  double settled_s = 3;  ///< how long a drive must answer well after a death
  bool for_ever = false;
};

char const* const usage =
    "usage: residency_soak SCENARIO --drive URI [OPTION]...\n"
    "       residency_soak serve SOCKET [URI]...    runs a drive daemon\n"
    "       residency_soak percent SMS              prints the MPS percentage that leaves SMS multiprocessors to "
    "drives\n"
    "scenarios:\n"
    "  soak     one client uses the drive\n"
    "  share    two client processes use the drive; the drive's counts must be the sum of theirs\n"
    "  kill     a client is killed while its kernel runs; what it has flushed must be on the drive, and the time "
    "until\n"
    "           the drive answers again is reported\n"
    "  exit     as kill, but the client exits while its kernel runs\n"
    "  restart  as kill, but the process that has the drive is killed; needs --serve\n"
    "options:\n"
    "  --drive URI                 the drive\n"
    "  --device auto|cpu|cuda:N    where the clients' threads run; default: auto, on a GPU if there is one\n"
    "  --seconds S                 how long the clients work; default: 10\n"
    "  --waves N                   how many waves of I/O instead of --seconds\n"
    "  --threads N                 threads of a client; default: twice what a GPU holds at a time, 256 on a CPU\n"
    "  --seed N                    seed of everything that is random; default: 1\n"
    "  --serve                     starts a drive daemon of its own\n"
    "  --client-percent P          the part of the GPU that clients get under MPS, in percent\n"
    "  --limit S                   seconds that the whole run may take; default: 300 more than --seconds\n"
    "  --silence S                 seconds that a step may take; default: 60\n"
    "  --settled S                 seconds that the drive must answer well after a death; default: 3\n"
    "  --json FILE                 also writes the result as one JSON document\n";

void note(std::string const& line) {
  std::fprintf(stderr, "residency_soak[%d]: %s\n", static_cast<int>(::getpid()), line.c_str());
}
void say(std::string const& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}
/// Waits for `word` from the process that started this one.
void hear(std::string const& word) {
  std::string line;
  if (!std::getline(std::cin, line) || line != word)
    throw operation_failed("the process that started this one did not say '" + word + "'");
}

template <class Number>
Number number(std::string const& field, std::string const& text) {
  Number value{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw refused_input(field, text, "give a number, 0 or more");
  }
  return value;
}

options parse(std::vector<std::string> const& arguments) {
  options o;
  if (arguments.empty()) throw refused_input("scenario", "", "is missing; give soak, share, kill, exit or restart");
  o.scenario = arguments[0];
  if (o.scenario == "serve" || o.scenario == "percent") {
    o.rest.assign(arguments.begin() + 1, arguments.end());
    if (o.rest.empty()) throw refused_input(o.scenario, "", "give a socket, or a number of multiprocessors");
    return o;
  }
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    std::string const& name = arguments[i];
    auto const value = [&]() -> std::string const& {
      if (i + 1 == arguments.size()) throw refused_input(name, "", "give a value");
      return arguments[++i];
    };
    if (name == "--drive")
      o.client.drive = value();
    else if (name == "--device")
      o.client.device = value();
    else if (name == "--seconds")
      o.seconds = number<double>(name, value());
    else if (name == "--waves")
      o.waves = number<std::uint32_t>(name, value());
    else if (name == "--threads")
      o.client.threads = number<std::uint32_t>(name, value());
    else if (name == "--seed")
      o.client.seed = number<std::uint64_t>(name, value());
    else if (name == "--clients")
      o.client.clients = number<std::uint32_t>(name, value());
    else if (name == "--client")
      o.client.client = number<std::uint32_t>(name, value());
    else if (name == "--json")
      o.json_file = value();
    else if (name == "--serve")
      o.serves = true;
    else if (name == "--client-percent")
      o.client_percent = value();
    else if (name == "--limit")
      o.limit_s = number<long>(name, value());
    else if (name == "--silence")
      o.silence_s = number<long>(name, value());
    else if (name == "--settled")
      o.settled_s = number<double>(name, value());
    else if (name == "--for-ever")
      o.for_ever = true;
    else
      throw refused_input("option", name, "there is no such option; see residency_soak --help");
  }
  if (o.client.drive.empty()) throw refused_input("--drive", "", "give the URI of a drive");
  if (o.limit_s == 0) o.limit_s = static_cast<long>(o.seconds) + 300;
  return o;
}

/// The findings so far: every claim that does not hold is reported at once.
class verdict {
 public:
  explicit verdict(options const& o)
      : document_{{"schema_version", 1},
                  {"scenario", o.scenario},
                  {"drive", o.client.drive},
                  {"device", o.client.device},
                  {"seed", o.client.seed}} {}
  void claim(std::string const& name, bool holds, json const& details = {}) {
    document_["claims"][name] = holds;
    if (!details.is_null()) document_["details"][name] = details;
    if (holds) return;
    failed_ = true;
    note("DOES NOT HOLD: " + name + (details.is_null() ? "" : ": " + details.dump()));
  }
  json& operator[](char const* key) { return document_[key]; }
  /// Prints it; the exit status.
  int tell(options const& o, std::string const& summary) {
    document_["verified"] = !failed_;
    if (!o.json_file.empty()) {
      std::ofstream file(o.json_file);
      file << document_.dump(2) << "\n";
      if (!file) throw refused_input("--json", o.json_file, "cannot be written");
    }
    say(fmt::format("residency_soak: {} {}: {}", failed_ ? "FAILED" : "OK", o.scenario, summary));
    return failed_ ? 1 : 0;
  }
  json const& document() const { return document_; }
  bool failed() const { return failed_; }

 private:
  json document_;
  bool failed_ = false;
};

/// A daemon of this program's own, ended with this object; its clients find it.
class own_daemon {
 public:
  explicit own_daemon(std::string const& name)
      : socket_("/tmp/forebay-soak-" + std::to_string(::getpid()) + name),
        process_({"serve", socket_}, {{"CUDA_MODULE_LOADING", "EAGER"}}) {
    process_.hear("ready", seconds(60));
    ::setenv("FOREBAY_DAEMON", socket_.c_str(), 1);
  }
  ~own_daemon() {
    try {
      if (!ended_) end();
    } catch (std::exception const& e) {
      note(e.what());
    }
    ::unlink(socket_.c_str());
  }
  own_daemon(own_daemon const&) = delete;
  own_daemon& operator=(own_daemon const&) = delete;
  /// Its report, once all drives are written back.
  json end() {
    ended_ = true;
    process_.signal(SIGTERM);
    json report = json::parse(process_.hear("report", seconds(45)));
    process_.wait(seconds(10));
    return report;
  }
  /// The process that has the drives.
  pid_t engine() const {
    std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", process_.id()));
    pid_t id = 0;
    if (!(children >> id) || id <= 0) throw operation_failed("the daemon has no process with drives");
    return id;
  }

 private:
  std::string const socket_;
  child process_;
  bool ended_ = false;
};

/// The value of CUDA_MPS_ACTIVE_THREAD_PERCENTAGE that leaves `sms` multiprocessors of the first GPU to drives.
int percent(options const& o) {
  auto const sms = number<std::uint32_t>("sms", o.rest.at(0));
  if (memory::device_count() == 0) throw refused_input("percent", o.rest.at(0), "no GPU was found");
  std::uint32_t const all = emulator::multiprocessors(0);
  if (sms == 0 || sms >= all) throw refused_input("sms", o.rest.at(0), fmt::format("give 1 to {}", all - 1));
  say(std::to_string(100 * (all - sms) / all));
  return 0;
}

int serve(options const& o) {
  drive::serve_options wanted;
  wanted.socket = o.rest.at(0);
  wanted.drives.assign(o.rest.begin() + 1, o.rest.end());
  wanted.ready = [] { say("ready"); };
  wanted.notice = [](std::string const& line) { note("daemon: " + line); };
  say("report " + drive::serve(wanted).dump());
  return 0;
}

bool served(options const& o) {
  return drive::uri::parse(o.client.drive).value("residency") == "served";
}

/// Called before the first use of CUDA. An engine in this process never leaves the GPU while a kernel is loaded, so in
/// that case all kernels are loaded at the start. Otherwise they are loaded as late as possible, which is the case
/// under test.
void choose_loading(options const& o) {
  ::setenv("CUDA_MODULE_LOADING", served(o) ? "LAZY" : "EAGER", 1);
}

void progress_sometimes(std::string const& line) {
  static clock::time_point last = clock::now();
  if (clock::now() - last < seconds(10)) return;
  last = clock::now();
  note(line);
}

/// The drive's count, once it is `expected`, or at the end of a while.
traffic settled(client const& c, traffic const& expected) {
  traffic found;
  (void)native::wait_until([&] { return (found = c.drive_traffic()) == expected; }, native::clock_ns() + 2'000'000'000);
  return found;
}

void tell_of_client(verdict& v, client const& c) {
  totals const t = c.counted();
  plan const& p = c.work();
  v["threads"] = p.threads;
  v["waves"] = c.waves();
  v["own_bytes"] = p.own_bytes();
  v["common_bytes"] = p.common_bytes;
  v["beside"] = c.beside();
  v.claim("kernels read what was written", t.wrong_blocks == 0,
          t.wrong_blocks == 0 ? json() : json{{"wrong_blocks", t.wrong_blocks}, {"first_byte", t.first_wrong_byte}});
  json report = c.report();
  v.claim("nothing had to be recovered",
          report["recovery"]["aborts"] == 0 && report["recovery"]["queues_deleted"] == 0 &&
              report["recovery"]["controller_resets"] == 0,
          report["recovery"]);
  v["report"] = std::move(report);
}

int soak(options const& o, watchdog& dog) {
  std::optional<own_daemon> daemon;
  if (o.serves) daemon.emplace("");
  if (!o.client_percent.empty()) ::setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", o.client_percent.c_str(), 1);
  watchdog::watched me(dog, "soak");
  verdict v(o);
  std::string summary;
  {
    me.now("opens the drive");
    client c(o.client, dog);
    note(fmt::format("{} threads, {} MiB, seed {}", c.work().threads, c.drive().size_bytes() >> 20, o.client.seed));
    lay_down_common(c.drive(), c.work(), me);
    c.drive().reset_statistics();
    me.now("lays down");
    c.lay_down();
    c.run(o.seconds, o.waves, [&](std::string const& line) {
      me.now("runs waves");
      progress_sometimes(line);
    });
    v.claim("waves ran", c.waves() != 0);
    traffic expected = c.kernel_traffic();
    traffic const drive = settled(c, expected);
    v.claim("client and drive count the same", drive == expected,
            {{"client", to_json(expected)}, {"drive", to_json(drive)}});
    tell_of_client(v, c);
    me.now("reads back");
    std::uint64_t const wrong = c.wrong_blocks_at_rest(expected) + wrong_common_blocks(c.drive(), c.work(), me);
    v.claim("the drive holds what was written", wrong == 0, {{"wrong_blocks", wrong}});
    expected += c.host_reads(c.work().common_bytes);
    traffic const all = settled(c, expected);
    v.claim("and the host's reads too", all == expected, {{"client", to_json(expected)}, {"drive", to_json(all)}});
    summary = fmt::format(
        "{}: {} waves of {} threads, {} commands, {:.1f} GB, {} wrong blocks; counts agree: {}; beside: {}",
        c.report()["drives"][0].value("residency", "?"), c.waves(), c.work().threads,
        drive.read_commands + drive.write_commands, static_cast<double>(drive.bytes_read + drive.bytes_written) / 1e9,
        c.counted().wrong_blocks + wrong, drive == c.kernel_traffic() ? "yes" : "NO", c.beside().dump());
    me.now("closes the drive");
  }
  if (daemon) {
    me.now("ends the daemon");
    json ended;
    try {
      ended = daemon->end();
    } catch (operation_failed const& e) {
      note(e.what());
    }
    v.claim("the daemon ends when it is told", !ended.is_null());
    v["daemon"] = std::move(ended);
  }
  return v.tell(o, summary);
}

/// A process that `share`, `kill` and the other scenarios start.
int run_client(options const& o, watchdog& dog) {
  watchdog::watched me(dog, "client process");
  verdict v(o);
  client c(o.client, dog);
  c.lay_down();
  if (o.for_ever) {
    c.run_for_ever([] {
      say("begun");
      // A process that ends while its kernel runs.
      std::thread([] {
        std::string line;
        std::getline(std::cin, line);
        std::_Exit(0);
      }).detach();
    });
    return 1;
  }
  me.now("waits for the other client");
  say("ready");
  hear("go");
  traffic const before = c.kernel_traffic();
  c.run(o.seconds, o.waves, [&](std::string const& line) {
    me.now("runs waves");
    progress_sometimes(line);
  });
  me.now("waits for the other client");
  say("done " + to_json(c.kernel_traffic() - before).dump());
  hear("verify");
  tell_of_client(v, c);
  traffic unused;
  std::uint64_t const wrong = c.wrong_blocks_at_rest(unused);
  v.claim("the drive holds what was written", wrong == 0, {{"wrong_blocks", wrong}});
  v["verified"] = !v.failed();
  say("verdict " + v.document().dump());
  return v.failed() ? 1 : 0;
}

std::vector<std::string> client_arguments(options const& o, std::uint32_t clients, std::uint32_t which) {
  return {"client",
          "--drive",
          o.client.drive,
          "--device",
          o.client.device,
          "--seconds",
          fmt::to_string(o.seconds),
          "--waves",
          std::to_string(o.waves),
          "--threads",
          std::to_string(o.client.threads),
          "--seed",
          std::to_string(o.client.seed),
          "--clients",
          std::to_string(clients),
          "--client",
          std::to_string(which),
          "--limit",
          std::to_string(o.limit_s),
          "--silence",
          std::to_string(o.silence_s)};
}
std::vector<std::pair<std::string, std::string>> client_variables(options const& o) {
  if (o.client_percent.empty()) return {};
  return {{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", o.client_percent}};
}

/// This process's own connection to the drive. It uses no GPU, which the death of another process could take from it.
storage open_from_host(options const& o) {
  return storage(
      {.drives = {o.client.drive}, .device = "cpu", .queues = {.per_drive = 1}, .timeout_ns = 2'000'000'000});
}
/// Only the common blocks of it count.
plan host_plan(options const& o, storage const& s) {
  return make_plan(o.client, s.size_bytes(), s.block_bytes(), 1);
}

int share(options const& o, watchdog& dog) {
  std::optional<own_daemon> daemon;
  if (o.serves) daemon.emplace("");
  watchdog::watched me(dog, "share");
  verdict v(o);
  constexpr std::uint32_t clients = 2;
  storage host = open_from_host(o);
  plan const p = host_plan(o, host);
  lay_down_common(host, p, me);
  std::vector<std::unique_ptr<child>> all;
  seconds const step(o.silence_s);
  for (std::uint32_t i = 0; i < clients; ++i) {
    all.push_back(std::make_unique<child>(client_arguments(o, clients, i), client_variables(o)));
  }
  auto const counted = [&] { return traffic_from(json::parse(host.report())["drives"][0]["statistics"]); };
  for (auto& c : all) {
    me.now("waits until both clients are ready");
    c->hear("ready", step);
  }
  traffic const before = counted();
  for (auto& c : all) c->say("go");
  traffic sum;
  for (auto& c : all) {
    // In steps, so that the watchdog sees that this process lives; the clients have watchdogs of their own.
    std::optional<std::string> told;
    while (!told) {
      me.now("waits for the clients' waves");
      told = c->try_hear("done", seconds(5));
    }
    traffic const t = traffic_from(json::parse(*told));
    v["clients"].push_back(to_json(t));
    sum += t;
  }
  traffic drive;
  (void)native::wait_until([&] { return (drive = counted() - before) == sum; }, native::clock_ns() + 2'000'000'000);
  v.claim("both clients together and the drive count the same", drive == sum,
          {{"clients", to_json(sum)}, {"drive", to_json(drive)}});
  for (auto& c : all) c->say("verify");
  for (auto& c : all) {
    me.now("waits for the clients' verdicts");
    json const told = json::parse(c->hear("verdict", step));
    v.claim("client " + std::to_string(&c - all.data()) + " is content", told.value("verified", false), told);
    v.claim("client " + std::to_string(&c - all.data()) + " ended well", c->wait(step) == 0);
  }
  std::uint64_t const wrong = wrong_common_blocks(host, p, me);
  v.claim("the common blocks are as they were", wrong == 0, {{"wrong_blocks", wrong}});
  return v.tell(
      o, fmt::format("two clients, {} commands, {:.1f} GB; counts agree: {}", sum.read_commands + sum.write_commands,
                     static_cast<double>(sum.bytes_read + sum.bytes_written) / 1e9, drive == sum ? "yes" : "NO"));
}

/// One look at a drive whose engine may have died.
struct look {
  bool good = false;
  std::uint32_t restarts = 0;
  std::string what;
};
look look_at(options const& o, watchdog::watched& me, bool all) {
  look l;
  try {
    storage s = open_from_host(o);
    plan p = host_plan(o, s);
    if (!all) p.common_bytes = std::min<std::uint64_t>(p.common_bytes, 1 << 20);
    std::uint64_t const wrong = wrong_common_blocks(s, p, me);
    l.restarts = json::parse(s.report())["drives"][0].value("restarts", 0u);
    l.good = wrong == 0;
    if (!l.good) l.what = fmt::format("{} blocks are wrong", wrong);
  } catch (std::exception const& e) {
    l.what = e.what();
  }
  return l;
}

int death(options const& o, watchdog& dog) {
  std::optional<own_daemon> daemon;
  if (o.serves) daemon.emplace("");
  bool const of_engine = o.scenario == "restart";
  if (of_engine && !daemon) throw refused_input("--serve", "", "restart kills the daemon's engine; let it start one");
  watchdog::watched me(dog, o.scenario);
  verdict v(o);
  {
    storage host = open_from_host(o);
    lay_down_common(host, host_plan(o, host), me);
    me.now("flushes");
    host.flush();
  }
  look const before = look_at(o, me, false);
  v.claim("the drive answers before", before.good, before.what.empty() ? json() : json(before.what));

  auto arguments = client_arguments(o, 1, 0);
  arguments.push_back("--for-ever");
  auto victim = std::make_unique<child>(arguments, client_variables(o));
  me.now("waits until a client's kernel runs");
  victim->hear("begun", seconds(o.silence_s));
  auto const died = clock::now();
  auto const since = [&] { return std::chrono::duration<double>(clock::now() - died).count(); };
  if (of_engine) {
    pid_t const engine = daemon->engine();
    note(fmt::format("kills process {}, which has the drive", engine));
    ::kill(engine, SIGKILL);
  } else if (o.scenario == "kill") {
    note("kills a client with a kernel running");
    victim->signal(SIGKILL);
  } else {
    note("has a client exit with a kernel running");
    victim->say("exit");
  }
  me.now("waits for the end of the client");
  if (of_engine) victim->signal(SIGKILL);
  victim->wait(seconds(o.silence_s / 2));
  v["client_gone_after_s"] = since();

  // The drive may answer for a moment until its engine is found dead. It has come back only when it goes on answering.
  double good_since_s = -1;
  std::uint32_t restarts = before.restarts, bad_looks = 0;
  std::string last_failure;
  while (since() < static_cast<double>(o.silence_s) && (good_since_s < 0 || since() - good_since_s < o.settled_s)) {
    me.now("looks whether the drive is back");
    double const began = since();
    look const l = look_at(o, me, false);
    if (l.good && l.restarts == restarts) {
      if (good_since_s < 0) good_since_s = since();
    } else if (l.good) {
      restarts = l.restarts;
      good_since_s = since();
    } else {
      if (last_failure != l.what) note(fmt::format("{:.2f} s after the death: {}", since(), l.what));
      last_failure = l.what;
      good_since_s = -1;
      ++bad_looks;
    }
    (void)native::wait_until([&] { return since() - began > 0.05; }, native::clock_ns() + 100'000'000);
  }
  v["back_after_s"] = good_since_s;
  v["restarts"] = restarts - before.restarts;
  v["bad_looks"] = bad_looks;
  v.claim("the drive came back", good_since_s >= 0 && since() - good_since_s >= o.settled_s,
          last_failure.empty() ? json() : json(last_failure));
  if (of_engine) v.claim("another engine took its place", restarts > before.restarts);

  // Under MPS a start right after a death can fail, and must be tried again.
  bool again = false;
  std::uint32_t tries = 0;
  for (; !again && tries < 5 && good_since_s >= 0; ++tries) {
    me.now("starts another client");
    try {
      options next = o;
      next.waves = 2;
      child c(client_arguments(next, 1, 0), client_variables(o));
      c.hear("ready", seconds(o.silence_s / 2));
      c.say("go");
      c.hear("done", seconds(o.silence_s / 2));
      me.now("hears another client's verdict");
      c.say("verify");
      json const told = json::parse(c.hear("verdict", seconds(o.silence_s / 2)));
      again = told.value("verified", false);
      if (!again) v["later_client"] = told;
      c.wait(seconds(o.silence_s / 2));
    } catch (operation_failed const& e) {
      note(e.what());
    }
  }
  v["later_client_tries"] = tries;
  v.claim("another client does its work", again);
  look const after = look_at(o, me, true);
  v.claim("the flushed data is intact", after.good, after.what.empty() ? json() : json(after.what));
  return v.tell(o,
                fmt::format("back after {:.2f} s, {} restarts; flushed data intact: {}; later client: {}", good_since_s,
                            restarts - before.restarts, after.good ? "yes" : "NO", again ? "verified" : "FAILED"));
}

int run(std::vector<std::string> const& arguments) {
  if (!arguments.empty() && arguments[0] == "--help") {
    std::fputs(usage, stdout);
    return 0;
  }
  options const o = parse(arguments);
  // They end with the process that started them.
  if (o.scenario == "serve") ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (o.scenario == "client") ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (o.scenario == "serve") return serve(o);
  if (o.scenario == "percent") return percent(o);
  choose_loading(o);
  // Programs that start others wait for each with a limit, and then say for which.
  bool const alone = o.scenario == "soak" || o.scenario == "client";
  watchdog dog{seconds(o.limit_s), seconds(alone ? o.silence_s : 2 * o.silence_s)};
  if (o.scenario == "soak") return soak(o, dog);
  if (o.scenario == "client") return run_client(o, dog);
  if (o.scenario != "share" && o.scenario != "kill" && o.scenario != "exit" && o.scenario != "restart") {
    throw refused_input("scenario", o.scenario, "there is no such scenario; give soak, share, kill, exit or restart");
  }
  if (!served(o))
    throw refused_input("--drive", o.client.drive, "only drives with residency=served have several clients");
  return o.scenario == "share" ? share(o, dog) : death(o, dog);
}

}  // namespace
}  // namespace forebay::residency

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  forebay::test::add_qemu_scheme();
  try {
    return forebay::residency::run({argv + 1, argv + argc});
  } catch (forebay::refused_input const& e) {
    std::fprintf(stderr, "residency_soak: %s\n", e.what());
    return 2;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "residency_soak: FAILED: %s\n", e.what());
    std::printf("residency_soak: FAILED %s: %s\n", argc > 1 ? argv[1] : "", e.what());
    return 1;
  }
}
