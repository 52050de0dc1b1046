# Run by `cmake --install`: copies the libraries of one component, under the names that programs ask for, and the
# licences that they come with.
#   SLACKLINE_PART           torch: those of the Python environment; libraries: all others but glibc's
#   SLACKLINE_PROGRAMS       the built programs
#   SLACKLINE_TORCH_PACKAGE  the folder of the Python package torch; empty where LibTorch is not used

set(to "${CMAKE_INSTALL_PREFIX}/lib/slackline")
set(licences "${CMAKE_INSTALL_PREFIX}/share/doc/slackline/licences")

# glibc is the machine's own: its parts only fit each other and its loader.
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${SLACKLINE_PROGRAMS}
  RESOLVED_DEPENDENCIES_VAR found
  UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(anl|c|dl|m|mvec|nsl|pthread|resolv|rt|util)\\.so\\.[0-9]+$")
if(missing)
  message(FATAL_ERROR "libraries that programs need were not found: ${missing}; needed are all that they were built with")
endif()

set(environment)
if(SLACKLINE_TORCH_PACKAGE)
  file(REAL_PATH "${SLACKLINE_TORCH_PACKAGE}/.." environment)
endif()

# Debian's copyright files refer to licences that every Debian has.
function(install_texts_of copyright)
  file(READ "${copyright}" text)
  string(REGEX MATCHALL "/usr/share/common-licenses/[A-Za-z][A-Za-z0-9]*(-[0-9.]*[0-9])?" names "${text}")
  foreach(path ${names})
    if(EXISTS "${path}")
      cmake_path(GET path FILENAME name)
      file(REAL_PATH "${path}" real)
      file(INSTALL FILES "${real}" DESTINATION "${licences}/common-licenses" RENAME "${name}")
    endif()
  endforeach()
endfunction()

# The licence of a library that a Debian package brought. Elsewhere that is up to who hands the tree on.
function(install_licence_of file)
  find_program(DPKG_QUERY dpkg-query)
  if(NOT DPKG_QUERY)
    message(STATUS "No dpkg-query: found no licence of ${file}")
    return()
  endif()
  # Packages know a file by its place before /lib became a link to /usr/lib, or after it.
  string(REGEX REPLACE "^/usr/" "/" elsewhere "${file}")
  foreach(path "${file}" "${elsewhere}")
    execute_process(COMMAND ${DPKG_QUERY} -S "${path}" OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE unknown)
    if(NOT unknown)
      string(REGEX REPLACE "[:,].*" "" package "${owner}")
      file(REAL_PATH "/usr/share/doc/${package}/copyright" copyright)
      if(EXISTS "${copyright}")
        file(INSTALL FILES "${copyright}" DESTINATION "${licences}" RENAME "${package}")
        install_texts_of("${copyright}")
        return()
      endif()
    endif()
  endforeach()
  message(STATUS "Found no licence of ${file}")
endfunction()

foreach(path ${found})
  file(REAL_PATH "${path}" real)
  cmake_path(IS_PREFIX environment "${real}" of_torch)
  if(environment AND of_torch)
    set(part torch)
  else()
    set(part libraries)
  endif()
  if(part STREQUAL SLACKLINE_PART)
    cmake_path(GET path FILENAME name)
    file(INSTALL FILES "${real}" DESTINATION "${to}" TYPE PROGRAM RENAME "${name}")
    if(part STREQUAL "libraries")
      install_licence_of("${real}")
    endif()
  endif()
endforeach()

if(SLACKLINE_PART STREQUAL "torch")
  file(GLOB texts "${environment}/torch-*.dist-info/licenses")
  foreach(folder ${texts})
    file(INSTALL FILES "${folder}/" DESTINATION "${licences}/torch" TYPE DIRECTORY)
  endforeach()
endif()
