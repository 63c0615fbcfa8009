// SPDX-License-Identifier: Apache-2.0
//! \file
//! Arrays that cross between Python and C++.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace forebay::python {

template <class T>
using vector_in = nb::ndarray<T const, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using vector_out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

template <class T>
std::span<T const> span_of(vector_in<T> const& array) {
  return {array.data(), array.shape(0)};
}
template <class T>
std::span<T const> span_of(std::optional<vector_in<T>> const& array) {
  return array ? span_of(*array) : std::span<T const>();
}

/// An array of Python's that has the elements.
template <class T>
vector_out<T> array_of(std::vector<T> elements) {
  auto kept = std::make_unique<std::vector<T>>(std::move(elements));
  T* const data = kept->data();
  std::size_t const count = kept->size();
  nb::capsule const owner(kept.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return vector_out<T>(data, {count}, owner);
}

}  // namespace forebay::python
