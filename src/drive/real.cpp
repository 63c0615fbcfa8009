// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/drive/real.hpp"

#include <nlohmann/json.hpp>

#include "forebay/detail/drive/uri.hpp"
#include "forebay/error.hpp"
#include "pci/binding.hpp"
#include "pci/inspection.hpp"

namespace forebay::drive {
namespace {

uri real(std::string const& text) {
  uri parsed = uri::parse(text);
  if (parsed.scheme() == "pci") return parsed;
  throw refused_input("drive", text, "must be a real drive, as in pci:0000:01:00.0; lspci -D lists their addresses");
}

/// Of a URI that has no keys: which driver has a function does not depend on them.
pci::function bare(std::string const& text) {
  uri const parsed = real(text);
  if (parsed.text() == "pci:" + parsed.name()) return pci::function(pci::address::parse(parsed.name()));
  throw refused_input("drive", text, "must have no keys here: give pci:" + parsed.name());
}

}  // namespace

nlohmann::json inspect_real_drive(std::string const& uri) {
  return pci::inspect(real(uri));
}

nlohmann::json inspect_real_drives(std::string const& root) {
  return pci::inspect_all(root.empty() ? pci::places{} : pci::places::below(root));
}

nlohmann::json attach_real_drive(std::string const& uri, bool dry_run, step_listener const& tell) {
  return pci::attach(bare(uri), dry_run, tell);
}

nlohmann::json detach_real_drive(std::string const& uri, bool dry_run, step_listener const& tell) {
  return pci::detach(bare(uri), dry_run, tell);
}

}  // namespace forebay::drive
