// SPDX-License-Identifier: Apache-2.0
//! \file
//! Arithmetic that is quicker on a GPU than what C++ asks for, if less exact.
#pragma once

#include "forebay/detail/simt/arithmetic.hpp"
