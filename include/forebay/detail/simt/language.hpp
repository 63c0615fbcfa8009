// SPDX-License-Identifier: Apache-2.0
//! \file
//! Reports in one sentence that the language version is too old. Every public header includes this first, itself or
//! through another header.
#pragma once

#if __cplusplus < 202002L
#error "Forebay needs C++20: compile with -std=c++20, with g++ and with nvcc; in CMake, link forebay::storage."
// Ends the compilation here, since otherwise pages of other errors would follow.
#include "Forebay needs C++20"
#endif
