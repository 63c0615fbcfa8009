// SPDX-License-Identifier: Apache-2.0
#include "forebay/storage.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/detail/queue/drain.hpp"
#include "forebay/detail/queue/recovery.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/storage/catalogue.hpp"
#include "forebay/error.hpp"
#include "forebay/status_text.hpp"
#include "storage/drive_limits.hpp"
#include "storage/inspector.hpp"
#include "storage/kernels_on_gpu.hpp"
#include "storage/watchdog_parts.hpp"

namespace forebay {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::uint64_t bounce_bytes = 4 << 20;
/// Drives that lie one after the other begin at multiples of the largest page, so that where they do does not depend on
/// the cache, and the largest page of the cache lies on one drive.
constexpr std::uint64_t drive_alignment_bytes = 65536;
constexpr int no_gpu = -1;

int parse_device(std::string const& device) {
  if (device == "cpu") return no_gpu;
  int const gpus = memory::device_count();
  if (device == "auto") return gpus > 0 ? 0 : no_gpu;
  if (device.starts_with("cuda:")) {
    int ordinal = -1;
    char const* const end = device.data() + device.size();
    auto const [stop, error] = std::from_chars(device.data() + 5, end, ordinal);
    if (error == std::errc() && stop == end && ordinal >= 0) {
      if (ordinal < gpus) return ordinal;
      throw refused_input("device", device,
                          gpus == 0 ? "no GPU was found, or CUDA is not built in; `forebay doctor` tells; use cpu"
                                    : "give an ordinal below " + std::to_string(gpus));
    }
  }
  throw refused_input("device", device, "give cpu, auto or cuda:N");
}

/// One drive with the driver that runs it.
struct opened_drive {
  std::unique_ptr<drive::device> source;
  std::unique_ptr<driver::controller> controller;
};

/// Shared with registrations and raw queues, which may outlive the storage.
using opened_drives = std::vector<opened_drive>;

}  // namespace

struct registered_buffer::parts {
  std::shared_ptr<opened_drives> drives;
  driver::dma_buffer given;       ///< by the first drive; empty where it gave none
  memory::allocation page_table;  ///< bus addresses, where they are not contiguous
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t mapped_in = 0;  ///< how many drives' spaces, from the first
  std::size_t given_by = 0;   ///< how many of those gave the memory, and so have it mapped already
  buffer_ref ref;

  ~parts() {
    std::size_t const whole_pages = (bytes + page_bytes - 1) / page_bytes * page_bytes;
    for (std::size_t i = given_by; i < mapped_in; ++i) (*drives)[i].source->dma().unmap(data, whole_pages);
  }
};

registered_buffer::registered_buffer() = default;
registered_buffer::registered_buffer(std::unique_ptr<parts> p) : parts_(std::move(p)) {}
registered_buffer::registered_buffer(registered_buffer&&) noexcept = default;
registered_buffer& registered_buffer::operator=(registered_buffer&&) noexcept = default;
registered_buffer::~registered_buffer() = default;
std::byte* registered_buffer::data() const {
  return parts_ ? parts_->data : nullptr;
}
std::size_t registered_buffer::bytes() const {
  return parts_ ? parts_->bytes : 0;
}
buffer_ref registered_buffer::ref() const {
  return parts_ ? parts_->ref : buffer_ref();
}

struct storage_lease::parts {
  explicit parts(std::shared_ptr<opened_drives> of) : drives(std::move(of)) {
    try {
      for (opened_drive const& d : *drives) {
        d.source->hold();
        ++held;
      }
    } catch (...) {
      let_go();
      throw;
    }
  }
  ~parts() { let_go(); }
  void let_go() {
    for (; held != 0; --held) (*drives)[held - 1].source->release();
  }
  parts(parts const&) = delete;
  parts& operator=(parts const&) = delete;

  std::shared_ptr<opened_drives> drives;
  std::size_t held = 0;
};

storage_lease::storage_lease(std::unique_ptr<parts> p) : parts_(std::move(p)) {}
storage_lease::storage_lease(storage_lease&&) noexcept = default;
storage_lease& storage_lease::operator=(storage_lease&&) noexcept = default;
storage_lease::~storage_lease() = default;

struct raw_queue_pair::parts {
  std::shared_ptr<char> of;  ///< as many hold it as there are pairs, and their storage
  std::shared_ptr<opened_drives> drives;
  driver::drive_identity identity;
  driver::io_queue queue;
  queue_pair_rings rings;
};

raw_queue_pair::raw_queue_pair(std::unique_ptr<parts> p) : parts_(std::move(p)) {}
raw_queue_pair::raw_queue_pair(raw_queue_pair&&) noexcept = default;
raw_queue_pair& raw_queue_pair::operator=(raw_queue_pair&&) noexcept = default;
raw_queue_pair::~raw_queue_pair() = default;
queue_pair_rings const& raw_queue_pair::rings() const {
  return parts_->rings;
}
bool raw_queue_pair::live() const {
  return parts_->queue.live();
}
std::uint32_t raw_queue_pair::nsid() const {
  return parts_->identity.nsid;
}
std::uint32_t raw_queue_pair::block_bytes() const {
  return parts_->identity.block_bytes;
}
std::uint64_t raw_queue_pair::blocks() const {
  return parts_->identity.blocks;
}

namespace {

queue_pair_rings rings_of(driver::io_queue const& queue) {
  return {queue.submission_ring(),
          queue.completion_ring(),
          queue.sq_tail_doorbell(),
          queue.cq_head_doorbell(),
          queue.entries(),
          queue.completion_entries(),
          queue.id()};
}

/// Writes what recovery does on standard error; of much at a time the first lines, and how many more there were.
class recovery_notices {
 public:
  void operator()(std::string const& event) {
    auto const now = std::chrono::steady_clock::now();
    if (now - first_ > interval) {
      if (told_ > most) std::fprintf(stderr, "forebay: recovery: %u more of the kind before\n", told_ - most);
      first_ = now;
      told_ = 0;
    }
    if (++told_ <= most) std::fprintf(stderr, "forebay: recovery: %s\n", event.c_str());
  }

 private:
  static constexpr std::uint32_t most = 10;
  static constexpr std::chrono::seconds interval{10};
  std::chrono::steady_clock::time_point first_{};
  std::uint32_t told_ = 0;
};

/// Queue pairs for one kind of thread on every drive: the driver's queues and the state that drives them.
struct queue_group {
  registered_buffer prp_pages;  ///< before the rings: until those are deleted the drive may read lists
  std::unique_ptr<io_queues> queues;
  std::vector<driver::io_queue> rings;
  std::vector<std::size_t> drive_of;  ///< each pair
};

char const* name_of(nvme::queue_priority priority) {
  switch (priority) {
    case nvme::queue_priority::urgent:
      return "urgent";
    case nvme::queue_priority::high:
      return "high";
    case nvme::queue_priority::medium:
      return "medium";
    case nvme::queue_priority::low:
      return "low";
  }
  return "";
}

}  // namespace

