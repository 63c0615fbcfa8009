// SPDX-License-Identifier: Apache-2.0
#include "address.hpp"

#include <fmt/format.h>

#include <charconv>

#include "forebay/error.hpp"

namespace forebay::drive::pci {
namespace {

/// Takes a number of at most `digits` hexadecimal digits, up to `most`, and what follows it. False if there is none.
bool take(std::string_view& text, char behind, std::size_t digits, std::uint32_t most, std::uint32_t& number) {
  std::size_t const length = behind == '\0' ? text.size() : text.find(behind);
  if (length == 0 || length > digits) return false;  // also where nothing was found
  auto const [end, error] = std::from_chars(text.data(), text.data() + length, number, 16);
  if (error != std::errc() || end != text.data() + length || number > most) return false;
  text.remove_prefix(length + (behind == '\0' ? 0 : 1));
  return true;
}

}  // namespace

address address::parse(std::string_view text) {
  address read;
  std::string_view rest = text;
  bool const with_domain = text.find(':') != text.rfind(':');
  if ((!with_domain || take(rest, ':', 8, 0xffff'ffff, read.domain)) && take(rest, ':', 2, 0xff, read.bus) &&
      take(rest, '.', 2, 0x1f, read.device) && take(rest, '\0', 1, 7, read.function)) {
    return read;
  }
  throw refused_input("drive", "pci:" + std::string(text),
                      "give a bus address such as 0000:01:00.0; lspci -D lists them");
}

std::string address::text() const {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

}  // namespace forebay::drive::pci
