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

# Defines the interface target `target` from the library `name` and the folder that holds `header`.
macro(forebay_find_library target name header)
  string(MAKE_C_IDENTIFIER "FOREBAY_${target}_LIBRARY" forebay_library)
  find_library(${forebay_library} ${name} HINTS "${FOREBAY_BUNDLE}/lib")
  mark_as_advanced(${forebay_library})
  if(NOT ${forebay_library})
    message(FATAL_ERROR "Forebay needs ${target}: no package and no library ${name} was found. `scripts/setup` of "
                        "its sources installs it, and so does the system's package manager; FOREBAY_BUNDLE names a folder that has it.")
  endif()
  forebay_find_headers(${target} "${header}")
  target_link_libraries(${target} INTERFACE "${${forebay_library}}")
endmacro()

find_package(Threads REQUIRED)

if(NOT TARGET blkid::blkid)
  forebay_find_library(blkid::blkid blkid blkid/blkid.h)
endif()

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

if(NOT TARGET liburing::uring)
  forebay_find_library(liburing::uring uring liburing.h)
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
    forebay_find_library(Boost::context boost_context boost/context/detail/fcontext.hpp)
  endif()
endif()
