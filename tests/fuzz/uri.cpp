// SPDX-License-Identifier: Apache-2.0
//! \file
//! Fuzzes drive URIs: text, keys and their values. No drive is opened.
#include "forebay/detail/drive/uri.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

#include "drive/emulated/specification.hpp"
#include "drive/pci/address.hpp"
#include "fuzz/refusals.hpp"

namespace {

using namespace forebay;
using test::demand;

void check(drive::uri const& from) {
  if (from.scheme() == "pci") {
    auto const at = drive::pci::address::parse(from.name());
    demand(drive::pci::address::parse(at.text()) == at, "an address reads as it is written");
    return;
  }
  if (from.scheme() != "emulated" && from.scheme() != "file") return;
  // It would read a file of this machine.
  if (from.value("profile").value_or("").find('/') != std::string::npos) return;
  drive::specification const what = drive::specify(from, 0);
  demand(what.size_bytes % what.lba_bytes == 0, "a drive is whole blocks");
  demand(what.lba_bytes >= 512 && what.lba_bytes <= 4096, "a block has 512 to 4096 bytes");
  demand(what.queues >= 1 && what.queues <= 65534 && what.threads >= 1 && what.threads <= 1024, "counts have bounds");
  demand(what.in_file() == !what.path.empty(), "a drive in a file has a path");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::string const text(reinterpret_cast<char const*>(data), size);
  fuzz::refuses([&] { check(drive::uri::parse(text)); });
  return 0;
}
