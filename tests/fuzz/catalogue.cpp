// SPDX-License-Identifier: Apache-2.0
//! \file
//! Fuzzes the catalogue of extents: what the first MiB of a storage holds, and what is done with what was found.
#include "forebay/detail/storage/catalogue.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "emulator/fuzz_input.hpp"
#include "fuzz/refusals.hpp"

namespace {

using namespace forebay;
using emulator::testing::choices;
using test::demand;

using image = std::vector<char>;

/// A copy as docs/reference/catalogue.md describes it; its checksum is right, unless `damaged`.
void put_copy(image& storage, std::uint64_t at, std::uint32_t version, std::uint64_t sequence, std::string const& text,
              std::uint32_t text_bytes, bool damaged) {
  std::uint64_t hash = 0xcbf29ce484222325;
  auto const add = [&](void const* data, std::size_t bytes) {
    auto const* const from = static_cast<unsigned char const*>(data);
    for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ from[i]) * 0x100000001b3;
  };
  std::memcpy(storage.data() + at + 32, text.data(), text.size());
  if (version != 1) add(&version, sizeof version);
  add(&sequence, sizeof sequence);
  add(&text_bytes, sizeof text_bytes);
  if (text_bytes <= catalogue::copy_bytes - 32) add(storage.data() + at + 32, text_bytes);
  if (damaged) ++hash;
  std::memcpy(storage.data() + at, "FOREBAYC", 8);
  std::memcpy(storage.data() + at + 8, &version, 4);
  std::memcpy(storage.data() + at + 12, &text_bytes, 4);
  std::memcpy(storage.data() + at + 16, &sequence, 8);
  std::memcpy(storage.data() + at + 24, &hash, 8);
}

std::optional<catalogue> load(image const& storage, catalogue_home const& home, bool damaged_is_none = false) {
  return catalogue::load(
      home,
      [&](void* to, std::uint64_t bytes, std::uint64_t offset) {
        demand(offset <= storage.size() && bytes <= storage.size() - offset, "a catalogue reads its own bytes");
        std::memcpy(to, storage.data() + offset, bytes);
      },
      damaged_is_none);
}

void check(catalogue const& found, catalogue_home const& home) {
  std::uint64_t end = catalogue::reserved_bytes;
  for (extent const& e : found.extents()) {
    demand(e.first_byte >= end && e.first_byte % catalogue::alignment_bytes == 0, "extents do not overlap");
    demand(e.size_bytes != 0 && e.size_bytes <= home.bytes && e.first_byte <= home.bytes - e.size_bytes,
           "extents lie in the storage");
    demand(found.find(e.name) == &e, "names are distinct");
    end = e.first_byte + e.size_bytes;
  }
}

bool same(catalogue const& a, catalogue const& b) {
  return std::equal(a.extents().begin(), a.extents().end(), b.extents().begin(), b.extents().end(),
                    [](extent const& x, extent const& y) {
                      return x.name == y.name && x.first_byte == y.first_byte && x.size_bytes == y.size_bytes;
                    });
}

void change(catalogue& table, choices& pick) {
  std::string const name(1, static_cast<char>(pick.rarely(16) ? pick.byte() : 'a' + pick.below(6)));
  std::uint64_t const bytes =
      pick.rarely(32) ? pick.word<std::uint64_t>() : (std::uint64_t{pick.word<std::uint16_t>()} << pick.below(14));
  switch (pick.below(4)) {
    case 0:
      table.create(name, bytes);
      break;
    case 1: {
      extent const staged = table.stage(name, bytes);
      pick.rarely(128) ? table.discard(staged) : table.publish(staged, pick.rarely(128));
      break;
    }
    case 2:
      table.remove(name);
      break;
    default:
      if (!table.extents().empty()) table.remove(std::string(table.extents().front().name));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  // A head of choices, then the texts of the two copies with a NUL between them.
  constexpr std::size_t head_bytes = 48;
  emulator::testing::fuzz_input const head(data, data + std::min(size, head_bytes));
  std::string const rest(reinterpret_cast<char const*>(data) + head.size(), size - head.size());
  std::size_t const nul = std::min(rest.find('\0'), rest.size());
  std::string const texts[] = {rest.substr(0, nul), nul < rest.size() ? rest.substr(nul + 1) : std::string()};
  if (std::max(texts[0].size(), texts[1].size()) > catalogue::copy_bytes - 32) return 0;

  choices pick(head);
  catalogue_home const home(pick.rarely(32) ? pick.word<std::uint64_t>() : std::uint64_t{pick.byte()} << 20,
                            pick.rarely(64) ? pick.byte() : 1, pick.rarely(64) ? pick.word<std::uint32_t>() : 65536);
  static image storage(catalogue::reserved_bytes);
  std::fill(storage.begin(), storage.end(), '\0');
  for (std::uint64_t copy = 0; copy < 2; ++copy) {
    bool const wild = pick.rarely(16);
    auto const version = wild ? pick.word<std::uint32_t>() : 1 + pick.below(2);
    auto const text_bytes = wild ? pick.word<std::uint32_t>() : static_cast<std::uint32_t>(texts[copy].size());
    std::uint64_t const sequence = pick.rarely(8) ? pick.word<std::uint64_t>() : pick.below(8);
    bool const damaged = pick.rarely(16);
    if (pick.rarely(32)) continue;  // no copy there
    put_copy(storage, copy * catalogue::copy_bytes, version, sequence, texts[copy], text_bytes, damaged);
  }

  fuzz::refuses([&] {
    std::optional<catalogue> table = load(storage, home, pick.rarely(128));
    if (!table && home.bytes >= catalogue::reserved_bytes) table.emplace(home);
    if (!table) return;
    check(*table, home);
    for (int changes = 0; changes < 8 && !pick.done(); ++changes) {
      fuzz::refuses([&] { change(*table, pick); });
      check(*table, home);
    }
    bool stored = !fuzz::refuses([&] {
      table->store(
          [&](void const* from, std::uint64_t bytes, std::uint64_t offset) {
            demand(offset <= storage.size() && bytes <= storage.size() - offset, "a catalogue writes its own bytes");
            std::memcpy(storage.data() + offset, from, bytes);
          },
          [] {});
    });
    if (!stored) return;
    auto const again = load(storage, home);
    demand(again && same(*again, *table), "what was stored is found again");
  });
  return 0;
}
