// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/activity.hpp"

#include <cupti.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <utility>

#include "apps/common/shared_library.hpp"
#include "forebay/error.hpp"

namespace forebay::transfer {
namespace {

/// CUPTI's functions.
struct cupti_library {
  apps::shared_library library;

#define FOREBAY_CUPTI_FUNCTION(name) decltype(::name)* name = library.get<decltype(::name)>(#name)
  FOREBAY_CUPTI_FUNCTION(cuptiActivityConfigureUnifiedMemoryCounter);
  FOREBAY_CUPTI_FUNCTION(cuptiActivityDisable);
  FOREBAY_CUPTI_FUNCTION(cuptiActivityEnable);
  FOREBAY_CUPTI_FUNCTION(cuptiActivityFlushAll);
  FOREBAY_CUPTI_FUNCTION(cuptiActivityGetNextRecord);
  FOREBAY_CUPTI_FUNCTION(cuptiActivityGetNumDroppedRecords);
  FOREBAY_CUPTI_FUNCTION(cuptiActivityRegisterCallbacks);
  FOREBAY_CUPTI_FUNCTION(cuptiActivitySetAttribute);
  FOREBAY_CUPTI_FUNCTION(cuptiGetResultString);
  FOREBAY_CUPTI_FUNCTION(cuptiGetTimestamp);
  FOREBAY_CUPTI_FUNCTION(cuptiGetVersion);
#undef FOREBAY_CUPTI_FUNCTION

  std::string text_of(CUptiResult result) const {
    char const* text = nullptr;
    if (cuptiGetResultString(result, &text) == CUPTI_SUCCESS && text != nullptr) return text;
    return fmt::format("CUPTI error {}", +result);
  }
  void check(CUptiResult result, char const* call) const {
    if (result != CUPTI_SUCCESS) throw operation_failed(fmt::format("{}: {}", call, text_of(result)));
  }
};

// KERNEL without CONCURRENT_ would let only one kernel run at a time.
constexpr CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                        CUPTI_ACTIVITY_KIND_MEMCPY2,           CUPTI_ACTIVITY_KIND_MEMSET,
                                        CUPTI_ACTIVITY_KIND_RUNTIME,           CUPTI_ACTIVITY_KIND_DRIVER};

/// What CUPTI hands over, on its clock.
struct records {
  std::vector<activity> activities;
  page_moves pages;
  std::string failure;  // "" if nothing is missing
  std::size_t dropped = 0;
};

/// Takes the records. CUPTI calls it on threads of its own, to the end of the process, so it is never destroyed.
class collector {
 public:
  /// The library, loaded once. Throws `operation_failed`, and may be called again.
  cupti_library const& load(std::vector<std::string> const& folders) {
    std::lock_guard const lock(mutex_);
    if (library_ == nullptr) {
      auto loaded = std::make_unique<cupti_library>(cupti_library{apps::shared_library("libcupti.so.13", folders)});
      std::uint32_t version = 0;
      loaded->check(loaded->cuptiGetVersion(&version), "cuptiGetVersion");
      if (version < CUPTI_API_VERSION) {
        throw operation_failed(
            fmt::format("libcupti.so.13 has version {} of its interface, and this build needs {}: install a newer one",
                        version, CUPTI_API_VERSION));
      }
      // Buffers are zero already, so CUPTI need not clear them, which it would do between two calls of a run.
      std::uint8_t yes = 1;
      std::size_t size = sizeof yes;
      loaded->check(loaded->cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &yes),
                    "cuptiActivitySetAttribute");
      loaded->check(loaded->cuptiActivityRegisterCallbacks(&give_buffer, &take_buffer),
                    "cuptiActivityRegisterCallbacks");
      library_ = std::move(loaded);
    }
    return *library_;
  }
  void open() {
    dropped_of(nullptr, 0);  // those of before, which CUPTI then forgets
    std::lock_guard const lock(mutex_);
    found_ = {};
    is_open_ = true;
  }
  records close() {
    // Not under the lock, which CUPTI's threads take in a callback.
    auto const [dropped, failure] = dropped_of(nullptr, 0);
    std::lock_guard const lock(mutex_);
    is_open_ = false;
    found_.dropped += dropped;
    if (!failure.empty()) found_.failure = failure;
    return std::exchange(found_, {});
  }
  /// Whether it was free.
  bool occupy() {
    std::lock_guard const lock(mutex_);
    return !std::exchange(is_occupied_, true);
  }
  void vacate() {
    std::lock_guard const lock(mutex_);
    is_open_ = false;
    is_occupied_ = false;
  }

  static collector& instance() {
    static collector* const only = new collector;
    return *only;
  }