struct storage::impl {
  explicit impl(storage_options const& o) : options(o), gpu(parse_device(o.device)) {
    refuse_bad_options();
    if (on_gpu()) detail::prepare_gpu(gpu);
    open_drives();
    choose_layout();
    std::uint32_t const records = options.records != 0 ? options.records : on_gpu() ? 1u << 20 : 1u << 16;
    device = make_group(kernel_queues, records, device_memory(), on_gpu());
    host = make_group(host_queues(), 1024, memory::host(), false);
    host_layout = layout;
    host_layout.pairs_per_drive = 1;
    host_layout.drive_pairs = nullptr;
    bounce = allocate(bounce_bytes);
    make_cache();
    start_recovery();
    load_catalogue();
  }

  ~impl() {
    try {
      if (pages) clean_pages();
    } catch (operation_failed const& error) {
      std::fprintf(stderr, "forebay: storage: what was written is lost: %s\n", error.what());
    }
    try {
      settle();
    } catch (operation_failed const&) {
      // A GPU that failed drives no queue any more; deleting the queues, next, is what keeps memory safe.
    }
  }

  /// A drive that is slow, or fails now and then, is opened all the same.
  void load_catalogue() {
    constexpr std::uint64_t timeout_ns = 10'000'000'000;
    command_limits const wanted = host.queues->limits();
    host.queues->set_limits({std::max(wanted.timeout_ns, timeout_ns), std::max(wanted.flush_timeout_ns, timeout_ns)});
    auto const read_patiently = [this](void* to, std::uint64_t bytes, std::uint64_t at) {
      constexpr int attempts = 8;
      for (int attempt = 1;; ++attempt) {
        try {
          return read(to, bytes, at);
        } catch (operation_failed const& error) {
          if (attempt < attempts && lost_request.empty()) continue;
          throw operation_failed("storage: cannot be opened, since its catalogue of extents cannot be read: " +
                                 std::string(error.what()));
        }
      }
    };
    table = catalogue::load(home(), read_patiently, options.allow_destroy);
    host.queues->set_limits(wanted);
  }

  void make_cache() {
    if (options.cache_bytes == 0) return;
    cache_options o;
    o.bytes = options.cache_bytes;
    o.page_bytes = options.page_bytes;
    o.overflow_frames = options.overflow_frames;
    o.statistics = options.cache_statistics;
    o.policy = options.policy;
    o.user_frames = options.user_frames;
    o.host_bytes = options.host_bytes;
    o.host_policy = options.host_policy;
    cache::check(o, layout);
    frames = allocate_from_first_drive(o.frame_memory_bytes(), placement() == 3);
    pages = std::make_unique<cache>(o, layout, *device.queues, frames.ref(), device_memory(), shared_memory());
  }

  /// Pages of the cache that bytes [at, at + bytes), of which there are some, lie in.
  struct page_range {
    std::uint64_t first;
    std::uint64_t count;
  };
  page_range pages_of(std::uint64_t at, std::uint64_t bytes) const {
    std::uint64_t const first = at / options.page_bytes;
    return {first, (at + bytes - 1) / options.page_bytes - first + 1};
  }

  /// Writes every page that the cache holds back to its drive.
  void clean_pages() const {
    storage_lease const running = lease();
    clean_result result;
    if (on_gpu()) {
      result = detail::clean_on_gpu(*pages, gpu);
    } else {
      clean_kernel<simt::native>{pages->frames_ref<simt::native>(), &result}();
    }
    throw_if_unwritten(result);
  }
  /// The same of the pages of [at, at + bytes).
  void clean_pages(std::uint64_t at, std::uint64_t bytes) const {
    if (bytes == 0) return;
    storage_lease const running = lease();
    auto const [first, count] = pages_of(at, bytes);
    clean_result result;
    if (on_gpu()) {
      result = detail::clean_range_on_gpu(*pages, first, count, gpu);
    } else {
      clean_range_kernel<simt::native>{pages->frames_ref<simt::native>(), first, count, &result}();
    }
    throw_if_unwritten(result);
  }
  /// Makes the cache read the pages of [at, at + bytes) again.
  void forget_pages(std::uint64_t at, std::uint64_t bytes) const {
    if (bytes == 0) return;
    storage_lease const running = lease();
    auto const [first, count] = pages_of(at, bytes);
    clean_result result;
    if (on_gpu()) {
      result = detail::forget_on_gpu(*pages, first, count, gpu);
    } else {
      forget_kernel<simt::native>{pages->frames_ref<simt::native>(), first, count, &result}();
    }
    throw_if_unwritten(result);
    if (result.in_use != 0) {
      throw operation_failed("storage: a kernel has " + std::to_string(result.in_use) +
                             " of the pages in use that the host writes: it may go on to see what was there before");
    }
  }

  /// Says which drive does not take what.
  void throw_if_unwritten(clean_result const& result) const {
    std::string all;
    for (std::uint32_t drive = 0; drive < layout.drive_count; ++drive) {
      clean_result::of_drive const& of = result.drives[drive];
      if (of.unwritten == 0) continue;
      std::uint64_t const first_byte = ~of.first_page * options.page_bytes;
      std::uint64_t const end_byte = std::min((of.last_page + 1) * options.page_bytes, layout.size_bytes);
      all +=
          (all.empty() ? "" : "; ") + std::to_string(of.unwritten) +
          (of.unwritten == 1 ? " written page" : " written pages") + " of bytes " + std::to_string(first_byte) +
          " to " + std::to_string(end_byte) + extents_in(first_byte, end_byte) + " cannot be written to drive '" +
          options.drives[drive] + "'" +
          (of.given_up != 0 ? ", which completed nothing for " + std::to_string(options.timeout_ns / 1'000'000) + " ms"
                            : "") +
          ": " + to_string(status::from_bits(of.first_failure));
    }
    if (!all.empty()) throw operation_failed("storage: " + all);
  }
  /// Which extents have bytes of [first_byte, end_byte), in words.
  std::string extents_in(std::uint64_t first_byte, std::uint64_t end_byte) const {
    std::string names;
    // A member that holds `table_mutex` may have come here; it alone changes the table.
    if (!table) return names;
    for (extent const& e : table->extents()) {
      if (e.first_byte >= end_byte || e.first_byte + e.bytes <= first_byte) continue;
      names += (names.empty() ? " (of extent '" : ", '") + e.name + "'";
    }
    return names.empty() ? names : names + ")";
  }

  void take_back(std::byte const* first, std::uint64_t bytes) const {
    storage_lease const running = lease();
    clean_result result;
    if (on_gpu()) {
      result = detail::take_back_on_gpu(*pages, first, bytes, gpu);
    } else {
      take_back_kernel<simt::native>{pages->frames_ref<simt::native>(), first, bytes, &result}();
    }
    throw_if_unwritten(result);
    if (result.in_use != 0) {
      throw operation_failed("storage: a kernel has " + std::to_string(result.in_use) +
                             " pages in use that lie in the buffer: it still belongs to the storage");
    }
  }

