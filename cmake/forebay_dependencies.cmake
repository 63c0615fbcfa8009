# SPDX-License-Identifier: Apache-2.0
# The libraries that Forebay is built on. This file is also installed beside forebayConfig.cmake, so that a consumer
# finds them the same way: first a package's own CMake files, then headers on the search path. With FOREBAY_BUNDLE, only
# headers and libraries in that folder.

# find_package in config mode; with a bundle the package counts as not found.
macro(forebay_find_config package)
  if(FOREBAY_BUNDLE)
    set(${package}_FOUND FALSE)
  else()
    find_package(${package} CONFIG QUIET ${ARGN})
  endif()
endmacro()

# Defines the interface target `target` from the folder that holds `header`, with compile definitions ARGN.
macro(forebay_find_headers target header)
  string(MAKE_C_IDENTIFIER "FOREBAY_${target}_INCLUDE_DIR" forebay_include_dir)
  if(FOREBAY_BUNDLE)
    find_path(${forebay_include_dir} "${header}" PATHS "${FOREBAY_BUNDLE}/include" NO_DEFAULT_PATH)
  else()
    find_path(${forebay_include_dir} "${header}")
  endif()
  mark_as_advanced(${forebay_include_dir})
  if(NOT ${forebay_include_dir})
    message(FATAL_ERROR "Forebay needs ${target}: no package of that name and no header ${header} was found. "
                        "`scripts/setup` of its sources installs it, and so does the system's package manager; FOREBAY_BUNDLE names a folder that has it.")
  endif()
  add_library(${target} INTERFACE IMPORTED)
  target_include_directories(${target} SYSTEM INTERFACE "${${forebay_include_dir}}")
  target_compile_definitions(${target} INTERFACE ${ARGN})
endmacro()

find_package(Threads REQUIRED)

if(NOT TARGET fmt::fmt)
  forebay_find_config(fmt)
  if(NOT fmt_FOUND)
    forebay_find_headers(fmt::fmt fmt/format.h FMT_HEADER_ONLY=1)
  endif()
endif()

if(NOT TARGET nlohmann_json::nlohmann_json)
  forebay_find_config(nlohmann_json)
  if(NOT nlohmann_json_FOUND)
    forebay_find_headers(nlohmann_json::nlohmann_json nlohmann/json.hpp)
  endif()
endif()

if(NOT TARGET tomlplusplus::tomlplusplus)
  forebay_find_config(tomlplusplus)
  if(NOT tomlplusplus_FOUND)
    forebay_find_headers(tomlplusplus::tomlplusplus toml++/toml.h)
  endif()
endif()

if(NOT TARGET Boost::context)
  set(Boost_USE_STATIC_LIBS ON)
  forebay_find_config(Boost COMPONENTS context)
  if(NOT TARGET Boost::context)
    find_library(FOREBAY_BOOST_CONTEXT_LIBRARY boost_context HINTS "${FOREBAY_BUNDLE}/lib")
    mark_as_advanced(FOREBAY_BOOST_CONTEXT_LIBRARY)
    if(NOT FOREBAY_BOOST_CONTEXT_LIBRARY)
      message(FATAL_ERROR "Forebay needs Boost.Context: no package and no library was found. `scripts/setup` of "
                          "its sources installs it, and so does the system's package manager; FOREBAY_BUNDLE names a folder that has it.")
    endif()
    forebay_find_headers(Boost::context boost/context/detail/fcontext.hpp)
    target_link_libraries(Boost::context INTERFACE "${FOREBAY_BOOST_CONTEXT_LIBRARY}")
  endif()
endif()

# io_uring by liburing: the static library where there is one, so that a program needs none when it runs.
if(NOT TARGET forebay_liburing)
  find_library(FOREBAY_LIBURING_LIBRARY NAMES liburing.a uring HINTS "${FOREBAY_BUNDLE}/lib")
  mark_as_advanced(FOREBAY_LIBURING_LIBRARY)
  if(NOT FOREBAY_LIBURING_LIBRARY)
    message(FATAL_ERROR "Forebay needs liburing: no library was found. `scripts/setup` of its sources installs it, and so "
                        "does the system's package manager; FOREBAY_BUNDLE names a folder that has it.")
  endif()
  forebay_find_headers(forebay_liburing liburing.h)
  target_link_libraries(forebay_liburing INTERFACE "${FOREBAY_LIBURING_LIBRARY}")
endif()
