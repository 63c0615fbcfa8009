// SPDX-License-Identifier: Apache-2.0
#include "forebay/storage.hpp"

#include <utility>

#include "forebay/error.hpp"
#include "storage/buffers.hpp"
#include "storage/client.hpp"
#include "storage/client_device.hpp"
#include "storage/extents.hpp"
#include "storage/gpu_access.hpp"
#include "storage/host_io.hpp"
#include "storage/host_transfers.hpp"
#include "storage/inspector.hpp"
#include "storage/kernels_on_gpu.hpp"
#include "storage/layout.hpp"
#include "storage/lease.hpp"
#include "storage/opened_drives.hpp"
#include "storage/options.hpp"
#include "storage/raw_queue_pair.hpp"
#include "storage/recovery_thread.hpp"
#include "storage/relay_thread.hpp"
#include "storage/report.hpp"
#include "storage/watchdog_parts.hpp"

namespace forebay {
/// The parts, in the order in which they are made; they are destroyed in reverse.
struct storage::impl {
  explicit impl(storage_options const& o)
      : options(o),
        device(checked_device(o)),
        drives(detail::open_drives(o, device)),
        plan(detail::plan_drives(o, detail::identities_of(*drives), device.on_gpu(), detail::file_extents_of(*drives))),
        data_on_gpu(detail::data_on_gpu(*drives, device)),
        buffers(drives, device.memory()),
        relay(std::make_shared<detail::relay_thread>(drives, data_on_gpu, device.shared_memory())),
        client(device, drives, *relay, plan, o, buffers,
               [this](std::uint64_t first, std::uint64_t end) { return extents.names_in(first, end); }),
        host(drives, *relay, plan, device.shared_memory(), o, buffers),
        recovery({client.for_recovery(), host.for_recovery()}),
        extents(plan.layout, o, plan.writable, *drives->front().source, client, host),
        transfers(host, client, buffers, drives, detail::cuda_access, data_on_gpu ? device.gpu() : no_gpu) {
    for (detail::opened_drive const& d : *drives) {
      d.source->check_bytes([this](void* to, std::size_t bytes, std::uint64_t byte) { host.read(to, bytes, byte); });
    }
  }

  ~impl() {
    transfers.stop();
    client.close();
  }

  static detail::client_device checked_device(storage_options const& o) {
    auto const named = detail::client_device::named(o.device);
    detail::check_options(o);
    if (named.on_gpu()) detail::prepare_gpu(named.gpu());
    return named;
  }

  static constexpr int no_gpu = -1;

  host_transfer start(bool reads, void* memory, std::uint64_t bytes, std::uint64_t offset_bytes,
                      host_transfer_options const& o) {
    return host_transfer(transfers.start(reads, memory, bytes, resolve(bytes, offset_bytes, o.within), o));
  }

  /// Throws `refused_input` for memory of a GPU that a drive does not reach: its engine would end the process.
  void require_reachable(void const* address, std::size_t bytes) const {
    detail::gpu_access* const cuda = detail::cuda_access();
    detail::memory_place const place = cuda != nullptr ? cuda->place_of(address) : detail::memory_place();
    if (place.gpu < 0 || place.managed) return;
    if (!data_on_gpu || place.gpu != device.gpu()) {
      throw refused_input("buffer", "memory of cuda:" + std::to_string(place.gpu),
                          "not every drive reaches it: open the storage with that device, over drives that all have "
                          "placement 2 or 3, or use pread_async and pwrite_async, which copy");
    }
    auto const end = reinterpret_cast<std::uintptr_t>(address) + bytes;
    if (end > place.first + place.bytes) {
      throw refused_input("buffer", std::to_string(bytes) + " bytes",
                          "its allocation ends " + std::to_string(end - place.first - place.bytes) +
                              " bytes earlier: register memory of one allocation");
    }
  }

  /// Throws `refused_input` unless a write of the host is allowed.
  void require_writable(extent const* within) const {
    if (!plan.writable) throw refused_input("read_only", "true", "open the storage for writing");
    if (within == nullptr && !extents.raw_writable()) {
      throw refused_input("allow_destroy", "false",
                          "the drive carries a catalogue: write into one of its extents, or set allow_destroy");
    }
  }

  /// The place of a host transfer.
  std::uint64_t resolve(std::uint64_t bytes, std::uint64_t offset_bytes, extent const* within) const {
    std::uint64_t const room = within != nullptr ? within->size_bytes : plan.layout.size_bytes;
    if (offset_bytes > room || bytes > room - offset_bytes) {
      throw refused_input("offset_bytes", std::to_string(offset_bytes),
                          std::to_string(bytes) + " bytes from there do not lie within the " + std::to_string(room) +
                              " bytes of " + (within != nullptr ? "extent '" + within->name + "'" : "the storage"));
    }
    return offset_bytes + (within != nullptr ? within->first_byte : 0);
  }

