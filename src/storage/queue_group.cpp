// SPDX-License-Identifier: Apache-2.0
#include "storage/queue_group.hpp"

#include "storage/options.hpp"
#include "storage/relay_thread.hpp"

namespace forebay::detail {

queue_pair_rings rings_of(driver::io_queue const& queue) {
  return {queue.submission_ring(),
          queue.completion_ring(),
          queue.sq_tail_doorbell(),
          queue.cq_head_doorbell(),
          queue.entries(),
          queue.completion_entries(),
          queue.id()};
}

queue_group::queue_group(opened_drives const& drives, queue_group_plan const& plan, storage_options const& options,
                         buffer_source const& buffers)
    : drives_(drives), gpu_memory_(plan.driven_by_gpu ? plan.state_memory : nullptr) {
  std::vector<queue_pair_rings> rings;
  for (std::size_t d = 0; d < drives.size(); ++d) {
    drive_queues const& q = plan.queues[d];
    for (std::uint32_t i = 0; i < q.count; ++i) {
      rings_.push_back(
          drives[d].controller->create_io_queue_pair({.entries = q.depth,
                                                      .driven_by_gpu = plan.driven_by_gpu,
                                                      .rings_on_gpu = rings_on_gpu(d),
                                                      .priority = q.priority.value_or(nvme::queue_priority::medium)}));
      drive_of_.push_back(d);
      pairs_.emplace_back(rings_on_gpu(d) ? nullptr : plan.relay->of(d), rings_of(rings_.back()));
      rings.push_back(pairs_.back().rings());
    }
  }
  prp_pages_ = buffers.allocate(std::uint64_t{options.queues.prp_list_pages} * page_bytes);
  io_queues_options o;
  o.records = plan.records;
  o.prp_pages = plan.driven_by_gpu ? prp_pages_->ref() : prp_pages_->host_ref();
  o.page_bytes = page_bytes;
  o.timeout_ns = options.timeout_ns;
  o.flush_timeout_ns = options.flush_timeout_ns;
  o.traced_threads = options.debug.traced_threads;
  queues_ = std::make_unique<io_queues>(rings, o, *plan.state_memory, *plan.shared_memory);
}

bool queue_group::rings_on_gpu(std::size_t drive) const {
  return detail::rings_on_gpu(drives_, drive, gpu_memory_ != nullptr);
}

recovery::group queue_group::for_recovery() {
  recovery::group g{queues_.get(), {}};
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    opened_drive const& drive = drives_[drive_of_[i]];
    g.members.push_back({drive.controller.get(), &rings_[i], drive.uri, pairs_[i].relay()});
  }
  return g;
}

inspected_queues queue_group::for_inspection(char const* whose) const {
  inspected_queues what{whose, queues_.get(), {}, drive_of_};
  for (std::size_t const drive : drive_of_) {
    what.ring_memory.push_back(rings_on_gpu(drive) ? gpu_memory_ : &memory::host());
  }
  return what;
}

}  // namespace forebay::detail
