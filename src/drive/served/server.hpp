// SPDX-License-Identifier: Apache-2.0
//! \file
//! The part of a drive daemon that has the drives and answers clients.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "channel.hpp"
#include "chunks.hpp"
#include "forebay/detail/drive/uri.hpp"

namespace forebay::drive::served {

/// Keeps the bytes of drives in memory when the process that serves them dies.
class memory_keeper {
 public:
  virtual ~memory_keeper() = default;
  /// The memory of `drive`, made at its first call.
  virtual std::unique_ptr<chunk> memory_of(std::string const& drive, std::size_t bytes, chunk_place const& where) = 0;
  /// Lets go of the memory of a drive that could not be opened, if it has any.
  virtual void forget(std::string const& drive) = 0;
  /// Whether an earlier process had it.
  virtual bool was_there(std::string const& drive) const = 0;
};

/// Serves from its constructor to its destructor, which ends all connections and then writes the drives back.
class server {
 public:
  /// `listening`: a socket, kept open by the caller. `keeper` (null: the drives' memory ends with them) must outlive
  /// it.
  explicit server(int listening, memory_keeper* keeper = nullptr, std::uint32_t restarts = 0,
                  client_limits const& limits = {});
  ~server();
  server(server const&) = delete;
  server& operator=(server const&) = delete;

  /// Opens the drive that a URI names, if it is not open. Throws as `drive::open` does, and `operation_failed` if
  /// `stop` was called meanwhile. Thread-safe.
  void open(std::string const& uri);
  /// Ends all connections and every start of a drive; none is accepted any more.
  void stop();
  /// As `stop`; then writes the drives back. Returns false if data that was written to one of them since its last
  /// successful flush is lost.
  bool close();
  /// A report of each drive that is open, for its whole life in this process.
  nlohmann::json report();
  /// Throws `operation_failed` when a GPU that has a drive no longer works in this process, or should work and never
  /// did.
  void check_gpus();

 private:
  class session;
  struct served_drive;

  void accept_clients(int listening);
  enum class opener : std::uint8_t { daemon, client };
  std::shared_ptr<served_drive> find(std::string const& uri, int gpu, opener by);
  void start(served_drive& made, uri const& from, int gpu, std::string const& name);
  std::vector<std::shared_ptr<served_drive>> open_drives();
  void refuse_one_more(int process);
  void collect_ended();

  memory_keeper* const keeper_;
  std::uint32_t const restarts_;
  std::uint64_t const id_;
  chunk_register chunks_;
  std::stop_source stopping_;
  std::mutex drives_mutex_;  ///< of what follows, and never held while a drive starts
  std::map<std::string, std::shared_ptr<served_drive>> drives_;
  std::map<int, memory::allocation> gpu_words_;  ///< of each GPU with a drive: something to reach for
  std::string no_gpu_;                           ///< why a drive that an earlier process had on one cannot be opened
  std::mutex sessions_mutex_;
  std::vector<std::unique_ptr<session>> sessions_;
  open_file stop_read_, stop_write_;
  std::thread acceptor_;
};

}  // namespace forebay::drive::served
