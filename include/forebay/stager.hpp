// SPDX-License-Identifier: Apache-2.0
//! \file
//! Asynchronous copies from global to shared memory, and the stager, which stages tiles by them.
//! docs/reference/library.md, "Copies to shared memory", lists what kernels may use.
#pragma once

#include "forebay/detail/simt/bulk_barrier.hpp"
#include "forebay/detail/simt/stager.hpp"
#include "forebay/machine.hpp"