 private:
  static constexpr std::size_t buffer_bytes = 4 << 20;

  static void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* records_max) noexcept {
    *buffer = static_cast<std::uint8_t*>(std::calloc(1, buffer_bytes));
    *size = *buffer == nullptr ? 0 : buffer_bytes;  // without a buffer CUPTI drops records, and counts them
    *records_max = 0;
  }
  static void CUPTIAPI take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                                   std::size_t valid) noexcept {
    instance().take(context, stream, buffer, valid);
    std::free(buffer);
  }
  /// An exception must not leave a callback.
  void take(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t valid) noexcept {
    try {
      auto const [dropped, failure] = dropped_of(context, stream);
      std::lock_guard const lock(mutex_);
      if (!is_open_) return;
      found_.dropped += dropped;
      if (!failure.empty()) found_.failure = failure;
      CUpti_Activity* record = nullptr;
      CUptiResult outcome = CUPTI_SUCCESS;
      while (valid != 0 && (outcome = library_->cuptiActivityGetNextRecord(buffer, valid, &record)) == CUPTI_SUCCESS) {
        note(record);
      }
      if (outcome != CUPTI_SUCCESS && outcome != CUPTI_ERROR_MAX_LIMIT_REACHED) {
        found_.failure = "cuptiActivityGetNextRecord: " + library_->text_of(outcome);
      }
    } catch (...) {
      std::lock_guard const lock(mutex_);
      found_.failure.assign("no memory");  // so short that it needs none
    }
  }
  /// How many records CUPTI dropped, and why it cannot say, if so.
  std::pair<std::size_t, std::string> dropped_of(CUcontext context, std::uint32_t stream) const {
    std::size_t dropped = 0;
    CUptiResult const outcome = library_->cuptiActivityGetNumDroppedRecords(context, stream, &dropped);
    if (outcome == CUPTI_SUCCESS) return {dropped, ""};
    return {0, "cuptiActivityGetNumDroppedRecords: " + library_->text_of(outcome)};
  }
  void note(CUpti_Activity const* record) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return add<CUpti_ActivityKernel10>(record, activity_kind::kernel);
      case CUPTI_ACTIVITY_KIND_MEMSET:  // the GPU works, and no byte travels
        return add<CUpti_ActivityMemset4>(record, activity_kind::kernel);
      case CUPTI_ACTIVITY_KIND_MEMCPY:
        return add<CUpti_ActivityMemcpy6>(record, activity_kind::copy);
      case CUPTI_ACTIVITY_KIND_MEMCPY2:
        return add<CUpti_ActivityMemcpyPtoP4>(record, activity_kind::copy);
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER:
        return add<CUpti_ActivityAPI>(record, activity_kind::call);
      case CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER:
        return note_pages(record);
      default:
        return;
    }
  }
  void note_pages(CUpti_Activity const* record) {
    auto const* const counter = reinterpret_cast<CUpti_ActivityUnifiedMemoryCounter3 const*>(record);
    switch (counter->counterKind) {
      case CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD:
        found_.pages.bytes_in += counter->value;
        return add<CUpti_ActivityUnifiedMemoryCounter3>(record, activity_kind::copy);
      case CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOH:
        found_.pages.bytes_out += counter->value;
        return add<CUpti_ActivityUnifiedMemoryCounter3>(record, activity_kind::copy);
      case CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_CPU_PAGE_FAULT_COUNT:
        ++found_.pages.cpu_faults;  // its value is an address
        return;
      case CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT:
        found_.pages.gpu_faults += counter->value;
        return;
      default:
        return;
    }
  }
  template <class Record>
  void add(CUpti_Activity const* record, activity_kind kind) {
    auto const* const typed = reinterpret_cast<Record const*>(record);
    found_.activities.push_back({kind, span_of(typed->start, typed->end)});
  }
  time_span span_of(std::uint64_t start, std::uint64_t end) {
    if (start == 0 || end == 0) found_.failure = "CUPTI could not time all activities";
    return {static_cast<std::int64_t>(start), static_cast<std::int64_t>(end)};
  }

  std::mutex mutex_;
  std::unique_ptr<cupti_library> library_;
  records found_;
  bool is_open_ = false;
  bool is_occupied_ = false;
};

std::int64_t steady_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

class activity_recorder::implementation {
 public:
  implementation(std::vector<std::string> const& folders, bool with_pages, int ordinal)
      : cupti_(collector::instance().load(folders)) {
    if (!collector::instance().occupy()) throw operation_failed("another trace of this process is under way");
    try {
      for (CUpti_ActivityKind const kind : kinds) {
        cupti_.check(cupti_.cuptiActivityEnable(kind), "cuptiActivityEnable");
      }
      if (with_pages) enable_pages(ordinal);
    } catch (...) {
      stop();
      throw;
    }
  }
  implementation(implementation const&) = delete;
  implementation& operator=(implementation const&) = delete;
  ~implementation() { stop(); }

