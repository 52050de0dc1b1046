# Run with -P: writes OUTPUT, a C++ file whose functions return the texts of files.
#   -DFILES=Function=path,... (relative to FOLDER)  -DHEADER=that declares them  -DNAMESPACE=theirs
set(text "// Written by cmake/embed.cmake.\n#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
string(REPLACE "," ";" pairs "${FILES}")
foreach(pair IN LISTS pairs)
  string(REGEX MATCH "^([^=]*)=(.*)$" matched "${pair}")
  set(function "${CMAKE_MATCH_1}")
  file(READ "${FOLDER}/${CMAKE_MATCH_2}" content)
  string(LENGTH "${content}" length)
  # Compilers need not take longer literals.
  if(length GREATER 60000)
    message(FATAL_ERROR "${CMAKE_MATCH_2} has ${length} bytes; allowed are 60000")
  endif()
  string(APPEND text "\nabsl::string_view ${function}() {\n  return R\"embedded(${content})embedded\";\n}\n")
endforeach()
string(APPEND text "\n}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUTPUT}" "${text}")