  catalogue_home home() const { return {layout.size_bytes, layout.drive_count, layout.stripe_bytes}; }
  bool on_gpu() const { return gpu != no_gpu; }
  memory::resource& device_memory() const { return on_gpu() ? memory::device(gpu) : memory::host(); }
  memory::resource& shared_memory() const { return on_gpu() ? memory::pinned() : memory::host(); }
  bool writable() const { return !options.read_only && !write_protected; }
  bool raw_writable() const { return writable() && (!table || options.allow_destroy); }

  void refuse_bad_options() const {
    if (options.drives.empty()) throw refused_input("drives", "", "name at least one drive URI");
    if (options.drives.size() > 64) {
      throw refused_input("drives", std::to_string(options.drives.size()) + " URIs", "name at most 64");
    }
    cache::check_page(options.page_bytes);
    if (options.cache_bytes == 0 && (options.user_frames != 0 || options.host_bytes != 0 || options.cache_statistics)) {
      throw refused_input("cache_bytes", "0",
                          "user_frames, host_bytes and cache_statistics need a cache: give it a size");
    }
    refuse_bad_depth("queue_depth", options.queue_depth);
    if (!options.queues.empty() && options.queues.size() != options.drives.size()) {
      throw refused_input("queues", "of " + std::to_string(options.queues.size()) + " drives",
                          "give those of all " + std::to_string(options.drives.size()) + " drives, or of none");
    }
    for (std::size_t i = 0; i < options.queues.size(); ++i) {
      refuse_bad_depth(field_of(i, "depth"), options.queues[i].depth);
    }
    // What commands complete to names a record, or a frame of the cache, by 28 bits.
    if (options.records > cache_targets<void>::max_frames) {
      throw refused_input("records", std::to_string(options.records),
                          "give 1 to 2^28 requests that may be open at once");
    }
    if (options.prp_list_pages == 0) throw refused_input("prp_list_pages", "0", "give at least 1");
    // Added to a clock that may count from 1970.
    if (options.timeout_ns == 0 || options.timeout_ns >> 63 != 0) {
      throw refused_input("timeout_ns", std::to_string(options.timeout_ns),
                          "give the nanoseconds after which a wait gives up, 1 to 2^63 - 1");
    }
    if (options.flush_timeout_ns == 0 || options.flush_timeout_ns >> 63 != 0) {
      throw refused_input("flush_timeout_ns", std::to_string(options.flush_timeout_ns),
                          "give the nanoseconds that a Flush may take, 1 to 2^63 - 1");
    }
  }

  static void refuse_bad_depth(std::string const& field, std::uint32_t depth) {
    if (depth == 0 || (depth >= 2 && depth <= 65536)) return;
    throw refused_input(field, std::to_string(depth), "give 2 to 65536, or 0 for the default");
  }
  static std::string field_of(std::size_t drive, char const* what) {
    return "queues[" + std::to_string(drive) + "]." + what;
  }
  /// What was asked for by name: 0 or nothing where all drives are alike.
  drive_queues asked_of(std::size_t drive) const {
    return options.queues.empty() ? drive_queues() : options.queues[drive];
  }

  void open_drives() {
    drives = std::make_shared<opened_drives>();
    for (std::size_t i = 0; i < options.drives.size(); ++i) {
      opened_drive d;
      d.source = drive::open(options.drives[i], {.client_memory = &shared_memory(),
                                                 .gpu = on_gpu() ? gpu : 0,
                                                 .queues = shared_queues(i),
                                                 .read_only = options.read_only,
                                                 .cancel = options.cancel,
                                                 .faults = {},
                                                 .frontend = {}});
      driver::controller_options o;
      if (auto const priority = asked_of(i).priority) {
        nvme::controller_capabilities const found{d.source->registers().read64(nvme::registers::cap)};
        if (!found.weighted_round_robin()) {
          throw refused_input(field_of(i, "priority"), name_of(*priority),
                              "the controller of '" + options.drives[i] +
                                  "' arbitrates by round robin only (CAP.AMS): leave the priority out, or use a drive "
                                  "with weighted round robin arbitration");
        }
        o.priorities = driver::priority_weights();
      }
      d.controller = std::make_unique<driver::controller>(d.source->registers(), d.source->dma(), o);
      drives->push_back(std::move(d));
    }
  }

  /// What to take of a drive that others use too: one pair is the host's, and a few are for raw queue pairs.
  std::uint32_t shared_queues(std::size_t drive) const {
    std::uint32_t const count = asked_of(drive).count != 0 ? asked_of(drive).count : options.queues_per_drive;
    return count == 0 ? 0 : std::max(count + 1, 16u);
  }

  void choose_layout() {
    std::vector<driver::drive_identity> identities;
    for (auto const& d : *drives) identities.push_back(d.controller->identity());
    constexpr std::uint64_t list_page_names = page_bytes / 8 * page_bytes;
    drive_limits const limits = limits_of_all(identities, options.drives, list_page_names);
    write_protected = limits.write_protected;
    std::uint64_t const smallest = limits.bytes;
    auto const& first = identities.front();
    layout.drive_count = static_cast<std::uint32_t>(drives->size());
    choose_queues();
    while (1u << layout.block_shift != first.block_bytes) ++layout.block_shift;
    layout.nsid = first.nsid;
    layout.command_bytes_max = limits.command_bytes_max;
    layout.stripe_bytes = options.stripe_bytes;
    layout.size_bytes = smallest;
    if (layout.drive_count > 1) {
      if (options.stripe_bytes == 0) {
        layout.stripe_bytes = smallest / drive_alignment_bytes * drive_alignment_bytes;
        if (layout.stripe_bytes == 0) {
          throw refused_input("stripe_bytes", "0",
                              "drives one after the other hold at least " + std::to_string(drive_alignment_bytes) +
                                  " bytes each, the smallest " + std::to_string(smallest) + ": give a stripe");
        }
      } else if (options.stripe_bytes % first.block_bytes != 0) {
        throw refused_input("stripe_bytes", std::to_string(options.stripe_bytes),
                            "give a multiple of the block, " + std::to_string(first.block_bytes) +
                                " bytes, or 0 for the drives one after the other");
      }
      std::uint64_t const striped_bytes = smallest / layout.stripe_bytes * layout.stripe_bytes;
      if (striped_bytes == 0) {
        throw refused_input("stripe_bytes", std::to_string(options.stripe_bytes),
                            "give at most what the smallest drive holds, " + std::to_string(smallest) + " bytes");
      }
      if (striped_bytes > ~std::uint64_t{0} / layout.drive_count) {
        throw refused_input("drives", std::to_string(layout.drive_count) + " of " + std::to_string(smallest) + " bytes",
                            "use fewer: together they must hold less than 2^64 bytes");
      }
      layout.size_bytes = striped_bytes * layout.drive_count;
    }
  }

