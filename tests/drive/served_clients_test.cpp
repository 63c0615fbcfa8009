// SPDX-License-Identifier: Apache-2.0
//! \file
//! Clients of a drive daemon must not be able to harm each other or the daemon. Most of these tests speak to it without
//! the library.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "drive/daemons.hpp"
#include "drive/served/channel.hpp"
#include "drive/served/chunks.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/drive/served.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "forebay/storage.hpp"
#include "support/hand_host.hpp"

namespace forebay::drive {
namespace {

using nlohmann::json;
using nvme::admin_opcode;
using simt::native;
using test::far_daemon;
using test::local_daemon;
using testing::HasSubstr;

std::string const drive_uri = "emulated:size=8M,residency=served,queues=40";
constexpr std::uint64_t patience_ns = 60'000'000'000;
constexpr int answer_ms = 60'000;

/// A client that does not use the library.
class raw_client {
 public:
  raw_client() : to_(served::connect_to(daemon_socket()), served::from_daemon) {}

  /// Null where the daemon has hung up.
  json ask(json const& request) {
    try {
      to_.send(request);
    } catch (operation_failed const&) {
      // Its message from before it closed the connection is still there.
    }
    auto reply = to_.receive(answer_ms);
    if (!reply) return {};
    for (std::size_t i = 0; i < reply->files.size(); ++i) {
      json const& about = reply->body.at("chunks").at(i);
      given.push_back(
          {about.at("address"), about.at("key"),
           std::make_shared<served::chunk>(std::move(reply->files[i]), about.at("bytes").get<std::size_t>())});
    }
    return reply->body;
  }
  json open(std::string const& uri = drive_uri) {
    return ask({{"do", "open"},
                {"protocol", served::protocol_version},
                {"uri", uri},
                {"gpu", 0},
                {"with_gpu", false},
                {"queues", 1}});
  }
  json allocate(std::uint64_t bytes) { return ask({{"do", "allocate"}, {"bytes", bytes}, {"for_gpu", false}}); }
  bool lives() { return ask({{"do", "read"}, {"offset", 0}}).contains("value"); }
  served::channel& connection() { return to_; }

  struct memory {
    std::uint64_t there, key;
    std::shared_ptr<served::chunk> here;
  };
  std::vector<memory> given;

