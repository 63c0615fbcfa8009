// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory that another library shares by DLPack (https://dmlc.github.io/dlpack, version 1).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <tuple>

#include "forebay/error.hpp"

namespace nb = nanobind;

namespace forebay::python {

/// The layout of the specification.
struct dlpack_tensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t dimensions;
  std::uint8_t type_code;
  std::uint8_t bits;
  std::uint16_t lanes;
  std::int64_t const* shape;
  std::int64_t const* strides;  ///< in elements; null: the elements lie one after the other
  std::uint64_t byte_offset;
};
struct dlpack_versioned {
  std::uint32_t major, minor;
  void* manager;
  void (*deleter)(dlpack_versioned*);
  std::uint64_t flags;
  dlpack_tensor tensor;
};

/// Address, bytes, type and number of the device, type code, and whether the tensor is read-only and contiguous. The
/// capsule keeps the memory alive, and is not consumed.
using dlpack_facts = std::tuple<std::uint64_t, std::uint64_t, int, int, int, bool, bool>;

inline dlpack_facts facts_of_dlpack(nb::handle capsule) {
  constexpr std::uint64_t read_only_flag = 1;
  dlpack_tensor const* tensor = nullptr;
  bool read_only = false;
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    auto const* const whole =
        static_cast<dlpack_versioned const*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (whole->major != 1) {
      throw refused_input("buffer", "DLPack " + std::to_string(whole->major) + "." + std::to_string(whole->minor),
                          "Forebay knows DLPack 1: pass a view with a buffer, or a copy");
    }
    tensor = &whole->tensor;
    read_only = (whole->flags & read_only_flag) != 0;
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor") != 0) {
    tensor = static_cast<dlpack_tensor const*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  } else {
    throw refused_input("buffer", nb::cast<std::string>(nb::str(nb::handle(capsule))),
                        "its __dlpack__ returns no DLPack capsule: pass an object of a library that has DLPack");
  }
  std::uint64_t count = 1;
  bool contiguous = true;
  std::uint64_t stride = 1;
  for (std::int32_t i = tensor->dimensions - 1; i >= 0; --i) {
    auto const length = static_cast<std::uint64_t>(tensor->shape[i]);
    if (tensor->strides != nullptr && length > 1 && tensor->strides[i] != static_cast<std::int64_t>(stride)) {
      contiguous = false;
    }
    stride *= length;
    count *= length;
  }
  std::uint64_t const bits = count * tensor->bits * tensor->lanes;
  return {reinterpret_cast<std::uint64_t>(tensor->data) + tensor->byte_offset,
          (bits + 7) / 8,
          tensor->device_type,
          tensor->device_id,
          tensor->type_code,
          read_only,
          contiguous || count == 0};
}

}  // namespace forebay::python
