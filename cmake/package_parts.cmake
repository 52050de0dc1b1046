# Read by cpack for each kind of package: which components of cmake/install.cmake go into it.

if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_COMPONENTS_ALL programs torch python data docs)
  # Where dpkg-shlibdeps finds what belongs to no package.
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CPACK_TEMPORARY_DIRECTORY}/usr/lib/slackline")
elseif(SLACKLINE_WITHOUT_LIBTORCH)
  # cpack -G TGZ -D SLACKLINE_WITHOUT_LIBTORCH=ON: an archive for machines that have a LibTorch of their own.
  set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_COMPONENTS_ALL programs site-torch libraries python data docs)
  set(CPACK_PACKAGE_FILE_NAME "${CPACK_PACKAGE_FILE_NAME}-without-libtorch")
endif()
