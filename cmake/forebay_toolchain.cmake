# SPDX-License-Identifier: Apache-2.0
# Compilers, and the flags that hold for the whole build.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# The folder, relative to bin/, where a GPU bundle keeps the shared libraries of its programs.
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# With ccache another clone, or this one after `make clean`, compiles nothing again. Each clone is in another folder, so
# paths below the sources are named relative to the build folder. Headers are hashed as they are, not in preprocessed
# form. That is faster, and it is right for nvcc, whose preprocessor shows only what one of the targets compiles.
find_program(FOREBAY_CCACHE ccache)
if(FOREBAY_CCACHE)
  set(launcher env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
               CCACHE_COMPILERCHECK=content "${FOREBAY_CCACHE}")
  foreach(language IN ITEMS CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      set(CMAKE_${language}_COMPILER_LAUNCHER ${launcher})
    endif()
  endforeach()
endif()
# The paths that a compiler writes (in assertions and debug information) are the same in each clone.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.>")

if(FOREBAY_CUDA)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "CUDA targets")
  endif()
  if(NOT FOREBAY_CUDA_PROGRAM_ARCHITECTURES)
    set(FOREBAY_CUDA_PROGRAM_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  if(FOREBAY_CUDA_COMPILE_FAST)
    # For the host's half of a CUDA source, which with -O3 can take longer to compile than the device's half.
    set(CMAKE_CUDA_FLAGS_RELEASE "-O0 -DNDEBUG")
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  enable_language(CUDA)
  find_package(CUDAToolkit 13.0 REQUIRED)
  if(FOREBAY_CUDA_COMPILE_FAST)
    # With this option the largest tests compile in half a minute instead of seven; `max` takes twice that.
    add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--Ofast-compile=mid>)
  endif()
endif()

if(FOREBAY_SANITIZE STREQUAL "address")
  # Three of the checks of undefined behaviour take a third of the compile time. AddressSanitizer reports the accesses
  # that follow a null pointer or an object that is too small, and the project has few virtual functions.
  set(forebay_sanitizers -fsanitize=address,undefined -fno-sanitize=null,object-size,vptr
                         -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
elseif(FOREBAY_SANITIZE STREQUAL "fuzzer")
  # As above, and each branch reports to libFuzzer, which clang alone has. tests/fuzz links libFuzzer itself.
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "FOREBAY_SANITIZE=fuzzer needs clang++; CMAKE_CXX_COMPILER is ${CMAKE_CXX_COMPILER}")
  endif()
  set(forebay_sanitizers -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=null,object-size,vptr
                         -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
elseif(FOREBAY_SANITIZE STREQUAL "thread")
  # GCC warns that ThreadSanitizer does not model fences; docs/internals says how the project handles that.
  set(forebay_sanitizers -fsanitize=thread -Wno-tsan)
elseif(FOREBAY_SANITIZE)
  message(FATAL_ERROR "FOREBAY_SANITIZE: '${FOREBAY_SANITIZE}' is none of address, fuzzer, thread, and the empty string")
endif()
if(FOREBAY_SANITIZE)
  if(FOREBAY_CUDA)
    message(FATAL_ERROR "FOREBAY_SANITIZE is for builds without FOREBAY_CUDA: use compute-sanitizer on GPU programs")
  endif()
  add_compile_options(${forebay_sanitizers})
  add_link_options(${forebay_sanitizers})
endif()

# Options are structs with defaults: a designated initialiser names only the members that differ.
set(FOREBAY_WARNINGS
    -Wall
    -Wextra
    -Wpedantic
    -Wconversion
    -Wshadow
    -Wno-missing-field-initializers
    -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # It builds the fuzzers only; what it warns of beyond GCC is no defect.
  set(FOREBAY_WARNINGS -w)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlapping copies in `"text" + std::string` (GCC bug 105651).
  list(APPEND FOREBAY_WARNINGS -Wno-restrict)
endif()
# nvcc's own host code breaks -Wpedantic (line directives of the GNU style), so device sources go without it.
set(FOREBAY_CUDA_WARNINGS
    -Werror=all-warnings
    -Xcompiler=-Wall,-Wextra,-Wconversion,-Wshadow,-Wno-missing-field-initializers,-Werror)
