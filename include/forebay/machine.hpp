// SPDX-License-Identifier: Apache-2.0
//! \file
//! The machines that device code runs on: its threads, memory orders, atomics, time, and how to launch it.
//!
//! `simt::cuda`, a GPU, exists where nvcc compiles. `simt::fiber`, the CPU executor, and `simt::native`, a host thread,
//! always exist. docs/reference/library.md, "The machine", lists what kernels may use of them.
#pragma once

#include "forebay/detail/simt/bits.hpp"
#include "forebay/detail/simt/launch.hpp"
#include "forebay/detail/simt/move_bytes.hpp"
#include "forebay/detail/simt/native.hpp"
#include "forebay/detail/simt/team.hpp"
#include "forebay/detail/simt/vocabulary.hpp"
#if defined(__CUDACC__)
#include "forebay/detail/simt/cuda.hpp"
#endif
