// SPDX-License-Identifier: Apache-2.0
#include "apps/transfer/registry.hpp"

#include <string>

#include "apps/transfer/launch.hpp"
#include "apps/transfer/workloads/backprop.hpp"
#include "apps/transfer/workloads/bayesian.hpp"
#include "apps/transfer/workloads/conv2d.hpp"
#include "apps/transfer/workloads/conv3d.hpp"
#include "apps/transfer/workloads/gemm.hpp"
#include "apps/transfer/workloads/gemv.hpp"
#include "apps/transfer/workloads/hotspot.hpp"
#include "apps/transfer/workloads/kmeans.hpp"
#include "apps/transfer/workloads/knn.hpp"
#include "apps/transfer/workloads/lavamd.hpp"
#include "apps/transfer/workloads/lud.hpp"
#include "apps/transfer/workloads/networks.hpp"
#include "apps/transfer/workloads/nw.hpp"
#include "apps/transfer/workloads/pathfinder.hpp"
#include "apps/transfer/workloads/saxpy.hpp"
#include "apps/transfer/workloads/srad.hpp"
#include "apps/transfer/workloads/vector_rand.hpp"
#include "apps/transfer/workloads/vector_seq.hpp"
#include "forebay/error.hpp"

namespace forebay::transfer {
namespace {

template <class W>
class workload_of final : public workload {
 public:
  workload_of(problem_size size, launch_shape shape) : work_(size, shape) {}
  workload_facts const& facts() const override { return W::facts; }
  launch_shape shape() const override { return work_.shape(); }
  std::vector<buffer> buffers() const override { return work_.buffers(); }
  workload_costs costs() const override { return work_.costs(); }
  void init(std::uint64_t seed, views host) const override { work_.init(seed, host); }
  std::string mismatch(std::uint64_t seed, views host) const override { return work_.mismatch(seed, host); }
  void run_on_cpu(stage_kind how, views memory) const override { launch_on_cpu(work_, how, memory); }
  void start_on_gpu([[maybe_unused]] stage_kind how, [[maybe_unused]] views memory,
                    [[maybe_unused]] CUstream_st* stream) const override {
#ifdef FOREBAY_HAS_CUDA
    launch_on_gpu(work_, how, memory, stream);
#else
    throw operation_failed("this build has no CUDA");
#endif
  }

 private:
  W work_;
};

/// Starts no kernel, and counts them.
struct counting_run {
  using machine = simt::fiber;
  std::uint64_t* count;

  template <class Kernel>
  void operator()(simt::grid const& /*shape*/, Kernel const& /*kernel*/) const {
    ++*count;
  }
};

template <class W>
constexpr registered_workload entry{&W::facts,
                                    [](problem_size size, launch_shape shape) -> std::unique_ptr<workload> {
                                      return std::make_unique<workload_of<W>>(size, shape);
                                    },
                                    [](problem_size size, launch_shape shape) {
                                      W const work(size, shape);
                                      // Kernels get addresses, which nothing reads. None is null, so that one may add
                                      // to them.
                                      std::vector<std::byte*> const nowhere(
                                          work.buffers().size(), reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40));
                                      std::uint64_t count = 0;
                                      launch_with(work, stage_kind::plain, counting_run{&count}, views(nowhere));
                                      return count;
                                    }};

constexpr registered_workload all[] = {entry<vector_seq>,
                                       entry<vector_rand>,
                                       entry<saxpy>,
                                       entry<gemv>,
                                       entry<gemm>,
                                       entry<conv2d>,
                                       entry<conv3d>,
                                       entry<lavamd>,
                                       entry<nw>,
                                       entry<kmeans>,
                                       entry<srad>,
                                       entry<backprop>,
                                       entry<pathfinder>,
                                       entry<hotspot>,
                                       entry<lud>,
                                       entry<bayesian>,
                                       entry<knn>,
                                       entry<resnet18_inference>,
                                       entry<resnet18_training>,
                                       entry<resnet50_inference>,
                                       entry<resnet50_training>,
                                       entry<yolov3_tiny_inference>,
                                       entry<yolov3_tiny_training>,
                                       entry<yolov3_inference>,
                                       entry<yolov3_training>};

}  // namespace

std::span<registered_workload const> workloads() {
  return all;
}

namespace {

registered_workload const& named(std::string_view name) {
  for (registered_workload const& w : all) {
    if (w.facts->name == name) return w;
  }
  throw refused_input("--workload", std::string(name), "is none of those that `forebay transfer list` names");
}

}  // namespace

std::unique_ptr<workload> make_workload(std::string_view name, problem_size size, launch_shape shape) {
  return named(name).make(size, shape);
}

std::uint64_t launch_count(std::string_view name, problem_size size, launch_shape shape) {
  return named(name).launches(size, shape);
}

}  // namespace forebay::transfer
