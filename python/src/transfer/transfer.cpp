// SPDX-License-Identifier: Apache-2.0
//! \file
//! forebay._transfer: the transfer suite as python/forebay/transfer uses it. The stub python/forebay/_transfer.pyi
//! declares the same names and signatures.

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/transfer/modes.hpp"
#include "apps/transfer/registry.hpp"
#include "apps/transfer/run_on_cpu.hpp"
#include "names.hpp"
#include "pipeline.hpp"
#ifdef FOREBAY_HAS_CUDA
#include "apps/transfer/run_on_gpu.hpp"
#endif

namespace nb = nanobind;

namespace forebay::transfer {
namespace {

char const* name_of(buffer_use use) {
  switch (use) {
    case buffer_use::in:
      return "in";
    case buffer_use::out:
      return "out";
    case buffer_use::in_out:
      return "in_out";
    case buffer_use::scratch:
      break;
  }
  return "scratch";
}

/// A workload of a size and shape.
struct python_workload {
  std::unique_ptr<workload> of;
  std::uint64_t launches;

  nb::dict shape() const {
    launch_shape const s = of->shape();
    nb::dict parts;
    parts["blocks"] = s.blocks;
    parts["threads"] = s.threads;
    parts["tile"] = s.tile;
    parts["stages"] = s.stages;
    return parts;
  }
  nb::list buffers() const {
    nb::list list;
    for (buffer const& b : of->buffers()) {
      nb::dict one;
      one["name"] = b.name;
      one["bytes"] = b.bytes;
      one["use"] = name_of(b.use);
      list.append(one);
    }
    return list;
  }
  nb::dict costs() const {
    workload_costs const c = of->costs();
    nb::dict parts;
    parts["operations"] = c.operations;
    parts["staged_bytes"] = c.staged_bytes;
    parts["shared_accesses"] = c.shared_accesses;
    parts["launches"] = static_cast<double>(launches);
    return parts;
  }
};

nb::list workload_list() {
  nb::list list;
  for (registered_workload const& w : workloads()) {
    nb::dict one;
    one["name"] = text_of(w.facts->name);
    one["group"] = text_of(group_names[static_cast<int>(w.facts->group)]);
    one["tile_unit"] = text_of(w.facts->tile_unit);
    one["summary"] = text_of(w.facts->summary);
    list.append(one);
  }
  return list;
}

nb::dict run_cpu(python_workload const& work, std::string const& stage, std::uint64_t seed) {
  auto const how = named_in<stage_kind>(stage_names, "stage", stage);
  cpu_run result;
  {
    nb::gil_scoped_release const others_run;
    result = run_on_cpu(*work.of, how, seed);
  }
  nb::dict parts;
  parts["mismatch"] = result.mismatch;
  parts["seconds"] = result.seconds;
  return parts;
}

#ifdef FOREBAY_HAS_CUDA
nb::dict dict_of(run_times const& t) {
  nb::dict parts;
  parts["total"] = t.total;
  parts["allocation"] = t.allocation;
  parts["release"] = t.release;
  parts["kernels"] = t.kernels;
  return parts;
}

nb::dict dict_of(traced_run const& run) {
  auto const seconds = [](std::int64_t ns) { return static_cast<double>(ns) / 1e9; };
  auto const& exclusive = run.time.exclusive;
  auto const& sums = run.time.sums;
  constexpr auto at = [](activity_kind kind) { return static_cast<std::size_t>(kind); };
  nb::dict parts;
  parts["total"] = seconds(run.time.total);
  parts["kernels"] = seconds(exclusive[at(activity_kind::kernel)]);
  parts["copies"] = seconds(exclusive[at(activity_kind::copy)]);
  parts["allocation"] = seconds(exclusive[at(activity_kind::allocation)]);
  parts["host"] = seconds(exclusive[at(activity_kind::host)]);
  parts["calls"] = seconds(exclusive[at(activity_kind::call)]);
  parts["unattributed"] = seconds(run.time.unattributed);
  parts["covered"] = run.time.covered();
  parts["kernel_sum"] = seconds(sums[at(activity_kind::kernel)]);
  parts["copy_sum"] = seconds(sums[at(activity_kind::copy)]);
  parts["allocation_sum"] = seconds(sums[at(activity_kind::allocation)]);
  parts["pages"] = nb::none();
  if (run.pages) {
    nb::dict pages;
    pages["bytes_in"] = run.pages->bytes_in;
    pages["bytes_out"] = run.pages->bytes_out;
    pages["cpu_faults"] = run.pages->cpu_faults;
    pages["gpu_faults"] = run.pages->gpu_faults;
    parts["pages"] = pages;
  }
  parts["note"] = run.note;
  parts["runs"] = run.runs;
  return parts;
}
#endif

nb::dict run_gpu([[maybe_unused]] python_workload const& work, std::string const& transfer,
                 std::string const& allocation, std::string const& stage, [[maybe_unused]] std::uint64_t seed,
                 [[maybe_unused]] std::uint32_t repetitions, [[maybe_unused]] std::uint32_t traced,
                 [[maybe_unused]] std::vector<std::string> const& cupti_folders, [[maybe_unused]] int ordinal) {
  [[maybe_unused]] mode const how{named_in<transfer_kind>(transfer_names, "transfer", transfer),
                                  named_in<allocation_kind>(allocation_names, "allocation", allocation),
                                  named_in<stage_kind>(stage_names, "stage", stage)};
#ifdef FOREBAY_HAS_CUDA
  gpu_run result;
  {
    nb::gil_scoped_release const others_run;
    result = run_on_gpu(*work.of, how, seed, {repetitions, traced, cupti_folders}, ordinal);
  }
  nb::list warm;
  for (run_times const& t : result.warm) warm.append(dict_of(t));
  nb::dict parts;
  parts["mismatch"] = result.mismatch;
  parts["page_locking_seconds"] = result.page_locking_seconds;
  parts["cold"] = dict_of(result.cold);
  parts["warm"] = warm;
  parts["traced"] = nb::none();
  if (result.traced) parts["traced"] = dict_of(*result.traced);
  parts["traced_reason"] = result.traced_reason;
  return parts;
#else
  throw operation_failed("this build has no CUDA");
#endif
}

nb::dict gpu_facts([[maybe_unused]] int ordinal) {
#ifdef FOREBAY_HAS_CUDA
  gpu_identity const found = identity_of_gpu(ordinal);
  nb::dict facts;
  facts["name"] = found.name;
  facts["driver"] = found.driver;
  return facts;
#else
  throw operation_failed("this build has no CUDA");
#endif
}

}  // namespace
}  // namespace forebay::transfer

