// SPDX-License-Identifier: Apache-2.0
#include "storage/report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "forebay/status_text.hpp"
#include "storage/client.hpp"
#include "storage/host_transfers.hpp"
#include "storage/options.hpp"
#include "storage/relay_thread.hpp"

namespace forebay::detail {
namespace {

/// Null where drives differ.
nlohmann::json same_of_all(std::vector<drive_queues> const& drives, std::uint32_t drive_queues::* what) {
  for (drive_queues const& q : drives) {
    if (q.*what != drives[0].*what) return {};
  }
  return drives[0].*what;
}

nlohmann::json report_of(cache const& pages) {
  cache_options const& o = pages.options();
  nlohmann::json counters;
  if (o.statistics) {
    cache_counters const c = pages.counted();
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
  status const error = pages.first_error();
  return {{"bytes", o.size_bytes},
          {"page_bytes", o.page_bytes},
          {"policy", o.policy.name},
          {"overflow_frames", o.overflow_frames},
          {"user_frames", o.user_frames},
          {"staging_pages", o.staging_pages},
          {"host_bytes", o.host_size_bytes},
          {"host_policy", o.host_size_bytes != 0 ? nlohmann::json(o.host_policy.name) : nlohmann::json()},
          {"counters", std::move(counters)},
          {"first_error", error.ok() ? nlohmann::json() : nlohmann::json(to_string(error))},
          {"failed_write_backs", pages.failed_write_backs()}};
}

}  // namespace

std::string report(opened_drives const& drives, client const& of, host_transfers const& transfers,
                   recovery::counters const& recovered, relay_thread const& relay) {
  storage_layout const& layout = of.layout();
  bool const on_gpu = data_on_gpu(drives, of.device());
  int placement = 3;
  for (opened_drive const& d : drives) placement = std::min(placement, static_cast<int>(placement_of(d, on_gpu)));
  std::vector<drive_queues> const& queues = of.kernel_queues();
  nlohmann::json document = {
      {"device", of.device().name()},
      {"placement", placement},
      {"completion", "helping"},
      {"size_bytes", layout.size_bytes},
      {"block_bytes", 1u << layout.block_shift},
      {"stripe_bytes", layout.one_after_the_other() ? 0 : layout.stripe_bytes},
      {"bytes_per_drive", layout.bytes_per_drive()},
      {"queues_per_drive", same_of_all(queues, &drive_queues::count)},
      {"queue_depth", same_of_all(queues, &drive_queues::depth)},
      {"command_bytes_max", layout.command_bytes_max},
      {"recovery",
       {{"aborts", recovered.aborts.load()},
        {"queues_deleted", recovered.queues_deleted.load()},
        {"controller_resets", recovered.controller_resets.load()}}},
      {"drives", nlohmann::json::array()},
  };
  bool exceeded = false;
  for (std::size_t i = 0; i < drives.size(); ++i) {
    drive_queues const& q = queues[i];
    document["drives"].push_back(drives[i].source->report());
    document["drives"].back()["kernel_queues"] = {
        {"count", q.count},
        {"depth", q.depth},
        {"priority", q.priority ? nlohmann::json(name_of(*q.priority)) : nlohmann::json()}};
    document["drives"].back()["placement"] = static_cast<int>(placement_of(drives[i], on_gpu));
    exceeded = exceeded || document["drives"].back().value("fidelity", "ok") != "ok";
  }
  document["cache"] = of.pages() != nullptr ? report_of(*of.pages()) : nullptr;
  host_transfer_counts const moved = transfers.counts();
  document["transfers"] = {{"host_bytes", moved.host_bytes},
                           {"gpu_direct_bytes", moved.gpu_direct_bytes},
                           {"gpu_copied_bytes", moved.gpu_copied_bytes},
                           {"gpu_staged_bytes", moved.gpu_staged_bytes},
                           {"registered_allocations", transfers.registered_allocations()}};
  document["ordering_flushes"] = relay.flushes();
  document["fidelity"] = exceeded ? "exceeded" : "ok";
  return document.dump();
}

}  // namespace forebay::detail
