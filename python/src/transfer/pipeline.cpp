// SPDX-License-Identifier: Apache-2.0
#include "pipeline.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "apps/transfer/modes.hpp"
#include "apps/transfer/pipeline_schedule.hpp"
#include "apps/transfer/registry.hpp"
#include "names.hpp"
#ifdef FOREBAY_HAS_CUDA
#include "apps/transfer/pipeline.hpp"
#endif

namespace nb = nanobind;

namespace forebay::transfer {
namespace {

nb::list pipeline_arms() {
  nb::list list;
  for (pipeline_arm const arm : all_arms) {
    arm_facts const facts = facts_of(arm);
    nb::dict one;
    one["name"] = text_of(arm_names[static_cast<int>(arm)]);
    one["sets"] = facts.sets;
    one["outputs"] = facts.outputs;
    one["is_pool"] = facts.is_pool;
    one["summary"] = text_of(facts.summary);
    list.append(one);
  }
  return list;
}

/// Jobs of a workload with its own shape, on a GPU.
class python_pipeline {
 public:
  python_pipeline(std::string const& workload, std::string const& size, [[maybe_unused]] std::uint32_t jobs,
                  std::string const& allocation, [[maybe_unused]] std::uint64_t seed, [[maybe_unused]] int ordinal) {
    auto work = make_workload(workload, named_in<problem_size>(size_names, "size", size));
    [[maybe_unused]] auto const from = named_in<allocation_kind>(allocation_names, "allocation", allocation);
#ifdef FOREBAY_HAS_CUDA
    of_ = std::make_unique<pipeline>(std::move(work), pipeline_options{jobs, from, seed, ordinal});
#else
    throw operation_failed("this build has no CUDA");
#endif
  }

  nb::dict run(std::string const& arm, [[maybe_unused]] std::uint32_t repetitions) {
    [[maybe_unused]] auto const which = named_in<pipeline_arm>(arm_names, "arm", arm);
    nb::dict parts;
#ifdef FOREBAY_HAS_CUDA
    pipeline_run result;
    {
      nb::gil_scoped_release const others_run;
      result = of_->run(which, repetitions);
    }
    parts["mismatch"] = result.mismatch;
    parts["verified_jobs"] = result.verified_jobs;
    parts["compared_jobs"] = result.compared_jobs;
    parts["seconds"] = result.seconds;
    parts["allocation_seconds"] = result.allocation_seconds;
    parts["page_locking_seconds"] = result.page_locking_seconds;
#endif
    return parts;
  }

 private:
#ifdef FOREBAY_HAS_CUDA
  std::unique_ptr<pipeline> of_;
#endif
};

}  // namespace

void define_pipeline(nb::module_& m) {
  m.def("pipeline_arms", &pipeline_arms);
  nb::class_<python_pipeline>(m, "Pipeline")
      .def(nb::init<std::string const&, std::string const&, std::uint32_t, std::string const&, std::uint64_t, int>(),
           nb::arg("workload"), nb::kw_only(), nb::arg("size"), nb::arg("jobs"), nb::arg("allocation"), nb::arg("seed"),
           nb::arg("ordinal"))
      .def("run", &python_pipeline::run, nb::kw_only(), nb::arg("arm"), nb::arg("repetitions"));
}

}  // namespace forebay::transfer
