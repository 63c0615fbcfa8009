// SPDX-License-Identifier: Apache-2.0
//! \file
//! Storage for GPU kernels and host threads over one or more NVMe drives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <type_traits>
#include <vector>

#include "forebay/access_errors.hpp"
#include "forebay/cache_counters.hpp"
#include "forebay/cache_options.hpp"
#include "forebay/cached_storage_ref.hpp"
#include "forebay/detail/cache/cache.hpp"
#include "forebay/detail/nvme/command.hpp"
#include "forebay/detail/queue/io_queues.hpp"
#include "forebay/error.hpp"
#include "forebay/extent.hpp"
#include "forebay/host_transfer.hpp"
#include "forebay/queue_pair_rings.hpp"
#include "forebay/queue_rules.hpp"
#include "forebay/service.hpp"
#include "forebay/storage_ref.hpp"
#include "forebay/token.hpp"
#include "forebay/traits.hpp"
#include "forebay/watchdog.hpp"

namespace forebay {

namespace simt {
struct cuda;
}

/// The queues that kernels have on one drive; a value of 0 is taken from the options for all drives.
struct drive_queues {
  /// Queue pairs of this drive that the kernels share. Where counts differ, refs need traits with `uneven_rules`.
  std::uint32_t count = 0;
  std::uint32_t depth = 0;  ///< entries of each, 2 to 65536
  /// The priority with which the controller takes commands from these queues: `urgent`, `high`, `medium` or `low`. Its
  /// other queues, the host's and raw ones, have `medium`. Rejected if a controller has no weighted round robin
  /// arbitration; no emulated one has.
  std::optional<nvme::queue_priority> priority = {};
};

/// The queues of a storage, and the limits on requests and commands that go through them.
struct queue_options {
  /// Queue pairs of each drive that the kernels share; the host has one more, or up to eight where the storage is on a
  /// GPU and the drive has them. 0: 4 for `cpu`, 64 for a GPU, or as many
  /// as the drive grants.
  std::uint32_t per_drive = 0;
  std::uint32_t depth = 0;  ///< entries of each queue, 2 to 65536; 0: 1024, or as many as the drive allows
  /// Empty, or one entry for each drive. If their counts differ, refs must have traits with `uneven_rules`.
  std::vector<drive_queues> of_drives = {};
  /// Requests that may be open at once, 2^28 at most, 8 bytes of the device's memory each; 0: 65,536 for `cpu`, 2^20
  /// for a GPU.
  std::uint32_t records = 0;
  std::uint32_t prp_list_pages = 1024;  ///< commands of more than two pages that may be in flight at a time, 1 or more
};

/// Helps to find defects.
struct debug_options {
  /// How many threads at a time have room for notes of what they hold and wait for, 128 bytes of device memory each.
  /// Only kernels compiled with `FOREBAY_DEBUG_WAITS` write notes.
  std::uint32_t traced_threads = debug_waits ? 65536 : 0;
};

/// What a storage is made of. A plain struct, some of whose members are structs. The constructor of the storage checks
/// all options before anything starts.
struct storage_options {
  /// 1 to 64 drive URIs (docs/reference/drive-uri.md), each given once; all drives have the same block size. The
  /// storage consists of their bytes, striped or one drive after the other.
  std::vector<std::string> drives = {};
  std::string device = "auto";  ///< the device whose threads submit: `cpu`, `cuda:N`, or `auto`: GPU 0 if there is one
  /// The kernels' queues, and the limits on what goes through them.
  queue_options queues = queue_options();  // GCC 12 warns of `{}`: that its vector may be uninitialised
  /// Consecutive bytes on one drive, a multiple of the block and, with a cache, of the page; not used with one drive.
  /// 0: the drives lie one after the other, each with as many bytes as the smallest drive, rounded down to a multiple
  /// of 65536; `drive_arrays()` needs this.
  std::uint64_t stripe_bytes = 1 << 16;
  /// The default time: for waits that name no deadline, except `storage_ref::flush()`. Recovery aborts a command that
  /// is in flight for longer (docs/concepts/deadlines.md). 1 to 2^63 - 1.
  std::uint64_t timeout_ns = 10'000'000'000;
  std::uint64_t flush_timeout_ns = 60'000'000'000;  ///< the same two limits for a Flush: a drive may have much to write
  cache_options cache = {};                         ///< no cache unless it has a size
  /// Rejects every write. A drive in a file, unless a daemon serves it, then opens its file for reading only: the file
  /// need not be writable, and several storages may have it open.
  bool read_only = false;
  bool allow_destroy = false;  ///< write anywhere on drives that carry a catalogue, not only in its extents
  debug_options debug = {};    ///< what helps to find defects
  /// Ends the opening of drives, which may take minutes; the constructor then throws `operation_failed`.
  std::stop_token cancel = {};
};

/// Registered memory, which commands may read and write: a drive may touch no other. It keeps its address while it is
/// registered. Move-only. Destroy it only when no request uses it any more, and after `storage::take_back` if it was
/// shared.
class registered_buffer {
 public:
  registered_buffer();
  registered_buffer(registered_buffer&&) noexcept;
  registered_buffer& operator=(registered_buffer&&) noexcept;
  ~registered_buffer();

