// SPDX-License-Identifier: Apache-2.0
//! \file
//! Drives that a daemon serves: in this process, and in one of its own with clients in others.
#include "forebay/detail/drive/served.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "conformance/conformance.hpp"
#include "conformance/suite.hpp"
#include "drive/daemons.hpp"
#include "drive/served/channel.hpp"
#include "drive/served/server.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"

namespace forebay::drive {
namespace {

using nlohmann::json;
using served::channel;
using simt::native;
using test::far_daemon;
using test::local_daemon;
using test::process;
using test::refusal;
using test::socket_path;
using test::temporary;
using testing::HasSubstr;

constexpr std::uint64_t patience_ns = 60'000'000'000;
std::string const drive_uri = "emulated:size=8M,residency=served,queues=40";
std::string const message = "across processes";

std::string refused_open(std::string const& uri) {
  return refusal([&] { open(uri); });
}

/// The conformance list's target on whatever `Daemon` serves.
template <class Daemon>
class served_target final : public conformance::target {
 public:
  served_target() { environment(); }
  driver::register_space& registers() override { return environment().registers(); }
  driver::dma_space& dma() override { return environment().dma(); }
  std::string serial() const override { return drive_->report()["serial"]; }
  std::uint64_t drive_bytes() const override { return 64 << 20; }
  std::uint32_t block_bytes() const override { return 512; }

