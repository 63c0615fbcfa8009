// SPDX-License-Identifier: Apache-2.0
//! \file
//! Messages between a drive daemon and its clients: JSON documents, each after its length, with open files beside them,
//! on a Unix stream socket.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../open_file.hpp"

namespace forebay::drive::served {

/// What every message between the two must mean; two ends refuse each other where it differs.
inline constexpr std::uint32_t protocol_version = 6;

using drive::open_file;

struct message {
  nlohmann::json body;
  std::vector<open_file> files;
};

inline constexpr std::size_t max_message_files = 16;
inline constexpr int no_time_limit = -1;
/// The time limit for a peer that is in the middle of a message, and for one that has said nothing yet.
inline constexpr int patience_ms = 30'000;

/// What a peer may send in one message.
struct message_limits {
  std::uint32_t bytes;
  std::size_t files;
};
/// A client is not trusted: its requests must be short, and it may send no files.
inline constexpr message_limits from_client{64 << 10, 0};
/// The limits for messages of a daemon's engine, as its clients and its supervisor receive them.
inline constexpr message_limits from_daemon{16 << 20, max_message_files};

/// One end of a connection. One thread at a time may call `receive`; any thread may call the other members.
class channel {
 public:
  channel(open_file socket, message_limits const& accepts);

  /// Throws `operation_failed` when the peer has gone, or accepts no data for 30 seconds.
  void send(nlohmann::json const& body, std::span<int const> files = {});
  /// The next message; none once the peer has gone. Throws `operation_failed` for data that is no message or is longer
  /// than is accepted, and when no message has come within the limit.
  std::optional<message> receive(int limit_ms);
  /// Stops receiving from the peer. The peer still receives what is sent, and does not see that it is no longer heard.
  void stop_receiving() noexcept;
  /// The peer sees the end of what it receives. It may still send.
  void stop_sending() noexcept;
  /// Ends the connection for both; a `receive` that waits returns.
  void hang_up() noexcept;
  int file() const { return socket_.get(); }

 private:
  bool receive_bytes(void* to, std::size_t bytes, int limit_ms, std::vector<open_file>& files);

  open_file socket_;
  message_limits const accepts_;
  std::mutex sending_;
};

/// The address where a daemon listens. Throws `refused_input` for a path that a socket cannot have.
open_file listen_at(std::string const& path);
/// Identifies the file at a path, if there is one: so a daemon removes its own socket, and none that came after it.
struct file_identity {
  std::uint64_t device = 0, number = 0;
  bool operator==(file_identity const&) const = default;
};
std::optional<file_identity> identity_of(std::string const& path);
/// The process and the user that made the other end of a connected socket.
ucred peer_of(open_file const& socket);
/// Throws `refused_input` where no daemon of this user or of root listens.
open_file connect_to(std::string const& path);

/// Describes the current exception so that the peer can throw it again.
nlohmann::json describe_current_exception();
/// Throws what `reply` describes, if it describes an error.
void rethrow(nlohmann::json const& reply);

}  // namespace forebay::drive::served
