// SPDX-License-Identifier: Apache-2.0
#include "drive/hostile_client.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "drive/served/channel.hpp"
#include "drive/served/chunks.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/nvme/registers.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

namespace forebay::test {
namespace {

namespace served = drive::served;
namespace registers = nvme::registers;
using nlohmann::json;
using simt::native;

constexpr std::uint32_t entries = 16;

class hostile {
 public:
  hostile(std::string const& socket, std::uint64_t seed)
      : to_(served::connect_to(socket), served::from_daemon), random_(seed) {}

  /// One connection's life.
  void live(std::string const& uri, bool may_write) {
    if (chance(8)) return talk_nonsense();
    json const opened = ask({{"do", "open"},
                             {"protocol", served::protocol_version},
                             {"uri", chance(20) ? random_text() : uri},
                             {"gpu", chance(20) ? below(2000) : 0},
                             {"with_gpu", false},
                             {"queues", below(4)}});
    if (!opened.contains("daemon")) return;
    may_write_ = may_write;
    set_up();
    for (std::uint64_t steps = below(200); steps != 0; --steps) step();
    if (chance(2)) ask({{"do", "close"}});
  }

 private:
  struct piece {
    std::uint64_t there = 0;
    std::size_t bytes = 0;
    std::uint64_t key = 0;
    std::shared_ptr<served::chunk> chunk;
    std::byte* here() const { return chunk->data() + (there - chunk_there); }
    std::uint64_t chunk_there = 0;
  };

  std::uint64_t any() { return random_(); }
  std::uint64_t below(std::uint64_t n) { return n == 0 ? 0 : random_() % n; }
  bool chance(std::uint64_t one_in) { return below(one_in) == 0; }
  std::string random_text() {
    std::string text(below(300), 'x');
    for (char& c : text) c = static_cast<char>(' ' + below(95));
    return text;
  }