  /// The memory, as the storage's device sees it.
  std::byte* data() const;
  /// The length of the memory.
  std::size_t size_bytes() const;
  /// What kernels take.
  buffer_ref ref() const;

 private:
  friend class storage;
  struct parts;
  explicit registered_buffer(std::unique_ptr<parts> p);
  std::unique_ptr<parts> parts_;
};

/// An I/O queue pair for a client that does not use Forebay's queue layer. Move-only; destroy it before the storage.
/// Data buffers come from `storage::allocate_buffer`, and their bus addresses from `buffer_ref::bus_address`.
/// docs/how-to/drive-a-raw-queue-pair.md says what such a client must know.
class raw_queue_pair {
 public:
  raw_queue_pair(raw_queue_pair&&) noexcept;
  raw_queue_pair& operator=(raw_queue_pair&&) noexcept;
  ~raw_queue_pair();

  /// The rings and doorbells of the pair.
  queue_pair_rings const& rings() const;
  /// False once recovery of some other queue has reset the controller: the rings are then no longer in use.
  bool live() const;
  /// The namespace: its identifier, the size of its blocks, and their number.
  std::uint32_t nsid() const;
  std::uint32_t block_bytes() const;
  std::uint64_t blocks() const;

 private:
  friend class storage;
  struct parts;
  explicit raw_queue_pair(std::unique_ptr<parts> p);
  std::unique_ptr<parts> parts_;
};

/// While a lease lives, the engines of a storage's drives run. If a drive's engine always runs, a lease costs nothing.
/// If it shares the client's process and GPU (`residency=in_process`), the drive serves no command without a lease;
/// while one is held, `cudaFree` and `cudaDeviceSynchronize` of the process do not return. Move-only; thread-safe to
/// make and to destroy.
class storage_lease {
 public:
  storage_lease(storage_lease&&) noexcept;
  storage_lease& operator=(storage_lease&&) noexcept;
  ~storage_lease();

 private:
  friend class storage;
  struct parts;
  explicit storage_lease(std::unique_ptr<parts> p);
  std::unique_ptr<parts> parts_;
};

/// Owns drives, controllers, queues, cache and the recovery thread. Move-only. Any thread may call its members.
class storage {
 public:
  /// Throws `refused_input` for a bad option or URI, and `operation_failed` for a drive that does not start.
  explicit storage(storage_options const& options);
  storage(storage&&) noexcept;
  storage& operator=(storage&&) noexcept;
  /// Writes back the cache's pages, and waits until all requests in flight have completed, for as long as the drives
  /// complete anything (docs/concepts/deadlines.md). Gives up a drive that completes nothing. Says on standard error
  /// which pages were lost. No kernel may still use a ref.
  ~storage();

  /// Whether writes may go anywhere. They may not if the options or a drive forbid it, or if the drives carry a
  /// catalogue and `allow_destroy` is not set.
  bool raw_writable() const;