  void choose_queues() {
    // Of the drives that are not named one by one, the weakest says what all of them have.
    std::uint32_t pairs_left = ~0u;
    std::uint32_t entries_max = 65536;
    for (std::size_t i = 0; i < drives->size(); ++i) {
      auto const& id = (*drives)[i].controller->identity();
      std::uint32_t const left = id.io_queue_pairs - 1;  // one is the host's
      drive_queues const asked = asked_of(i);
      if (asked.count > left) {
        throw refused_input(field_of(i, "count"), std::to_string(asked.count),
                            "the drive leaves at most " + std::to_string(left));
      }
      if (asked.depth > id.max_queue_entries) {
        throw refused_input(field_of(i, "depth"), std::to_string(asked.depth),
                            "the drive allows at most " + std::to_string(id.max_queue_entries));
      }
      if (asked.count == 0) pairs_left = std::min(pairs_left, left);
      if (asked.depth == 0) entries_max = std::min(entries_max, id.max_queue_entries);
    }
    if (options.queues_per_drive > pairs_left) {
      throw refused_input("queues_per_drive", std::to_string(options.queues_per_drive),
                          "the drives leave at most " + std::to_string(pairs_left));
    }
    if (options.queue_depth > entries_max) {
      throw refused_input("queue_depth", std::to_string(options.queue_depth),
                          "the drives allow at most " + std::to_string(entries_max));
    }
    std::uint32_t const wanted = options.queues_per_drive != 0 ? options.queues_per_drive : on_gpu() ? 64 : 4;
    std::uint32_t const depth = options.queue_depth != 0 ? options.queue_depth : std::min(1024u, entries_max);
    std::vector<pair_range> pairs;
    std::uint32_t first = 0;
    bool even = true;
    layout.pairs_per_drive = 0;
    for (std::size_t i = 0; i < drives->size(); ++i) {
      drive_queues q = asked_of(i);
      if (q.count == 0) q.count = std::min(wanted, pairs_left);
      if (q.depth == 0) q.depth = depth;
      even = even && (i == 0 || q.count == kernel_queues[0].count);
      layout.pairs_per_drive = std::max(layout.pairs_per_drive, q.count);
      pairs.push_back({first, q.count, 1});
      first += q.count;
      kernel_queues.push_back(q);
    }
    if (even) return;
    drive_pairs = memory::allocation(device_memory(), pairs.size() * sizeof(pair_range), 128);
    device_memory().copy_in(drive_pairs.data(), pairs.data(), pairs.size() * sizeof(pair_range));
    layout.drive_pairs = drive_pairs.as<pair_range>();
  }

  /// One for each drive, of its kernels' depth, but not a deep one.
  std::vector<drive_queues> host_queues() const {
    std::vector<drive_queues> all;
    for (drive_queues const& q : kernel_queues) all.push_back({1, std::min(q.depth, 256u), std::nullopt});
    return all;
  }

  queue_group make_group(std::vector<drive_queues> const& wanted, std::uint32_t records, memory::resource& state_memory,
                         bool by_gpu) {
    queue_group group;
    std::vector<queue_pair_rings> rings;
    for (std::size_t d = 0; d < drives->size(); ++d) {
      drive_queues const& q = wanted[d];
      for (std::uint32_t i = 0; i < q.count; ++i) {
        group.rings.push_back((*drives)[d].controller->create_io_queue_pair(
            {.entries = q.depth,
             .driven_by_gpu = by_gpu,
             .priority = q.priority.value_or(nvme::queue_priority::medium)}));
        group.drive_of.push_back(d);
        rings.push_back(rings_of(group.rings.back()));
      }
    }
    group.prp_pages = allocate(std::uint64_t{options.prp_list_pages} * page_bytes);
    io_queues_options o;
    o.records = records;
    o.prp_pages = group.prp_pages.ref();
    o.page_bytes = page_bytes;
    o.timeout_ns = options.timeout_ns;
    o.flush_timeout_ns = options.flush_timeout_ns;
    o.traced_threads = options.traced_threads;
    group.queues = std::make_unique<io_queues>(rings, o, state_memory, shared_memory());
    return group;
  }

  recovery::group recovery_group(queue_group& group) const {
    recovery::group g{group.queues.get(), {}};
    for (std::size_t i = 0; i < group.rings.size(); ++i) {
      std::size_t const drive = group.drive_of[i];
      g.members.push_back({(*drives)[drive].controller.get(), &group.rings[i], options.drives[drive]});
    }
    return g;
  }

  void start_recovery() {
    recovery_steps = std::make_unique<recovery>(std::vector{recovery_group(device), recovery_group(host)},
                                                recovery::options{.tell = recovery_notices()});
    recovery_thread = std::jthread([this](std::stop_token stop) {
      std::mutex mutex;
      std::condition_variable_any changed;
      std::unique_lock lock(mutex);
      while (!stop.stop_requested()) {
        try {
          while (recovery_steps->step() && !stop.stop_requested()) {
          }
        } catch (std::exception const&) {
          // Of a GPU that failed, whose queue state is out of reach: other drives' waiters may still ask.
        }
        changed.wait_for(lock, stop, std::chrono::milliseconds(5), [] { return false; });
      }
    });
  }

  registered_buffer allocate(std::uint64_t bytes) { return allocate_from_first_drive(bytes, false); }
  /// Of a size that the user gave.
  registered_buffer allocate_for_user(std::size_t bytes, bool for_gpu) {
    if (bytes == 0) throw refused_input("bytes", "0", "a buffer holds at least one byte");
    try {
      if (bytes > ~std::size_t{0} - page_bytes) throw std::bad_alloc();  // whole pages of it have no size
      return allocate_from_first_drive(bytes, for_gpu);
    } catch (std::bad_alloc const&) {
      throw refused_input("bytes", std::to_string(bytes), "this machine has not that much memory; give less");
    }
  }
  /// A drive that another process serves reaches only memory that it gave, so the first drive gives it.
  registered_buffer allocate_from_first_drive(std::uint64_t bytes, bool for_gpu) {
    std::uint64_t const whole_pages = (bytes + page_bytes - 1) / page_bytes * page_bytes;
    auto p = std::make_unique<registered_buffer::parts>();
    p->drives = drives;
    p->given = driver::dma_buffer(drives->front().source->dma(), whole_pages, for_gpu);
    p->given_by = p->mapped_in = 1;
    void* const data = p->given.data();
    return register_range(data, bytes, std::move(p));
  }
  registered_buffer register_range(void* address, std::uint64_t bytes) {
    auto p = std::make_unique<registered_buffer::parts>();
    p->drives = drives;
    return register_range(address, bytes, std::move(p));
  }
  registered_buffer register_range(void* address, std::uint64_t bytes, std::unique_ptr<registered_buffer::parts> p) {
    p->data = static_cast<std::byte*>(address);
    p->bytes = bytes;
    std::uint64_t const count = (bytes + page_bytes - 1) / page_bytes;
    std::vector<std::uint64_t> bus(count);
    for (std::size_t n = 0; n < drives->size(); ++n) {
      driver::dma_space& dma = (*drives)[n].source->dma();
      if (n >= p->mapped_in) {
        dma.map(address, count * page_bytes);
        ++p->mapped_in;
      }
      for (std::uint64_t i = 0; i < count; ++i) {
        std::uint64_t const at = dma.bus_address(p->data + i * page_bytes);
        if (n > 0 && at != bus[i]) {
          throw operation_failed("storage: two drives give one page different bus addresses; use one storage for each");
        }
        bus[i] = at;
      }
    }
    bool contiguous = true;
    for (std::uint64_t i = 1; i < count; ++i) contiguous = contiguous && bus[i] == bus[0] + i * page_bytes;
    if (contiguous) {
      p->ref = buffer_ref(p->data, bytes, bus[0]);
    } else {
      p->page_table = memory::allocation(device_memory(), count * sizeof(std::uint64_t), 128);
      device_memory().copy_in(p->page_table.data(), bus.data(), count * sizeof(std::uint64_t));
      p->ref = buffer_ref(p->data, bytes, p->page_table.as<std::uint64_t>(), 12, 0);
    }
    return registered_buffer(std::move(p));
  }

