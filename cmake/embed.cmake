# Run with -P: writes OUTPUT, a C++ file whose functions return the texts of files.
#   -DFILES=Name=path,... (relative to FOLDER)  -DHEADER=that declares them  -DNAMESPACE=theirs
# Each Name is a function. With -DTABLE=Function and -DENTRY=Struct there is one function instead, which returns all of them
# as a vector of {name, text}.
set(text "// Written by cmake/embed.cmake.\n#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n")
if(TABLE)
  string(APPEND text "\nconst std::vector<${ENTRY}>& ${TABLE}() {\n  static const auto& all = *new std::vector<${ENTRY}>{\n")
endif()
string(REPLACE "," ";" pairs "${FILES}")
foreach(pair IN LISTS pairs)
  string(REGEX MATCH "^([^=]*)=(.*)$" matched "${pair}")
  set(name "${CMAKE_MATCH_1}")
  file(READ "${FOLDER}/${CMAKE_MATCH_2}" content)
  string(LENGTH "${content}" length)
  # Compilers need not take longer literals.
  if(length GREATER 60000)
    message(FATAL_ERROR "${CMAKE_MATCH_2} has ${length} bytes; allowed are 60000")
  endif()
  if(TABLE)
    string(APPEND text "      {\"${name}\", R\"embedded(${content})embedded\"},\n")
  else()
    string(APPEND text "\nabsl::string_view ${name}() {\n  return R\"embedded(${content})embedded\";\n}\n")
  endif()
endforeach()
if(TABLE)
  string(APPEND text "  };\n  return all;\n}\n")
endif()
string(APPEND text "\n}  // namespace ${NAMESPACE}\n")
file(WRITE "${OUTPUT}" "${text}")
