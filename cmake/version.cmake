# Writes version.h: what `--version` prints.

execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} describe --always --dirty --exclude "*"
  OUTPUT_VARIABLE SLACKLINE_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE git_result)
if(NOT git_result EQUAL 0)
  set(SLACKLINE_COMMIT "unknown")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/version.h.in ${PROJECT_BINARY_DIR}/generated/version.h @ONLY)
