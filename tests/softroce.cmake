# rvget_bench_test(NAME [HOSTS 1|2] [TIMEOUT seconds] [ENVIRONMENT NAME=VALUE ...] COMMAND ...)
# Runs a command in the Soft-RoCE bench (ci/softroce, docs/bench.md) as a test with the label
# `softroce`. COMMAND is what follows the bench's own options: `-- PROGRAM ARGUMENT...`, or `--host-a X
# --host-b Y`, more options before it. TIMEOUT is the command's limit; the test's own also covers
# starting the guests.
function(rvget_bench_test name)
  cmake_parse_arguments(arg "" "HOSTS;TIMEOUT" "ENVIRONMENT;COMMAND" ${ARGN})
  if(NOT arg_HOSTS)
    set(arg_HOSTS 1)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  set(bench ${PROJECT_SOURCE_DIR}/ci/softroce --hosts ${arg_HOSTS} --timeout ${arg_TIMEOUT})
  # The guests have a /tmp of their own: a build directory below the machine's must be shown to them.
  if(PROJECT_BINARY_DIR MATCHES "^/(tmp|run|dev/shm)/")
    list(APPEND bench --readable ${PROJECT_BINARY_DIR})
  endif()
  foreach(variable ${arg_ENVIRONMENT})
    list(APPEND bench --env ${variable})
  endforeach()
  add_test(NAME ${name} COMMAND ${bench} ${arg_COMMAND})
  math(EXPR limit "${arg_TIMEOUT} + 300")
  # Guests share two cores with everything else; side by side they only make each other late.
  set_tests_properties(${name} PROPERTIES LABELS softroce TIMEOUT ${limit} RUN_SERIAL ON)
endfunction()

# rvget_softroce_test(NAME SOURCES ... [HOSTS 1|2] [TIMEOUT seconds] [OPTIONS ...]
#                     [ENVIRONMENT NAME=VALUE ...] [ARGUMENTS ...])
# The same for a Boost.Test program, which with two hosts both run. OPTIONS go to the bench
# ("--mtu-b 4143"), ARGUMENTS to the program.
function(rvget_softroce_test name)
  cmake_parse_arguments(arg "" "HOSTS;TIMEOUT" "SOURCES;OPTIONS;ENVIRONMENT;ARGUMENTS" ${ARGN})
  rvget_test_program(${name} ${arg_SOURCES})
  rvget_bench_test(${name} HOSTS ${arg_HOSTS} TIMEOUT ${arg_TIMEOUT} ENVIRONMENT ${arg_ENVIRONMENT}
    COMMAND ${arg_OPTIONS} -- $<TARGET_FILE:${name}> ${arg_ARGUMENTS})
endfunction()