 private:
  /// Other tests may have set the variable since.
  device& environment() {
    if (!drive_) {
      open_options options;
      options.queues = 16;
      drive_ = open("emulated:size=64M,residency=served,threads=2,queues=20", options);
    }
    return *drive_;
  }
  Daemon daemon_;
  std::unique_ptr<device> drive_;
};

storage open_storage(std::string const& uri = drive_uri) {
  return storage({.drives = {uri}, .device = "cpu"});
}

void put(storage& s, std::string const& text) {
  s.pwrite(text.data(), text.size(), 12'345);
}
std::string get(storage& s, std::size_t bytes) {
  std::string text(bytes, '\0');
  s.pread(text.data(), bytes, 12'345);
  return text;
}

}  // namespace

using on_threads_of_this_process = conformance::suite<served_target<local_daemon>>;
using in_a_process_of_its_own = conformance::suite<served_target<far_daemon>>;

TEST_P(on_threads_of_this_process, conforms) {
  run(on(), GetParam());
}
TEST_P(in_a_process_of_its_own, conforms) {
  run(on(), GetParam());
}
INSTANTIATE_TEST_SUITE_P(served, on_threads_of_this_process, testing::ValuesIn(conformance::checks()),
                         conformance::name_of);
INSTANTIATE_TEST_SUITE_P(served, in_a_process_of_its_own, testing::ValuesIn(conformance::checks()),
                         conformance::name_of);

TEST(served_drive, two_client_processes_share) {
  far_daemon const daemon;
  process writer({"write", drive_uri, message});
  EXPECT_EQ(writer.wait(), 0);
  process reader({"read", drive_uri, std::to_string(message.size())});
  EXPECT_EQ(reader.line(), message);
  EXPECT_EQ(reader.wait(), 0);
}

TEST(served_drive, another_uri_is_another_drive) {
  local_daemon const daemon;
  storage first = open_storage();
  put(first, message);
  storage second = open_storage(drive_uri + ",seed=1");
  EXPECT_EQ(get(second, message.size()), std::string(message.size(), '\0'));
}

TEST(served_drive, of_the_cpu_is_one_drive_whatever_gpu_its_clients_name) {
  local_daemon const daemon;
  storage first = open_storage();
  put(first, message);
  auto const other = open(drive_uri, {.gpu = 3});
  EXPECT_GE(other->report()["statistics"]["write_commands"], 1);
}

TEST(served_drive, says_what_it_is) {
  local_daemon const daemon({drive_uri});
  auto const drive = open(drive_uri);
  json const report = drive->report();
  EXPECT_EQ(report["uri"], drive_uri);
  EXPECT_EQ(report["residency"], "served");
  EXPECT_EQ(report["backing"], "memory");
  EXPECT_EQ(report["restarts"], 0);
  EXPECT_FALSE(drive->gpu());
}

TEST(served_drive, counts_what_its_clients_did) {
  local_daemon daemon;
  storage client = open_storage();
  std::uint64_t constexpr block = 512;
  auto const buffer = client.allocate_buffer(64 * block);
  client.reset_statistics();
  for (std::uint64_t i = 0; i < 64; ++i) {
    auto const part = buffer.ref().subspan(i * block, block);
    EXPECT_TRUE(client.ref<native>().write(part, i * block, block).ok());
    EXPECT_TRUE(client.ref<native>().read(part, i * block, block).ok());
  }
  json const counted = json::parse(client.report())["drives"][0]["statistics"];
  EXPECT_EQ(counted["write_commands"], 64);
  EXPECT_EQ(counted["bytes_written"], 64 * block);
  EXPECT_EQ(counted["read_commands"], 64);
  EXPECT_EQ(counted["bytes_read"], 64 * block);
  // Another client's count begins with the drive, and a reset affects only the client's own count.
  EXPECT_EQ(open(drive_uri)->report()["statistics"]["write_commands"], 64);
}

TEST(served_drive, one_storage_over_two_of_a_daemon) {
  local_daemon const daemon;
  storage s({.drives = {drive_uri, drive_uri + ",seed=1"}, .device = "cpu", .stripe_bytes = 4096});
  std::vector<char> data(1 << 20), back(data.size());
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31 >> 8);
  s.pwrite(data.data(), data.size(), 777);
  s.pread(back.data(), back.size(), 777);
  EXPECT_EQ(back, data);
}

TEST(served_drive, refuses_memory_that_the_daemon_did_not_give) {
  local_daemon const daemon;
  storage s = open_storage();
  alignas(4096) static char mine[4096];
  EXPECT_THAT(refusal([&] { s.register_buffer(mine, sizeof mine); }), HasSubstr("allocate_buffer()"));
  auto const buffer = s.allocate_buffer(8192);
  auto const again = s.register_buffer(buffer.data() + 4096, 4096);
  EXPECT_EQ(again.ref().bus_address(0), buffer.ref().bus_address(4096));
}

/// A client that does not use the library. It has a drive open, and gets the answer to any request.
class rude_client {
 public:
  explicit rude_client(local_daemon const& daemon) : to_(served::connect_to(daemon.socket.path), served::from_daemon) {
    (*this)({{"do", "open"},
             {"protocol", served::protocol_version},
             {"uri", drive_uri},
             {"gpu", 0},
             {"with_gpu", false},
             {"queues", 0}});
  }
  json operator()(json const& request) {
    to_.send(request);
    auto reply = to_.receive(10'000);
    EXPECT_TRUE(reply) << request;
    return reply ? std::move(reply->body) : json();
  }

 private:
  channel to_;
};

TEST(served_drive, maps_nothing_beyond_what_the_daemon_gave) {
  constexpr std::size_t whole = 64 << 20;  // all of a chunk
  local_daemon const daemon;
  auto const drive = open(drive_uri);
  auto* const mine = static_cast<std::byte*>(drive->dma().allocate(whole));
  auto const refused = HasSubstr("mapped memory");
  EXPECT_THAT(refusal([&] { drive->dma().map(mine + whole / 2, whole); }), refused);
  EXPECT_THAT(refusal([&] { drive->dma().map(mine, whole + 4096); }), refused);
  EXPECT_THAT(refusal([&] { drive->dma().map(mine - 4096, whole); }), refused);
  EXPECT_NO_THROW(drive->dma().map(mine + whole / 2, whole / 2));
  EXPECT_NO_THROW(drive->dma().unmap(mine + whole / 2, whole / 2));

  // A client that does not use the library does not check first.
  rude_client answer_to(daemon);
  json const given = answer_to({{"do", "allocate"}, {"bytes", whole}, {"for_gpu", false}});
  std::uint64_t const at = given.at("address");
  std::uint64_t const key = given.at("chunks").at(0).at("key");
  for (char const* const what : {"map", "clear"}) {
    // The neighbouring pages may be another chunk: no range here lies in one.
    for (auto const& [first, bytes] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
             {at + whole / 2, whole}, {at, whole + 4096}, {at - 4096, 8192}, {at + 4096, ~std::uint64_t{4095}}}) {
      json const reply = answer_to({{"do", what}, {"address", first}, {"bytes", bytes}, {"key", key}});
      EXPECT_THAT(reply.dump(), HasSubstr("the drive daemon gave no such memory"))
          << what << " of " << bytes << " at +" << first - at;
    }
    EXPECT_FALSE(
        answer_to({{"do", what}, {"address", at + whole / 2}, {"bytes", whole / 2}, {"key", key}}).contains("refused"));
  }
}

TEST(served_drive, takes_no_loan_of_memory_that_its_engine_does_not_reach) {
  local_daemon const daemon;
  rude_client answer_to(daemon);
  EXPECT_THAT(answer_to({{"do", "lend"}, {"handle", std::vector<int>(64, 7)}}).dump(),
              HasSubstr("the engine of this drive runs on the CPU"));
  std::vector<json> const wrong = {
      std::vector<int>(63, 7), std::vector<int>(64, 256), std::vector<int>(64, -1), "handle", json::object(), nullptr};
  for (json const& handle : wrong) {
    EXPECT_THAT(answer_to({{"do", "lend"}, {"handle", handle}}).dump(), HasSubstr("send 64 bytes")) << handle;
  }
  EXPECT_THAT(answer_to({{"do", "lend"}}).dump(), HasSubstr("does not understand"));
}

TEST(served_drive, chunks_have_no_neighbours) {
  constexpr std::size_t bytes = 64 << 20;
  std::vector<std::unique_ptr<served::chunk>> all;
  for (int i = 0; i < 8; ++i) all.push_back(std::make_unique<served::chunk>(bytes));
  for (auto const& one : all) {
    for (std::byte* const outside : {one->data() - 1, one->data() + bytes}) {
      auto* const page = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(outside) / 4096 * 4096);
      unsigned char resident = 0;
      ASSERT_EQ(mincore(page, 4096, &resident), 0) << "nothing keeps others from mapping something there";
      // The kernel reads the memory for this test, and reports pages that may not be read.
      int ends[2];
      ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
      EXPECT_EQ(::write(ends[1], outside, 1), -1);
      EXPECT_EQ(errno, EFAULT);
      close(ends[0]);
      close(ends[1]);
    }
  }
}

TEST(served_drive, memory_is_zeroed_again) {
  local_daemon const daemon;
  auto const drive = open(drive_uri);
  for (int round = 0; round < 3; ++round) {
    auto* const bytes = static_cast<unsigned char*>(drive->dma().allocate(3 * 4096));
    for (std::size_t i = 0; i < 3 * 4096; ++i) {
      ASSERT_EQ(bytes[i], 0) << i;
      bytes[i] = 0xa5;
    }
    drive->dma().deallocate(bytes);
  }
}

TEST(served_drive, refusals_are_those_of_a_drive_in_process) {
  local_daemon const daemon;
  EXPECT_EQ(refused_open("emulated:size=1000,residency=served"),
            "size: '1000': give a multiple of lba_bytes, which is 512");
  EXPECT_EQ(refused_open("emulated:residency=served,size=1M,profile=no-such").substr(0, 31),
            "profile: 'no-such': there are 9");
  EXPECT_EQ(refused_open("emulated:residency=served,backing=file,path=/no/such"),
            "path: '/no/such': no such file; make it with create=1 and size= in a file: URI, or with `forebay drive "
            "create` of the Python package");
  EXPECT_EQ(refused_open("emulated:residency=served,backing=file,path=here.img"),
            "path: 'here.img': give an absolute path: the drive daemon may run in another folder");
  EXPECT_EQ(refused_open("emulated:residency=served,size=1M,profile=./p.toml"),
            "profile: './p.toml': give an absolute path: the drive daemon may run in another folder");
  EXPECT_EQ(refusal([] { storage({.drives = {drive_uri}, .device = "cpu", .queues = {.per_drive = 64}}); }),
            "queues: '65': the drive has 40 I/O queue pairs, of which 40 are free; ask for less, or open the drive "
            "with more");
  EXPECT_NO_THROW(open(drive_uri)) << "what was refused left nothing behind";
}

TEST(served_drive, queue_pairs_run_out_and_come_back) {
  local_daemon const daemon;
  std::vector<std::unique_ptr<device>> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(open(drive_uri));  // 16, 16 and the last 8
  EXPECT_EQ(driver::controller(clients[2]->registers(), clients[2]->dma()).identity().io_queue_pairs, 8u);
  EXPECT_THAT(refused_open(drive_uri), HasSubstr("of which 0 are free"));
  for (int i = 0; i < 20; ++i) {
    clients.erase(clients.begin());
    ASSERT_NO_THROW(clients.push_back(open(drive_uri))) << "a drive that was closed has let its pairs go";
    EXPECT_THAT(refused_open(drive_uri), HasSubstr("of which 0 are free"));
  }
}

TEST(served_drive, without_a_daemon) {
  socket_path const nobody("nobody.sock");
  EXPECT_EQ(refused_open(drive_uri), "residency: 'served': no drive daemon listens at " + nobody.path +
                                         " (No such file or directory); start one with `forebay drive serve`, or run "
                                         "the program with `forebay run -- program`, both of the Python package");
}

TEST(served_drive, of_another_version_is_refused_by_both) {
  local_daemon const daemon;
  channel newer(served::connect_to(daemon.socket.path), served::from_daemon);
  newer.send({{"do", "open"},
              {"protocol", served::protocol_version + 1},
              {"uri", drive_uri},
              {"gpu", 0},
              {"with_gpu", false},
              {"queues", 0}});
  auto const reply = newer.receive(10'000);
  ASSERT_TRUE(reply);
  EXPECT_THAT(refusal([&] { served::rethrow(reply->body); }),
              HasSubstr(fmt::format("protocol: '{}': the drive daemon speaks {}", served::protocol_version + 1,
                                    served::protocol_version)));

  // A daemon that is older than the client answers the same.
  socket_path const old("old.sock");
  served::open_file const listening = served::listen_at(old.path);
  std::thread answer([&] {
    served::open_file client;
    bool const came = native::wait_until(
        [&] {
          client = served::open_file(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
          return static_cast<bool>(client);
        },
        native::clock_ns() + patience_ns);
    ASSERT_TRUE(came);
    channel to(std::move(client), served::from_client);
    to.receive(10'000);
    to.send({{"refused", {{"field", "protocol"}, {"value", "4"}, {"remedy", "the drive daemon speaks 3"}}}});
  });
  EXPECT_EQ(refused_open(drive_uri), "protocol: '4': the drive daemon speaks 3");
  answer.join();
}

TEST(served_drive, an_error_that_cannot_be_read_is_an_error) {
  for (json const& reply : {json{{"refused", 5}}, json{{"refused", {{"field", 1}}}}, json{{"failed", json::array()}}}) {
    EXPECT_THROW(served::rethrow(reply), operation_failed) << reply;
  }
}

TEST(served_drive, nonsense_ends_one_connection_alone) {
  local_daemon const daemon;
  storage other = open_storage();
  for (std::string const nonsense : {"GET / HTTP/1.0\r\n\r\n", "\5\0\0\0hello", "\2\0\0\0{}"}) {
    served::open_file const socket = served::connect_to(daemon.socket.path);
    ASSERT_GT(::write(socket.get(), nonsense.data(), nonsense.size()), 0);
  }
  channel confused(served::connect_to(daemon.socket.path), served::from_daemon);
  for (json const& request : {json{{"do", "read"}, {"offset", 0}}, json{{"do", 7}}, json{{"do", "open"}}}) {
    confused.send(request);
    auto const reply = confused.receive(10'000);
    ASSERT_TRUE(reply);
    EXPECT_TRUE(reply->body.contains("failed")) << reply->body;
  }
  put(other, message);
  EXPECT_EQ(get(other, message.size()), message);
}

std::uint64_t resident_bytes() {
  std::uint64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * 4096;
}

TEST(drive_daemon, ends_while_a_client_has_pages_found_for_a_drive) {
  local_daemon daemon;
  constexpr std::uint64_t bytes = std::uint64_t{2} << 30;
  auto const drive = open("emulated:size=2G,residency=served");
  std::uint64_t const before = resident_bytes();
  std::atomic<bool> returned = false;
  std::uint64_t found = bytes;
  std::thread client([&] {
    found = drive->populate(bytes);
    returned = true;
  });
  while (!returned && resident_bytes() < before + (32 << 20)) std::this_thread::yield();
  daemon.server.stop();
  client.join();
  EXPECT_EQ(found, 0u) << "and the daemon waited until the last page was found";
}

TEST(drive_daemon, listens_once) {
  local_daemon const daemon;
  EXPECT_THAT(refusal([&] { served::listen_at(daemon.socket.path); }),
              HasSubstr("a drive daemon listens there already"));
  EXPECT_THAT(refusal([&] { served::listen_at("/dev/null"); }), HasSubstr("is not a socket"));
  EXPECT_THAT(refusal([&] { served::listen_at("/no/such/folder/socket"); }), HasSubstr("give a path that can be made"));
  EXPECT_THAT(refusal([&] { served::listen_at(std::string(200, 'x')); }), HasSubstr("give a path of 1 to 107 bytes"));
  EXPECT_EQ(std::filesystem::status(daemon.socket.path).permissions() & std::filesystem::perms::others_all,
            std::filesystem::perms::none);
}

TEST(drive_daemon, refuses_drives_that_cannot_be) {
  socket_path const socket("refusing.sock");
  process daemon({"serve", socket.path, "emulated:size=1000,residency=served"});
  EXPECT_EQ(daemon.line(), "size: '1000': give a multiple of lba_bytes, which is 512");
  EXPECT_EQ(WEXITSTATUS(daemon.wait()), 1);
  EXPECT_FALSE(std::filesystem::exists(socket.path));
  process other({"serve", socket.path, "emulated:size=1M"});
  EXPECT_THAT(other.line(), HasSubstr("residency=served; name such a one"));
}

TEST(drive_daemon, ends_when_it_is_told_and_reports) {
  far_daemon daemon({drive_uri});
  process writer({"write", drive_uri, message});
  EXPECT_EQ(writer.wait(), 0);
  kill(daemon.daemon.id(), SIGTERM);
  json const report = json::parse(daemon.daemon.line());
  EXPECT_EQ(daemon.daemon.wait(), 0);
  EXPECT_EQ(report["restarts"], 0);
  EXPECT_EQ(report["drives"].size(), 1u);
  EXPECT_EQ(report["drives"][0]["uri"], drive_uri);
  EXPECT_GE(report["drives"][0]["statistics"]["write_commands"], 1);
  EXPECT_FALSE(std::filesystem::exists(daemon.socket.path));
}

/// Minutes of writing its flash before it is open.
std::string const slow_uri = "emulated:profile=970-pro,size=1T,precondition=random,data=none,residency=served";

TEST(drive_daemon, a_drive_that_opens_slowly_holds_no_other_client_up_and_ends_with_the_daemon) {
  std::atomic<bool> slow_is_over = false;
  std::string outcome;
  std::thread patient;
  {
    local_daemon daemon;
    patient = std::thread([&] {
      try {
        open(slow_uri);
        outcome = "opened";
      } catch (std::exception const& failed) {
        outcome = failed.what();
      }
      slow_is_over = true;
    });
    for (int i = 0; i < 20; ++i) {
      storage other = open_storage();
      put(other, message);
      EXPECT_EQ(get(other, message.size()), message);
    }
    EXPECT_FALSE(slow_is_over) << "it was not slow: " << outcome;
  }
  patient.join();
  EXPECT_THAT(outcome, HasSubstr("its opening was cancelled")) << "it was hung up on before its request had ended";
}

TEST(served_drive, a_client_need_not_wait_for_a_drive_that_opens_slowly) {
  local_daemon const daemon;
  std::stop_source cancel;
  std::thread impatient([&] {
    EXPECT_THAT([&] { open(slow_uri, {.cancel = cancel.get_token()}); },
                testing::ThrowsMessage<operation_failed>(HasSubstr("ended the connection")));
  });
  storage other = open_storage();
  put(other, message);
  cancel.request_stop();
  impatient.join();
  EXPECT_EQ(get(other, message.size()), message);
}

TEST(drive_daemon, two_clients_of_a_drive_that_cannot_be_opened_are_both_told_why) {
  local_daemon const daemon;
  std::vector<std::thread> clients;
  std::atomic<int> told = 0;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back(
        [&] { told += refused_open("emulated:size=1000,residency=served").starts_with("size: '1000'"); });
  }
  for (std::thread& c : clients) c.join();
  EXPECT_EQ(told, 8);
}

TEST(drive_daemon, ends_while_its_first_drive_is_opened) {
  for (int const signal : {SIGINT, SIGTERM, SIGHUP}) {
    socket_path const socket("opening.sock");
    process daemon({"serve", socket.path, slow_uri});
    ASSERT_TRUE(
        native::wait_until([&] { return std::filesystem::exists(socket.path); }, native::clock_ns() + patience_ns));
    kill(daemon.id(), signal);
    json const report = json::parse(daemon.line());
    EXPECT_TRUE(report["drives"].empty());
    EXPECT_EQ(daemon.wait(), 0);
    EXPECT_FALSE(std::filesystem::exists(socket.path));
  }
}

TEST(drive_daemon, writes_back_and_reports_when_it_is_hung_up_on) {
  far_daemon daemon({drive_uri});
  kill(daemon.daemon.id(), SIGHUP);
  EXPECT_EQ(json::parse(daemon.daemon.line())["drives"].size(), 1u);
  EXPECT_EQ(daemon.daemon.wait(), 0);
}

TEST(drive_daemon, ends_with_the_program_that_holds_its_lifeline) {
  far_daemon daemon({drive_uri}, "serve_for_a_parent");
  pid_t const engine = daemon.engine();
  daemon.daemon.let_go();
  EXPECT_EQ(json::parse(daemon.daemon.line())["drives"].size(), 1u);
  EXPECT_EQ(daemon.daemon.wait(), 0);
  EXPECT_EQ(kill(engine, 0), -1) << "the engine is still there";
  EXPECT_FALSE(std::filesystem::exists(daemon.socket.path));
}

TEST(drive_daemon, keeps_its_drives_when_nobody_reads_what_it_says) {
  far_daemon daemon({drive_uri});
  storage before({.drives = {drive_uri}, .device = "cpu", .timeout_ns = 1'000'000'000});
  put(before, message);
  daemon.daemon.stop_reading();
  pid_t const first = daemon.engine();
  kill(first, SIGKILL);  // the supervisor has something to say
  ASSERT_TRUE(native::wait_until([&] { return daemon.engine() != 0 && daemon.engine() != first; },
                                 native::clock_ns() + patience_ns));
  storage after = open_storage();
  EXPECT_EQ(get(after, message.size()), message);
  kill(daemon.daemon.id(), SIGTERM);
  EXPECT_TRUE(daemon.daemon.wait_for(patience_ns));
  EXPECT_FALSE(std::filesystem::exists(daemon.socket.path));
}

TEST(drive_daemon, keeps_its_drives_however_often_the_engine_dies) {
  far_daemon daemon({drive_uri});
  storage before({.drives = {drive_uri}, .device = "cpu", .timeout_ns = 1'000'000'000});
  put(before, message);
  pid_t last = 0;
  for (int death = 1; death <= 10; ++death) {
    ASSERT_TRUE(native::wait_until([&] { return daemon.engine() != 0 && daemon.engine() != last; },
                                   native::clock_ns() + patience_ns))
        << death;
    last = daemon.engine();
    kill(last, SIGKILL);
    EXPECT_THAT(daemon.daemon.line(), HasSubstr("(restarts: " + std::to_string(death) + ")"));
  }
  storage after = open_storage();
  EXPECT_EQ(get(after, message.size()), message);
}

TEST(drive_daemon, removes_no_socket_but_its_own) {
  far_daemon daemon;
  std::filesystem::remove(daemon.socket.path);
  served::open_file const another = served::listen_at(daemon.socket.path);
  kill(daemon.daemon.id(), SIGTERM);
  EXPECT_EQ(daemon.daemon.wait(), 0);
  EXPECT_TRUE(std::filesystem::exists(daemon.socket.path));
}

TEST(drive_daemon, survives_a_client_that_is_killed_with_commands_in_flight) {
  far_daemon const daemon;
  storage other({.drives = {drive_uri}, .device = "cpu", .queues = {.per_drive = 20}});  // 21 of 40 pairs
  std::string const rest = "of which 19 are free";
  for (int round = 0; round < 3; ++round) {
    process client({"busy", drive_uri});
    ASSERT_EQ(client.line(), "busy");
    put(other, message + std::to_string(round));
    client.kill_and_wait(SIGKILL);
    EXPECT_EQ(get(other, message.size() + 1), message + std::to_string(round));
    // All queue pairs of the client are free again.
    open_options all;
    all.queues = 19;
    EXPECT_TRUE(native::wait_until([&] { return refusal([&] { open(drive_uri, all); }) == "accepted"; },
                                   native::clock_ns() + patience_ns));
  }
}

class restarted_daemon : public testing::TestWithParam<bool> {};

TEST_P(restarted_daemon, has_the_data) {
  std::string const file = temporary("served.img");
  bool const in_file = GetParam();
  std::string const uri = in_file ? "emulated:backing=file,residency=served,queues=40,path=" + file : drive_uri;
  if (in_file) create("emulated:backing=file,size=8M,path=" + file);
  far_daemon daemon({uri});
  storage before({.drives = {uri}, .device = "cpu", .timeout_ns = 1'000'000'000});
  put(before, message);
  if (in_file) before.flush();
  pid_t const first = daemon.engine();
  ASSERT_GT(first, 0);
  ASSERT_EQ(kill(first, SIGKILL), 0);
  EXPECT_THAT(daemon.daemon.line(), HasSubstr("was killed by signal 9; it is started again (restarts: 1)"));

  storage after = open_storage(uri);
  EXPECT_EQ(get(after, message.size()), message);
  EXPECT_EQ(json::parse(after.report())["drives"][0]["restarts"], 1);
  EXPECT_NE(daemon.engine(), first);
  // A client that was attached gets an error, and does not hang.
  EXPECT_THROW(get(before, message.size()), operation_failed);
  EXPECT_THROW(before.report(), operation_failed);
  std::filesystem::remove(file);
}
INSTANTIATE_TEST_SUITE_P(served, restarted_daemon, testing::Bool(),
                         [](auto const& about) { return about.param ? "file" : "memory"; });

/// A keeper of memory that says that an earlier process had every drive whose name contains `seed=1`.
class forgetful_keeper final : public served::memory_keeper {
 public:
  std::unique_ptr<served::chunk> memory_of(std::string const&, std::size_t bytes,
                                           served::chunk_place const& where) override {
    return std::make_unique<served::chunk>(bytes, where);
  }
  void forget(std::string const&) override {}
  bool was_there(std::string const& drive) const override { return drive.find("seed=1") != std::string::npos; }
};

TEST(drive_daemon, makes_room_for_one_that_reaches_the_gpu) {
  if (memory::device_count() != 0) GTEST_SKIP() << "there is a GPU";
  socket_path const socket("no-gpu.sock");
  served::open_file const listening = served::listen_at(socket.path);
  forgetful_keeper keeper;
  served::server server(listening.get(), &keeper, 1);
  std::string const on_gpu = "emulated:size=1M,backing=hbm,residency=served";
  EXPECT_THAT(refused_open(on_gpu), HasSubstr("no GPU was found"));
  EXPECT_THAT(refused_open("emulated:size=9,seed=1,residency=served"), HasSubstr("lba_bytes"));
  EXPECT_NO_THROW(server.check_gpus()) << "those never were";
  EXPECT_THAT(refused_open(on_gpu + ",seed=1"), HasSubstr("no GPU was found"));
  EXPECT_THROW(server.check_gpus(), operation_failed);
}

TEST(drive_daemon, lives_on_when_a_client_names_a_profile_that_nests_without_end) {
  std::string const file = temporary("deep.toml");
  std::string deep = "a";
  for (int i = 0; i < 30'000; ++i) deep += ".a";
  std::ofstream(file) << deep << " = 1\n";
  far_daemon const daemon({drive_uri});
  storage other = open_storage();
  EXPECT_THAT(refused_open("emulated:size=1M,residency=served,profile=" + file), HasSubstr("has 30000 dots"));
  put(other, message);
  EXPECT_EQ(get(other, message.size()), message);
  EXPECT_EQ(json::parse(other.report())["drives"][0]["restarts"], 0);
  std::filesystem::remove(file);
}

TEST(drive_daemon, lives_on_when_the_file_of_a_drive_is_cut_shorter) {
  std::string const file = temporary("cut.img");
  std::string const uri = "emulated:backing=file,residency=served,queues=40,path=" + file;
  create("emulated:backing=file,size=8M,path=" + file);
  far_daemon const daemon({uri, drive_uri});
  storage cut = open_storage(uri), other = open_storage();
  put(other, message);
  std::filesystem::resize_file(file, 4096);
  EXPECT_THROW(put(cut, message), operation_failed);
  EXPECT_THROW(cut.flush(), operation_failed);
  EXPECT_EQ(get(other, message.size()), message);
  EXPECT_EQ(json::parse(other.report())["drives"][0]["restarts"], 0);
  std::filesystem::remove(file);
}

TEST(drive_daemon, that_cannot_write_a_drive_back_ends_with_a_failure) {
  std::string const file = temporary("cut.img");
  std::string const uri = "emulated:backing=file,residency=served,path=" + file;
  create("emulated:backing=file,size=8M,path=" + file);
  far_daemon daemon({uri});
  {
    storage cut = open_storage(uri);
    put(cut, message);
    std::filesystem::resize_file(file, 0);
    EXPECT_THROW(put(cut, message), operation_failed);
  }
  kill(daemon.daemon.id(), SIGTERM);
  EXPECT_EQ(daemon.daemon.line(), "not all drives were written back: the process that serves them ended with status 1");
  EXPECT_EQ(WEXITSTATUS(daemon.daemon.wait()), 1);
  std::filesystem::remove(file);
}

/// Of every thread of a process, as the operating system says.
bool stands_still(pid_t process) {
  for (auto const& thread : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
    std::ifstream file(thread.path() / "stat");
    std::string const about{std::istreambuf_iterator<char>(file), {}};
    std::size_t const name_ends = about.rfind(')');
    if (name_ends == std::string::npos || about.substr(name_ends, 3) != ") T") return false;
  }
  return true;
}

TEST(drive_daemon, whose_engine_stands_still_has_not_left_the_bus) {
  far_daemon const daemon;
  auto const drive = open(drive_uri);
  driver::controller controller(drive->registers(), drive->dma());
  pid_t const engine = daemon.engine();
  kill(engine, SIGSTOP);
  EXPECT_TRUE(native::wait_until([&] { return stands_still(engine); }, native::clock_ns() + patience_ns));
  EXPECT_FALSE(controller.has_left()) << "who looks waits for no answer";
  kill(engine, SIGCONT);
  EXPECT_FALSE(controller.has_left());
}

TEST(drive_daemon, whose_engine_died_has_left_the_bus) {
  far_daemon const daemon;
  auto const drive = open(drive_uri);
  driver::controller controller(drive->registers(), drive->dma());
  EXPECT_FALSE(controller.has_left());
  kill(daemon.engine(), SIGKILL);
  EXPECT_TRUE(native::wait_until([&] { return controller.has_left(); }, native::clock_ns() + patience_ns))
      << "seen by who only looks";
  EXPECT_TRUE(
      native::wait_until([&] { return drive->registers().read32(nvme::registers::csts) == nvme::removed_value; },
                         native::clock_ns() + patience_ns));
  EXPECT_THROW(controller.reset(), driver::controller_failure);
}

}  // namespace forebay::drive
