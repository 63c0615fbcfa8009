// SPDX-License-Identifier: Apache-2.0
//! \file
//! What Forebay uses of libcufile, declared here so that the build needs no header of it. The names are the library's
//! (cuFile API Reference Guide); layouts and numbers are the same from version 1.14 to 1.20.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "apps/common/shared_library.hpp"

namespace forebay::file_io::cufile {

/// `error`: 0, or a number above 5000. `cuda_error`: of the CUDA driver, where `error` says so.
struct outcome {
  int error;
  int cuda_error;
};

using handle = void*;

/// CUfileDescr_t.
struct descriptor {
  int type = 1;  ///< CU_FILE_HANDLE_TYPE_OPAQUE_FD
  union {
    int fd;
    void* other;
  };
  void const* operations = nullptr;
};

/// CUFileBoolConfigParameter_t.
enum parameter : int { allow_compat_mode = 1, force_compat_mode = 2 };

/// The functions. Throws `operation_failed` if the library or one of them is not there.
struct api {
  explicit api(std::string const& name) : library(name) {}

  apps::shared_library library;
  outcome (*driver_open)() = library.get<outcome()>("cuFileDriverOpen");
  outcome (*driver_close)() = library.get<outcome()>("cuFileDriverClose_v2");
  outcome (*set_parameter)(int, bool) = library.get<outcome(int, bool)>("cuFileSetParameterBool");
  outcome (*register_handle)(handle*, descriptor*) = library.get<outcome(handle*, descriptor*)>("cuFileHandleRegister");
  void (*deregister_handle)(handle) = library.get<void(handle)>("cuFileHandleDeregister");
  outcome (*register_buffer)(void const*, std::size_t,
                             int) = library.get<outcome(void const*, std::size_t, int)>("cuFileBufRegister");
  outcome (*deregister_buffer)(void const*) = library.get<outcome(void const*)>("cuFileBufDeregister");
  /// The last two are an offset in the file and one in the buffer. They return the bytes that moved, -1 with `errno`
  /// set, or minus a number above 5000.
  ssize_t (*read)(handle, void*, std::size_t, off_t,
                  off_t) = library.get<ssize_t(handle, void*, std::size_t, off_t, off_t)>("cuFileRead");
  ssize_t (*write)(handle, void const*, std::size_t, off_t,
                   off_t) = library.get<ssize_t(handle, void const*, std::size_t, off_t, off_t)>("cuFileWrite");
};

}  // namespace forebay::file_io::cufile
