// SPDX-License-Identifier: Apache-2.0
//! \file
//! Fuzzes the messages of a drive daemon: bytes on a channel, and the requests of a client to a daemon that serves a
//! drive in this process.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drive/bounded_json.hpp"
#include "drive/served/channel.hpp"
#include "drive/served/server.hpp"
#include "emulator/fuzz_input.hpp"
#include "forebay/detail/drive/uri.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"
#include "fuzz/refusals.hpp"

namespace {

using namespace forebay;
using namespace forebay::drive::served;
using emulator::testing::choices;
using nlohmann::json;
using test::demand;

constexpr char const* drive_uri = "emulated:size=1M,queues=64,residency=served";
constexpr int patience_of_test_ms = 50'000;

class local_daemon {
 public:
  local_daemon() : listening_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    // An address without a file, which the kernel chooses.
    sockaddr_un any{};
    any.sun_family = AF_UNIX;
    demand(::bind(listening_.get(), reinterpret_cast<sockaddr*>(&any), sizeof any.sun_family) == 0, "an address");
    demand(::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&address_), &address_bytes_) == 0, "its name");
    demand(::listen(listening_.get(), 64) == 0, "a socket that listens");
    server_.emplace(listening_.get(), nullptr, 0,
                    client_limits{.bytes = 64 << 20, .all_bytes = 512 << 20, .chunks = 16});
    server_->open(drive_uri);
  }
  open_file connect() const {
    open_file made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    demand(::connect(made.get(), reinterpret_cast<sockaddr const*>(&address_), address_bytes_) == 0,
           "the daemon listens");
    return made;
  }

 private:
  open_file listening_;
  sockaddr_un address_{};
  socklen_t address_bytes_ = sizeof address_;
  std::optional<server> server_;
};

/// A connection, and what its client knows.
class client {
 public:
  explicit client(local_daemon const& of) : to_(of.connect(), from_daemon) {}

