// SPDX-License-Identifier: Apache-2.0
#include "served_device.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <shared_mutex>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "channel.hpp"
#include "chunks.hpp"
#include "forebay/detail/drive/served.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/error.hpp"

namespace forebay::drive::served {
namespace {

using nlohmann::json;

constexpr int answer_limit_ms = 30'000;
constexpr int open_limit_ms = 120'000;  // a large drive, or an engine that another client just killed
constexpr int close_limit_ms = 10'000;
constexpr int end_limit_ms = 60'000;
constexpr int between_looks_ms = 1;

/// The chunks of all drives that this process has from daemons: a drive can use memory that came with another drive of
/// the same daemon. Thread-safe.
class known_chunks {
 public:
  /// The address of bytes in the daemon, and so on the bus, and the key that the daemon wants from a client that names
  /// them.
  struct place {
    std::uint64_t address = 0;  ///< 0: no chunk holds all of the bytes
    std::uint64_t key = 0;
    std::uint64_t lent_id = 0;  ///< of the allocation, if this process lends it to the daemon
  };

  void add(std::uint64_t daemon, place const& there, std::shared_ptr<chunk> here) {
    std::unique_lock const lock(mutex_);
    chunks_.push_back({daemon, there, std::move(here)});
  }
  bool on_gpu(std::uint64_t daemon, void const* address) const {
    auto const at = reinterpret_cast<std::uint64_t>(address);
    std::shared_lock const lock(mutex_);
    return std::any_of(chunks_.begin(), chunks_.end(), [&](entry const& e) {
      return e.daemon == daemon && e.here->contains(at, 1) && e.here->where().kind == memory::kind::device;
    });
  }
  void remove(std::vector<std::shared_ptr<chunk>> const& gone) {
    std::unique_lock const lock(mutex_);
    std::erase_if(chunks_, [&](entry const& e) { return std::find(gone.begin(), gone.end(), e.here) != gone.end(); });
  }
  place there(std::uint64_t daemon, void const* address, std::size_t bytes) const {
    auto const at = reinterpret_cast<std::uint64_t>(address);
    std::shared_lock const lock(mutex_);
    for (entry const& e : chunks_) {
      if (e.daemon == daemon && e.here->contains(at, bytes)) {
        return {e.there.address + (at - reinterpret_cast<std::uint64_t>(e.here->data())), e.there.key};
      }
    }
    return {};
  }
  void* here(std::uint64_t daemon, std::uint64_t address) const {
    std::shared_lock const lock(mutex_);
    for (entry const& e : chunks_) {
      if (e.daemon == daemon && address >= e.there.address && address - e.there.address < e.here->size_bytes()) {
        return e.here->data() + (address - e.there.address);
      }
    }
    throw operation_failed("drive daemon: it named memory that it does not share");
  }

 private:
  struct entry {
    std::uint64_t daemon;
    place there;
    std::shared_ptr<chunk> here;
  };
  mutable std::shared_mutex mutex_;
  std::vector<entry> chunks_;
};

known_chunks& chunks() {
  static known_chunks all;
  return all;
}

/// Requests and their answers, one at a time. Thread-safe.
class connection {
 public:
  /// `with_gpu`: this process uses a GPU, which must reach the memory that the process shares with the daemon.
  connection(open_file socket, bool with_gpu) : channel_(std::move(socket), from_daemon), with_gpu_(with_gpu) {}
  ~connection() { chunks().remove(mapped_); }
  connection(connection const&) = delete;
  connection& operator=(connection const&) = delete;

  json call(json const& request, int limit_ms = answer_limit_ms) {
    std::lock_guard const lock(mutex_);
    if (gone_) lost();
    gone_ = true;  // unless an answer comes: a late one would be taken for that of the next request
    try {
      channel_.send(request);
    } catch (operation_failed const&) {
      // A daemon that takes no more clients says so before it hangs up.
    }
    std::optional<message> reply = channel_.receive(limit_ms);
    if (!reply) lost();
    gone_ = false;
    if (auto const daemon = reply->body.find("daemon"); daemon != reply->body.end()) daemon_ = *daemon;
    if (auto const fresh = reply->body.find("chunks"); fresh != reply->body.end()) map(*fresh, reply->files);
    rethrow(reply->body);
    return std::move(reply->body);
  }

