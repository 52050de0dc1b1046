# What `cpack` makes of an installed tree: an archive with everything in it, for any folder, and a Debian package that
# leaves to Debian what Debian has (docs/install.md).

set(SLACKLINE_PACKAGE_CONTACT "The maintainers of Slackline <slackline@example.org>" CACHE STRING
  "Who answers for the packages, as NAME <ADDRESS>")

set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_NAME slackline)
set(CPACK_PACKAGE_VENDOR Slackline)
set(CPACK_PACKAGE_CONTACT "${SLACKLINE_PACKAGE_CONTACT}")
# Name, version and summary are those of project().
set(CPACK_PACKAGE_FILE_NAME ${CPACK_PACKAGE_NAME}-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/package_parts.cmake)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# xz takes minutes over LibTorch; dpkg of Debian 12 and Ubuntu 24.04 reads zstd.
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-matplotlib, python3-numpy, python3-yaml")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "dataset-fashion-mnist, slurm-client")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "Scheduler, parameter servers, workers and the slackline command. LibTorch is inside, in a folder of its own.")

include(CPack)