  /// A kernel's handle on all bytes: directly on the drives with `uncached` traits, through the cache with `cached`
  /// ones. Read-only if the options say so, or if the drives carry a catalogue and `allow_destroy` is not set. With
  /// `service_rules` a kernel of `service()` must run at the same time.
  /// Throws `refused_input` if the traits do not fit the storage: `uncached` if there is a cache, since kernels would
  /// not see what it holds; `cached` if there is none, or one for another policy or other pools, or if only one of the
  /// two counts; even pairs if drives have different numbers of queues; and a machine that is not that of the storage's
  /// device.
  template <class M, ref_traits Traits = uncached>
  storage_ref<M, Traits> ref() const {
    std::uint32_t drives = 0;
    if constexpr (Traits::uses_cache) drives = layout().one_after_the_other() ? layout().drive_count : 0;
    return view<M, Traits>(0, size_bytes(), raw_writable(), drives);
  }
  /// The same for the bytes of one extent, up to the next multiple of the block.
  template <class M, ref_traits Traits = uncached>
  storage_ref<M, Traits> ref(extent const& part) const {
    std::uint64_t const block = block_bytes();
    return view<M, Traits>(part.first_byte, (part.size_bytes + block - 1) / block * block, writable(), 0);
  }
  /// The drives as arrays of their own, through the cache: `drive_arrays<M, float>()[drive][i]`. Throws `refused_input`
  /// if they are striped, and as ref() does.
  template <class M, class T, cached_traits Traits = cached>
  auto drive_arrays() const {
    require_one_after_the_other();
    return ref<M, Traits>().template drive_arrays<T>();
  }
  /// A kernel that consumes completions for threads whose refs have `service_rules`, until `*stop` is set. `stop`
  /// points to a word in memory that host and device reach. `Traits` are those of the refs. Throws as ref() does.
  template <class M, ref_traits Traits = uncached>
  auto service(std::uint32_t* stop) const {
    require_device(std::is_same_v<M, simt::cuda>);
    if constexpr (Traits::uses_cache) {
      using frames = typename Traits::pools::frames;
      pages().check_frames(frames::staged);
      cache_targets<M, frames> const targets(device_queues().template records<M>(), pages().core());
      return service_of<M>(device_queues().template ref<M>(targets), stop);
    } else {
      require_no_cache();
      return service_of<M>(device_queues().template ref<M>(), stop);
    }
  }

  /// The size of the storage.
  std::uint64_t size_bytes() const { return layout().size_bytes; }
  /// The block, of which every transfer of a kernel is a multiple.
  std::uint32_t block_bytes() const { return 1u << layout().block_shift; }
  /// How the bytes lie on the drives.
  storage_layout const& layout() const;
  /// The device whose threads submit: whether it is a GPU, and which.
  bool on_gpu() const;
  int gpu_ordinal() const;
  /// The memory in which kernels of this storage's device keep their own data.
  memory::resource& device_memory() const;

  /// Registers memory that the caller owns: whole pages of 4,096 bytes, in memory that the drives can reach. That is
  /// host memory, page-locked if a GPU drives the queues, unless a drive is in another process; and memory of that GPU,
  /// if the engines of all drives run on a GPU. Where another process has a drive, it must be memory from `cudaMalloc`,
  /// which that process keeps until the storage is closed; CUDA wants it freed only then. Throws `refused_input`.
  registered_buffer register_buffer(void* address, std::size_t bytes);
  /// Zeroed registered memory that both the storage's device and the host reach. Throws `refused_input` for 0 bytes.
  registered_buffer allocate_buffer(std::size_t bytes);
  /// The same, in the place that the storage's device reaches fastest and that every drive still reaches; the host may
  /// not reach it.
  registered_buffer allocate_device_buffer(std::size_t bytes);

  /// Take a lease before you launch a kernel that uses the storage, and hold it until the kernel has ended. The host's
  /// own I/O takes one itself. Throws `operation_failed` if other kernels fill the GPU.
  storage_lease lease() const;

