# What `cmake --install BUILD --prefix P` puts where. One tree that can be moved: programs find each other, the Python
# package and their libraries from where they lie themselves. A wheel holds this tree, too, in a folder of
# the package: without torch and docs, and with libraries by auditwheel.
#
#   component   to                                  holds
#   programs    bin/                                the programs; completion of words in shells, in share/
#   torch       lib/slackline/                      LibTorch's libraries, which no distribution packages as we need them
#   site-torch  share/slackline/libtorch.txt        in their place: which LibTorch of the machine is needed (cli/base/libtorch.h)
#   libraries   lib/slackline/                      all other libraries but glibc's; a Debian package leaves them out
#   python      share/slackline/python/             what `slackline experiment` runs
#   data        share/slackline/{examples,slurm}/   job files and the batch script
#   docs        share/doc/slackline/                documents and licences; those of libraries go with the libraries

set(programs slackline slackline-scheduler slackline-ps slackline-simulator)
if(SLACKLINE_TORCH)
  list(APPEND programs slackline-worker)
endif()
add_custom_target(slackline_programs DEPENDS ${programs})

set_target_properties(${programs} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/slackline" BUILD_WITH_INSTALL_RPATH ON)
if(SLACKLINE_TORCH)
  # A tree without LibTorch has a link to that of the machine there.
  set_property(TARGET slackline-worker slackline-simulator APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../lib/slackline/torch")
endif()
if(SLACKLINE_CUDA AND SLACKLINE_TORCH)
  # In an installed tree they lie with the others.
  set_property(TARGET slackline-worker APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../lib/nccl" "$ORIGIN/../lib/cuda")
endif()
foreach(program ${programs})
  # RPATH and not RUNPATH: it also counts for what the libraries need, and before LD_LIBRARY_PATH, in which modules of
  # clusters put libraries of the same names.
  target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
endforeach()

# To its programs a build folder is such a tree, with links; nothing in them names the machine that they were built on.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/lib ${CMAKE_BINARY_DIR}/share/slackline)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python ${CMAKE_BINARY_DIR}/share/slackline/python SYMBOLIC)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/.cache/venv ${CMAKE_BINARY_DIR}/share/slackline/venv SYMBOLIC)
if(SLACKLINE_TORCH)
  file(CREATE_LINK ${torch_package}/lib ${CMAKE_BINARY_DIR}/lib/slackline SYMBOLIC)
endif()
if(SLACKLINE_CUDA)
  cmake_path(GET SLACKLINE_NCCL_LIBRARY PARENT_PATH nccl_folder)
  file(CREATE_LINK ${nccl_folder} ${CMAKE_BINARY_DIR}/lib/nccl SYMBOLIC)
  file(CREATE_LINK ${CUDAToolkit_LIBRARY_DIR} ${CMAKE_BINARY_DIR}/lib/cuda SYMBOLIC)
endif()

set(tree .)
if(SLACKLINE_PYTHON)
  set(tree slackline/programs)
endif()
install(TARGETS ${programs} RUNTIME DESTINATION ${tree}/bin COMPONENT programs)
install(DIRECTORY python/ DESTINATION ${tree}/share/slackline/python COMPONENT python PATTERN __pycache__ EXCLUDE
  # pip builds the package itself: docs/python.md.
  PATTERN slackline EXCLUDE PATTERN slackline_command.py EXCLUDE PATTERN src EXCLUDE PATTERN backend EXCLUDE PATTERN pyproject.toml EXCLUDE PATTERN CMakeLists.txt EXCLUDE)
install(DIRECTORY examples DESTINATION ${tree}/share/slackline COMPONENT data)
install(DIRECTORY slurm monitoring DESTINATION ${tree}/share/slackline COMPONENT data PATTERN __pycache__ EXCLUDE)
if(SLACKLINE_PYTHON)
  return()
endif()
# Completion of words in shells, as the program itself prints it.
foreach(file bash:bash-completion/completions/slackline zsh:zsh/vendor-completions/_slackline fish:fish/vendor_completions.d/slackline.fish)
  string(REGEX MATCH "^([a-z]+):(.*)/([^/]*)$" matched ${file})
  install(CODE "execute_process(COMMAND \"$<TARGET_FILE:slackline>\" completion ${CMAKE_MATCH_1}
  OUTPUT_FILE \"${PROJECT_BINARY_DIR}/completion-${CMAKE_MATCH_1}\" COMMAND_ERROR_IS_FATAL ANY)" COMPONENT programs)
  install(FILES ${PROJECT_BINARY_DIR}/completion-${CMAKE_MATCH_1} DESTINATION share/${CMAKE_MATCH_2} RENAME ${CMAKE_MATCH_3}
    COMPONENT programs)
endforeach()

# install_libraries(COMPONENT): what the programs load, by what the loader of this machine finds.
set(program_files)
foreach(program ${programs})
  list(APPEND program_files $<TARGET_FILE:${program}>)
endforeach()
function(install_libraries component)
  install(CODE "set(SLACKLINE_PART ${component})
set(SLACKLINE_PROGRAMS \"${program_files}\")
set(SLACKLINE_TORCH_PACKAGE \"${torch_package}\")" COMPONENT ${component})
  install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/install_libraries.cmake COMPONENT ${component})
endfunction()
install_libraries(libraries)
if(SLACKLINE_TORCH)
  install_libraries(torch)
  file(STRINGS ${torch_package}/version.py torch_version REGEX "^__version__")
  string(REGEX MATCH "[0-9]+(\\.[0-9]+)+" torch_version "${torch_version}")
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/libtorch.txt CONTENT "${torch_version}
../lib/slackline/torch
link the folder lib of LibTorch ${torch_version} there, or name it in LD_LIBRARY_PATH (slackline help install)
")
  install(FILES ${PROJECT_BINARY_DIR}/generated/libtorch.txt DESTINATION share/slackline COMPONENT site-torch EXCLUDE_FROM_ALL)
endif()

install(FILES README.md CHANGELOG.md LICENSE packaging/copyright DESTINATION share/doc/slackline COMPONENT docs)
install(DIRECTORY docs DESTINATION share/doc/slackline COMPONENT docs)
# Licences of the packages that are compiled into the programs.
file(STRINGS ${PROJECT_SOURCE_DIR}/python/backend/compiled_in.txt compiled_in REGEX "^[^#]")
foreach(package ${compiled_in})
  if(EXISTS /usr/share/doc/${package}/copyright)
    install(FILES /usr/share/doc/${package}/copyright DESTINATION share/doc/slackline/licences RENAME ${package} COMPONENT docs)
  endif()
endforeach()
install(CODE "set(SLACKLINE_SOURCE \"${PROJECT_SOURCE_DIR}\")" COMPONENT docs)
install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/install_documents.cmake COMPONENT docs)