  detail::inspected inspect() const {
    detail::inspected what;
    what.title = "storage on " + device.name();
    what.queues = {client.for_inspection(), host.for_inspection()};
    if (client.pages() != nullptr) what.cache = static_cast<cache_state const*>(client.pages()->core());
    return what;
  }

  storage_options const options;
  detail::client_device const device;
  std::shared_ptr<detail::opened_drives> const drives;
  detail::drive_plan const plan;
  bool const data_on_gpu;
  detail::buffer_source const buffers;
  std::shared_ptr<detail::relay_thread const> const relay;
  detail::client client;
  detail::host_io host;
  detail::recovery_thread recovery;  ///< destroyed before the queues that it looks after
  detail::extents extents;
  detail::host_transfers transfers;
};

storage::storage(storage_options const& options) : impl_(std::make_unique<impl>(options)) {}
storage::storage(storage&&) noexcept = default;
storage& storage::operator=(storage&&) noexcept = default;
storage::~storage() = default;

storage_layout const& storage::layout() const {
  return impl_->client.layout();
}
bool storage::on_gpu() const {
  return impl_->device.on_gpu();
}
int storage::gpu_ordinal() const {
  return impl_->device.gpu();
}
memory::resource& storage::device_memory() const {
  return impl_->device.memory();
}
io_queues const& storage::device_queues() const {
  return impl_->client.queues();
}
cache const& storage::pages() const {
  if (cache const* const pages = impl_->client.pages(); pages != nullptr) return *pages;
  throw refused_input("cache.size_bytes", "0", "open the storage with a cache, or use traits that are `uncached`");
}
bool storage::writable() const {
  return impl_->plan.writable;
}
bool storage::raw_writable() const {
  return impl_->extents.raw_writable();
}

void storage::require_one_after_the_other() const {
  if (layout().one_after_the_other()) return;
  throw refused_input("stripe_bytes", std::to_string(layout().stripe_bytes),
                      "the drives are striped: give 0, for the drives one after the other, or take ref()");
}
void storage::require_even_pairs() const {
  if (layout().file_extents != nullptr) {
    throw refused_input("drive", impl_->options.drives.front(),
                        "it is a file of a file system: use traits with uneven_rules<>, which look up its extents");
  }
  if (layout().drive_pairs == nullptr) return;
  auto const& queues = impl_->client.kernel_queues();
  std::size_t other = 1;
  while (queues[other].count == queues[0].count) ++other;
  throw refused_input(detail::field_of(other, "count"), std::to_string(queues[other].count),
                      "drive 0 has " + std::to_string(queues[0].count) +
                          ": give every drive as many, or use traits with uneven_rules<>");
}
void storage::require_no_cache() const {
  if (impl_->client.pages() == nullptr) return;
  throw refused_input(
      "cache.size_bytes", std::to_string(impl_->options.cache.size_bytes),
      "use traits that are `cached`, or open the storage without a cache: what was asked for bypasses the cache");
}
void storage::require_device(bool gpu) const {
  if (gpu == on_gpu()) return;
  throw refused_input(
      "device", impl_->options.device,
      !gpu ? "this storage's queues are driven by a GPU; open it with device cpu"
      : memory::device_count() == 0
          ? "this storage's queues are driven by CPU threads, since no GPU was found, or CUDA is not "
            "built in: nvidia-smi lists GPUs, and `forebay doctor` of the Python package tells which it "
            "is; use refs of simt::fiber or simt::native"
          : "this storage's queues are driven by CPU threads; open it with device cuda:N");
}

registered_buffer storage::register_buffer(void* address, std::size_t bytes) {
  impl_->require_reachable(address, bytes);
  return registered_buffer(
      std::make_unique<registered_buffer::parts>(impl_->buffers.register_for_user(address, bytes)));
}
registered_buffer storage::allocate_device_buffer(std::size_t bytes) {
  // A drive on any GPU allocates from the memory of its client's GPU.
  return registered_buffer(
      std::make_unique<registered_buffer::parts>(impl_->buffers.allocate_for_user(bytes, impl_->data_on_gpu)));
}
registered_buffer storage::allocate_buffer(std::size_t bytes) {
  return registered_buffer(std::make_unique<registered_buffer::parts>(impl_->buffers.allocate_for_user(bytes, false)));
}

storage_lease storage::lease() const {
  if (impl_->device.on_gpu()) detail::load_kernels(impl_->device.gpu());
  return storage_lease(std::make_unique<storage_lease::parts>(impl_->drives));
}

void storage::pread(void* to, std::uint64_t bytes, std::uint64_t offset_bytes, extent const* within) {
  std::uint64_t const at = impl_->resolve(bytes, offset_bytes, within);
  impl_->client.clean(at, bytes);
  impl_->host.read(to, bytes, at);
}

void storage::pwrite(void const* from, std::uint64_t bytes, std::uint64_t offset_bytes, extent const* within) {
  std::uint64_t const at = impl_->resolve(bytes, offset_bytes, within);
  impl_->require_writable(within);
  // Before, so that a write-back cannot overwrite it; afterwards, so that the next access reads it.
  impl_->client.forget(at, bytes);
  impl_->host.write(from, bytes, at);
  impl_->client.forget(at, bytes);
}

host_transfer storage::pread_async(void* to, std::uint64_t bytes, std::uint64_t offset_bytes,
                                   host_transfer_options const& options) {
  return impl_->start(true, to, bytes, offset_bytes, options);
}

host_transfer storage::pwrite_async(void const* from, std::uint64_t bytes, std::uint64_t offset_bytes,
                                    host_transfer_options const& options) {
  impl_->require_writable(options.within);
  return impl_->start(false, const_cast<void*>(from), bytes, offset_bytes, options);
}

void storage::cancel_transfers() {
  impl_->transfers.cancel_all();
}

void storage::flush() {
  // Each step runs even if an earlier one failed: a drive that is gone must not keep the others from being flushed.
  std::string wrong;
  if (std::uint32_t const lost = impl_->client.settle(); lost != 0) {
    wrong = "storage: " + std::to_string(lost) +
            " commands of kernels never completed: the buffers of their requests still belong to them";
  }
  auto const attempt = [&](auto const& part) {
    try {
      part();
    } catch (operation_failed const& e) {
      wrong += (wrong.empty() ? "" : "; ") + std::string(e.what());
    }
  };
  attempt([&] { impl_->client.clean(); });
  attempt([&] { impl_->host.flush(); });
  if (!wrong.empty()) throw operation_failed(wrong);
}

void storage::take_back(registered_buffer const& buffer) {
  impl_->client.take_back(buffer.data(), buffer.size_bytes());
}
access_errors storage::take_errors() {
  return impl_->client.take_errors();
}
cache_counters storage::cache_statistics() const {
  cache const* const pages = impl_->client.pages();
  return pages != nullptr && pages->options().statistics ? pages->counted() : cache_counters{};
}
bool storage::drain(std::uint64_t timeout_ns) {
  detail::drive_hold const running(impl_->drives);
  bool const host_idle = impl_->host.drain(timeout_ns);
  return impl_->client.drain(timeout_ns) && host_idle;
}
bool storage::populate(std::uint64_t bytes) {
  return detail::populate(*impl_->drives, layout(), bytes);
}

std::vector<extent> storage::extents() const {
  return impl_->extents.list();
}
extent storage::find_extent(std::string const& name) const {
  return impl_->extents.find(name);
}
extent storage::create_extent(std::string const& name, std::uint64_t bytes) {
  return impl_->extents.create(name, bytes);
}
extent storage::stage_extent(std::string const& name, std::uint64_t bytes) {
  return impl_->extents.stage(name, bytes);
}
void storage::publish_extent(extent const& staged, bool replace) {
  flush();
  impl_->extents.publish(staged, replace);
}
void storage::discard_extent(extent const& staged) {
  impl_->extents.discard(staged);
}
void storage::remove_extent(std::string const& name) {
  impl_->extents.remove(name);
}

raw_queue_pair storage::make_raw_queue_pair(std::uint32_t drive, std::uint32_t entries) {
  detail::opened_drives const& drives = *impl_->drives;
  if (drive >= drives.size()) {
    throw refused_input("drive", std::to_string(drive), "the storage has " + std::to_string(drives.size()));
  }
  std::uint32_t const depth = entries != 0 ? entries : impl_->client.kernel_queues()[drive].depth;
  return raw_queue_pair(std::make_unique<raw_queue_pair::parts>(
      impl_->extents.admit_raw_pair(drives[drive].controller->identity()), impl_->drives, impl_->relay, drive,
      driver::queue_options{
          .entries = depth, .driven_by_gpu = on_gpu(), .rings_on_gpu = detail::rings_on_gpu(drives, drive, on_gpu())}));
}

std::string storage::report() const {
  return detail::report(*impl_->drives, impl_->client, impl_->transfers, impl_->recovery.count(), *impl_->relay);
}
std::string storage::dump() const {
  return detail::dump(impl_->inspect(), impl_->device.clock()());
}
watchdog storage::watch(watchdog_options const& options) const {
  return watchdog(
      std::make_unique<watchdog::parts>(impl_->inspect(), impl_->device.clock(), impl_->options.timeout_ns, options));
}
void storage::reset_statistics() {
  for (detail::opened_drive const& d : *impl_->drives) d.source->reset_statistics();
  impl_->client.reset_statistics();
  impl_->transfers.reset_counts();
  impl_->relay->reset_counts();
}

}  // namespace forebay
