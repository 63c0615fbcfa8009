// SPDX-License-Identifier: Apache-2.0
//! \file
//! The cached storage suite on a GPU whose waiting threads consume completions.
#include "storage/cached_on_gpu.hpp"

namespace forebay::storage_test {

INSTANTIATE_TYPED_TEST_SUITE_P(Gpu, CachedStorageSuite, cached_on_gpu);
INSTANTIATE_TYPED_TEST_SUITE_P(ResidentDrives, CachedStorageSuite, cached_with_drives_in_hbm);

}  // namespace forebay::storage_test