  json ask(json const& request) {
    to_.send(request);
    auto reply = to_.receive(60'000);
    if (!reply) throw operation_failed("hung up on");
    for (std::size_t i = 0; i < reply->files.size(); ++i) {
      json const& about = reply->body.at("chunks").at(i);
      chunks_.push_back(
          {about.at("address"), about.at("key"),
           std::make_shared<served::chunk>(std::move(reply->files[i]), about.at("bytes").get<std::size_t>())});
    }
    return reply->body;
  }

  void talk_nonsense() {
    switch (below(4)) {
      case 0: {  // half a message, then silence or the end
        std::uint32_t const bytes = static_cast<std::uint32_t>(below(100'000));
        (void)::send(to_.file(), &bytes, sizeof bytes, MSG_NOSIGNAL);
        std::string const text = random_text();
        (void)::send(to_.file(), text.data(), std::min<std::size_t>(text.size(), bytes), MSG_NOSIGNAL);
        return;
      }
      case 1: {
        std::string bytes(below(4096), '\0');
        for (char& c : bytes) c = static_cast<char>(any());
        (void)::send(to_.file(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
        return;
      }
      case 2: {
        served::open_file const file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        std::vector<int> const files(1 + below(served::max_message_files), file.get());
        to_.send({{"do", "read"}, {"offset", 0}}, files);
        return;
      }
      default:
        to_.send(json::parse(std::string(below(60), '[') + "1", nullptr, false));
    }
  }

  piece allocate(std::uint64_t bytes) {
    json const reply = ask({{"do", "allocate"}, {"bytes", bytes}, {"for_gpu", chance(2)}});
    if (!reply.contains("address")) return {};
    std::uint64_t const at = reply.at("address");
    for (known const& c : chunks_) {
      if (at >= c.there && at - c.there < c.chunk->size_bytes()) return {at, bytes, c.key, c.chunk, c.there};
    }
    return {};
  }
  void write_register(std::uint32_t offset, std::uint32_t value) {
    ask({{"do", "write"}, {"offset", offset}, {"value", value}});
  }
  void write_register64(std::uint32_t offset, std::uint64_t value) {
    write_register(offset, static_cast<std::uint32_t>(value));
    write_register(offset + 4, static_cast<std::uint32_t>(value >> 32));
  }

  void set_up() {
    area_ = allocate(1 << 20);
    if (!area_.chunk) return;
    write_register(registers::aqa, nvme::admin_queue_attributes::make(entries, entries));
    write_register64(registers::asq, area_.there);
    write_register64(registers::acq, area_.there + 4096);
    write_register(registers::cc, nvme::controller_configuration::make(true, 4096));
    (void)native::wait_until(
        [&] {
          json const reply = ask({{"do", "read"}, {"offset", static_cast<std::uint32_t>(registers::csts)}});
          return reply.contains("value") && (reply.at("value").get<std::uint32_t>() & 3) != 0;
        },
        native::clock_ns() + 10'000'000'000);
    nvme::submission_entry cq, sq;
    cq.cdw0 = static_cast<std::uint8_t>(nvme::admin_opcode::create_io_completion_queue);
    cq.prp1 = area_.there + 8192;
    cq.cdw10 = 1 | (entries - 1) << 16;
    cq.cdw11 = 1;
    sq.cdw0 = static_cast<std::uint8_t>(nvme::admin_opcode::create_io_submission_queue);
    sq.prp1 = area_.there + 12288;
    sq.cdw10 = 1 | (entries - 1) << 16;
    sq.cdw11 = 1 | 1u << 16;
    admin(cq);
    admin(sq);
  }
  void admin(nvme::submission_entry entry) {
    if (!area_.chunk) return;
    entry.set_command_id(static_cast<std::uint16_t>(admin_tail_));
    std::memcpy(area_.here() + admin_tail_ % entries * sizeof entry, &entry, sizeof entry);
    ++admin_tail_;
    write_register(registers::sq_tail_doorbell(0, 0), admin_tail_ % entries);
    if (admin_tail_ % 8 == 0) write_register(registers::cq_head_doorbell(0, 0), admin_tail_ % entries);
  }

  /// An address of its own memory, near its ends, of another client's, or of nothing.
  std::uint64_t address() {
    if (!area_.chunk || chance(10)) return any();
    std::uint64_t const chunk = chunks_[below(chunks_.size())].there;
    std::uint64_t const bytes = std::uint64_t{64} << 20;
    switch (below(6)) {
      case 0:
        return chunk + bytes - below(3 * 4096);
      case 1:
        return chunk - below(3 * 4096);
      case 2:
        return chunk + (below(5) - 2) * (bytes + 8192) + below(bytes);
      default:
        return area_.there + below(area_.bytes) / (chance(3) ? 1 : 4096) * (chance(3) ? 1 : 4096);
    }
  }
  nvme::submission_entry command() {
    static constexpr std::array<nvme::io_opcode, 3> harmless{nvme::io_opcode::flush, nvme::io_opcode::read,
                                                             nvme::io_opcode::compare};
    nvme::submission_entry entry;
    std::array<std::uint32_t, 16> words;
    for (std::uint32_t& w : words) w = static_cast<std::uint32_t>(any());
    std::memcpy(static_cast<void*>(&entry), words.data(), sizeof entry);
    auto const opcode = may_write_ ? static_cast<std::uint32_t>(chance(8) ? any() & 0xff : below(10))
                                   : static_cast<std::uint32_t>(harmless[below(harmless.size())]);
    entry.cdw0 = static_cast<std::uint32_t>(any()) << 16 | opcode;
    if (chance(20)) entry.cdw0 |= static_cast<std::uint32_t>(any()) & 0xff00;
    if (!chance(10)) entry.nsid = 1;
    entry.prp1 = address();
    entry.prp2 = address();
    if (!chance(10)) {
      entry.cdw10 = static_cast<std::uint32_t>(below(16384));
      entry.cdw11 = 0;
      entry.cdw12 = static_cast<std::uint32_t>(below(300));
    }
    return entry;
  }

  void step() {
    switch (below(14)) {
      case 0:
        write_register(static_cast<std::uint32_t>(below(0x1100)), static_cast<std::uint32_t>(any()));
        break;
      case 1:
        write_register(registers::cc, chance(2) ? 0 : nvme::controller_configuration::make(true, 4096));
        break;
      case 2:
        write_register64(chance(2) ? registers::asq : registers::acq, address());
        break;
      case 3:
      case 4: {
        nvme::submission_entry entry = command();
        entry.cdw0 = static_cast<std::uint32_t>(chance(4) ? any() & 0xff
                                                          : std::array{0, 1, 2, 4, 5, 6, 8, 9, 10, 12}[below(10)]);
        if (chance(2)) {
          entry.cdw10 = static_cast<std::uint32_t>(below(4) | below(64) << 16);
          entry.cdw11 = static_cast<std::uint32_t>(below(4) | below(4) << 16);
        }
        admin(entry);
        break;
      }
      case 5:
      case 6:
      case 7:
      case 8: {
        if (!area_.chunk) break;
        for (std::uint64_t n = 1 + below(entries); n != 0; --n) {
          nvme::submission_entry const entry = command();
          std::memcpy(area_.here() + 12288 + below(entries) * sizeof entry, &entry, sizeof entry);
        }
        // Lists, some of them right.
        for (int i = 0; i < 64; ++i) {
          std::uint64_t const entry = address() / (chance(4) ? 1 : 4096) * (chance(4) ? 1 : 4096);
          std::memcpy(area_.here() + 65536 + below(8192) * 8, &entry, sizeof entry);
        }
        write_register(registers::sq_tail_doorbell(1, 0), static_cast<std::uint32_t>(below(chance(6) ? 100 : entries)));
        write_register(registers::cq_head_doorbell(1, 0), static_cast<std::uint32_t>(below(chance(6) ? 100 : entries)));
        break;
      }
      case 9: {  // all that it can reach, but for submission entries where it must not write to the drive
        if (chunks_.empty()) break;
        known const& c = chunks_[below(chunks_.size())];
        std::uint64_t const first = below(c.chunk->size_bytes() / 8);
        for (std::uint64_t i = first; i < std::min<std::uint64_t>(first + below(4096), c.chunk->size_bytes() / 8);
             ++i) {
          std::byte* const at = c.chunk->data() + i * 8;
          if (!may_write_ && area_.chunk && at >= area_.here() && at < area_.here() + area_.bytes) continue;
          std::uint64_t const word = chance(2) ? any() : below(64);
          std::memcpy(at, &word, sizeof word);
        }
        break;
      }
      case 10: {
        piece const p = allocate(chance(4) ? any() : below(4 << 20));
        if (p.chunk) pieces_.push_back(p);
        break;
      }
      case 11:
        if (pieces_.empty() || chance(4)) {
          ask({{"do", "deallocate"}, {"address", chance(4) && area_.chunk ? area_.there : address()}});
        } else {
          ask({{"do", "deallocate"}, {"address", pieces_.back().there}});
          pieces_.pop_back();
        }
        break;
      case 12: {
        std::uint64_t const key = chunks_.empty() || chance(3) ? any() : chunks_[below(chunks_.size())].key;
        std::uint64_t const page = chance(4) ? 1 : 4096;
        ask({{"do", std::array{"map", "unmap", "clear"}[below(3)]},
             {"address", address() / page * page},
             {"bytes", chance(6) ? any() : below(64) * page},
             {"key", key}});
        break;
      }
      default:
        ask({{"do", std::array{"report", "reset_statistics", "doorbell", "read", "lend", "x"}[below(6)]},
             {"handle", std::vector<std::uint64_t>(chance(3) ? below(100) : 64, below(300))},
             {"offset", below(0x2000)},
             {"for_gpu", chance(2)}});
    }
  }

  struct known {
    std::uint64_t there, key;
    std::shared_ptr<served::chunk> chunk;
  };

  served::channel to_;
  std::mt19937_64 random_;
  std::vector<known> chunks_;
  std::vector<piece> pieces_;
  piece area_;
  std::uint32_t admin_tail_ = 0;
  bool may_write_ = false;
};

}  // namespace

void do_harm(std::string const& socket, std::string const& drives, std::string const& read_only_drive,
             std::uint64_t seed, std::uint64_t until_ns) {
  std::mt19937_64 random(seed);
  while (native::clock_ns() < until_ns) {
    bool const may_write = random() % 3 != 0;
    try {
      hostile one(socket, random());
      one.live(may_write ? drives : read_only_drive, may_write);
      if (random() % 20 == 0) ::_exit(0);  // with everything open
    } catch (std::exception const&) {
      // The daemon closed the connection, as it should, or was not found: another test checks whether the daemon lives.
    }
  }
}

}  // namespace forebay::test
