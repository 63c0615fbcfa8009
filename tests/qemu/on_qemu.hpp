// SPDX-License-Identifier: Apache-2.0
//! \file
//! CPU fibers whose drives are QEMU's, as a machine of the storage suites.
#pragma once

#include <string>

#include "forebay/detail/simt/launch.hpp"
#include "qemu/shapes.hpp"

namespace forebay::storage_test {

template <class Shape>
struct on_qemu : qemu_drives<Shape> {
  using machine = simt::fiber;
  static std::string device() { return "cpu"; }
  template <class Kernel>
  static void run(simt::grid shape, Kernel const& kernel) {
    simt::launch<simt::fiber>(shape, kernel);
  }
};

}  // namespace forebay::storage_test
