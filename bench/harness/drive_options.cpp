// SPDX-License-Identifier: Apache-2.0
#include "harness/drive_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "forebay/detail/drive/uri.hpp"
#include "forebay/detail/emulator/engine_runner.hpp"
#include "forebay/detail/memory/link_speed.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "harness/child_process.hpp"

namespace forebay::bench {
namespace {

constexpr std::uint32_t sms_of_all_drives = 32;
/// By this variable `run_as_client` tells the second run of the program how many multiprocessors its kernels may use.
constexpr char const* client_sms_variable = "FOREBAY_BENCH_CLIENT_SMS";

std::uint32_t multiprocessors() {
  return emulator::multiprocessors(0);
}

}  // namespace

drive_options::drive_options(command_line const& given, std::uint32_t sharing_drives)
    : link_(given.text("--link", "none")),
      residency_(given.text("--residency", "in_process")),
      sms_(given.number("--sms", std::max(1u, sms_of_all_drives / std::max(1u, sharing_drives)))),
      link_given_(given.has("--link")),
      residency_given_(given.has("--residency")),
      sms_given_(given.has("--sms")) {
  std::vector<std::string> links{"none"};
  for (memory::link_speed const& speed : memory::link_speeds()) links.push_back(speed.name);
  if (std::find(links.begin(), links.end(), link_) == links.end()) {
    throw refused_input("--link", link_, fmt::format("use one of {}", fmt::join(links, ", ")));
  }
  if (residency_ != "in_process" && residency_ != "peer" && residency_ != "served") {
    throw refused_input("--residency", residency_, "use in_process, peer or served");
  }
  if (sms_ == 0) throw refused_input("--sms", "0", "give each drive at least 1 multiprocessor");
}

double drive_options::link_seconds(double bytes) const {
  return link_ == "none" ? 0 : bytes / memory::find_link_speed(link_).bytes_per_second;
}

std::vector<option> drive_options::with_value_but_sms(std::vector<option> others) {
  return joined(
      std::move(others),
      {{"--link", "PCI Express link that the drives share, such as gen5x16; none (default): no link"},
       {"--residency",
        "where the drives' engines run: in_process (default) on the client's GPU, peer on GPU 1, served in a daemon"},
       {"--serve", "be the daemon of these drives, URIs with a blank between them, and measure nothing"},
       {"--socket", "of that daemon"}});
}
std::vector<option> drive_options::with_value(std::vector<option> others) {
  return joined(with_value_but_sms(std::move(others)),
                {{"--sms", fmt::format("multiprocessors of each drive; default: {} over the number of drives",
                                       sms_of_all_drives)}});
}
std::vector<option> drive_options::switches(std::vector<option> others) {
  return joined(std::move(others),
                {{"--require-ok", "end with status 1 if drives say a fidelity other than ok, and name the rows"}});
}

std::string drive_options::uri(std::string const& base) const {
  drive::uri const said = drive::uri::parse(base);
  auto const refuse_if = [&](bool twice, char const* option, std::string const& value, std::string const& key) {
    if (!twice) return;
    throw refused_input(option, value,
                        fmt::format("the drive URI says {}={}; say it in one place", key, *said.value(key)));
  };
  bool const emulated = said.scheme() == "emulated";
  if (!emulated) {
    auto const refuse = [&](bool given, char const* option, std::string const& value) {
      if (!given) return;
      throw refused_input(option, value,
                          fmt::format("only emulated: drives have it, and the drive is {}; leave it out", base));
    };
    refuse(link_given_, "--link", link_);
    refuse(residency_given_, "--residency", residency_);
    refuse(sms_given_, "--sms", std::to_string(sms_));
    return base;
  }
  bool const backed = said.value("backing").has_value(), placed = said.value("residency").has_value();
  refuse_if(link_given_ && said.value("link"), "--link", link_, "link");
  refuse_if(residency_given_ && placed, "--residency", residency_, "residency");
  refuse_if(residency_given_ && residency_ == "peer" && backed, "--residency", residency_, "backing");
  refuse_if(sms_given_ && said.value("sms"), "--sms", std::to_string(sms_), "sms");
  std::string all = base;
  if (!backed) all += residency_ == "peer" ? ",backing=peer:1" : ",backing=hbm";
  // A URI that says where the bytes are says where the engine is, unless the option does.
  if (!placed && (residency_given_ || !backed)) all += ",residency=" + residency_;
  if (!said.value("sms")) all += ",sms=" + std::to_string(sms_);
  if (!said.value("link") && link_ != "none") all += ",link=" + link_;
  return all;
}

std::vector<std::string> drive_options::uris(std::string const& base, std::uint32_t count) const {
  std::vector<std::string> all(count, uri(base));
  if (residency_ != "served" || drive::uri::parse(base).value("seed")) return all;
  for (std::uint32_t i = 0; i < count; ++i) all[i] += ",seed=" + std::to_string(i + 1);
  return all;
}

std::unique_ptr<drive_daemon> drive_options::serve(std::vector<std::string> const& uris) const {
  if (residency_ != "served") return nullptr;
  auto daemon = std::make_unique<drive_daemon>(uris);
  ::setenv("FOREBAY_DAEMON", daemon->socket().c_str(), 1);
  return daemon;
}

void drive_options::refuse_without_room(std::uint32_t drives, std::uint32_t gpus, std::uint32_t multiprocessors) const {
  if (residency_ == "peer" && gpus < 2) {
    throw refused_input(
        "--residency", residency_,
        fmt::format("the drives need a second GPU, and this machine has {}; use in_process or served", gpus));
  }
  // A GPU of its own needs no room for a client.
  if (std::uint64_t{drives} * sms_ + (residency_ == "peer" ? 0 : spare_sms) >= multiprocessors) {
    throw refused_input("--sms", std::to_string(sms_),
                        fmt::format("{} drives of so many multiprocessors do not fit {} a GPU of {}; give less", drives,
                                    residency_ == "peer" ? "on" : "beside a client on", multiprocessors));
  }
}

void drive_options::refuse_without_room(std::uint32_t drives) const {
  refuse_without_room(drives, static_cast<std::uint32_t>(memory::device_count()), multiprocessors());
}

std::optional<int> drive_options::run_as_client(command_line const& given, std::uint32_t drives) const {
  // A client may see its own share of the multiprocessors alone. The run that started it has looked at all of them.
  if (std::getenv(client_sms_variable) != nullptr) return std::nullopt;
  refuse_without_room(drives);
  if (residency_ != "served" || !under_mps()) return std::nullopt;
  client_share const share = share_beside(drives * sms_, multiprocessors());
  std::vector<std::pair<std::string, std::string>> variables{share.variable};
  variables.emplace_back(client_sms_variable, std::to_string(share.sms));
  return child_process(given.arguments(), variables, false).wait();
}

std::uint32_t drive_options::client_sms(std::uint32_t drives) const {
  std::uint32_t sms = multiprocessors();
  if (char const* const told = std::getenv(client_sms_variable)) {
    sms = std::min<std::uint32_t>(sms,
                                  static_cast<std::uint32_t>(drive::parse_count(client_sms_variable, told, 1, 65535)));
  } else if (residency_ == "in_process") {
    sms -= std::min(sms, drives * sms_);
  }
  return std::max(sms, spare_sms + 1) - spare_sms;
}

}  // namespace forebay::bench