  storage_ref<simt::native> host_ref() const {
    return {host.queues->ref<simt::native>(), host_layout, 0, layout.size_bytes, writable()};
  }

  /// Waits for as long as the drives complete anything, and then until recovery has settled the request, so that the
  /// bounce buffer is free again. `what()`: the request in words, for `operation_failed`.
  template <class What>
  void finish(token<simt::native, queue_rules> t, What&& what, std::uint64_t limit_ns) {
    using simt::native;
    auto const queues = host.queues->ref<native>();
    alive_watch<native> alive(queues, {0, queues.pair_count()});
    status result = t.wait(native::clock_ns() + limit_ns);
    for (std::uint32_t left = queues.patience; result.kind() == fault::timed_out && left != 0; --left) {
      if (alive.has_completed()) left = queues.patience;
      result = t.wait(native::clock_ns() + queues.recovery_time_ns());
    }
    if (result.ok()) return;
    std::string const event = what() + ": " + to_string(result);
    if (result.kind() == fault::timed_out) {
      lost_request = event;
      t.detach();
    }
    throw operation_failed(event);
  }
  /// A transfer between the bounce buffer and blocks [begin, end).
  void transfer(nvme::io_opcode opcode, std::uint64_t begin, std::uint64_t end) {
    bool const reads = opcode == nvme::io_opcode::read;
    auto const ref = host_ref();
    finish(
        reads ? ref.read_async(bounce.ref(), begin, end - begin) : ref.write_async(bounce.ref(), begin, end - begin),
        [&] {
          return std::string(reads ? "read" : "write") + " of " + std::to_string(end - begin) + " bytes at " +
                 std::to_string(begin) + " of " + names_of(drives_of(begin, end));
        },
        host.queues->limits().timeout_ns);
  }
  /// The drives on which bytes [begin, end) lie.
  std::vector<std::uint32_t> drives_of(std::uint64_t begin, std::uint64_t end) const {
    std::vector<std::uint32_t> found;
    for (std::uint64_t at = begin; at < end && found.size() < layout.drive_count;) {
      storage_layout::piece const p = layout.piece_at(at, end - at);
      if (std::find(found.begin(), found.end(), p.drive) == found.end()) found.push_back(p.drive);
      at += p.bytes;
    }
    return found;
  }
  std::string names_of(std::vector<std::uint32_t> const& of) const {
    std::string names;
    for (std::uint32_t const drive : of) names += (names.empty() ? "drive '" : ", '") + options.drives[drive] + "'";
    return names;
  }

  /// Runs `step(begin, end, from, to)` for pieces of [at, at + bytes): blocks [begin, end) of at most the bounce
  /// buffer's size, of which bytes [from, to) are wanted.
  template <class Step>
  void in_pieces(std::uint64_t at, std::uint64_t bytes, Step step) {
    if (!lost_request.empty()) {
      throw operation_failed("storage: an earlier request never completed (" + lost_request +
                             "): the host's buffer still belongs to it; open the storage again");
    }
    std::uint64_t const block = std::uint64_t{1} << layout.block_shift;
    for (std::uint64_t from = at; from < at + bytes;) {
      std::uint64_t const begin = from / block * block;
      std::uint64_t const to = std::min(at + bytes, begin + bounce_bytes);
      step(begin, std::min((to + block - 1) / block * block, layout.size_bytes), from, to);
      from = to;
    }
  }

  void read(void* to, std::uint64_t bytes, std::uint64_t at) {
    storage_lease const running = lease();
    std::lock_guard lock(host_mutex);
    in_pieces(at, bytes, [&](std::uint64_t begin, std::uint64_t end, std::uint64_t from, std::uint64_t until) {
      transfer(nvme::io_opcode::read, begin, end);
      std::memcpy(static_cast<std::byte*>(to) + (from - at), bounce.data() + (from - begin), until - from);
    });
  }

  void write(void const* data, std::uint64_t bytes, std::uint64_t at) {
    storage_lease const running = lease();
    std::lock_guard lock(host_mutex);
    in_pieces(at, bytes, [&](std::uint64_t begin, std::uint64_t end, std::uint64_t from, std::uint64_t until) {
      if (begin != from || end != until) transfer(nvme::io_opcode::read, begin, end);
      std::memcpy(bounce.data() + (from - begin), static_cast<std::byte const*>(data) + (from - at), until - from);
      transfer(nvme::io_opcode::write, begin, end);
    });
  }

  void flush() {
    storage_lease const running = lease();
    std::lock_guard lock(host_mutex);
    std::vector<std::uint32_t> all(layout.drive_count);
    std::iota(all.begin(), all.end(), 0u);
    finish(host_ref().flush_async(), [&] { return "flush of " + names_of(all); }, options.flush_timeout_ns);
  }

  /// Waits until each request of a kernel that is in flight now is over, detached ones too; returns how many commands
  /// never ended.
  std::uint32_t settle() const {
    using simt::native;
    storage_lease const running = lease();
    if (on_gpu()) return detail::settle_on_gpu(*device.queues, pages.get(), gpu);
    std::uint32_t given_up = 0;
    if (pages) {
      cache_targets<native> const targets(device.queues->records<native>(), pages->core());
      settle_kernel<native, cache_targets<native>>{device.queues->ref<native>(targets), &given_up}();
    } else {
      settle_kernel<native>{device.queues->ref<native>(), &given_up}();
    }
    return given_up;
  }

  bool drain(std::uint64_t timeout_ns) const {
    storage_lease const running = lease();
    using simt::native;
    std::uint32_t busy = 0;
    drain_kernel<native>{host.queues->ref<native>(), timeout_ns, &busy}();
    if (on_gpu()) return detail::drain_on_gpu(*device.queues, pages.get(), gpu, timeout_ns) && busy == 0;
    if (pages) {
      cache_targets<native> const targets(device.queues->records<native>(), pages->core());
      drain_kernel<native, cache_targets<native>>{device.queues->ref<native>(targets), timeout_ns, &busy}();
    } else {
      drain_kernel<native>{device.queues->ref<native>(), timeout_ns, &busy}();
    }
    return busy == 0;
  }