  /// The answer; none once the daemon has hung up. An answer that is an error must be a clear one.
  std::optional<json> ask(json const& request) {
    try {
      to_.send(request);
    } catch (operation_failed const&) {
      return std::nullopt;
    }
    return answer();
  }
  std::optional<json> answer() {
    std::optional<message> reply = to_.receive(patience_of_test_ms);
    if (!reply) return std::nullopt;
    (void)fuzz::refuses([&] { rethrow(reply->body); });
    if (auto const chunks = reply->body.find("chunks"); chunks != reply->body.end()) {
      demand(chunks->size() == reply->files.size(), "each chunk comes with its file");
      for (json const& c : *chunks) {
        chunk_ = c.at("address");
        key_ = c.at("key");
      }
    }
    if (auto const at = reply->body.find("address"); at != reply->body.end()) address_ = at->get<std::uint64_t>();
    return std::move(reply->body);
  }
  void send_bytes(std::string const& bytes) { (void)::send(to_.file(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  std::uint64_t chunk() const { return chunk_; }
  std::uint64_t key() const { return key_; }
  std::uint64_t address() const { return address_; }

 private:
  channel to_;
  std::uint64_t chunk_ = 0, key_ = 0, address_ = 0;
};

json opening(std::uint64_t queues) {
  return {{"do", "open"},    {"protocol", protocol_version}, {"uri", drive_uri}, {"gpu", 0}, {"with_gpu", false},
          {"queues", queues}};
}

json wild_value(choices& pick, client const& of) {
  switch (pick.below(12)) {
    case 0:
      return pick.word<std::uint64_t>();
    case 1:
      return -static_cast<std::int64_t>(pick.word<std::uint32_t>());
    case 2:
      return pick.rarely(128);
    case 3:
      return json();
    case 4:
      return std::string(pick.below(4), static_cast<char>(pick.byte()));
    case 5:
      return std::vector<int>(pick.below(70), pick.byte());
    case 6:
      return json::object({{"a", pick.byte()}});
    case 7:
      return pick.byte() / 3.0;
    case 8:
      return of.key();
    case 9:
      return of.chunk() + pick.word<std::uint32_t>() % (65u << 20);
    default:
      return pick.byte();
  }
}

json request(choices& pick, client const& of) {
  static constexpr char const* all[] = {
      "open",  "read",   "write",    "doorbell", "allocate", "deallocate",       "clear", "lend",   "map",
      "unmap", "report", "populate", "claim",    "unclaim",  "reset_statistics", "close", "nothing"};
  static constexpr std::uint32_t registers[] = {nvme::registers::aqa, nvme::registers::asq, nvme::registers::asq + 4,
                                                nvme::registers::acq, nvme::registers::cc,  nvme::registers::csts};
  std::uint64_t const pages = 4096 * pick.below(40);
  json made = opening(pick.below(3));
  made["do"] = all[pick.below(std::size(all))];
  made["offset"] = pick.rarely(64) ? nvme::registers::doorbell_base + 4 * pick.below(8) : pick.one_of(registers);
  made["value"] = pick.rarely(64)    ? pick.word<std::uint32_t>()
                  : pick.rarely(128) ? nvme::controller_configuration::make(true, 4096)
                                     : static_cast<std::uint32_t>(of.chunk() >> (pick.rarely(128) ? 32 : 0));
  made["bytes"] = pages;
  made["first_byte"] = pages;
  made["for_gpu"] = pick.rarely(64);
  made["address"] = pick.rarely(128) ? of.address() : of.chunk() + 4096 * pick.below(32);
  made["key"] = of.key();
  made["handle"] = std::vector<int>(64, pick.byte());
  for (std::uint32_t changes = pick.rarely(96) ? 1 + pick.below(3) : 0; changes != 0; --changes) {
    auto field = made.begin();
    std::advance(field, pick.below(static_cast<std::uint32_t>(made.size())));
    if (field.key() == "uri") {
      *field =
          pick.rarely(128) ? "emulated:size=1M" : "x:" + std::string(pick.below(9), static_cast<char>(pick.byte()));
    } else if (pick.rarely(64)) {
      made.erase(field);
    } else {
      *field = wild_value(pick, of);
    }
  }
  return made;
}

/// Whether the daemon would open another drive for it, which might be a file of this machine.
bool opens_another_drive(std::string_view text) {
  auto const found = drive::parse_foreign_json(text);
  if (!found || !found->is_object()) return false;
  auto const named = found->find("uri");
  return named != found->end() && named->is_string() && *named != drive_uri &&
         named->get<std::string>().find("served") != std::string::npos;
}

void be_a_client(local_daemon const& of, choices& pick) {
  client one(of);
  if (!pick.rarely(16) && !one.ask(opening(pick.below(4)))) return;
  if (!pick.rarely(32)) (void)one.ask({{"do", "allocate"}, {"bytes", 4096 * (1 + pick.below(64))}, {"for_gpu", false}});
  for (int requests = 0; requests < 24 && !pick.done(); ++requests) {
    if (!one.ask(request(pick, one))) return;
  }
}

/// Lines of text, each sent as a message.
void send_lines(local_daemon const& of, std::string_view text) {
  client one(of);
  if (!one.ask(opening(1))) return;
  while (!text.empty()) {
    std::string_view const line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (opens_another_drive(line)) continue;
    auto const bytes = static_cast<std::uint32_t>(line.size());
    std::string packet(reinterpret_cast<char const*>(&bytes), sizeof bytes);
    one.send_bytes(packet.append(line));
    if (!one.answer()) return;
  }
}

/// Bytes as they are, with files beside them, to a channel alone.
void send_bytes(std::string_view bytes, std::size_t files, message_limits const& limits) {
  int ends[2];
  demand(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "two sockets");
  channel receiver(open_file{ends[0]}, limits);
  open_file const sender{ends[1]};
  std::vector<char> control(CMSG_SPACE(files * sizeof(int)));
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (files != 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(files * sizeof(int));
    for (std::size_t i = 0; i < files; ++i) std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &ends[1], sizeof(int));
  }
  if (::sendmsg(sender.get(), &header, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
  ::shutdown(sender.get(), SHUT_WR);
  (void)fuzz::refuses([&] {
    while (auto const got = receiver.receive(patience_of_test_ms)) {
      demand(got->files.size() <= limits.files, "no more files than are accepted");
      (void)fuzz::refuses([&] {
        try {
          rethrow(got->body);
        } catch (operation_failed const&) {
          // The daemon made the text, and a client trusts its daemon.
        }
      });
    }
  });
}

/// The daemon still serves clients that keep to the rules.
void check(local_daemon const& of) {
  bool const serves = simt::native::wait_until(
      [&] {
        client one(of);
        // All queue pairs may be in use, until the clients before have left.
        auto const opened = one.ask(opening(1));
        if (!opened || !opened->contains("daemon")) return false;
        auto const version = one.ask({{"do", "read"}, {"offset", static_cast<std::uint32_t>(nvme::registers::vs)}});
        return version && version->at("value") != 0 && one.ask({{"do", "close"}}).has_value();
      },
      simt::native::clock_ns() + std::uint64_t{patience_of_test_ms} * 1'000'000);
  demand(serves, "the daemon goes on serving");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  static local_daemon const one;
  if (size < 2) return 0;
  std::string_view const rest(reinterpret_cast<char const*>(data) + 2, size - 2);
  switch (data[0] % 4) {
    case 0:
      send_bytes(rest, data[1] % 20, data[1] % 2 == 0 ? from_client : from_daemon);
      return 0;
    case 1:
      send_lines(one, rest);
      break;
    default: {
      emulator::testing::fuzz_input const input(data + 1, data + size);
      choices pick(input);
      be_a_client(one, pick);
    }
  }
  check(one);
  return 0;
}
