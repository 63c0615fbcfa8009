// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "apps/file_io/engine.hpp"
#include "apps/file_io/file_io.hpp"
#include "forebay/error.hpp"

namespace forebay::file_io {
namespace {

constexpr std::array<engine_kind, 4> engines{{
    {.name = "mmap", .direct = false, .thread_each = true, .needs_gpu = false, .open = open_mmap},
    {.name = "pread", .direct = true, .thread_each = true, .needs_gpu = false, .open = open_pread},
    {.name = "io_uring", .direct = true, .thread_each = false, .needs_gpu = false, .open = open_io_uring},
    {.name = "cufile", .direct = true, .thread_each = true, .needs_gpu = true, .open = open_cufile},
}};

}  // namespace

std::string engine_names() {
  std::string names;
  for (engine_kind const& kind : engines) names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

engine_kind const& find_engine(std::string const& name) {
  for (engine_kind const& kind : engines) {
    if (name == kind.name) return kind;
  }
  throw refused_input("--ioengine", name, "must be one of " + engine_names());
}

}  // namespace forebay::file_io
