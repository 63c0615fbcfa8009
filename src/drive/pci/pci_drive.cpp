// SPDX-License-Identifier: Apache-2.0
#include "pci_drive.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "../served/served_device.hpp"
#include "access.hpp"
#include "checks.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/memory/shared.hpp"
#include "forebay/error.hpp"
#include "gpu_addresses.hpp"
#include "quirks.hpp"
#include "registers.hpp"
#include "takeover.hpp"

namespace forebay::drive::pci {
namespace {

struct wanted_placement {
  gpu_placement what = gpu_placement::host;
  int gpu = 0;
};

std::string folder_of_gpu(int ordinal) {
  return places().buses + "/devices/" + address::parse(memory::bus_address_of_gpu(ordinal)).text();
}

class pci_drive final : public device {
 public:
  pci_drive(uri const& from, function const& of, way how, std::uint32_t nsid, memory::resource& client_memory,
            wanted_placement const& placement, doorbell_options const& doorbells, takeover::check const& may)
      : uri_(from.text()),
        nsid_(nsid),
        queues_(doorbells.queues),
        quirks_(quirks_of(of.vendor(), of.device())),
        placement_(placement),
        taken_(of, how, may),
        access_(how == way::vfio ? open_by_vfio(of, client_memory) : open_by_sysfs(of, taken_, client_memory)),
        registers_(access_->registers(), access_->registers_bytes(), doorbells) {
    if (reaches_gpu()) access_->reach_gpu(placement_.gpu, folder_of_gpu(placement_.gpu));
  }

  driver::register_space& registers() override { return registers_; }
  driver::dma_space& dma() override { return access_->dma(); }
  gpu_placements placements() const override { return {placement_.what, placement_.what}; }
  bool data_may_be_late(bool on_gpu) const override { return on_gpu && reaches_gpu(); }
  void order_data() override {
    if (reaches_gpu()) memory::order_remote_writes(placement_.gpu);
  }
  driver::quirks quirks() const override { return quirks_; }
  std::uint32_t nsid() const override { return nsid_; }
  std::uint32_t most_queue_pairs() const override { return queues_; }
  nlohmann::json report() override {
    return {{"uri", uri_},
            {"residency", "hardware"},
            {"access", access_->name()},
            {"doorbells", registers_.relays() ? "relay" : "direct"},
            {"quirks", describe(quirks_)}};
  }
  void reset_statistics() override {}

 private:
  bool reaches_gpu() const { return placement_.what != gpu_placement::host; }

  std::string const uri_;
  std::uint32_t const nsid_;
  std::uint32_t const queues_;
  driver::quirks const quirks_;
  wanted_placement const placement_;
  takeover taken_;  ///< before what uses the function
  std::unique_ptr<access> access_;
  mapped_registers registers_;  ///< last: it ends before `access_` unmaps them
};

std::uint32_t count_of(uri const& from, char const* key, std::uint32_t usual, std::uint64_t most) {
  auto const value = from.value(key);
  return value ? static_cast<std::uint32_t>(parse_count(key, *value, 1, most)) : usual;
}
std::uint32_t nsid_of(uri const& from) {
  return count_of(from, "nsid", 1, 0xffff'fffe);
}

/// The key `placement`. Throws `refused_input` if the machine cannot do it, before anything is taken.
wanted_placement placement_of(uri const& from, open_options const& options, bool on_gpu, way how) {
  wanted_placement wanted{static_cast<gpu_placement>(count_of(from, "placement", 1, 3)), options.gpu};
  if (wanted.what == gpu_placement::host) return wanted;
  std::string const number = std::to_string(static_cast<int>(wanted.what));
  if (!on_gpu) {
    throw refused_input(
        "placement", number,
        "only threads of a GPU have a choice, and only in the program that has the drive: leave it out, "
        "or open the drive for a GPU (--device cuda:0)");
  }
  if (std::string const why = memory::why_devices_cannot_reach(wanted.gpu); !why.empty()) {
    throw refused_input("placement", number, why + ": use placement=1");
  }
  windows_of(folder_of_gpu(wanted.gpu));
  require_import_module();
  if (how == way::vfio) require_iommu_module();
  return wanted;
}

}  // namespace

void require_host_memory(void const* address) {
  bool const managed = memory::is_managed(address);
  if (!managed && memory::host_reaches(address)) return;
  throw refused_input("buffer", managed ? "managed memory" : "memory of a GPU",
                      "the drive reaches host memory, which does not move, and with placement 2 or 3 memory of the "
                      "GPU that the storage is for: use allocate_buffer() or allocate_device_buffer()");
}

scheme_syntax syntax() {
  return {.name = "a bus address such as 0000:01:00.0",
          .keys = {"nsid", "queues", "access", "doorbells", "placement", "allow_destroy", "residency"}};
}

std::unique_ptr<device> open(uri const& from, open_options const& options) {
  std::string const residency = from.value("residency").value_or("");
  if (residency == "served") {
    for (char const* const key : {"access", "allow_destroy", "doorbells"}) {
      if (auto const value = from.value(key)) {
        throw refused_input(key, *value, "leave it out: it is for the drive daemon, which has the drive already");
      }
    }
    if (auto const value = from.value("placement")) {
      throw refused_input("placement", *value, "leave it out: a real drive of a daemon has placement 1");
    }
    open_options wanted = options;
    wanted.queues = count_of(from, "queues", options.queues, 65534);
    return served::open(from, wanted);
  }
  if (!residency.empty()) throw refused_input("residency", residency, "give served, or leave it out");
  return open_here(from, options);
}

std::string name_of(uri const& from) {
  return fmt::format("pci:{},nsid={}", address::parse(from.name()).text(), nsid_of(from));
}

std::unique_ptr<device> open_here(uri const& from, open_options const& options) {
  function const of(address::parse(from.name()));
  std::uint32_t const nsid = nsid_of(from);
  doorbell_options doorbells;
  doorbells.how = doorbell_way_of(from.value("doorbells"));
  doorbells.queues = count_of(from, "queues", 1024, 65534);
  doorbells.words = options.client_memory;
  bool const on_gpu = options.client_memory->kind() != memory::kind::host;
  if (on_gpu) doorbells.gpu = options.gpu;
  require_nvme(of);
  way const how = way_of(from.value("access"), of);
  if (how == way::vfio) {
    require_own_group(of);
    require_vfio(of);
  } else {
    require_sysfs();
  }
  wanted_placement const placement = placement_of(from, options, on_gpu, how);
  std::string const allowed = from.value("allow_destroy").value_or("");
  auto opened = std::make_unique<pci_drive>(
      from, of, how, nsid, *options.client_memory, placement, doorbells, [&](function const& locked) {
        return check_use(locked, {.nsid = nsid, .read_only = options.read_only, .allowed_serial = allowed, .how = how});
      });
  if (!options.read_only && !allowed.empty()) {
    // Where no driver of the system had it, only the controller itself tells its number.
    driver::controller const one(opened->registers(), opened->dma(), {.nsid = nsid, .quirks = opened->quirks()});
    if (one.identity().serial != allowed) refuse_serial(of, allowed, one.identity().serial);
  }
  return opened;
}

}  // namespace forebay::drive::pci
