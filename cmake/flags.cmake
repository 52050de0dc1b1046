# Flags of our own targets. Third parties come in as SYSTEM headers and keep their warnings to themselves.

# All our libraries, and all test programs labelled `core`: what the analysis and the sanitizers build.
add_custom_target(slackline_libraries)
add_custom_target(core_tests)
# And all labelled `cuda`.
add_custom_target(cuda_tests)

# Several times quicker than the compiler's own choice.
find_program(SLACKLINE_LLD ld.lld)
if(SLACKLINE_LLD)
  add_link_options(-fuse-ld=lld)
endif()

# g++ collects its garbage five times as late: a fifteenth quicker, and at most 160 MB more of a compiler's 1.5 GB.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-expand=400>)

# For code that runs seldom or waits for others: add_compile_options(${SLACKLINE_SELDOM}) holds for all later targets of a folder. Level 1
# compiles a fifth quicker than level 2. With clang's sanitizers level 0 takes half the time of level 1.
set(SLACKLINE_SELDOM $<$<CONFIG:Release>:-O1>)
if(SLACKLINE_FUZZ)
  set(SLACKLINE_SELDOM -O0)
endif()

function(slackline_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wnon-virtual-dtor -Woverloaded-virtual)
  if(SLACKLINE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
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
endfunction()

# slackline_library(NAME SOURCES a.cc ... [LINK public...] [PRIVATE_LINK private...])
function(slackline_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  # Units of the same size, of 20 files at most.
  list(LENGTH ARG_SOURCES files)
  math(EXPR units "(${files} + 19) / 20")
  math(EXPR batch "(${files} + ${units} - 1) / ${units}")
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE ${batch})
  slackline_flags(${name})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(${name} PRIVATE -Wthread-safety)
  endif()
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

# slackline_test(NAME SOURCES a_test.cc ... [PROGRAM name] [LINK ...] [LABELS ...] [TIMEOUT seconds] [ARGS ...] [ONE_THREAD]): an
# entry of ctest for the tests in these sources. All tests of a folder become one program, tests/FOLDER_tests: a hundred programs took
# longer to link than Slackline to build. PROGRAM names a program of its own, for tests that replace a function of the process
# or need LibTorch. With OWN_MAIN its sources have a main(), which tests/main.cc has for all others.
# Labels: `core` (the default) also runs under the sanitizers, `long` only with ./test --all, `e2e` starts processes;
# `smoke` is an e2e test that also runs under the sanitizers, `accuracy` one that only ./test --all runs, on a release
# build. `invariants`: one failure of many is a fault, so ./test does not run it a second time. ONE_THREAD says that the
# code under test has no threads: the thread sanitizer leaves the test out.
function(slackline_test name)
  cmake_parse_arguments(ARG "ONE_THREAD;OWN_MAIN" "PROGRAM;TIMEOUT" "SOURCES;LINK;LABELS;ARGS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS core)
  endif()
  if(ARG_ONE_THREAD AND SLACKLINE_SANITIZE STREQUAL "thread")
    list(REMOVE_ITEM ARG_LABELS core)
  endif()
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME folder)
  if(NOT ARG_PROGRAM)
    set(ARG_PROGRAM ${folder}_tests)
  endif()
  if(NOT TARGET ${ARG_PROGRAM})
    add_executable(${ARG_PROGRAM})
    slackline_flags(${ARG_PROGRAM})
    target_link_libraries(${ARG_PROGRAM} PRIVATE GTest::gmock GTest::gtest)
    slackline_sanitizer_support(${ARG_PROGRAM})
    set_target_properties(${ARG_PROGRAM} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    if(NOT ARG_OWN_MAIN)
      target_link_libraries(${ARG_PROGRAM} PRIVATE slackline_test_main)
      # The libraries under test stay optimised; test code runs once and compiles quicker like this.
      target_compile_options(${ARG_PROGRAM} PRIVATE -O0)
    endif()
    if(SLACKLINE_FUZZ)
      target_compile_options(${ARG_PROGRAM} PRIVATE -fno-sanitize=fuzzer-no-link)
    endif()
  endif()
  target_sources(${ARG_PROGRAM} PRIVATE ${ARG_SOURCES})
  target_link_libraries(${ARG_PROGRAM} PRIVATE ${ARG_LINK})
  if(NOT ARG_OWN_MAIN)
    list(FILTER ARG_SOURCES INCLUDE REGEX "_test\\.cc$")
    list(JOIN ARG_SOURCES "," sources)
    list(PREPEND ARG_ARGS --sources=${sources})
  endif()
  add_test(NAME ${name} COMMAND ${ARG_PROGRAM} ${ARG_ARGS})
  foreach(label core cuda)
    if(label IN_LIST ARG_LABELS)
      add_dependencies(${label}_tests ${ARG_PROGRAM})
    endif()
  endforeach()
  # 77 from a test says: skipped. ctest begins with the tests of the highest COST.
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} COST ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

# The distribution's Abseil is not instrumented: without this, the thread sanitizer would not see that absl::Mutex orders.
function(slackline_sanitizer_support target)
  if(SLACKLINE_SANITIZE STREQUAL "thread")
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/sanitizers/tsan_absl_mutex.cc)
    target_link_libraries(${target} PRIVATE absl::synchronization ${CMAKE_DL_LIBS})
  endif()
endfunction()

if(SLACKLINE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(SLACKLINE_SANITIZE)
  add_compile_options(-fsanitize=${SLACKLINE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  # The check of function types fails for every function from dlsym(): the library and we name its types differently.
  add_compile_options($<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  # Said here and not asked of the compiler's own macros: one of them is taken away below.
  add_compile_definitions(SLACKLINE_SANITIZED)
  add_link_options(-fsanitize=${SLACKLINE_SANITIZE})
  if(SLACKLINE_SANITIZE STREQUAL "thread")
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include ${PROJECT_SOURCE_DIR}/tests/sanitizers/tsan_protobuf.h>")
  endif()
endif()
