// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/drive/uri.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "forebay/error.hpp"
#include "schemes.hpp"

namespace forebay::drive {
namespace {

bool has_key(scheme_syntax const& syntax, std::string_view key) {
  return std::find(syntax.keys.begin(), syntax.keys.end(), key) != syntax.keys.end();
}

}  // namespace

uri uri::parse(std::string_view text) {
  uri parsed;
  parsed.text_ = text;
  std::size_t const colon = text.find(':');
  std::string const scheme(text.substr(0, colon == std::string_view::npos ? 0 : colon));
  auto const known = find_scheme(scheme);
  if (known == nullptr) {
    throw refused_input("drive", parsed.text_,
                        fmt::format("begin with {}, as in emulated:profile=d7-ps1010,size=1G", known_schemes()));
  }
  scheme_syntax const& syntax = known->syntax;
  parsed.scheme_ = scheme;

  std::string_view rest = text.substr(colon + 1);
  for (bool first = true; !rest.empty(); first = false) {
    std::size_t const comma = rest.find(',');
    std::string_view const item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    if (first && item.empty()) continue;
    std::size_t const equals = item.find('=');
    std::string const key(item.substr(0, equals));
    if (first && !syntax.name.empty() && !has_key(syntax, key)) {
      parsed.name_ = item;
      continue;
    }
    if (equals == std::string_view::npos || key.empty()) {
      throw refused_input("drive", std::string(item), "write key=value between commas, as in size=1G");
    }
    if (!has_key(syntax, key)) {
      throw refused_input(key, std::string(item.substr(equals + 1)),
                          syntax.keys.empty() ? fmt::format("{}: takes no keys", scheme)
                                              : fmt::format("{}: has no such key; did you mean {}?", scheme,
                                                            nearest(key, {syntax.keys.begin(), syntax.keys.end()})));
    }
    if (parsed.value(key)) throw refused_input(key, std::string(item.substr(equals + 1)), "give each key once");
    parsed.values_.emplace_back(key, std::string(item.substr(equals + 1)));
  }
  if (!syntax.name.empty() && parsed.name_.empty()) {
    throw refused_input("drive", parsed.text_, fmt::format("give {} after {}:", syntax.name, scheme));
  }
  return parsed;
}

std::optional<std::string> uri::value(std::string_view key) const {
  for (auto const& [known, value] : values_) {
    if (known == key) return value;
  }
  return std::nullopt;
}

}  // namespace forebay::drive
