# Run by `cmake --install` after the documents were copied: their links lead to what is installed. What is in
# share/slackline is linked to there; a link to anything else of the source tree becomes its own text.
#   SLACKLINE_SOURCE  the source tree

set(documents "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share/doc/slackline")
file(GLOB rooms LIST_DIRECTORIES true RELATIVE "${SLACKLINE_SOURCE}" "${SLACKLINE_SOURCE}/*")
list(REMOVE_ITEM rooms docs examples slurm monitoring README.md CHANGELOG.md LICENSE)
list(JOIN rooms "|" rooms)
string(REPLACE "." "\\." rooms "${rooms}")

file(GLOB_RECURSE files "${documents}/docs/*.md")
foreach(file "${documents}/README.md" "${documents}/CHANGELOG.md" ${files})
  file(READ "${file}" text)
  # `..` as often as it leads from this document to the root of all, and once more on to share/.
  string(REGEX REPLACE "\\]\\(((\\.\\./)*)(examples|slurm|monitoring)([/#)])" "](\\1../../slackline/\\3\\4" text "${text}")
  string(REGEX REPLACE "\\[([^]]*)\\]\\((\\.\\./)*(${rooms})([/#][^)]*)?\\)" "\\1" text "${text}")
  file(WRITE "${file}" "${text}")
endforeach()
