// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/storage/catalogue.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "drive/bounded_json.hpp"
#include "forebay/error.hpp"

namespace forebay {
namespace {

constexpr std::array<char, 8> magic = {'F', 'O', 'R', 'E', 'B', 'A', 'Y', 'C'};
constexpr std::uint32_t version = 2;

/// What each copy begins with, little-endian as on every machine that CUDA runs on. The JSON text follows.
struct copy_header {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t text_bytes;
  std::uint64_t sequence;
  std::uint64_t checksum;  ///< of `version` (from version 2 on), `sequence`, `text_bytes` and the text
};
static_assert(sizeof(copy_header) == 32);

/// The first change writes this many bytes, the magic and zeros, before any copy. They count as an empty table. No
/// drive has larger blocks.
constexpr std::uint64_t mark_bytes = 4096;

bool is_mark(std::vector<char> const& copy) {
  return std::all_of(copy.begin() + magic.size(), copy.begin() + mark_bytes, [](char c) { return c == 0; });
}

/// FNV-1a, 64 bits: enough to detect torn writes, its only purpose.
std::uint64_t fnv1a(std::uint64_t hash, void const* data, std::size_t bytes) {
  auto const* at = static_cast<unsigned char const*>(data);
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3;
  return hash;
}

std::uint64_t checksum_of(copy_header const& header, char const* text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  if (header.version != 1) hash = fnv1a(hash, &header.version, sizeof header.version);
  hash = fnv1a(hash, &header.sequence, sizeof header.sequence);
  hash = fnv1a(hash, &header.text_bytes, sizeof header.text_bytes);
  return fnv1a(hash, text, header.text_bytes);
}

/// The remedy for what is wrong with a name; empty if nothing is wrong.
std::string problem_of(std::string const& name) {
  if (name.empty() || name.size() > 255) return "give 1 to 255 bytes";
  try {
    std::ignore = nlohmann::json(name).dump();
  } catch (nlohmann::json::exception const&) {
    return "give a name in UTF-8";
  }
  // In UTF-8 the second 32 control characters are C2 80 to C2 9F.
  for (std::size_t i = 0; i < name.size(); ++i) {
    auto const at = [&](std::size_t j) { return static_cast<unsigned char>(name[j]); };
    if (at(i) < 0x20 || at(i) == 0x7f || (at(i) == 0xc2 && at(i + 1) < 0xa0)) {
      return "give a name without control characters";
    }
  }
  return {};
}

/// A number of a table, which a drive may hold anything in: JSON's own conversion takes fractions, and numbers that do
/// not fit. Throws a JSON exception.
std::uint64_t whole(nlohmann::json const& value) {
  return value.get_ref<nlohmann::json::number_unsigned_t const&>();
}

bool same(extent const& a, extent const& b) {
  return a.name == b.name && a.first_byte == b.first_byte && a.size_bytes == b.size_bytes;
}

/// Where the next extent may begin.
std::uint64_t end_of(extent const& e) {
  return e.first_byte + catalogue::room_of(e.size_bytes);
}

}  // namespace

std::optional<catalogue> catalogue::load(catalogue_home const& home, reader const& read, bool damaged_is_none) {
  if (home.bytes < reserved_bytes) return std::nullopt;
  std::optional<catalogue> newest;
  copy_header unknown{};  // the newest whole copy of an unknown version
  bool seen = false;
  std::vector<char> copy(copy_bytes);
  for (std::uint64_t at = 0; at < reserved_bytes; at += copy_bytes) {
    // Most drives have no catalogue, or a short one: no more is read than there is.
    constexpr std::uint64_t first_bytes = mark_bytes;
    read(copy.data(), first_bytes, at);
    copy_header header;
    std::memcpy(&header, copy.data(), sizeof header);
    if (header.magic != magic) continue;
    seen = true;
    if (at == copy_bytes && is_mark(copy)) {
      if (newest) continue;
      newest.emplace(home);
      newest->sequence_ = 1;
      continue;
    }
    char const* text = copy.data() + sizeof header;
    if (header.text_bytes > copy_bytes - sizeof header) continue;
    std::uint64_t const used_bytes = sizeof header + header.text_bytes;
    if (used_bytes > first_bytes) read(copy.data() + first_bytes, used_bytes - first_bytes, at + first_bytes);
    if (header.checksum != checksum_of(header, text)) continue;
    if (header.version == 0 || header.version > version) {
      if (header.sequence >= unknown.sequence) unknown = header;
      continue;
    }
    if (newest && newest->sequence_ >= header.sequence) continue;
    catalogue found(home);
    found.sequence_ = header.sequence;
    if (!found.parse(std::string_view(text, header.text_bytes))) continue;
    newest = std::move(found);
  }
  if (unknown.version != 0 && (!newest || newest->sequence_ < unknown.sequence)) {
    throw operation_failed("catalogue: found version " + std::to_string(unknown.version) + ", can read up to version " +
                           std::to_string(version) + ": use the Forebay release that wrote it");
  }
  if (seen && !newest && !damaged_is_none) {
    throw operation_failed(
        "catalogue: both copies are damaged, or of other drives: restore the first MiB, open all drives that it was "
        "made on, or open with allow_destroy to start afresh");
  }
  return newest;
}

bool catalogue::parse(std::string_view text) {
  try {
    auto const parsed = drive::parse_foreign_json(text);
    if (!parsed) return false;
    nlohmann::json const& table = *parsed;
    std::uint64_t const drives = whole(table.at("drives"));
    std::uint64_t const stripe_bytes = whole(table.at("stripe_bytes"));
    if (drives != home_.drives || stripe_bytes != home_.stripe_bytes) {
      throw operation_failed("catalogue: made on " + std::to_string(drives) + " drives with stripes of " +
                             std::to_string(stripe_bytes) + " bytes, found on " + std::to_string(home_.drives) +
                             " with " + std::to_string(home_.stripe_bytes) + ": open the same drives in the same way");
    }
    stamp_ = table.contains("stamp") ? whole(table.at("stamp")) : 0;
    for (auto const& row : table.at("extents")) {
      extent e{row.at("name"), whole(row.at("first_byte")), whole(row.at("bytes"))};
      std::uint64_t const least = extents_.empty() ? reserved_bytes : end_of(extents_.back());
      if (!problem_of(e.name).empty() || find(e.name) != nullptr) return false;
      if (e.first_byte < least || e.first_byte % alignment_bytes != 0 || e.first_byte > home_.bytes ||
          e.size_bytes == 0 || e.size_bytes > home_.bytes - e.first_byte) {
        return false;
      }
      extents_.push_back(std::move(e));
    }
  } catch (nlohmann::json::exception const&) {
    return false;
  }
  return true;
}

void catalogue::catch_up(catalogue const& stored, std::optional<catalogue> const& given_up) {
  sequence_ = stored.sequence_;
  if (given_up && given_up->stamp_ == stored.stamp_) return;
  extents_ = stored.extents_;
  std::erase_if(staged_, [&](extent const& s) {
    return std::any_of(extents_.begin(), extents_.end(),
                       [&](extent const& e) { return e.first_byte < end_of(s) && s.first_byte < end_of(e); });
  });
}

void catalogue::store(writer const& write, flusher const& flush) {
  std::random_device random;
  stamp_ = std::uint64_t{random()} << 32 | random();
  std::string const table = text();
  if (sequence_ == 0) mark(write, flush);
  // The first time twice, so that both copies say that there is a catalogue.
  do {
    // While one copy is written, the other must be durable. Its writer may have been killed before it flushed.
    flush();
    write_copy(table, write);
  } while (sequence_ < 3);
  flush();
}

/// Writes the mark, in the place of the copy of sequence number 1. Without it, a first copy that was cut off would look
/// like a damaged catalogue.
void catalogue::mark(writer const& write, flusher const& flush) {
  std::vector<char> bytes(mark_bytes);
  // First zeros alone: then the next write changes eight bytes, and whatever interrupts it, the mark is there or not.
  write(bytes.data(), bytes.size(), copy_bytes);
  flush();
  std::memcpy(bytes.data(), magic.data(), magic.size());
  write(bytes.data(), bytes.size(), copy_bytes);
  sequence_ = 1;
}

std::string catalogue::text() const {
  nlohmann::json table = {{"drives", home_.drives},
                          {"stripe_bytes", home_.stripe_bytes},
                          {"stamp", stamp_},
                          {"extents", nlohmann::json::array()}};
  for (extent const& e : extents_) {
    table["extents"].push_back({{"name", e.name}, {"first_byte", e.first_byte}, {"bytes", e.size_bytes}});
  }
  std::string text = table.dump();
  if (text.size() > copy_bytes - sizeof(copy_header)) {
    throw refused_input("catalogue", std::to_string(extents_.size()) + " extents",
                        "the table of extents is full; remove some");
  }
  return text;
}

void catalogue::write_copy(std::string const& text, writer const& write) {
  ++sequence_;
  copy_header header{magic, version, static_cast<std::uint32_t>(text.size()), sequence_, 0};
  header.checksum = checksum_of(header, text.data());
  std::vector<char> copy(copy_bytes);
  std::memcpy(copy.data(), &header, sizeof header);
  std::memcpy(copy.data() + sizeof header, text.data(), text.size());
  write(copy.data(), copy_bytes, sequence_ % 2 * copy_bytes);
}

extent const* catalogue::find(std::string_view name) const {
  auto const at = std::find_if(extents_.begin(), extents_.end(), [&](extent const& e) { return e.name == name; });
  return at == extents_.end() ? nullptr : &*at;
}

extent const& catalogue::create(std::string const& name, std::uint64_t bytes, claimer const& claim) {
  if (find(name) != nullptr)
    throw refused_input("name", name,
                        "an extent of this name is there already; remove it first, or choose another name");
  return insert(find_gap(name, bytes, claim));
}

extent catalogue::stage(std::string const& name, std::uint64_t bytes, claimer const& claim) {
  staged_.push_back(find_gap(name, bytes, claim));
  return staged_.back();
}

void catalogue::publish(extent const& staged, bool replace) {
  if (!replace && find(staged.name) != nullptr) {
    throw refused_input("name", staged.name,
                        "an extent of this name is there already; remove it first, or choose another name");
  }
  discard(staged);
  std::erase_if(extents_, [&](extent const& e) { return e.name == staged.name; });
  insert(staged);
}

void catalogue::discard(extent const& staged) {
  // All fields must match: another staged extent may lie where a discarded one did.
  if (std::erase_if(staged_, [&](extent const& e) { return same(e, staged); }) == 0) {
    throw refused_input(
        "extent", staged.name,
        "is not staged any longer, or another program has taken its bytes; stage it and write it again");
  }
}

extent const& catalogue::insert(extent const& made) {
  auto const at =
      std::find_if(extents_.begin(), extents_.end(), [&](extent const& e) { return e.first_byte > made.first_byte; });
  return *extents_.insert(at, made);
}

extent catalogue::find_gap(std::string const& name, std::uint64_t bytes, claimer const& claim) const {
  if (std::string const problem = problem_of(name); !problem.empty()) {
    throw refused_input("name", nlohmann::json(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
                        problem);
  }
  if (bytes == 0) throw refused_input("bytes", "0", "an extent holds at least one byte");
  std::vector<extent> taken = extents_;
  taken.insert(taken.end(), staged_.begin(), staged_.end());
  std::sort(taken.begin(), taken.end(), [](extent const& a, extent const& b) { return a.first_byte < b.first_byte; });
  std::uint64_t const end = home_.bytes / alignment_bytes * alignment_bytes;
  std::uint64_t gap_begin = reserved_bytes;
  for (auto at = taken.begin();; ++at) {
    std::uint64_t const gap_end = at == taken.end() ? end : at->first_byte;
    while (gap_end >= gap_begin && bytes <= gap_end - gap_begin) {
      std::uint64_t const taken_to = claim ? claim(gap_begin, room_of(bytes)) : 0;
      if (taken_to == 0) return {name, gap_begin, bytes};
      gap_begin = std::max(gap_begin + alignment_bytes, taken_to < end ? room_of(taken_to) : end);
    }
    if (at == taken.end()) break;
    gap_begin = end_of(*at);
  }
  throw refused_input(
      "bytes", std::to_string(bytes),
      "no gap is that large on a storage of " + std::to_string(home_.bytes) +
          " bytes, beside what other programs are writing; the first MiB is the catalogue's and extents "
          "begin at multiples of 1 MiB");
}

void catalogue::remove(std::string const& name) {
  if (std::erase_if(extents_, [&](extent const& e) { return e.name == name; }) == 0) {
    throw refused_input("name", name,
                        "no extent has this name; extents() and `forebay drive ls` of the Python package list those");
  }
}

}  // namespace forebay
