# SPDX-License-Identifier: Apache-2.0
# Converts the CUDA programs in docs/examples/ for the CPU executor: a launch becomes a call, and the device `cpu`.
foreach(when IN ITEMS before after)
  set(source "${PROJECT_SOURCE_DIR}/docs/examples/port_a_kernel_${when}.cu")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
  file(READ "${source}" text)
  string(REGEX REPLACE "([a-z_]+)<<<([^>]*)>>>\\(([^;]*)\\);"
                       "forebay::cuda_words::launch(\\2, [&] { \\1(\\3); });" text "${text}")
  string(REPLACE "simt::cuda" "simt::fiber" text "${text}")
  string(REPLACE ", .cache = {" ", .device = \"cpu\", .cache = {" text "${text}")
  if(text MATCHES "forebay::storage [a-z]+\\(" AND NOT text MATCHES "\\.device = \"cpu\"")
    message(FATAL_ERROR "${source}: the storage is not opened as this file expects, so it would take a GPU")
  endif()
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/on_cpu/port_a_kernel_${when}.cu" CONTENT "${text}" @ONLY)
endforeach()