  void begin() {
    // What an earlier run left must not come into this one.
    cupti_.check(cupti_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
    offset_ns_ = steady_minus_cupti_ns();
    begin_ns_ = steady_ns();
    collector::instance().open();
  }
  activity_trace end() {
    CUptiResult const flushed = cupti_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    records found = collector::instance().close();
    cupti_.check(flushed, "cuptiActivityFlushAll");
    if (found.dropped != 0) throw operation_failed(fmt::format("CUPTI dropped {} records", found.dropped));
    if (!found.failure.empty()) throw operation_failed("CUPTI's records are incomplete: " + found.failure);
    activity_trace trace{std::move(found.activities), {}, pages_note_};
    if (has_pages_) trace.pages = found.pages;
    std::int64_t const offset_ns = offset_of_run_ns();
    for (activity& a : trace.activities) {
      a.when.begin_ns += offset_ns;
      a.when.end_ns += offset_ns;
    }
    return trace;
  }

 private:
  /// Not all systems have these counters, and the rest of a trace needs none.
  void enable_pages(int ordinal) {
    CUpti_ActivityUnifiedMemoryCounterConfig wanted[] = {
        {.kind = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD},
        {.kind = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOH},
        {.kind = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_CPU_PAGE_FAULT_COUNT},
        {.kind = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT}};
    for (auto& each : wanted) {
      each.scope = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_SINGLE_DEVICE;
      each.deviceId = static_cast<std::uint32_t>(ordinal);
      each.enable = 1;
    }
    char const* call = "cuptiActivityConfigureUnifiedMemoryCounter";
    CUptiResult outcome = cupti_.cuptiActivityConfigureUnifiedMemoryCounter(wanted, std::size(wanted));
    if (outcome == CUPTI_SUCCESS) {
      call = "cuptiActivityEnable";
      outcome = cupti_.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER);
    }
    has_pages_ = outcome == CUPTI_SUCCESS;
    if (!has_pages_) {
      pages_note_ = fmt::format(
          "CUPTI does not say when pages move here ({}: {}): `copies` is without them, and they are in "
          "`kernels`, `host` and `calls`",
          call, cupti_.text_of(outcome));
    }
  }
  void stop() noexcept {
    // A failure here has no remedy: the records that still come are thrown away.
    for (CUpti_ActivityKind const kind : kinds) cupti_.cuptiActivityDisable(kind);
    if (has_pages_) cupti_.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER);
    collector::instance().vacate();
    cupti_.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
  /// What added to a time of CUPTI's clock, which is the time of day, gives one of the steady clock.
  std::int64_t steady_minus_cupti_ns() const {
    std::int64_t offset_ns = 0, closest_ns = std::numeric_limits<std::int64_t>::max();
    for (int look = 0; look < 16; ++look) {
      std::uint64_t stamp = 0;
      std::int64_t const before = steady_ns();
      cupti_.check(cupti_.cuptiGetTimestamp(&stamp), "cuptiGetTimestamp");
      std::int64_t const took_ns = steady_ns() - before;
      if (took_ns >= closest_ns) continue;
      closest_ns = took_ns;
      offset_ns = before + took_ns / 2 - static_cast<std::int64_t>(stamp);
    }
    return offset_ns;
  }
  /// Where the system adjusts the time of day, that runs up to 500 ppm faster or slower than the steady clock. If it
  /// was set, no record has a place.
  std::int64_t offset_of_run_ns() const {
    std::int64_t const change_ns = steady_minus_cupti_ns() - offset_ns_;
    if (std::abs(change_ns) > 100'000 + (steady_ns() - begin_ns_) / 1000) {
      throw operation_failed(fmt::format("the time of day was set by {} ns during the run", -change_ns));
    }
    return offset_ns_ + change_ns / 2;
  }

  cupti_library const& cupti_;
  std::int64_t offset_ns_ = 0;
  std::int64_t begin_ns_ = 0;
  bool has_pages_ = false;
  std::string pages_note_;
};

activity_recorder::activity_recorder(std::vector<std::string> const& folders, bool with_pages, int ordinal)
    : here_(std::make_unique<implementation>(folders, with_pages, ordinal)) {}
activity_recorder::~activity_recorder() = default;
void activity_recorder::begin() {
  here_->begin();
}
activity_trace activity_recorder::end() {
  return here_->end();
}

}  // namespace forebay::transfer
