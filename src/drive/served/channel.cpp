// SPDX-License-Identifier: Apache-2.0
#include "channel.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "../bounded_json.hpp"
#include "forebay/error.hpp"

namespace forebay::drive::served {
namespace {

[[noreturn]] void fail(char const* what) {
  throw operation_failed(fmt::format("drive daemon: {}: {}", what, std::strerror(errno)));
}

sockaddr_un address_of(std::string const& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw refused_input(
        "socket", path,
        fmt::format("give a path of 1 to {} bytes, such as /tmp/forebay.sock", sizeof address.sun_path - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

open_file make_socket() {
  open_file made(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made) fail("cannot make a socket");
  return made;
}

bool connect_quietly(open_file const& socket, sockaddr_un const& address) {
  return ::connect(socket.get(), reinterpret_cast<sockaddr const*>(&address), sizeof address) == 0;
}

}  // namespace

channel::channel(open_file socket, message_limits const& accepts) : socket_(std::move(socket)), accepts_(accepts) {
  timeval const limit{patience_ms / 1000, 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

void channel::send(nlohmann::json const& body, std::span<int const> files) {
  if (files.size() > max_message_files) throw operation_failed("drive daemon: too many files for one message");
  std::string const text = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::uint32_t const bytes = static_cast<std::uint32_t>(text.size());
  std::string packet(sizeof bytes + text.size(), '\0');
  std::memcpy(packet.data(), &bytes, sizeof bytes);
  std::memcpy(packet.data() + sizeof bytes, text.data(), text.size());

  alignas(cmsghdr) char control[CMSG_SPACE(max_message_files * sizeof(int))] = {};
  std::lock_guard const lock(sending_);
  for (std::size_t sent = 0; sent < packet.size();) {
    iovec piece{packet.data() + sent, packet.size() - sent};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    if (sent == 0 && !files.empty()) {
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(files.size_bytes());
      cmsghdr* const rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(files.size_bytes());
      std::memcpy(CMSG_DATA(rights), files.data(), files.size_bytes());
    }
    ssize_t const n = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("the other end has gone");
    sent += static_cast<std::size_t>(n);
  }
}

bool channel::receive_bytes(void* to, std::size_t bytes, int limit_ms, std::vector<open_file>& files) {
  for (std::size_t got = 0; got < bytes;) {
    pollfd wanted{socket_.get(), POLLIN, 0};
    int const ready = ::poll(&wanted, 1, limit_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) fail("cannot wait for a message");
    if (ready == 0) throw operation_failed(fmt::format("drive daemon: no answer within {} s", limit_ms / 1000));
    alignas(cmsghdr) char control[CMSG_SPACE(max_message_files * sizeof(int))];
    iovec piece{static_cast<std::byte*>(to) + got, bytes - got};
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    if (accepts_.files != 0) {
      header.msg_control = control;
      header.msg_controllen = sizeof control;
    }
    ssize_t const n = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != ECONNRESET) fail("cannot receive");
    if (n <= 0) return false;
    got += static_cast<std::size_t>(n);
    limit_ms = patience_ms;
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t at = 0; at + CMSG_LEN(sizeof(int)) <= part->cmsg_len; at += sizeof(int)) {
        int number = -1;
        std::memcpy(&number, CMSG_DATA(part) + at, sizeof number);
        files.emplace_back(number);
      }
    }
    // The kernel has closed the files for which there was no room.
    if ((header.msg_flags & MSG_CTRUNC) != 0 || files.size() > accepts_.files) {
      throw operation_failed("drive daemon: a message came with more files than it may have");
    }
  }
  return true;
}

std::optional<message> channel::receive(int limit_ms) {
  message received;
  std::uint32_t bytes = 0;
  if (!receive_bytes(&bytes, sizeof bytes, limit_ms, received.files)) return std::nullopt;
  if (bytes > accepts_.bytes) throw operation_failed("drive daemon: the bytes received are not a message");
  std::string text(bytes, '\0');
  if (!receive_bytes(text.data(), text.size(), patience_ms, received.files)) return std::nullopt;
  auto body = parse_foreign_json(text);
  if (!body || !body->is_object()) throw operation_failed("drive daemon: the bytes received are not a message");
  received.body = std::move(*body);
  return received;
}

void channel::stop_receiving() noexcept {
  ::shutdown(socket_.get(), SHUT_RD);
}

void channel::stop_sending() noexcept {
  ::shutdown(socket_.get(), SHUT_WR);
}

void channel::hang_up() noexcept {
  ::shutdown(socket_.get(), SHUT_RDWR);
}

open_file listen_at(std::string const& path) {
  sockaddr_un const address = address_of(path);
  struct stat about{};
  if (::lstat(path.c_str(), &about) == 0) {
    if (!S_ISSOCK(about.st_mode)) throw refused_input("socket", path, "is not a socket; give another path");
    if (connect_quietly(make_socket(), address)) {
      throw refused_input("socket", path, "a drive daemon listens there already; end that one, or give another path");
    }
    ::unlink(path.c_str());  // left by a daemon that was killed
  }
  open_file listening = make_socket();
  // `accept` must not block if the client has already gone again.
  ::fcntl(listening.get(), F_SETFL, O_NONBLOCK);
  // Before `bind`, which gives the path this mode: programs of other users must not reach the drives.
  ::fchmod(listening.get(), 0600);
  if (::bind(listening.get(), reinterpret_cast<sockaddr const*>(&address), sizeof address) != 0) {
    throw refused_input("socket", path, std::string(std::strerror(errno)) + "; give a path that can be made");
  }
  if (::listen(listening.get(), 128) != 0) fail("cannot listen");
  return listening;
}

std::optional<file_identity> identity_of(std::string const& path) {
  struct stat about{};
  if (::lstat(path.c_str(), &about) != 0) return std::nullopt;
  return file_identity{about.st_dev, about.st_ino};
}

ucred peer_of(open_file const& socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
    fail("cannot ask who is at the other end");
  return peer;
}

open_file connect_to(std::string const& path) {
  sockaddr_un const address = address_of(path);
  open_file made = make_socket();
  if (!connect_quietly(made, address)) {
    throw refused_input("residency", "served",
                        fmt::format("no drive daemon listens at {} ({}); start one with `forebay drive serve`, or run "
                                    "the program with `forebay run -- program`, both of the Python package",
                                    path, std::strerror(errno)));
  }
  ucred const peer = peer_of(made);
  if (peer.uid != ::geteuid() && peer.uid != 0) {
    throw refused_input("FOREBAY_DAEMON", path,
                        fmt::format("the daemon at this socket belongs to user {}; start one of your own", peer.uid));
  }
  return made;
}

nlohmann::json describe_current_exception() {
  try {
    throw;
  } catch (refused_input const& e) {
    return {{"refused", {{"field", e.field()}, {"value", e.value()}, {"remedy", e.remedy()}}}};
  } catch (std::exception const& e) {
    return {{"failed", e.what()}};
  }
}

void rethrow(nlohmann::json const& reply) {
  try {
    if (auto const refused = reply.find("refused"); refused != reply.end()) {
      throw refused_input(refused->at("field"), refused->at("value"), refused->at("remedy"));
    }
    if (auto const failed = reply.find("failed"); failed != reply.end()) {
      throw operation_failed(failed->get<std::string>());
    }
  } catch (nlohmann::json::exception const&) {
    throw operation_failed(
        "drive daemon: it answered with an error that cannot be read: start it again, of this version");
  }
}

}  // namespace forebay::drive::served
