# SPDX-License-Identifier: Apache-2.0
# The tests that the brief form of `make check` runs under a sanitizer (FOREBAY_SANITIZE_BRIEFLY). The long form runs all
# that do not name the sanitizer under WITHOUT_SANITIZERS.

# What reads bytes from elsewhere, or keeps memory that something else reaches.
set(forebay_briefly_with_address
    apps_nbd_test
    catalogue_test
    conformance_test
    drive_test
    driver_test
    emulator_controller_test
    emulator_file_test
    emulator_fuzz_test
    fuzz_corpus_test
    host_transfers_test
    memory_test
    nvme_test
    served_test
    storage_test)
# What has several OS threads, and schedules whose lanes are fibers that ThreadSanitizer takes for threads.
set(forebay_briefly_with_thread
    cache_schedule_test
    completion_relay_test
    driver_test
    emulator_controller_test
    emulator_flush_test
    emulator_schedule_test
    host_transfers_test
    io_queues_test
    memory_schedule_test
    queue_schedule_test
    queue_threads_test
    recovery_test
    simt_backoff_test
    simt_launch_test
    simt_run_test
    simt_thread_sanitizer_test
    storage_test
    stream_gate_test
    write_back_test)

# Sets `out` to whether this build leaves the test out. `without` are the sanitizers that the test names.
function(forebay_is_left_out out name without)
  set(left_out FALSE)
  if(FOREBAY_SANITIZE)
    if(FOREBAY_SANITIZE IN_LIST without)
      set(left_out TRUE)
    elseif(FOREBAY_SANITIZE_BRIEFLY AND NOT name IN_LIST forebay_briefly_with_${FOREBAY_SANITIZE})
      set(left_out TRUE)
    endif()
  endif()
  set_property(GLOBAL APPEND PROPERTY FOREBAY_TESTS_SEEN ${name})
  set(${out} ${left_out} PARENT_SCOPE)
endfunction()

# Fails if a list above names a test that is not there: a test with a new name would run under no sanitizer.
function(forebay_check_sanitized_tests)
  get_property(seen GLOBAL PROPERTY FOREBAY_TESTS_SEEN)
  foreach(name IN LISTS forebay_briefly_with_address forebay_briefly_with_thread)
    # These are defined for their sanitizer only.
    if(NOT name IN_LIST seen AND NOT name MATCHES "^(served_test|simt_thread_sanitizer_test)$")
      message(FATAL_ERROR "cmake/forebay_sanitized_tests.cmake names ${name}, which is no test")
    endif()
  endforeach()
endfunction()