  detail::inspected inspect() const {
    detail::inspected what;
    what.title = "storage on " + (on_gpu() ? "cuda:" + std::to_string(gpu) : std::string("cpu"));
    what.queues = {{"kernels", device.queues.get(), {}, device.drive_of},
                   {"host", host.queues.get(), {}, host.drive_of}};
    for (std::size_t const drive : device.drive_of) {
      // Where a GPU drives the queues of a drive that lies on one, the rings are in its memory.
      memory::resource& rings = on_gpu() && (*drives)[drive].source->gpu() ? device_memory() : memory::host();
      what.queues[0].ring_memory.push_back(&rings);
    }
    what.queues[1].ring_memory.assign(host.drive_of.size(), &memory::host());
    if (pages) what.cache = static_cast<cache_state const*>(pages->core());
    return what;
  }
  /// As `M::clock_ns()` of the kernels counts, whose origin is 1970 on a GPU.
  static std::uint64_t gpu_clock_ns() {
    auto const now = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  }

  storage_lease lease() const { return storage_lease(std::make_unique<storage_lease::parts>(drives)); }
  /// 3: queues and data may be in GPU memory, and every drive reaches them there.
  int placement() const {
    return on_gpu() && std::all_of(drives->begin(), drives->end(),
                                   [](opened_drive const& d) { return d.source->gpu().has_value(); })
               ? 3
               : 1;
  }

  /// Where a host transfer goes, after all checks.
  std::uint64_t resolve(std::uint64_t bytes, std::uint64_t offset_bytes, extent const* within) const {
    std::uint64_t const room = within != nullptr ? within->bytes : layout.size_bytes;
    if (offset_bytes > room || bytes > room - offset_bytes) {
      throw refused_input("offset_bytes", std::to_string(offset_bytes),
                          std::to_string(bytes) + " bytes from there do not lie within the " + std::to_string(room) +
                              " bytes of " + (within != nullptr ? "extent '" + within->name + "'" : "the storage"));
    }
    return offset_bytes + (within != nullptr ? within->first_byte : 0);
  }

  /// A table that could not be written is not ours: the one on the drive still is.
  void store_catalogue(catalogue changed) {
    // Before, so that a write-back cannot overwrite it; afterwards, so that the next access reads it.
    if (pages) forget_pages(0, catalogue::reserved_bytes);
    bool begun = false;
    try {
      changed.store([&](void const* from, std::uint64_t n, std::uint64_t at) {
        begun = true;
        write(from, n, at);
      });
      flush();
      if (pages) forget_pages(0, catalogue::reserved_bytes);
    } catch (...) {
      if (begun) given_up_table = std::move(changed);
      throw;
    }
    given_up_table.reset();
    table = std::move(changed);
  }

  /// The commands of a raw queue pair go by all that this class checks.
  void refuse_raw_commands(driver::drive_identity const& drive) const {
    if (pages) {
      throw refused_input("cache_bytes", std::to_string(options.cache_bytes),
                          "a raw queue pair passes by the cache: open the storage without one");
    }
    if (drive.write_protected) return;  // its controller refuses every write
    if (options.read_only) {
      throw refused_input(
          "read_only", "true",
          "a raw queue pair could write to this drive: open the storage for writing, or one whose drive "
          "is write protected, as a file is that is opened with read_only");
    }
    if (!raw_writable()) {
      throw refused_input(
          "allow_destroy", "false",
          "the drive carries a catalogue, and a raw queue pair could write anywhere: set allow_destroy");
    }
  }

  /// Bytes of this storage that no other client of its drives may claim meanwhile. On the first drive alone: clients
  /// that share bytes of a storage have all its drives in the same order, so that one place keeps them apart.
  class claimed_range {
   public:
    claimed_range(drive::device& on, std::uint64_t first_byte, std::uint64_t bytes)
        : on_(on), first_byte_(first_byte), bytes_(bytes), taken_to_(on.claim(first_byte, bytes)) {}
    ~claimed_range() {
      if (taken_to_ == 0) on_.unclaim(first_byte_, bytes_);
    }
    claimed_range(claimed_range const&) = delete;
    claimed_range& operator=(claimed_range const&) = delete;
    /// 0: it is claimed. Else where the claim ends that is in the way.
    std::uint64_t taken_to() const { return taken_to_; }

   private:
    drive::device& on_;
    std::uint64_t const first_byte_, bytes_, taken_to_;
  };
  drive::device& first_drive() const { return *drives->front().source; }

