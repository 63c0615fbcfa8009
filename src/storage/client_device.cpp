// SPDX-License-Identifier: Apache-2.0
#include "storage/client_device.hpp"

#include <charconv>
#include <chrono>

#include "forebay/detail/simt/native.hpp"
#include "forebay/error.hpp"

namespace forebay::detail {
namespace {

/// The origin is 1970.
std::uint64_t gpu_clock_ns() {
  auto const now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

client_device client_device::named(std::string const& name) {
  if (name == "cpu") return client_device(no_gpu);
  int const gpus = memory::device_count();
  if (name == "auto") return client_device(gpus > 0 ? 0 : no_gpu);
  if (name.starts_with("cuda:")) {
    int ordinal = -1;
    char const* const end = name.data() + name.size();
    auto const [stop, error] = std::from_chars(name.data() + 5, end, ordinal);
    if (error == std::errc() && stop == end && ordinal >= 0) {
      if (ordinal < gpus) return client_device(ordinal);
      throw refused_input("device", name,
                          gpus == 0 ? "no GPU was found, or CUDA is not built in: nvidia-smi lists GPUs, and `forebay "
                                      "doctor` of the Python package tells which it is; use cpu"
                                    : "GPUs are numbered from 0; give a number below " + std::to_string(gpus));
    }
  }
  throw refused_input("device", name, "give cpu, auto or cuda:N");
}

std::uint64_t (*client_device::clock() const)() {
  return on_gpu() ? &gpu_clock_ns : &simt::native::clock_ns;
}

}  // namespace forebay::detail