  /// Lets the daemon reach an allocation of this process. Throws what the daemon answers.
  void lend(memory::lendable_allocation const& mine) {
    std::lock_guard const alone(lending_);
    {
      std::unique_lock const lock(lent_mutex_);
      if (std::any_of(lent_.begin(), lent_.end(), [&](lent const& l) { return l.id == mine.id; })) return;
      // What was lent in its place has been freed. The daemon keeps that until the connection ends.
      std::erase_if(lent_,
                    [&](lent const& l) { return l.here < mine.first + mine.bytes && mine.first < l.here + l.bytes; });
    }
    json const reply = call({{"do", "lend"}, {"handle", mine.handle}});
    std::uint64_t const there = reply.at("address");
    if (reply.at("bytes").get<std::uint64_t>() < mine.bytes ||
        (there - reinterpret_cast<std::uint64_t>(mine.first)) % served::page_bytes != 0) {
      throw operation_failed("the drive daemon reaches memory of cudaMalloc, but not all of it or not by whole pages");
    }
    std::unique_lock const lock(lent_mutex_);
    lent_.push_back({mine.first, mine.bytes, mine.id, there});
  }

  /// A caller that waits for an answer gets `operation_failed`.
  void hang_up() noexcept { channel_.hang_up(); }
  /// Sends nothing more, and returns when the daemon has hung up: then it uses nothing of this client. Also after a
  /// time limit, since a daemon that is stopped must not stop this process too.
  void end() noexcept {
    channel_.stop_sending();
    for (int looks = 0; !has_left() && looks < end_limit_ms / between_looks_ms; ++looks) {
      ::poll(nullptr, 0, between_looks_ms);
    }
    channel_.hang_up();
  }
  bool has_left() const {
    pollfd look{channel_.file(), POLLRDHUP, 0};
    return ::poll(&look, 1, 0) > 0;
  }
  bool on_gpu(void const* address) const { return chunks().on_gpu(daemon_, address); }
  void* here(std::uint64_t address) const { return chunks().here(daemon_, address); }
  known_chunks::place there(void const* address, std::size_t bytes) const {
    if (auto const found = chunks().there(daemon_, address, bytes); found.address != 0) return found;
    auto const* const at = static_cast<std::byte const*>(address);
    std::shared_lock const lock(lent_mutex_);
    for (lent const& l : lent_) {
      if (at < l.here || bytes > l.bytes || static_cast<std::size_t>(at - l.here) > l.bytes - bytes) continue;
      return {.address = l.there + static_cast<std::uint64_t>(at - l.here), .lent_id = l.id};
    }
    return {};
  }

 private:
  /// An allocation of this process that the daemon reaches.
  struct lent {
    std::byte const* here;
    std::size_t bytes;
    std::uint64_t id;
    std::uint64_t there;
  };

  [[noreturn]] static void lost() {
    throw operation_failed("the drive daemon ended the connection, or died; open the drive again");
  }

  void map(json const& fresh, std::vector<open_file>& files) {
    for (std::size_t i = 0; i < fresh.size() && i < files.size(); ++i) {
      chunk_place where{.kind = static_cast<memory::kind>(fresh[i].at("kind").get<int>()),
                        .gpu = fresh[i].at("gpu"),
                        .page_bytes = fresh[i].at("page_bytes")};
      if (with_gpu_ && where.kind == memory::kind::host) where.kind = memory::kind::pinned;
      if (!with_gpu_) {
        if (where.kind == memory::kind::device) continue;  // threads of a CPU reach none of it
        where.kind = memory::kind::host;
      }
      mapped_.push_back(std::make_shared<chunk>(std::move(files[i]), fresh[i].at("bytes").get<std::size_t>(), where));
      chunks().add(daemon_, {fresh[i].at("address"), fresh[i].at("key")}, mapped_.back());
    }
  }

  std::mutex mutex_;
  channel channel_;
  bool const with_gpu_;
  bool gone_ = false;
  std::uint64_t daemon_ = 0;
  std::vector<std::shared_ptr<chunk>> mapped_;
  std::mutex lending_;  ///< held from looking for an allocation until it is among the lent ones
  mutable std::shared_mutex lent_mutex_;
  std::vector<lent> lent_;
};

bool uses_gpu(open_options const& options) {
  return options.client_memory->kind() != memory::kind::host;
}

/// The daemon makes every access, so that a register means the same as in one process.
class served_registers final : public driver::register_space {
 public:
  explicit served_registers(connection& to) : to_(to) {}

