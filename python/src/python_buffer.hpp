// SPDX-License-Identifier: Apache-2.0
//! \file
//! Memory of Python's objects.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace nb = nanobind;

namespace forebay::python {

/// An object that may have a buffer. `python_buffer` asks it for the buffer, since that depends on which side writes.
struct [[gnu::visibility("hidden")]] buffer_owner {  // as what nanobind has
  nb::handle object;
};

/// A contiguous buffer of Python's, held while C++ uses it. Made and destroyed under Python's lock.
class python_buffer {
 public:
  python_buffer(buffer_owner owner, bool writable) {
    if (PyObject_GetBuffer(owner.object.ptr(), &view_, writable ? PyBUF_CONTIG : PyBUF_CONTIG_RO) != 0)
      throw nb::python_error();
  }
  python_buffer(python_buffer const&) = delete;
  python_buffer& operator=(python_buffer const&) = delete;
  ~python_buffer() { PyBuffer_Release(&view_); }
  void* data() const { return view_.buf; }
  std::uint64_t size_bytes() const { return static_cast<std::uint64_t>(view_.len); }

 private:
  Py_buffer view_{};
};

}  // namespace forebay::python

/// Any object converts. The name is for signatures.
template <>
struct nanobind::detail::type_caster<forebay::python::buffer_owner> {
  NB_TYPE_CASTER(forebay::python::buffer_owner, const_name("collections.abc.Buffer"))

  bool from_python(handle object, std::uint8_t, cleanup_list*) noexcept {
    value.object = object;
    return true;
  }
};
