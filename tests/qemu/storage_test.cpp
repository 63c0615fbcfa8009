// SPDX-License-Identifier: Apache-2.0
//! \file
//! The storage suite and the pipeline suite on QEMU's controller.
#include "qemu/on_qemu.hpp"
#include "storage/pipeline_suite.hpp"
#include "storage/storage_suite.hpp"

namespace forebay::storage_test {

using shapes = testing::Types<on_qemu<blocks_of_4096>, on_qemu<small_commands_in_the_second_namespace>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Qemu, StorageSuite, shapes, shape_names);
INSTANTIATE_TYPED_TEST_SUITE_P(Qemu, PipelineSuite, shapes, shape_names);

}  // namespace forebay::storage_test