  std::uint32_t read32(std::uint32_t offset_bytes) override {
    try {
      return to_.call({{"do", "read"}, {"offset", offset_bytes}}).at("value");
    } catch (operation_failed const&) {
      if (to_.has_left()) return nvme::removed_value;
      // A daemon that is only slow may still use this client's memory, so its controller has failed, and is there.
      return offset_bytes == nvme::registers::csts
                 ? nvme::controller_status::make(true, true, nvme::shutdown_status::none)
                 : 0;
    }
  }
  void write32(std::uint32_t offset_bytes, std::uint32_t value) override {
    try {
      to_.call({{"do", "write"}, {"offset", offset_bytes}, {"value", value}});
    } catch (operation_failed const&) {
      // A bus drops what is written to a device that has left it; the next read shows that it has.
    }
  }
  std::uint32_t* doorbell(std::uint32_t offset_bytes) override { return doorbell(offset_bytes, false); }
  std::uint32_t* doorbell_for_gpu(std::uint32_t offset_bytes) override { return doorbell(offset_bytes, true); }
  /// Looks at the end of the connection: a daemon that is only slow has not gone.
  bool has_left() override { return to_.has_left(); }

 private:
  std::uint32_t* doorbell(std::uint32_t offset_bytes, bool for_gpu) {
    json const reply = to_.call({{"do", "doorbell"}, {"offset", offset_bytes}, {"for_gpu", for_gpu}});
    return static_cast<std::uint32_t*>(to_.here(reply.at("address")));
  }

  connection& to_;
};

class served_dma_space final : public driver::dma_space {
 public:
  explicit served_dma_space(connection& to) : to_(to) {}
  /// From now on the daemon is asked where memory is on the bus.
  void translate() { translates_ = true; }

  void* allocate(std::size_t bytes) override { return allocate(bytes, false); }
  void* allocate_for_gpu(std::size_t bytes) override { return allocate(bytes, true); }
  void deallocate(void* address) noexcept override {
    try {
      if (auto const there = to_.there(address, 1); there.address != 0) {
        to_.call({{"do", "deallocate"}, {"address", there.address}});
      }
    } catch (std::exception const&) {
      // The daemon has gone. The memory that it gave is released with the connection.
    }
  }
  void clear(void* address, std::size_t bytes) override {
    if (to_.on_gpu(address)) {
      to_.call(request("clear", address, bytes));
    } else {
      std::memset(address, 0, bytes);
    }
  }
  void lend(void* address, std::size_t bytes) override {
    if (auto const found = to_.there(address, bytes); found.address != 0 && found.lent_id == 0) return;
    auto const mine = memory::lendable(address);
    if (!mine) refuse(address, bytes);
    to_.lend(*mine);
  }
  void map(void* address, std::size_t bytes) override {
    // The address may be that of a new allocation in the place of one that was lent and freed.
    if (auto const found = there(address, bytes); found.lent_id != 0) {
      auto const mine = memory::lendable(address);
      if (!mine || mine->id != found.lent_id) refuse(address, bytes);
    }
    json const mapping = request("map", address, bytes);
    to_.call(mapping);
    std::lock_guard const lock(mutex_);
    mapped_.push_back({address, bytes, mapping});
  }
  void unmap(void* address, std::size_t bytes) override {
    try {
      json mapping;
      {
        // The oldest: another allocation may lie there by now, and be mapped too.
        std::lock_guard const lock(mutex_);
        auto const found = std::find_if(mapped_.begin(), mapped_.end(),
                                        [&](auto const& m) { return m.here == address && m.bytes == bytes; });
        if (found == mapped_.end()) return;
        mapping = std::move(found->request);
        mapped_.erase(found);
      }
      mapping["do"] = "unmap";
      to_.call(mapping);
    } catch (std::exception const&) {
      // A daemon that has gone has nothing mapped.
    }
  }
  std::uint64_t bus_address(void const* address) const override {
    auto const found = there(address, 1);
    return translates_ ? translated(found) : found.address;
  }
  std::size_t page_bytes() const override { return served::page_bytes; }

 private:
  void* allocate(std::size_t bytes, bool for_gpu) {
    json const reply = to_.call({{"do", "allocate"}, {"bytes", bytes}, {"for_gpu", for_gpu}});
    return to_.here(reply.at("address"));
  }
  known_chunks::place there(void const* address, std::size_t bytes) const {
    if (auto const found = to_.there(address, bytes); found.address != 0) return found;
    refuse(address, bytes);
  }
  [[noreturn]] static void refuse(void const* address, std::size_t bytes) {
    throw refused_input("mapped memory",
                        std::to_string(reinterpret_cast<std::uintptr_t>(address)) + "+" + std::to_string(bytes),
                        "a served drive reaches only memory that its daemon gave, and allocations of cudaMalloc that "
                        "were registered: use allocate_buffer() or allocate_device_buffer(), and no other drives in "
                        "the same storage");
  }
  /// The chunk may be another one in the place of an earlier one, but then it has another key.
  std::uint64_t translated(known_chunks::place const& at) const {
    std::lock_guard const lock(stretches_mutex_);
    for (int looks = 0; looks < 2; ++looks) {
      auto const after = stretches_.upper_bound({at.key, at.address});
      if (after != stretches_.begin()) {
        auto const& [first, its] = *std::prev(after);
        std::uint64_t const offset = at.address - first.second;
        if (first.first == at.key && offset < its.bytes) return its.bus_address + offset;
      }
      json const reply = to_.call({{"do", "stretches"}, {"address", at.address}, {"bytes", 1}, {"key", at.key}});
      for (json const& s : reply.at("stretches")) {
        std::uint64_t const first = reply.at("address").get<std::uint64_t>() + s.at(0).get<std::uint64_t>();
        stretches_[{at.key, first}] = {s.at(1), s.at(2)};
      }
    }
    throw operation_failed("drive daemon: it does not say where memory is on the bus");
  }
  json request(char const* what, void* address, std::size_t bytes) const {
    auto const at = there(address, bytes);
    return {{"do", what}, {"address", at.address}, {"bytes", bytes}, {"key", at.key}};
  }

