# SPDX-License-Identifier: Apache-2.0
# The functions that the CMakeLists.txt files of layers, programs and tests use.

# Adds `directory` if it has a CMakeLists.txt.
function(forebay_add_subdirectory directory)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${directory}/CMakeLists.txt")
    add_subdirectory("${PROJECT_SOURCE_DIR}/${directory}" "${PROJECT_BINARY_DIR}/${directory}")
  endif()
endfunction()

# Adds every directory directly under `parent` that has a CMakeLists.txt, in alphabetical order. The caller adds
# tests/support, which the others use, before them.
function(forebay_add_subdirectories parent)
  file(GLOB files CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/${parent}/*/CMakeLists.txt")
  foreach(file IN LISTS files)
    cmake_path(GET file PARENT_PATH directory)
    if(NOT directory STREQUAL "tests/support")
      forebay_add_subdirectory("${directory}")
    endif()
  endforeach()
endfunction()

# Warnings of the project for its own sources.
function(forebay_set_warnings target)
  target_compile_options(
    ${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${FOREBAY_WARNINGS}>"
                      "$<$<COMPILE_LANGUAGE:CUDA>:${FOREBAY_CUDA_WARNINGS}>")
endfunction()

# forebay_add_library(<layer> [SOURCES source...] [DEPENDS target...])
#
# The static library `forebay_<layer>`, alias `forebay::<layer>`; without SOURCES an interface library. DEPENDS are
# public, because layers show each other's types in their headers. A library under src/ is installed and exported; the
# library of a program under apps/ (forebay_add_app) is not.
function(forebay_add_library layer)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
  set(target forebay_${layer})
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    set(scope PUBLIC)
    forebay_set_warnings(${target})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(forebay::${layer} ALIAS ${target})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_include_directories(${target} ${scope} "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
                                                "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_link_libraries(${target} ${scope} ${arg_DEPENDS})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${layer})
  set_property(GLOBAL APPEND PROPERTY FOREBAY_LIBRARIES ${target})
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/src/")
    set_property(GLOBAL APPEND PROPERTY FOREBAY_EXPORTED_LIBRARIES ${target})
  elseif(FOREBAY_CUDA)
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${FOREBAY_CUDA_PROGRAM_ARCHITECTURES}")
  endif()
endfunction()

# forebay_compile_together(<target> <source>...)
#
# Compiles the sources of `target` as one file, because most of their compile time goes into the same headers. Each call
# makes one such file. The file that CMake writes for that names them relative to the root of the sources (from CMake
# 4.0 on), so that ccache recognises it in each clone.
function(forebay_compile_together target first)
  cmake_path(GET first STEM group)
  set_source_files_properties(${first} ${ARGN} PROPERTIES UNITY_GROUP ${group})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP
                                             UNITY_BUILD_RELOCATABLE "${PROJECT_IS_TOP_LEVEL}")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
endfunction()

# forebay_add_cuda_library(<name> SOURCES source.cu... [DEPENDS target...])
#
# As forebay_add_library, and links the static CUDA runtime. Does nothing without FOREBAY_CUDA.
function(forebay_add_cuda_library name)
  if(NOT FOREBAY_CUDA)
    return()
  endif()
  forebay_add_library(${name} ${ARGN})
  get_target_property(type forebay_${name} TYPE)
  if(type STREQUAL "INTERFACE_LIBRARY")
    target_link_libraries(forebay_${name} INTERFACE CUDA::cudart_static)
  else()
    target_link_libraries(forebay_${name} PUBLIC CUDA::cudart_static)
  endif()
endfunction()

# forebay_add_app(<program> SOURCES source... [CUDA_SOURCES source.cu...] [DEPENDS target...])
#
# The library of a program under apps/: the static library `forebay_<program>` over forebay::storage. A user of the
# library includes its headers as "apps/<program>/...". With FOREBAY_CUDA the library has CUDA_SOURCES too and links the
# static CUDA runtime, and its sources and those of its users see FOREBAY_HAS_CUDA.
function(forebay_add_app program)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;CUDA_SOURCES;DEPENDS")
  set(target forebay_${program})
  forebay_add_library(${program} SOURCES ${arg_SOURCES} DEPENDS forebay::storage fmt::fmt ${arg_DEPENDS})
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>")
  if(FOREBAY_CUDA)
    target_sources(${target} PRIVATE ${arg_CUDA_SOURCES})
    target_link_libraries(${target} PUBLIC CUDA::cudart_static)
    target_compile_definitions(${target} PUBLIC FOREBAY_HAS_CUDA)
  endif()
endfunction()

# forebay_add_executable(<name> SOURCES source... [DEPENDS target...] [INCLUDE folder...])
#
# A program of the project, in <build>/bin. INCLUDE names folders with headers, relative to the root of the sources. The
# functions below that add programs take it too.
function(forebay_add_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;INCLUDE")
  add_executable(${name} ${arg_SOURCES})
  forebay_set_warnings(${name})
  list(TRANSFORM arg_INCLUDE PREPEND "${PROJECT_SOURCE_DIR}/")
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/include" ${arg_INCLUDE})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  if(FOREBAY_CUDA)
    set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "${FOREBAY_CUDA_PROGRAM_ARCHITECTURES}")
  endif()
  if(FOREBAY_CUDA_COMPILE_FAST)
    target_compile_options(${name} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-O1>")
  endif()
endfunction()

# forebay_optimise_little(<target>)
#
# Compiles its C++ with -O1: for code that runs once, beside code that runs for each command. With -O3 the compiler
# takes up to twice as long.
function(forebay_optimise_little target)
  target_compile_options(${target} PRIVATE "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:-O1>")
endfunction()

# Schedules run no faster with -O3. The programs that tests start keep it.
function(forebay_set_test_options target)
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/tests")
  forebay_optimise_little(${target})
endfunction()

# forebay_add_test_library(<name> SOURCES source... [DEPENDS target...])
#
# The static library `forebay_<name>`, shared by several test programs.
function(forebay_add_test_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS")
  add_library(forebay_${name} STATIC ${arg_SOURCES})
  forebay_set_warnings(forebay_${name})
  forebay_set_test_options(forebay_${name})
  target_include_directories(forebay_${name} PUBLIC "${PROJECT_SOURCE_DIR}/include")
  target_link_libraries(forebay_${name} PUBLIC ${arg_DEPENDS})
endfunction()

# forebay_add_test(<name> SOURCES source... [DEPENDS target...] [INCLUDE folder...] [LABELS label...]
#                  [TIMEOUT seconds] [WITHOUT_SANITIZERS sanitizer...])
#
# A GoogleTest program. Each of its tests is a CTest test, named `<name>.<suite>.<test>`. A test with the label
# `schedule` runs as many schedules as FOREBAY_SCHEDULES says and may take an hour; any other has two minutes.
# Sanitizers get ten times as long. WITHOUT_SANITIZERS names the sanitizers (`address`, `thread`) whose builds leave the
# program out: those that find nothing in it beyond what they find in another program, or that report false defects in
# it.
function(forebay_add_test name)
  if(NOT FOREBAY_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "SOURCES;DEPENDS;INCLUDE;LABELS;WITHOUT_SANITIZERS")
  forebay_is_left_out(left_out ${name} "${arg_WITHOUT_SANITIZERS}")
  if(left_out)
    return()
  endif()
  forebay_add_executable(${name} SOURCES ${arg_SOURCES} INCLUDE ${arg_INCLUDE}
                         DEPENDS ${arg_DEPENDS} GTest::gmock GTest::gtest GTest::gtest_main)
  forebay_set_test_options(${name})
  add_dependencies(tests ${name})
  if(NOT arg_TIMEOUT)
    if("schedule" IN_LIST arg_LABELS)
      set(arg_TIMEOUT 3600)
    else()
      set(arg_TIMEOUT 120)
    endif()
  endif()
  if(FOREBAY_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 10")
  endif()
  set(properties TIMEOUT ${arg_TIMEOUT})
  if(arg_LABELS)
    string(REPLACE ";" "\\;" labels "${arg_LABELS}")
    list(APPEND properties LABELS "${labels}")
  endif()
  # Long tests run first. Otherwise one of them could be left for a single core at the end.
  if("schedule" IN_LIST arg_LABELS)
    list(APPEND properties COST 1000)
  endif()
  # Listed when CTest starts, not when the program is linked: a build then needs to run nothing.
  gtest_discover_tests(${name} TEST_PREFIX "${name}." DISCOVERY_MODE PRE_TEST PROPERTIES ${properties})
endfunction()

# Adds a program of `kind` (bench, gpu-test, gpu-bench) to the manifest that the make target of that name reads.
function(forebay_register_program kind name)
  set_property(GLOBAL APPEND PROPERTY FOREBAY_PROGRAMS "${kind}:${name}")
endfunction()

# forebay_add_bench(<name> SOURCES source... [DEPENDS target...] [INCLUDE folder...])
#
# A benchmark that needs no GPU, run by `make bench`. `<program> --json FILE` writes one JSON document and exits 0 if
# all that it measured was also verified.
function(forebay_add_bench name)
  forebay_add_executable(${name} ${ARGN})
  forebay_register_program(bench ${name})
endfunction()

# forebay_add_cuda_test(<name> SOURCES source.cu... [DEPENDS target...] [INCLUDE folder...])
#
# A GoogleTest program for a GPU, listed in the manifest and run by `make gpu-test`. It is no CTest test, because a
# machine that builds it need not have a GPU. Does nothing without FOREBAY_CUDA.
function(forebay_add_cuda_test name)
  if(NOT FOREBAY_CUDA OR NOT FOREBAY_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;INCLUDE")
  forebay_add_executable(${name} SOURCES ${arg_SOURCES} INCLUDE ${arg_INCLUDE}
                         DEPENDS ${arg_DEPENDS} GTest::gmock GTest::gtest GTest::gtest_main CUDA::cudart_static)
  forebay_set_test_options(${name})
  # Tests have many kernels: they are built for the oldest target, whose PTX the newer ones accept.
  set(targets ${FOREBAY_CUDA_PROGRAM_ARCHITECTURES})
  list(SORT targets COMPARE NATURAL)
  list(GET targets 0 oldest)
  set_target_properties(${name} PROPERTIES CUDA_ARCHITECTURES "${oldest}")
  forebay_register_program(gpu-test ${name})
endfunction()

# forebay_add_cuda_bench(<name> SOURCES source.cu... [DEPENDS target...] [INCLUDE folder...])
#
# A benchmark for a GPU, run by `make gpu-bench`. Does nothing without FOREBAY_CUDA.
function(forebay_add_cuda_bench name)
  if(NOT FOREBAY_CUDA)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPENDS;INCLUDE")
  forebay_add_executable(${name} SOURCES ${arg_SOURCES} INCLUDE ${arg_INCLUDE} DEPENDS ${arg_DEPENDS} CUDA::cudart_static)
  forebay_register_program(gpu-bench ${name})
endfunction()

# Compiles `target` for every CUDA target; other programs are compiled for FOREBAY_CUDA_PROGRAM_ARCHITECTURES.
function(forebay_for_every_cuda_target target)
  if(TARGET ${target})
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${CMAKE_CUDA_ARCHITECTURES}")
  endif()
endfunction()

# Builds `target` together with the GPU programs.
function(forebay_register_gpu_dependency target)
  set_property(GLOBAL APPEND PROPERTY FOREBAY_GPU_DEPENDENCIES ${target})
endfunction()