NB_MODULE(_transfer, m) {
  using namespace forebay::transfer;

  m.attr("SIZES") = list_of(size_names);
  m.attr("STAGES") = list_of(stage_names);
  m.attr("TRANSFERS") = list_of(transfer_names);
  m.attr("ALLOCATIONS") = list_of(allocation_names);
  m.def("workloads", &workload_list);
  m.def("gpu", &gpu_facts, nb::kw_only(), nb::arg("ordinal"));
  nb::class_<python_workload>(m, "Workload")
      .def(
          "__init__",
          [](python_workload* self, std::string const& name, std::string const& size, std::uint32_t blocks,
             std::uint32_t threads, std::uint32_t tile, std::uint32_t stages) {
            auto const how_much = named_in<problem_size>(size_names, "size", size);
            launch_shape const shape{blocks, threads, tile, stages};
            new (self) python_workload{make_workload(name, how_much, shape), launch_count(name, how_much, shape)};
          },
          nb::arg("name"), nb::kw_only(), nb::arg("size"), nb::arg("blocks"), nb::arg("threads"), nb::arg("tile"),
          nb::arg("stages"))
      .def("shape", &python_workload::shape)
      .def("buffers", &python_workload::buffers)
      .def("costs", &python_workload::costs)
      .def("run_on_cpu", &run_cpu, nb::kw_only(), nb::arg("stage"), nb::arg("seed"))
      .def("run_on_gpu", &run_gpu, nb::kw_only(), nb::arg("transfer"), nb::arg("allocation"), nb::arg("stage"),
           nb::arg("seed"), nb::arg("repetitions"), nb::arg("traced"), nb::arg("cupti_folders"), nb::arg("ordinal"));
  define_pipeline(m);
}