  /// What the daemon was asked to map: its address there may be found in no other way once the memory here was freed.
  struct mapped_range {
    void const* here;
    std::size_t bytes;
    json request;
  };
  /// Of a chunk, and where it is on the bus.
  struct stretch {
    std::uint64_t bytes = 0;
    std::uint64_t bus_address = 0;
  };
  connection& to_;
  std::mutex mutex_;
  std::list<mapped_range> mapped_;
  bool translates_ = false;
  mutable std::mutex stretches_mutex_;
  mutable std::map<std::pair<std::uint64_t, std::uint64_t>, stretch> stretches_;  ///< by key and address in the daemon
};

class served_device final : public device {
 public:
  served_device(uri const& from, open_options const& options)
      : connection_(connect_to(daemon_socket()), uses_gpu(options)) {
    std::stop_callback const ends_it(options.cancel, [this] { connection_.hang_up(); });
    json const reply = connection_.call({{"do", "open"},
                                         {"protocol", protocol_version},
                                         {"uri", from.text()},
                                         {"gpu", options.gpu},
                                         {"with_gpu", uses_gpu(options)},
                                         {"queues", options.queues}},
                                        open_limit_ms);
    if (!reply.at("gpu").is_null()) gpu_ = reply.at("gpu").get<int>();
    nsid_ = reply.at("nsid");
    if (reply.at("translates")) dma_.translate();
  }
  /// When it returns, its queue pairs are free for the next client that opens the drive.
  ~served_device() override { close(); }

  driver::register_space& registers() override { return registers_; }
  driver::dma_space& dma() override { return dma_; }
  std::optional<int> gpu() const override { return gpu_; }
  std::uint32_t nsid() const override { return nsid_; }
  json report() override { return connection_.call({{"do", "report"}}).at("report"); }
  std::uint64_t populate(std::uint64_t bytes) override {
    return connection_.call({{"do", "populate"}, {"bytes", bytes}}, open_limit_ms).at("bytes");
  }
  std::uint64_t claim(std::uint64_t first_byte, std::uint64_t bytes) override {
    return connection_.call({{"do", "claim"}, {"first_byte", first_byte}, {"bytes", bytes}}).at("taken_to");
  }
  void unclaim(std::uint64_t first_byte, std::uint64_t bytes) noexcept override {
    try {
      connection_.call({{"do", "unclaim"}, {"first_byte", first_byte}, {"bytes", bytes}});
    } catch (std::exception const&) {
      // The claims of a connection end with it.
    }
  }
  void reset_statistics() override { connection_.call({{"do", "reset_statistics"}}); }
  void end() noexcept override {
    close();
    connection_.end();
  }

 private:
  void close() noexcept {
    try {
      connection_.call({{"do", "close"}}, close_limit_ms);
    } catch (std::exception const&) {
      // A daemon that has gone, or is slow: it frees them once it sees that the connection has ended.
    }
  }

  connection connection_;
  std::optional<int> gpu_;
  std::uint32_t nsid_ = 1;
  served_registers registers_{connection_};
  served_dma_space dma_{connection_};
};

/// The daemon runs in another folder, so the path must be absolute.
void refuse_relative(uri const& from, char const* key, bool is_path) {
  auto const value = from.value(key);
  if (value && is_path && !value->starts_with('/')) {
    throw refused_input(key, *value, "give an absolute path: the drive daemon may run in another folder");
  }
}

}  // namespace

std::unique_ptr<device> open(uri const& from, open_options const& options) {
  refuse_relative(from, "path", true);
  auto const name = from.value("profile").value_or("");
  refuse_relative(from, "profile", name.find('/') != std::string::npos || name.ends_with(".toml"));
  return std::make_unique<served_device>(from, options);
}

}  // namespace forebay::drive::served