  /// Host I/O of any offset and length. Throws `refused_input` for a range outside, `operation_failed` with the NVMe
  /// status. A write that covers part of a block reads the block first: no kernel may write that block meanwhile. If
  /// there is a cache, the pages that it holds are written back first, and pages that the host writes leave it. No
  /// kernel may use those pages meanwhile; if a kernel has one pinned, this throws `operation_failed`.
  void pread(void* to, std::uint64_t bytes, std::uint64_t offset_bytes, extent const* within = nullptr);
  void pwrite(void const* from, std::uint64_t bytes, std::uint64_t offset_bytes, extent const* within = nullptr);
  /// Start what `pread` and `pwrite` do, and return; `host_transfer_options::stream` says when not at once. Many
  /// transfers may be under way; they run in no order. The memory is the host's, registered or not, or a GPU's, if the
  /// options say so. It belongs to the transfer until that has ended. Throw `refused_input` as `pread` and `pwrite` do,
  /// for memory of a GPU that is not one allocation, for a stream of another GPU or one that may not wait, and for both
  /// where there is no GPU; `operation_failed` if the system gives no thread; and `transfer_cancelled` if a call that
  /// waits for other streams is interrupted.
  host_transfer pread_async(void* to, std::uint64_t bytes, std::uint64_t offset_bytes,
                            host_transfer_options const& options = {});
  host_transfer pwrite_async(void const* from, std::uint64_t bytes, std::uint64_t offset_bytes,
                             host_transfer_options const& options = {});
  /// Cancels the transfers that are under way, as `host_transfer::cancel` does, and calls that wait for other streams.
  void cancel_transfers();
  /// Waits until every command of kernels that was in flight at the call has ended. The buffers of requests that were
  /// detached, or whose callers gave up, are then the callers' again. Afterwards makes every write that completed
  /// before the call durable, including those that the cache holds. Throws `operation_failed` if a drive does not take
  /// a page, which then stays in the cache, or if it never completes a command, whose buffer then stays in use for as
  /// long as the storage lives. On the other drives all this is done even then.
  void flush();
  /// Ends the sharing that kernels have not ended. Each page that lies in this buffer because it was shared is written
  /// back if it was written, and the buffer is the caller's again. Call this before you destroy a buffer that was ever
  /// shared. No kernel may be sharing pages meanwhile. Throws `operation_failed` if a page cannot be written back, or
  /// if a kernel has one pinned: the buffer then still belongs to the storage.
  void take_back(registered_buffer const& buffer);
  /// How many accesses through array views, and write-backs, failed, with the status and the place of the first one.
  /// Forgets them, so that the next call reports later ones. Call it when the kernels that it reports on have ended.
  /// Without a cache it always reports success.
  access_errors take_errors();
  /// What the cache did since the storage was made, or since `reset_statistics()`, if `cache_options::statistics` is
  /// set; else all zero.
  cache_counters cache_statistics() const;
  /// Waits until no request of any kernel is in flight; false if some still are after `timeout_ns`.
  bool drain(std::uint64_t timeout_ns);

  /// Has the emulated drives allocate memory for bytes [0, bytes) before they are accessed, for measurements: to
  /// allocate takes far longer than an access. False if a drive's part would take more than half of the memory that the
  /// machine has left; nothing of that part is then done. Other drives do nothing. Throws `operation_failed` if a
  /// daemon has gone.
  bool populate(std::uint64_t bytes);

