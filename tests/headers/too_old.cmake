# SPDX-License-Identifier: Apache-2.0
# cmake -DCOMPILER=... -DINCLUDE=folder -DSUFFIX=cpp|cu -DFOLDER=... -P too_old.cmake
#
# Compiles each public header as C++17, which must fail with one plain sentence before anything else that is wrong. FOLDER is
# for what that takes.
file(GLOB headers RELATIVE "${INCLUDE}" "${INCLUDE}/forebay/*.hpp")
if(SUFFIX STREQUAL "cpp")
  list(FILTER headers EXCLUDE REGEX "/cuda[^/]*$")  # nvcc's
endif()
if(NOT headers)
  message(FATAL_ERROR "no public headers in ${INCLUDE}")
endif()
foreach(header IN LISTS headers)
  set(source "${FOLDER}/too_old.${SUFFIX}")
  file(WRITE "${source}" "#include <${header}>\n")
  execute_process(
    COMMAND "${COMPILER}" -std=c++17 "-I${INCLUDE}" -c "${source}" -o "${FOLDER}/too_old.o"
    RESULT_VARIABLE result
    OUTPUT_VARIABLE said
    ERROR_VARIABLE said)
  # The sentence, and that the compilation ends there.
  string(REGEX MATCHALL " error: " errors "${said}")
  list(LENGTH errors count)
  if(result EQUAL 0 OR NOT said MATCHES "Forebay needs C\\+\\+20: compile with -std=c\\+\\+20" OR count GREATER 2)
    message(FATAL_ERROR "${header} as C++17: exit status ${result}, ${count} errors:\n${said}")
  endif()
endforeach()
