// SPDX-License-Identifier: Apache-2.0
#include "binding.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "access.hpp"
#include "checks.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"
#include "takeover.hpp"

namespace forebay::drive::pci {
namespace {

using nlohmann::json;

constexpr std::uint64_t patience_ns = 10'000'000'000;
constexpr std::chrono::milliseconds between_looks{20};

/// A text that is written to a file of the system.
struct step {
  std::string what, file, text;

  std::string line() const { return text.empty() ? "echo > " + file : "echo " + text + " > " + file; }
};

/// The error number, 0 if it was written.
int write_to(std::string const& file, std::string const& text) {
  open_file const to(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
  if (!to) return errno;
  std::string const whole = text + "\n";
  return ::write(to.get(), whole.data(), whole.size()) == static_cast<ssize_t>(whole.size()) ? 0 : errno;
}

std::string override_of(function const& of) {
  std::string const text = of.line("driver_override");
  return text == "(null)" ? "" : text;
}

/// Steps to another driver. Unless all of them succeed, the function has its driver again in the end.
class change {
 public:
  change(function const& of, std::vector<step> steps)
      : of_(of), steps_(std::move(steps)), driver_before_(of.driver()), override_before_(override_of(of)) {}

  /// Throws `refused_input` if this process may not do one of the steps.
  void require_permission() const {
    for (step const& one : steps_) {
      if (::access(one.file.c_str(), W_OK) == 0) continue;
      refuse(of_, fmt::format("cannot write {}: {}; run as root, with a /sys that may be written", one.file,
                              std::strerror(errno)));
    }
  }
  void run(bool dry_run, step_listener const& tell, std::function<void()> const& succeeded) {
    try {
      for (step const& one : steps_) {
        tell(one.what, one.line());
        int const error = dry_run ? 0 : write_to(one.file, one.text);
        if (error == 0) continue;
        throw operation_failed(fmt::format("pci:{}: cannot {}: {}", of_.at().text(), one.what, std::strerror(error)));
      }
      if (!dry_run) succeeded();
    } catch (operation_failed const& failed) {
      if (undo()) throw;
      throw operation_failed(fmt::format("{}; and it could not be given back: forebay drive detach pci:{} tries again",
                                         failed.what(), of_.at().text()));
    } catch (...) {
      undo();
      throw;
    }
  }
  json document() const {
    json all = json::array();
    for (step const& one : steps_) all.push_back({{"what", one.what}, {"line", one.line()}});
    return all;
  }

 private:
  /// Looks at what is, and not at what was done.
  bool undo() const {
    int error = 0;
    // First, since it also says which driver may be bound.
    if (override_of(of_) != override_before_) error = write_to(of_.folder() + "/driver_override", override_before_);
    std::string const now = of_.driver();
    if (now == driver_before_) return error == 0;
    if (!now.empty() && error == 0) error = write_to(of_.folder() + "/driver/unbind", of_.at().text());
    if (!driver_before_.empty() && error == 0) {
      error = write_to(of_.where().buses + "/drivers/" + driver_before_ + "/bind", of_.at().text());
    }
    return error == 0;
  }

  function const& of_;
  std::vector<step> const steps_;
  std::string const driver_before_, override_before_;
};

step reserve(function const& of, std::string const& driver) {
  return {driver.empty() ? "let the system choose its driver" : "reserve it for " + driver,
          of.folder() + "/driver_override", driver};
}
step unbind(function const& of, std::string const& driver) {
  return {"take it from the driver " + driver, of.folder() + "/driver/unbind", of.at().text()};
}
step probe(function const& of, std::string const& what) {
  return {what, of.where().buses + "/drivers_probe", of.at().text()};
}

json result(std::string const& before, function const& of, json steps) {
  return {{"driver_before", before.empty() ? json() : json(before)},
          {"driver", of.driver().empty() ? json() : json(of.driver())},
          {"steps", std::move(steps)}};
}

/// What lies on the namespaces that the system knows, a line each.
json contents_on(function const& of, std::vector<open_file> const& held) {
  json all = json::array();
  std::vector<block_node> const nodes = of.block_nodes();
  for (std::size_t i = 0; i < nodes.size() && i < held.size(); ++i) {
    std::string const found = contents_of(nodes[i], held[i]);
    if (!found.empty()) all.push_back(found);
  }
  return all;
}

}  // namespace

json attach(function const& of, bool dry_run, step_listener const& tell) {
  require_nvme(of);
  std::string const before = of.driver();
  way_of("vfio", of);
  require_own_group(of);
  require_vfio(of);
  open_file const lock = lock_of(of, O_RDONLY);
  std::vector<open_file> held = check_use(of, {.how = way::vfio});
  json const contents = contents_on(of, held);
  std::vector<step> steps;
  if (override_of(of) != vfio_driver) steps.push_back(reserve(of, vfio_driver));
  if (before != vfio_driver) {
    if (!before.empty()) steps.push_back(unbind(of, before));
    steps.push_back(probe(of, std::string("give it to ") + vfio_driver));
  }
  change all(of, std::move(steps));
  all.require_permission();
  all.run(dry_run, tell, [&] {
    if (of.driver() == vfio_driver) return;
    throw operation_failed(
        fmt::format("pci:{}: vfio-pci does not take it; see the kernel's messages (dmesg)", of.at().text()));
  });
  json document = result(before, of, all.document());
  document["contents"] = contents;
  document["group_file"] = "/dev/vfio/" + of.iommu_group();
  return document;
}

json detach(function const& of, bool dry_run, step_listener const& tell) {
  require_nvme(of);
  std::string const before = of.driver();
  if (!before.empty() && before != "nvme" && before != vfio_driver) {
    refuse(of, fmt::format("the driver {} has it, and not vfio-pci; nothing was changed", before));
  }
  open_file const lock = lock_of(of, O_RDONLY);
  // Else the system would wait until the program that uses it lets go.
  if (before == vfio_driver) require_vfio(of);
  std::vector<step> steps;
  if (!override_of(of).empty()) steps.push_back(reserve(of, ""));
  if (before == vfio_driver) steps.push_back(unbind(of, before));
  if (before != "nvme") steps.push_back(probe(of, "give it to the driver that the system has for it"));
  change all(of, std::move(steps));
  all.require_permission();
  all.run(dry_run, tell, [&] {
    std::string const now = of.driver();
    if (!now.empty() && now != vfio_driver) return;
    throw operation_failed(
        fmt::format("pci:{}: {}; is the module nvme loaded (modprobe nvme)?", of.at().text(),
                    now.empty() ? "no driver takes it" : "vfio-pci takes it again, as another rule tells it to"));
  });
  if (!dry_run && of.driver() == "nvme") {
    bool const live = simt::native::wait_until(
        [&] {
          bool const there = of.is_live() && !of.block_nodes().empty();
          if (!there) std::this_thread::sleep_for(between_looks);
          return there;
        },
        simt::native::clock_ns() + patience_ns);
    if (!live) {
      throw operation_failed(
          fmt::format("pci:{}: the driver nvme has it, and has not brought it up; see the kernel's messages (dmesg)",
                      of.at().text()));
    }
  }
  return result(before, of, all.document());
}

}  // namespace forebay::drive::pci
