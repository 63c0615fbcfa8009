# SPDX-License-Identifier: Apache-2.0
# What programs there are to run by name: <build>/programs.tsv, one `kind<TAB>name<TAB>path` a line, where kind is bench,
# gpu-test or gpu-bench; and targets `bench_programs` and `gpu_programs` that build them.

get_property(programs GLOBAL PROPERTY FOREBAY_PROGRAMS)
set(manifest "")
add_custom_target(bench_programs)
add_custom_target(gpu_programs)
foreach(program IN LISTS programs)
  string(REPLACE ":" ";" pair "${program}")
  list(GET pair 0 kind)
  list(GET pair 1 name)
  string(APPEND manifest "${kind}\t${name}\t$<TARGET_FILE:${name}>\n")
  if(kind STREQUAL "bench")
    add_dependencies(bench_programs ${name})
  else()
    add_dependencies(gpu_programs ${name})
  endif()
endforeach()
file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/programs.tsv" CONTENT "${manifest}")
get_property(dependencies GLOBAL PROPERTY FOREBAY_GPU_DEPENDENCIES)
if(dependencies)
  add_dependencies(gpu_programs ${dependencies})
endif()
