# Flags of our own targets. Third parties come in as SYSTEM headers and keep their warnings to themselves.

function(slackline_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -Wnon-virtual-dtor -Woverloaded-virtual)
  # Replicas must agree to the bit: no contraction behind our back, and never -ffast-math.
  target_compile_options(${target} PRIVATE -ffp-contract=off)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 sees uninitialised members in every std::variant of structs that it moves.
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
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
endfunction()

# slackline_program(NAME SOURCES main.cc ... [LINK ...])
function(slackline_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  slackline_flags(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
endfunction()

# slackline_test(NAME SOURCES a_test.cc ... [LINK ...] [LABELS ...] [ARGS ...]): one gtest program, one ctest entry.
function(slackline_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS;ARGS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  slackline_flags(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gmock GTest::gtest GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
  # 77 from a test says: skipped.
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

if(SLACKLINE_SANITIZE)
  add_compile_options(-fsanitize=${SLACKLINE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${SLACKLINE_SANITIZE})
endif()
