# SPDX-License-Identifier: Apache-2.0
# cmake -DCOMPILER=nvcc -DINCLUDE=folder -DSOURCE=file.cu -DFOLDER=... -P refused_on_old_targets.cmake
#
# Compiles SOURCE with bulk copies for a GPU that has none, which must fail with the sentence that says what to do.
execute_process(
  COMMAND "${COMPILER}" -std=c++20 -arch=sm_80 -DFOREBAY_BULK_ON_EVERY_TARGET "-I${INCLUDE}" -ptx "${SOURCE}" -o
          "${FOLDER}/refused.ptx"
  RESULT_VARIABLE result
  OUTPUT_VARIABLE said
  ERROR_VARIABLE said)
if(result EQUAL 0 OR NOT said MATCHES "bulk copies need compute capability 9.0: compile for sm_90 or newer")
  message(FATAL_ERROR "bulk copies for sm_80: exit status ${result}:\n${said}")
endif()
