// SPDX-License-Identifier: Apache-2.0
//! \file
//! The cached storage suite on QEMU's controller.
#include "forebay/queue_rules.hpp"
#include "qemu/on_qemu.hpp"
#include "storage/cached_storage_suite.hpp"

namespace forebay::storage_test {

template <class Shape>
struct cached_on_qemu : on_qemu<Shape> {
  using completion = queue_rules;
  static std::string file_uri(std::string const& path) { return "file:" + path; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Qemu, CachedStorageSuite, cached_on_qemu<second_namespace>);

}  // namespace forebay::storage_test