 private:
  served::channel to_;
};

std::size_t open_files(pid_t process) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd"), {}));
}

TEST(served_client, reaches_no_memory_of_another) {
  local_daemon const daemon;
  raw_client owner, thief;
  ASSERT_TRUE(owner.open().contains("daemon"));
  ASSERT_TRUE(thief.open().contains("daemon"));
  std::uint64_t const mine = owner.allocate(8192).at("address");
  ASSERT_TRUE(thief.allocate(8192).contains("address"));
  auto const& chunk = owner.given.back();
  std::byte* const bytes = chunk.here->data() + (mine - chunk.there);
  std::memset(bytes, 0x5a, 8192);
  for (char const* const what : {"map", "clear"}) {
    for (std::uint64_t const key : {std::uint64_t{0}, thief.given.back().key, chunk.key + 1}) {
      json const reply = thief.ask({{"do", what}, {"address", mine}, {"bytes", 8192}, {"key", key}});
      EXPECT_THAT(reply.dump(), HasSubstr("gave no such memory")) << what << " with " << key;
    }
    EXPECT_THAT(thief.ask({{"do", what}, {"address", mine}, {"bytes", 8192}}).dump(), HasSubstr("failed")) << what;
  }
  thief.ask({{"do", "deallocate"}, {"address", mine}});
  EXPECT_TRUE(std::all_of(bytes, bytes + 8192, [](std::byte b) { return b == std::byte{0x5a}; }));
  // Another drive of the owner's takes it: the owner knows the key.
  raw_client second_of_owner;
  second_of_owner.open(drive_uri + ",seed=1");
  EXPECT_EQ(second_of_owner.ask({{"do", "map"}, {"address", mine}, {"bytes", 8192}, {"key", chunk.key}}),
            json::object());
}

TEST(served_client, whose_queues_lie_in_memory_of_a_drive_that_it_closed_harms_nobody) {
  far_daemon const daemon;
  auto lender = open(drive_uri);
  auto const user = open(drive_uri + ",seed=1");
  constexpr std::size_t bytes = 65536;
  auto* const lent = static_cast<std::byte*>(lender->dma().allocate(bytes));
  user->dma().map(lent, bytes);
  std::uint64_t const there = user->dma().bus_address(lent);
  test::hand_host host(user->registers(), user->dma());
  host.enable();
  auto cq = host.admin(admin_opcode::create_io_completion_queue, 1 | 63u << 16, 1);
  cq.prp1 = there;
  ASSERT_EQ(host.code(cq), 0);
  auto sq = host.admin(admin_opcode::create_io_submission_queue, 1 | 63u << 16, 1 | 1u << 16);
  sq.prp1 = there + 4096;
  ASSERT_EQ(host.code(sq), 0);
  user->dma().unmap(lent, bytes);
  lender.reset();
  // The engine reads entries, and writes completions, where the drive that has gone gave memory.
  user->registers().write32(nvme::registers::sq_tail_doorbell(1, 0), 60);
  EXPECT_TRUE(native::wait_until([&] { return user->report()["statistics"]["commands_fetched"] >= 60; },
                                 native::clock_ns() + patience_ns));
  auto const other = open(drive_uri);
  EXPECT_EQ(other->report()["restarts"], 0);
}

TEST(served_client, that_leaves_while_another_one_names_memory_holds_nobody_up) {
  served::chunk_register all({});
  std::atomic<bool> ended = false;
  std::thread looks([&] {
    while (!ended) EXPECT_EQ(all.find(0, 1, 0), nullptr);
  });
  // The thread that releases a chunk last takes the register's lock: that must not be the thread that searches it.
  for (int i = 0; i < 20'000; ++i) all.make(4096, {});
  ended = true;
  looks.join();
}

TEST(served_client, whose_request_is_cleared_in_place) {
  local_daemon const daemon;
  raw_client client;
  ASSERT_TRUE(client.open().contains("daemon"));
  constexpr std::uint64_t bytes = 32 << 20;
  std::uint64_t const at = client.allocate(bytes).at("address");
  auto const& chunk = client.given.back();
  std::byte* const here = chunk.here->data() + (at - chunk.there);
  std::memset(here, 0x5a, 12288);
  // A part that is no whole page.
  EXPECT_EQ(client.ask({{"do", "clear"}, {"address", at + 100}, {"bytes", 8192}, {"key", chunk.key}}), json::object());
  EXPECT_EQ(here[99], std::byte{0x5a});
  EXPECT_TRUE(std::all_of(here + 100, here + 8292, [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(here[8292], std::byte{0x5a});
}

TEST(served_client, that_names_drives_which_cannot_be_opened_leaves_no_files_in_the_supervisor) {
  far_daemon const daemon;
  raw_client client;
  std::size_t const files = open_files(daemon.daemon.id());
  for (int i = 0; i < 20; ++i) {
    // Its memory is allocated before its flash turns out to be too small.
    json const reply = client.open("emulated:size=1M,profile=970-pro,residency=served,seed=" + std::to_string(i));
    ASSERT_TRUE(reply.contains("refused")) << reply;
  }
  EXPECT_TRUE(
      native::wait_until([&] { return open_files(daemon.daemon.id()) <= files; }, native::clock_ns() + patience_ns));
}

TEST(served_client, has_a_limit_of_bytes) {
  local_daemon const daemon({}, {.bytes = 128 << 20, .all_bytes = 192 << 20});
  raw_client other;
  ASSERT_TRUE(other.open().contains("daemon"));  // its registers take a chunk of 64 MiB
  {
    raw_client greedy;
    ASSERT_TRUE(greedy.open().contains("daemon"));
    EXPECT_THAT(greedy.allocate(100 << 20).dump(), HasSubstr("that one client may have"));
    EXPECT_THAT(greedy.allocate(std::uint64_t{1} << 62).dump(), HasSubstr("failed"));
    EXPECT_THAT(greedy.allocate(~std::uint64_t{0}).dump(), HasSubstr("failed"));
    EXPECT_TRUE(greedy.allocate(60 << 20).contains("address"));
    EXPECT_TRUE(greedy.allocate(40 << 20).contains("address"));
    EXPECT_TRUE(other.allocate(62 << 20).contains("address"));
    EXPECT_THAT(other.allocate(62 << 20).dump(), HasSubstr("all of its clients may have together"));
    EXPECT_TRUE(greedy.lives());
    EXPECT_EQ(greedy.ask({{"do", "close"}}), json::object());
  }
  EXPECT_TRUE(other.allocate(62 << 20).contains("address")) << "what a client leaves is there for others";
}

TEST(served_client, has_a_limit_of_chunks_and_of_connections) {
  local_daemon const daemon({}, {.chunks = 3, .connections = 4, .connections_of_process = 3});
  raw_client first, second;
  ASSERT_TRUE(first.open().contains("daemon"));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(first.allocate(60 << 20).contains("address"));
  EXPECT_THAT(first.allocate(60 << 20).dump(), HasSubstr("a client may have 3 stretches of memory"));
  raw_client third, fourth;
  EXPECT_THAT(fourth.open().dump(), HasSubstr("takes no more of process"));
  EXPECT_TRUE(third.open().contains("daemon"));
  EXPECT_THAT(test::refusal([] { open(drive_uri); }), HasSubstr("connections: '3'")) << "the library says so too";
}

TEST(served_client, has_a_limit_of_drives_that_it_may_have_opened) {
  local_daemon const daemon({}, {.drives = 2});
  raw_client client;
  EXPECT_THAT(client.open("emulated:size=1000,residency=served").dump(), HasSubstr("lba_bytes"))
      << "what cannot be opened does not count";
  for (int i = 0; i < 2; ++i) open(drive_uri + ",seed=" + std::to_string(i));
  EXPECT_THAT(client.open(drive_uri + ",seed=2").dump(), HasSubstr("has 2 drives open"));
  EXPECT_TRUE(client.open(drive_uri + ",seed=1").contains("daemon"));
}

TEST(served_client, that_sends_what_is_no_request_of_a_client_loses_its_connection_alone) {
  far_daemon const daemon({drive_uri});
  raw_client other;
  ASSERT_TRUE(other.open().contains("daemon"));
  std::size_t const files = open_files(daemon.engine());
  served::open_file const file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int const many[] = {file.get(), file.get(), file.get(), file.get()};
  for (int round = 0; round < 50; ++round) {
    raw_client with_files;
    try {
      with_files.connection().send({{"do", "read"}, {"offset", 0}}, many);
      EXPECT_FALSE(with_files.connection().receive(answer_ms)) << "an answer to a message with files";
    } catch (operation_failed const&) {
      // It is hung up on.
    }
  }
  std::string const texts[] = {
      std::string(60'000, '['),
      R"({"do":)" + std::string(200, '[') + std::string(200, ']') + "}",
      "{\"do\":\"\xff\xfe\"}",
      "null",
      "[]",
      "",
  };
  for (std::string const& text : texts) {
    served::open_file const socket = served::connect_to(daemon.socket.path);
    std::uint32_t const bytes = static_cast<std::uint32_t>(text.size());
    std::string packet(sizeof bytes, '\0');
    std::memcpy(packet.data(), &bytes, sizeof bytes);
    packet += text;
    ASSERT_EQ(::send(socket.get(), packet.data(), packet.size(), MSG_NOSIGNAL), static_cast<ssize_t>(packet.size()));
    char back;
    EXPECT_LE(::recv(socket.get(), &back, 1, 0), 0) << text.substr(0, 20);
  }
  for (std::uint32_t const bytes : {(std::uint32_t{64} << 10) + 1, std::uint32_t{16} << 20, ~std::uint32_t{0}}) {
    served::open_file const socket = served::connect_to(daemon.socket.path);
    ASSERT_EQ(::send(socket.get(), &bytes, sizeof bytes, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof bytes));
    char back;
    EXPECT_LE(::recv(socket.get(), &back, 1, 0), 0) << bytes;
  }
  EXPECT_TRUE(other.lives());
  EXPECT_EQ(other.ask({{"do", "report"}}).at("report").at("restarts"), 0);
  EXPECT_TRUE(native::wait_until(
      [&] {
        served::connect_to(daemon.socket.path);  // the daemon clears up after clients that left when the next one comes
        return open_files(daemon.engine()) <= files + 2;
      },
      native::clock_ns() + patience_ns))
      << "files that clients sent stay open in the daemon";
}

TEST(served_client, that_sends_numbers_that_cannot_be_is_told_and_may_go_on) {
  local_daemon const daemon;
  raw_client client;
  ASSERT_TRUE(client.open().contains("daemon"));
  json const bad[] = {
      {{"do", "read"}, {"offset", -1}},
      {{"do", "read"}, {"offset", 1e300}},
      {{"do", "read"}, {"offset", 4294967296}},
      {{"do", "read"}, {"offset", "0"}},
      {{"do", "read"}},
      {{"do", "write"}, {"offset", 20}, {"value", -5}},
      {{"do", "doorbell"}, {"offset", 4294967292u}, {"for_gpu", false}},
      {{"do", "doorbell"}, {"offset", 1 << 30}, {"for_gpu", false}},
      {{"do", "doorbell"}, {"offset", 4096}, {"for_gpu", 7}},
      {{"do", "allocate"}, {"bytes", -4096}, {"for_gpu", false}},
      {{"do", "allocate"}, {"bytes", 1.5}, {"for_gpu", false}},
      {{"do", "map"}, {"address", 1}, {"bytes", 1}, {"key", 1}},
      {{"do", "map"}, {"address", ~std::uint64_t{0}}, {"bytes", ~std::uint64_t{0}}, {"key", 1}},
      {{"do", "unmap"}, {"address", 4096}, {"bytes", 4096}},
      {{"do", "claim"}, {"first_byte", 1}, {"bytes", ~std::uint64_t{0}}},
      {{"do", "claim"}, {"first_byte", ~std::uint64_t{0}}, {"bytes", 1}},
      {{"do", "claim"}, {"first_byte", 0}, {"bytes", 0}},
      {{"do", "claim"}, {"first_byte", -1}, {"bytes", 1}},
      {{"do", "claim"}, {"first_byte", 0}},
      {{"do", "unclaim"}, {"first_byte", 0}},
      {{"do", "open"},
       {"protocol", served::protocol_version},
       {"uri", 7},
       {"gpu", 0},
       {"with_gpu", false},
       {"queues", 1}},
      {{"do", {{"a", 1}}}},
  };
  for (json const& request : bad) {
    json const reply = client.ask(request);
    EXPECT_TRUE(reply.contains("failed") || reply.contains("refused")) << request << " -> " << reply;
  }
  EXPECT_TRUE(client.lives());
  for (json const& request : {json{{"gpu", -1}, {"queues", 1}}, json{{"gpu", 1 << 20}, {"queues", 1}},
                              json{{"gpu", 0}, {"queues", -1}}, json{{"gpu", 0}, {"queues", 1u << 31}}}) {
    raw_client another;
    json whole = {{"do", "open"}, {"protocol", served::protocol_version}, {"uri", drive_uri}, {"with_gpu", false}};
    whole.update(request);
    json const reply = another.ask(whole);
    EXPECT_TRUE(reply.contains("failed") || reply.contains("refused")) << request << " -> " << reply;
  }
}

json claim(std::uint64_t first_byte, std::uint64_t bytes) {
  return {{"do", "claim"}, {"first_byte", first_byte}, {"bytes", bytes}};
}

TEST(served_client, claims_bytes_that_no_other_has_claimed) {
  local_daemon const daemon;
  raw_client other;
  ASSERT_TRUE(other.open().contains("daemon"));
  {
    raw_client client;
    EXPECT_TRUE(client.ask(claim(0, 1)).contains("failed")) << "it has no drive";
    ASSERT_TRUE(client.open().contains("daemon"));
    EXPECT_EQ(client.ask(claim(100, 50))["taken_to"], 0);
    EXPECT_EQ(other.ask(claim(149, 10))["taken_to"], 150);
    EXPECT_EQ(other.ask(claim(0, 101))["taken_to"], 150);
    EXPECT_EQ(other.ask(claim(0, 100))["taken_to"], 0);
    EXPECT_EQ(other.ask(claim(150, 1))["taken_to"], 0);
    EXPECT_EQ(client.ask(claim(120, 10))["taken_to"], 0) << "those bytes are its own";
    // Ranges that are not claimed, or not as a whole, or by another client.
    for (auto const& [first, bytes] : {std::pair{100, 49}, {0, 100}, {7, 7}}) {
      EXPECT_EQ(client.ask({{"do", "unclaim"}, {"first_byte", first}, {"bytes", bytes}}), json::object());
    }
    EXPECT_EQ(client.ask(claim(99, 1))["taken_to"], 100);
    EXPECT_EQ(other.ask(claim(100, 1))["taken_to"], 150);
    client.ask({{"do", "unclaim"}, {"first_byte", 100}, {"bytes", 50}});
    EXPECT_EQ(other.ask(claim(100, 1))["taken_to"], 0);
    EXPECT_EQ(other.ask(claim(125, 1))["taken_to"], 130);
    raw_client elsewhere;
    ASSERT_TRUE(elsewhere.open(drive_uri + ",seed=1").contains("daemon"));
    EXPECT_EQ(elsewhere.ask(claim(125, 1))["taken_to"], 0) << "another drive";
  }
  EXPECT_TRUE(
      native::wait_until([&] { return other.ask(claim(125, 1))["taken_to"] == 0; }, native::clock_ns() + patience_ns))
      << "the claims of who has gone";
}

TEST(served_client, has_a_limit_of_claims) {
  local_daemon const daemon;
  raw_client client;
  ASSERT_TRUE(client.open().contains("daemon"));
  std::uint64_t granted = 0;
  while (granted < 10'000 && client.ask(claim(granted, 1)).contains("taken_to")) ++granted;
  EXPECT_EQ(granted, 1024u);
  EXPECT_THAT(client.ask(claim(granted, 1))["failed"].get<std::string>(), HasSubstr("1024 claims"));
  client.ask({{"do", "unclaim"}, {"first_byte", 0}, {"bytes", 1}});
  EXPECT_EQ(client.ask(claim(granted, 1))["taken_to"], 0);
}

TEST(served_client, that_has_claimed_the_catalogue_delays_a_change_until_it_goes_and_for_ten_seconds_at_most) {
  local_daemon const daemon;
  storage s({.drives = {drive_uri}, .device = "cpu"});
  auto client = std::make_unique<raw_client>();
  ASSERT_TRUE(client->open().contains("daemon"));
  ASSERT_EQ(client->ask(claim(1000, 1))["taken_to"], 0);
  try {
    s.create_extent("one", 1);
    ADD_FAILURE() << "changed in the middle of another's change";
  } catch (operation_failed const& failed) {
    EXPECT_THAT(failed.what(), HasSubstr("another client of the drive is changing the catalogue"));
  }
  std::thread goes([&] { client.reset(); });
  EXPECT_NO_THROW(s.create_extent("one", 1));
  goes.join();
  // A client that claims all bytes keeps others from new extents, and from nothing else.
  raw_client greedy;
  ASSERT_TRUE(greedy.open().contains("daemon"));
  ASSERT_EQ(greedy.ask(claim(1 << 20, ~std::uint64_t{0} - (1 << 20)))["taken_to"], 0);
  EXPECT_THROW(s.create_extent("two", 1), refused_input);
  EXPECT_NO_THROW(s.remove_extent("one"));
}

}  // namespace
}  // namespace forebay::drive
