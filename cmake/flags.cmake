# Flags of our own targets. Third parties come in as SYSTEM headers and keep their warnings to themselves.

# All our libraries, and all test programs labelled `core`: what the analysis and the sanitizers build.
add_custom_target(slackline_libraries)
add_custom_target(core_tests)
# And all labelled `cuda`.
add_custom_target(cuda_tests)

# What users run is linked by the compiler's own choice.
find_program(SLACKLINE_LLD ld.lld)
if(SLACKLINE_LLD AND NOT CMAKE_BUILD_TYPE STREQUAL "Release")
  add_link_options(-fuse-ld=lld)
endif()

function(slackline_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -Wnon-virtual-dtor -Woverloaded-virtual)
  # Replicas must agree to the bit: no contraction behind our back, and never -ffast-math.
  target_compile_options(${target} PRIVATE -ffp-contract=off)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 sees uninitialised members in every std::variant of structs that it moves, and overlapping copies in
    # std::string::insert() (its bug 105651).
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized -Wno-restrict)
    # LibTorch counts references of Python objects with a fence, which the thread sanitizer does not model; no program of
    # ours has such objects.
    if(SLACKLINE_SANITIZE STREQUAL "thread")
      target_compile_options(${target} PRIVATE -Wno-tsan)
    endif()
  endif()
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  if(SLACKLINE_THREAD_SAFETY)
    target_compile_options(${target} PRIVATE -Wthread-safety)
  endif()
endfunction()

# slackline_library(NAME SOURCES a.cc ... [LINK public...] [PRIVATE_LINK private...])
function(slackline_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  slackline_flags(${name})
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
  add_dependencies(slackline_libraries ${name})
endfunction()

# slackline_program(NAME SOURCES main.cc ... [LINK ...])
function(slackline_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  slackline_flags(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  slackline_sanitizer_support(${name})
endfunction()

# slackline_test(NAME SOURCES a_test.cc ... [LINK ...] [LABELS ...] [ARGS ...]): one gtest program, one ctest entry.
# Labels: `core` (the default) also runs under the sanitizers, `long` only with ./test --all, `e2e` starts processes;
# `smoke` is an e2e test that also runs under the sanitizers, `accuracy` one that only ./test --all runs, on a release
# build. `invariants`: one failure of many is a fault, so ./test does not run it a second time.
function(slackline_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS;ARGS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  slackline_flags(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gmock GTest::gtest GTest::gtest_main)
  slackline_sanitizer_support(${name})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  if(NOT ARG_LABELS)
    set(ARG_LABELS core)
  endif()
  if("core" IN_LIST ARG_LABELS)
    add_dependencies(core_tests ${name})
  endif()
  if("cuda" IN_LIST ARG_LABELS)
    add_dependencies(cuda_tests ${name})
  endif()
  # 77 from a test says: skipped.
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

# The distribution's Abseil is not instrumented: without this, the thread sanitizer would not see that absl::Mutex orders.
function(slackline_sanitizer_support target)
  if(SLACKLINE_SANITIZE STREQUAL "thread")
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/sanitizers/tsan_absl_mutex.cc)
    target_link_libraries(${target} PRIVATE absl::synchronization ${CMAKE_DL_LIBS})
  endif()
endfunction()

if(SLACKLINE_SANITIZE)
  add_compile_options(-fsanitize=${SLACKLINE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  # Said here and not asked of the compiler's own macros: one of them is taken away below.
  add_compile_definitions(SLACKLINE_SANITIZED)
  add_link_options(-fsanitize=${SLACKLINE_SANITIZE})
  if(SLACKLINE_SANITIZE STREQUAL "thread")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include ${PROJECT_SOURCE_DIR}/tests/sanitizers/tsan_protobuf.h>")
  endif()
endif()
