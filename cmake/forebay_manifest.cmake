# SPDX-License-Identifier: Apache-2.0
# What GPU programs there are: <build>/gpu_programs.tsv, one `kind<TAB>name<TAB>path` a line, and the target
# `gpu_programs` that builds them all.

if(FOREBAY_CUDA)
  get_property(programs GLOBAL PROPERTY FOREBAY_GPU_PROGRAMS)
  set(manifest "")
  add_custom_target(gpu_programs)
  foreach(program IN LISTS programs)
    string(REPLACE ":" ";" pair "${program}")
    list(GET pair 0 kind)
    list(GET pair 1 name)
    string(APPEND manifest "${kind}\t${name}\t$<TARGET_FILE:${name}>\n")
    add_dependencies(gpu_programs ${name})
  endforeach()
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/gpu_programs.tsv" CONTENT "${manifest}")
endif()
