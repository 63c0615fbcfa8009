// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/memory/parse.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "forebay/error.hpp"

namespace forebay::memory {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t const above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

/// Reads the number at the start of `value`; `rest` receives what follows.
template <class Number>
bool read_number(std::string const& value, Number& number, std::string_view& rest) {
  char const* const end = value.data() + value.size();
  auto const [stop, error] = std::from_chars(value.data(), end, number);
  rest = std::string_view(stop, static_cast<std::size_t>(end - stop));
  return error == std::errc();
}

}  // namespace

std::uint64_t parse_bytes(std::string const& field, std::string const& value) {
  std::uint64_t number = 0;
  std::string_view unit;
  constexpr char const* remedy = "give a whole number of bytes, such as 4096, 64M or 2G";
  if (!read_number(value, number, unit)) throw refused_input(field, value, remedy);
  if (unit.ends_with("iB")) unit.remove_suffix(2);
  std::uint32_t shift = 0;
  if (unit == "K" || unit == "k") {
    shift = 10;
  } else if (unit == "M" || unit == "m") {
    shift = 20;
  } else if (unit == "G" || unit == "g") {
    shift = 30;
  } else if (unit == "T" || unit == "t") {
    shift = 40;
  } else if (!unit.empty() || value.ends_with("iB")) {
    throw refused_input(field, value, remedy);
  }
  if (number == 0) throw refused_input(field, value, "give more than 0 bytes");
  if (number > std::numeric_limits<std::uint64_t>::max() >> shift >> 1) {
    throw refused_input(field, value, "give less than 8 EiB");
  }
  return number << shift;
}

double parse_rate(std::string const& field, std::string const& value) {
  double number = 0;
  std::string_view unit;
  bool const read = read_number(value, number, unit);
  double const scale = unit.empty() ? 1 : unit == "k" || unit == "K" ? 1e3 : unit == "M" ? 1e6 : unit == "G" ? 1e9 : 0;
  number *= scale;
  if (!read || !std::isfinite(number) || number < 1 || number > 1e12) {
    throw refused_input(field, value, "give a rate a second from 1 to 1000G, such as 20000, 2.47M or 7.2G");
  }
  return number;
}

std::uint64_t parse_count(std::string const& field, std::string const& value, std::uint64_t least, std::uint64_t most) {
  std::uint64_t number = 0;
  std::string_view rest;
  if (!read_number(value, number, rest) || !rest.empty() || number < least || number > most) {
    throw refused_input(field, value,
                        "give a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return number;
}

double parse_microseconds(std::string const& field, std::string const& value) {
  double number = 0;
  std::string_view rest;
  if (!read_number(value, number, rest) || !rest.empty() || !(number >= 0) || number > 3.6e9) {
    throw refused_input(field, value, "give microseconds from 0 to 3600000000, such as 50 or 6.5");
  }
  return number;
}

std::string nearest(std::string_view word, std::vector<std::string_view> const& known) {
  return std::string(*std::min_element(known.begin(), known.end(), [&](std::string_view a, std::string_view b) {
    return edit_distance(word, a) < edit_distance(word, b);
  }));
}

}  // namespace forebay::memory