  /// The extents in the catalogue of the drives (docs/reference/catalogue.md).
  std::vector<extent> extents() const;
  /// Throws `refused_input` if there is no extent of that name.
  extent find_extent(std::string const& name) const;
  /// Makes an extent, and the catalogue if the first MiB of the drives is blank. Throws `refused_input` if other data
  /// is there and `allow_destroy` is not set, and without write access. Throws `operation_failed` if a drive does not
  /// take the catalogue: this storage is then as before, but the drives may not be until the next change. Throws it too
  /// if another client of a served drive has been changing the catalogue for 10 s.
  extent create_extent(std::string const& name, std::uint64_t bytes);
  /// Makes an extent in three steps, so that the old extent or the new one is whole, whatever ends the program.
  /// `stage_extent` claims its bytes, which no one else sees yet; there must be room for them beside an extent of the
  /// same name. Then write them (`pwrite` with the extent as `within`, or kernels). `publish_extent` makes the written
  /// bytes durable and then changes the catalogue, once; with `replace`, in place of an extent of that name.
  /// Thread-safe. If an extent is never published, its bytes are free again when the storage is closed. These functions
  /// throw as `create_extent` does, and `refused_input` for an extent that is not staged and for a name in use. After a
  /// change of the catalogue that failed, `discard_extent` does nothing: the bytes are free when the storage ends.
  extent stage_extent(std::string const& name, std::uint64_t bytes);
  void publish_extent(extent const& staged, bool replace = false);
  void discard_extent(extent const& staged);
  /// Takes an extent out of the catalogue. Throws as `create_extent` does, and as `find_extent` does.
  void remove_extent(std::string const& name);

  /// Queues with `entries` slots each; 0: the queue depth of this storage. The pair's commands bypass the catalogue and
  /// the cache, so the same rules apply as for `pwrite`. Throws `refused_input` for a drive that does not exist, for
  /// `entries` that its controller does not take (2 to CAP.MQES + 1), and for a storage with a cache; also, unless the
  /// drive itself is write protected, for a storage that is `read_only` or carries a catalogue without `allow_destroy`.
  /// Throws `operation_failed` if the drive has no pair left. While a raw pair lives, a storage without `allow_destroy`
  /// makes no catalogue. Thread-safe.
  raw_queue_pair make_raw_queue_pair(std::uint32_t drive = 0, std::uint32_t entries = 0);

  /// One JSON object: what the storage runs on, what its drives report, and what its cache is and did
  /// (docs/reference/json.md).
  std::string report() const;
  /// Says in words, while a kernel makes no progress, what it may be waiting for: commands in flight and what they are
  /// for, open records, locks, pinned and busy frames. In a build with `FOREBAY_DEBUG_WAITS`, also what each thread
  /// holds and waits for, and a circular wait if there is one. Waits for no kernel. Throws `operation_failed` if the
  /// GPU does not answer any more.
  std::string dump() const;
  /// Reports on standard error, or as the options say, when the storage's kernels make no progress. Throws
  /// `refused_input`.
  watchdog watch(watchdog_options const& options = {}) const;
  /// From now on the statistics in `report()`, those of the drives and of the cache, count from zero. Failures are not
  /// reset: see `take_errors()`. An emulated drive counts a command just after it has completed it, so the count of the
  /// last ones may follow the reset.
  void reset_statistics();

 private:
  template <class M, class Traits>
  storage_ref<M, Traits> view(std::uint64_t first_byte, std::uint64_t bytes, bool writable,
                              [[maybe_unused]] std::uint32_t drives) const {
    using rules = typename Traits::queue_rules;
    require_device(std::is_same_v<M, simt::cuda>);
    if constexpr (Traits::uses_cache) {
      auto const& cache = pages();
      if constexpr (rules::even_pairs) require_even_pairs();
      return {cache.template ref<M, Traits>(), first_byte, bytes, writable, drives};
    } else {
      require_no_cache();
      if constexpr (rules::even_pairs) require_even_pairs();
      return {device_queues().template ref<M, rules>(), layout(), first_byte, bytes, writable};
    }
  }
  template <class M, class Queues>
  static service_kernel<M, Queues> service_of(Queues const& queues, std::uint32_t* stop) {
    return {queues, stop};
  }
  void require_device(bool gpu) const;
  void require_no_cache() const;
  void require_one_after_the_other() const;
  void require_even_pairs() const;
  cache const& pages() const;
  io_queues const& device_queues() const;
  bool writable() const;

  struct impl;
  std::unique_ptr<impl> impl_;
};

}  // namespace forebay
