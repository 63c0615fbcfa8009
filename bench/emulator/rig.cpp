// SPDX-License-Identifier: Apache-2.0
#include "emulator/rig.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "emulator/raw_launch.hpp"
#include "forebay/cuda_stream.hpp"
#include "forebay/detail/drive/drive.hpp"
#include "forebay/detail/driver/controller.hpp"
#include "forebay/error.hpp"
#include "forebay/memory.hpp"
#include "harness/event_timer.hpp"

namespace forebay::bench {
namespace {

/// As many as a multiprocessor runs of the client's kernels at a time.
constexpr std::uint32_t threads_per_sm = 1024;
/// Bytes that the client's threads read into and write from, when a drive is filled.
constexpr std::uint64_t fill_area_bytes = std::uint64_t{1} << 30;

/// Zeroed memory of the client alone.
template <class T>
class device_array {
 public:
  explicit device_array(std::size_t count) : memory_(memory::device(0), count * sizeof(T), 4096) {}
  T* data() const { return memory_.template as<T>(); }
  std::size_t count() const { return memory_.size_bytes() / sizeof(T); }
  void put(T const* from, std::size_t count) { memory_.from().copy_in(memory_.data(), from, count * sizeof(T)); }
  void get(T* to, std::size_t count) const { memory_.from().copy_out(to, memory_.data(), count * sizeof(T)); }

 private:
  memory::allocation memory_;
};

drive::open_options opening(bench_case const& c) {
  drive::open_options options;
  options.client_memory = &memory::pinned();
  options.queues = c.queue_count();
  options.frontend = c.frontend;
  return options;
}

driver::controller_options driving(bench_case const& c) {
  driver::controller_options options;
  options.io_queue_pairs = c.queue_count();
  return options;
}

}  // namespace

std::uint32_t multiprocessors() {
  int count = 0;
  memory::check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  return static_cast<std::uint32_t>(count);
}

class rig::implementation {
 public:
  implementation(bench_case const& c, std::string const& residency)
      : source_(drive::open(c.drive_uri(residency), opening(c))),
        controller_(source_->registers(), source_->dma(), driving(c)),
        queue_states_(c.queue_count()),
        result_(1) {
    std::vector<raw_queue> queues(c.queue_count());
    for (raw_queue& queue : queues) {
      std::uint32_t const completions = c.completion_depth != 0 ? c.completion_depth : c.depth;
      rings_.push_back(controller_.create_io_queue_pair(
          {.entries = c.depth, .completion_entries = completions, .driven_by_gpu = true, .rings_on_gpu = true}));
      driver::io_queue const& rings = rings_.back();
      queue.sq = rings.submission_ring();
      queue.cq = rings.completion_ring();
      queue.tail_doorbell = rings.sq_tail_doorbell();
      queue.head_doorbell = rings.cq_head_doorbell();
      queue.entries = c.depth;
      queue.cq_entries = completions;
    }
    queue_states_.put(queues.data(), queues.size());
    source_->hold();
  }
  ~implementation() { source_->release(); }
  implementation(implementation const&) = delete;
  implementation& operator=(implementation const&) = delete;

  drive::device& source() { return *source_; }
  driver::controller const& controller() const { return controller_; }

  double run(bench_case const& c, raw_workload const& work, raw_result& seen, simt::grid const& shape,
             bool own_queues) {
    std::uint64_t const threads = std::uint64_t{shape.blocks} * shape.threads_per_block;
    std::uint64_t const sharers = (threads / 32 + c.queue_count() - 1) / c.queue_count();
    if (own_queues ? sharers > 1 : sharers * 32 > 0xffff) {
      throw refused_input("client threads", std::to_string(threads),
                          fmt::format("{} queues are too few for them", c.queue_count()));
    }
    std::uint64_t const area_bytes = raw_area::bytes(threads, work.block_bytes);
    if (!area_ || area_.size_bytes() < area_bytes) {
      area_ = {};
      area_ = driver::dma_buffer(source_->dma(), area_bytes, true);
    }
    if (!told_ || told_->count() < threads) told_.emplace(threads);
    seen = {};
    result_.put(&seen, 1);
    auto const at = reinterpret_cast<std::int64_t>(area_.data());
    raw_area const area{area_.data(), static_cast<std::int64_t>(source_->dma().bus_address(area_.data())) - at,
                        threads};
    double const seconds = seconds_of(stream_, [&] {
      launch_raw_client(shape,
                        {queue_states_.data(), c.queue_count(), told_->data(), area, work, result_.data(), own_queues},
                        stream_.get());
    });
    result_.get(&seen, 1);
    return seconds;
  }

 private:
  std::unique_ptr<drive::device> source_;
  driver::controller controller_;
  std::vector<driver::io_queue> rings_;
  device_array<raw_queue> queue_states_;
  device_array<raw_result> result_;
  std::optional<device_array<std::uint32_t>> told_;
  driver::dma_buffer area_;
  memory::cuda_stream stream_{0};
};

rig::rig(bench_case const& c, std::string const& residency, std::uint32_t client_sms)
    : key_(c.drive_key(residency)),
      client_sms_(client_sms),
      implementation_(std::make_unique<implementation>(c, residency)) {}
rig::~rig() = default;

nlohmann::json rig::report() {
  return implementation_->source().report();
}
void rig::reset_statistics() {
  implementation_->source().reset_statistics();
}

raw_workload rig::workload(bench_case const& c) const {
  raw_workload work;
  auto const& identity = implementation_->controller().identity();
  work.blocks = identity.size_bytes() / c.block_bytes;
  work.block_bytes = c.block_bytes;
  work.lba_bytes = identity.block_bytes;
  work.write_percent = c.write_percent;
  work.lanes = c.lanes;
  return work;
}

std::uint32_t rig::blocks(bench_case const& c) const {
  return c.blocks != 0 ? c.blocks : client_sms_;
}

std::uint64_t rig::threads(bench_case const& c) const {
  return std::uint64_t{blocks(c)} * c.threads_per_block / 32 * c.lanes;
}

bool rig::fit_at_a_time(bench_case const& c) const {
  return std::uint64_t{blocks(c)} * c.threads_per_block <= std::uint64_t{client_sms_} * threads_per_sm;
}

bool rig::fill(bench_case const& c, raw_result& seen) {
  raw_workload work = workload(c);
  std::uint64_t const each = raw_area::bytes(threads_per_sm, c.block_bytes);
  auto const most = static_cast<std::uint32_t>(std::max<std::uint64_t>(1, fill_area_bytes / each));
  // A command identifier of 16 bits tells apart what a queue has in flight.
  std::uint64_t const sharers = std::uint64_t{c.queue_count()} * 0xffff / threads_per_sm;
  auto const blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>({most, client_sms_, sharers}));
  simt::grid const shape{.blocks = blocks, .threads_per_block = threads_per_sm};
  std::uint64_t const threads = std::uint64_t{blocks} * threads_per_sm;
  work.lanes = 32;
  work.in_order = work.check_all = true;
  work.write_percent = 100;
  work.rounds = static_cast<std::uint32_t>((work.blocks + threads - 1) / threads);
  implementation_->run(c, work, seen, shape, false);
  bool const written = clean(seen);
  work.write_percent = 0;
  work.rounds = std::min(work.rounds, 4u);
  implementation_->run(c, work, seen, shape, false);
  return written && clean(seen);
}

double rig::run(bench_case const& c, raw_workload const& work, raw_result& seen) {
  return implementation_->run(c, work, seen, {.blocks = blocks(c), .threads_per_block = c.threads_per_block},
                              c.own_queues);
}

}  // namespace forebay::bench