  /// While what it returns lives, no other client changes the table, nor looks for bytes.
  std::unique_ptr<claimed_range> claim_table() const {
    constexpr std::chrono::seconds patience(10);
    auto const until = std::chrono::steady_clock::now() + patience;
    for (;;) {
      auto claimed = std::make_unique<claimed_range>(first_drive(), 0, catalogue::reserved_bytes);
      if (claimed->taken_to() == 0) return claimed;
      if (std::chrono::steady_clock::now() > until) {
        throw operation_failed(
            "storage: another client of the drive is changing the catalogue, and has not ended within " +
            std::to_string(patience.count()) + " s: try again");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  /// The bytes of an extent that is being written.
  void unclaim(extent const& e) const { first_drive().unclaim(e.first_byte, catalogue::room_of(e.bytes)); }

  catalogue table_to_change(std::string const& extent) {
    if (!writable()) throw refused_input("read_only", "true", "open the storage for writing");
    catch_up();
    if (!options.allow_destroy && raw_pairs.use_count() > 1) {
      throw refused_input("extent", extent,
                          "raw queue pairs could write over a catalogue: destroy them first, or set allow_destroy");
    }
    if (!table && !options.allow_destroy && !first_mib_is_blank()) {
      throw refused_input("extent", extent,
                          "the drive holds data but no catalogue: set allow_destroy to put a catalogue over it");
    }
    return table.value_or(catalogue(home()));
  }
  /// Another client of a served drive may have stored a table since.
  void catch_up() {
    auto stored =
        catalogue::load(home(), [this](void* to, std::uint64_t n, std::uint64_t at) { read(to, n, at); }, true);
    if (!stored) return;
    if (!table) table.emplace(home());
    table->catch_up(*stored, given_up_table);
  }

  /// Null where drives differ.
  nlohmann::json same_of_all(std::uint32_t drive_queues::* what) const {
    for (drive_queues const& q : kernel_queues) {
      if (q.*what != kernel_queues[0].*what) return {};
    }
    return kernel_queues[0].*what;
  }

  nlohmann::json cache_report() const {
    cache_options const& o = pages->options();
    nlohmann::json counters;
    if (o.statistics) {
      cache_counters const c = pages->counted();
      counters = {{"hits", c.hits},
                  {"misses", c.misses},
                  {"merged", c.merged},
                  {"prefetches", c.prefetches},
                  {"refused_prefetches", c.refused_prefetches},
                  {"evictions", c.evictions},
                  {"write_backs", c.write_backs},
                  {"overflow_frames", c.overflow_frames},
                  {"shared", c.shared},
                  {"from_host", c.from_host},
                  {"to_host", c.to_host}};
    }
    status const error = pages->first_error();
    return {{"bytes", o.bytes},
            {"page_bytes", o.page_bytes},
            {"policy", o.policy.name},
            {"overflow_frames", o.overflow_frames},
            {"user_frames", o.user_frames},
            {"host_bytes", o.host_bytes},
            {"host_policy", o.host_bytes != 0 ? nlohmann::json(o.host_policy.name) : nlohmann::json()},
            {"counters", std::move(counters)},
            {"first_error", error.ok() ? nlohmann::json() : nlohmann::json(to_string(error))},
            {"failed_write_backs", pages->failed_write_backs()}};
  }

  bool first_mib_is_blank() {
    if (pages) clean_pages(0, catalogue::reserved_bytes);
    std::vector<char> bytes(catalogue::reserved_bytes);
    read(bytes.data(), bytes.size(), 0);
    return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
  }

  storage_options options;
  int gpu;
  std::shared_ptr<opened_drives> drives;
  storage_layout layout;
  storage_layout host_layout;
  std::vector<drive_queues> kernel_queues;  ///< of each drive, as made
  memory::allocation drive_pairs;           ///< of `layout`, where drives have different numbers of pairs
  bool write_protected = false;
  std::shared_ptr<char> raw_pairs = std::make_shared<char>();  ///< who holds it beside this: a raw queue pair each
  registered_buffer bounce;  ///< before the queues: until those are deleted the drive may write it
  registered_buffer frames;  ///< for the same reason
  queue_group device;
  queue_group host;
  std::unique_ptr<cache> pages;
  std::string lost_request;  ///< not empty: the bounce buffer belongs to it for ever
  std::mutex host_mutex;     ///< guards the bounce buffer
  mutable std::mutex table_mutex;
  std::optional<catalogue> table;
  /// What the last attempt to store one would have stored, if that failed: it may lie on the drive, and name bytes that
  /// are only staged here.
  std::optional<catalogue> given_up_table;
  std::unique_ptr<recovery> recovery_steps;
  std::jthread recovery_thread;  ///< last, so that it stops before anything that it uses goes
};

storage::storage(storage_options const& options) : impl_(std::make_unique<impl>(options)) {}
storage::storage(storage&&) noexcept = default;
storage& storage::operator=(storage&&) noexcept = default;
storage::~storage() = default;

storage_layout const& storage::layout() const {
  return impl_->layout;
}
bool storage::on_gpu() const {
  return impl_->on_gpu();
}
int storage::gpu_ordinal() const {
  return impl_->gpu;
}
memory::resource& storage::device_memory() const {
  return impl_->device_memory();
}
io_queues const& storage::device_queues() const {
  return *impl_->device.queues;
}
cache const& storage::pages() const {
  if (impl_->pages) return *impl_->pages;
  throw refused_input("cache_bytes", "0", "open the storage with a cache, or take ref()");
}
void storage::require_one_after_the_other() const {
  if (layout().one_after_the_other()) return;
  throw refused_input("stripe_bytes", std::to_string(layout().stripe_bytes),
                      "the drives are striped: give 0, for the drives one after the other, or take cached_ref()");
}
void storage::require_even_pairs() const {
  if (layout().drive_pairs == nullptr) return;
  auto const& queues = impl_->kernel_queues;
  std::size_t other = 1;
  while (queues[other].count == queues[0].count) ++other;
  throw refused_input(impl::field_of(other, "count"), std::to_string(queues[other].count),
                      "drive 0 has " + std::to_string(queues[0].count) +
                          ": give every drive as many, or take a ref with uneven_rules<>");
}
void storage::require_no_cache(char const* instead) const {
  if (!impl_->pages) return;
  throw refused_input("cache_bytes", std::to_string(impl_->options.cache_bytes),
                      "take " + std::string(instead) +
                          ", or open the storage without a cache: what was asked for passes by what it holds");
}
bool storage::writable() const {
  return impl_->writable();
}
bool storage::raw_writable() const {
  std::lock_guard lock(impl_->table_mutex);
  return impl_->raw_writable();
}

void storage::require_device(bool gpu) const {
  if (gpu == on_gpu()) return;
  throw refused_input("device", impl_->options.device,
                      !gpu ? "this storage's queues are driven by a GPU; open it with device cpu"
                      : memory::device_count() == 0
                          ? "this storage's queues are driven by CPU threads, since no GPU was found, or CUDA is not "
                            "built in; `forebay doctor` tells; use refs of simt::fiber or simt::native"
                          : "this storage's queues are driven by CPU threads; open it with device cuda:N");
}

registered_buffer storage::register_buffer(void* address, std::size_t bytes) {
  auto const at = reinterpret_cast<std::uintptr_t>(address);
  if (address == nullptr || at % page_bytes != 0 || bytes == 0 || bytes % page_bytes != 0) {
    throw refused_input("buffer", std::to_string(bytes) + " bytes at address " + std::to_string(at),
                        "register whole pages of 4096 bytes, or use allocate_buffer()");
  }
  return impl_->register_range(address, bytes);
}

storage_lease storage::lease() const {
  return impl_->lease();
}

registered_buffer storage::allocate_device_buffer(std::size_t bytes) {
  // A drive on whatever GPU gives memory of its client's.
  return impl_->allocate_for_user(bytes, impl_->placement() == 3);
}

registered_buffer storage::allocate_buffer(std::size_t bytes) {
  return impl_->allocate_for_user(bytes, false);
}

void storage::pread(void* to, std::uint64_t bytes, std::uint64_t offset_bytes, extent const* within) {
  std::uint64_t const at = impl_->resolve(bytes, offset_bytes, within);
  if (impl_->pages) impl_->clean_pages(at, bytes);
  impl_->read(to, bytes, at);
}

void storage::pwrite(void const* from, std::uint64_t bytes, std::uint64_t offset_bytes, extent const* within) {
  std::uint64_t const at = impl_->resolve(bytes, offset_bytes, within);
  if (!writable()) throw refused_input("read_only", "true", "open the storage for writing");
  if (within == nullptr && !raw_writable()) {
    throw refused_input("allow_destroy", "false",
                        "the drive carries a catalogue: write into one of its extents, or set allow_destroy");
  }
  // Before, so that a write-back cannot overwrite it; afterwards, so that the next access reads it.
  if (impl_->pages) impl_->forget_pages(at, bytes);
  impl_->write(from, bytes, at);
  if (impl_->pages) impl_->forget_pages(at, bytes);
}

void storage::flush() {
  // Each in spite of what failed before it: a drive that is gone shall keep nothing from the others.
  std::string wrong;
  if (std::uint32_t const lost = impl_->settle(); lost != 0) {
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
  attempt([&] {
    if (impl_->pages) impl_->clean_pages();
  });
  attempt([&] { impl_->flush(); });
  if (!wrong.empty()) throw operation_failed(wrong);
}
void storage::take_back(registered_buffer const& buffer) {
  if (impl_->pages && buffer.bytes() != 0) impl_->take_back(buffer.data(), buffer.bytes());
}
status storage::first_error() const {
  return impl_->pages ? impl_->pages->first_error() : status();
}
cache_counters storage::cache_statistics() const {
  return impl_->pages && impl_->options.cache_statistics ? impl_->pages->counted() : cache_counters{};
}
bool storage::drain(std::uint64_t timeout_ns) {
  return impl_->drain(timeout_ns);
}

bool storage::populate(std::uint64_t bytes) {
  bytes = std::min(bytes, impl_->layout.size_bytes);
  std::uint64_t const stripe = impl_->layout.stripe_bytes;
  std::uint32_t const count = impl_->layout.drive_count;
  bool all = true;
  for (std::uint32_t d = 0; d < count; ++d) {
    std::uint64_t part = bytes;
    if (count > 1 && impl_->layout.one_after_the_other()) {
      part = bytes <= d * stripe ? 0 : std::min(bytes - d * stripe, stripe);
    } else if (count > 1) {
      part = (bytes + stripe * count - 1) / (stripe * count) * stripe;
    }
    if (part != 0) all = (*impl_->drives)[d].source->populate(part) != 0 && all;
  }
  return all;
}

std::vector<extent> storage::extents() const {
  std::lock_guard lock(impl_->table_mutex);
  return impl_->table ? impl_->table->extents() : std::vector<extent>();
}

extent storage::find_extent(std::string const& name) const {
  std::lock_guard lock(impl_->table_mutex);
  extent const* const found = impl_->table ? impl_->table->find(name) : nullptr;
  if (found == nullptr) {
    throw refused_input("extent", name, "no extent has this name; list them with `forebay drive ls`");
  }
  return *found;
}

extent storage::create_extent(std::string const& name, std::uint64_t bytes) {
  std::lock_guard lock(impl_->table_mutex);
  auto const alone = impl_->claim_table();
  catalogue changed = impl_->table_to_change(name);
  // For as long as the table is written, which says the same to all that come later.
  std::unique_ptr<impl::claimed_range> claimed;
  extent const made = changed.create(name, bytes, [&](std::uint64_t first, std::uint64_t n) {
    claimed = std::make_unique<impl::claimed_range>(impl_->first_drive(), first, n);
    return claimed->taken_to();
  });
  impl_->store_catalogue(std::move(changed));
  return made;
}

extent storage::stage_extent(std::string const& name, std::uint64_t bytes) {
  std::lock_guard lock(impl_->table_mutex);
  auto const alone = impl_->claim_table();
  catalogue changed = impl_->table_to_change(name);
  // Until it is published or discarded, or this storage ends: nothing else says to others that the bytes are taken.
  extent const staged = changed.stage(
      name, bytes, [&](std::uint64_t first, std::uint64_t n) { return impl_->first_drive().claim(first, n); });
  impl_->table = std::move(changed);
  return staged;
}

void storage::publish_extent(extent const& staged, bool replace) {
  flush();
  std::lock_guard lock(impl_->table_mutex);
  auto const alone = impl_->claim_table();
  catalogue changed = impl_->table_to_change(staged.name);
  changed.publish(staged, replace);
  impl_->store_catalogue(std::move(changed));
  impl_->unclaim(staged);
}

void storage::discard_extent(extent const& staged) {
  std::lock_guard lock(impl_->table_mutex);
  if (impl_->given_up_table) return;  // nobody else may write there until a table has been stored
  catalogue changed = impl_->table.value_or(catalogue(impl_->home()));
  changed.discard(staged);
  impl_->unclaim(staged);
  if (changed.is_nothing()) {
    impl_->table.reset();
  } else {
    impl_->table = std::move(changed);
  }
}

void storage::remove_extent(std::string const& name) {
  std::lock_guard lock(impl_->table_mutex);
  if (!writable()) throw refused_input("read_only", "true", "open the storage for writing");
  auto const alone = impl_->claim_table();
  impl_->catch_up();
  if (!impl_->table) throw refused_input("extent", name, "the drive has no catalogue");
  catalogue changed = *impl_->table;
  changed.remove(name);
  impl_->store_catalogue(std::move(changed));
}

raw_queue_pair storage::make_raw_queue_pair(std::uint32_t drive, std::uint32_t entries) {
  if (drive >= impl_->drives->size()) {
    throw refused_input("drive", std::to_string(drive), "the storage has " + std::to_string(impl_->drives->size()));
  }
  driver::controller& controller = *(*impl_->drives)[drive].controller;
  std::lock_guard lock(impl_->table_mutex);
  impl_->refuse_raw_commands(controller.identity());
  auto p = std::make_unique<raw_queue_pair::parts>();
  p->of = impl_->raw_pairs;
  p->drives = impl_->drives;
  p->identity = controller.identity();
  p->queue = controller.create_io_queue_pair(
      {.entries = entries != 0 ? entries : impl_->kernel_queues[drive].depth, .driven_by_gpu = on_gpu()});
  p->rings = rings_of(p->queue);
  return raw_queue_pair(std::move(p));
}

std::string storage::report() const {
  auto const& recovered = impl_->recovery_steps->count();
  nlohmann::json document = {
      {"device", on_gpu() ? "cuda:" + std::to_string(gpu_ordinal()) : std::string("cpu")},
      {"placement", impl_->placement()},
      {"completion", "helping"},
      {"size_bytes", size_bytes()},
      {"block_bytes", block_bytes()},
      {"stripe_bytes", layout().one_after_the_other() ? 0 : layout().stripe_bytes},
      {"bytes_per_drive", layout().bytes_per_drive()},
      {"queues_per_drive", impl_->same_of_all(&drive_queues::count)},
      {"queue_depth", impl_->same_of_all(&drive_queues::depth)},
      {"command_bytes_max", layout().command_bytes_max},
      {"recovery",
       {{"aborts", recovered.aborts.load()},
        {"queues_deleted", recovered.queues_deleted.load()},
        {"controller_resets", recovered.controller_resets.load()}}},
      {"drives", nlohmann::json::array()},
  };
  bool exceeded = false;
  for (std::size_t i = 0; i < impl_->drives->size(); ++i) {
    drive_queues const& q = impl_->kernel_queues[i];
    document["drives"].push_back((*impl_->drives)[i].source->report());
    document["drives"].back()["kernel_queues"] = {
        {"count", q.count},
        {"depth", q.depth},
        {"priority", q.priority ? nlohmann::json(name_of(*q.priority)) : nlohmann::json()}};
    exceeded = exceeded || document["drives"].back().value("fidelity", "ok") != "ok";
  }
  document["cache"] = impl_->pages ? impl_->cache_report() : nullptr;
  document["fidelity"] = exceeded ? "exceeded" : "ok";
  return document.dump();
}

std::string storage::dump() const {
  return detail::dump(impl_->inspect(), on_gpu() ? impl::gpu_clock_ns() : simt::native::clock_ns());
}

watchdog storage::watch(watchdog_options const& options) const {
  return watchdog(std::make_unique<watchdog::parts>(
      impl_->inspect(), on_gpu() ? &impl::gpu_clock_ns : &simt::native::clock_ns, impl_->options.timeout_ns, options));
}

void storage::reset_statistics() {
  for (opened_drive const& d : *impl_->drives) d.source->reset_statistics();
  if (impl_->pages) impl_->pages->reset_counters();
}

}  // namespace forebay
