# SPDX-License-Identifier: Apache-2.0
# `find_package(forebay)`: installs static libraries, headers and the files that find their dependencies. The Python
# wheel takes only the component `python`.

include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY FOREBAY_EXPORTED_LIBRARIES)
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/forebay")

if(libraries)
  install(
    TARGETS ${libraries}
    EXPORT forebay
    ARCHIVE COMPONENT development)
  install(
    EXPORT forebay
    NAMESPACE forebay::
    FILE forebayTargets.cmake
    DESTINATION "${package_dir}"
    COMPONENT development)
endif()
install(
  DIRECTORY "${PROJECT_SOURCE_DIR}/include/forebay"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
  COMPONENT development)
if(EXISTS "${PROJECT_SOURCE_DIR}/profiles")
  install(
    DIRECTORY "${PROJECT_SOURCE_DIR}/profiles"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/forebay"
    COMPONENT development)
endif()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/forebayConfig.cmake.in" forebayConfig.cmake
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file(forebayConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/forebayConfig.cmake" "${PROJECT_BINARY_DIR}/forebayConfigVersion.cmake"
        "${PROJECT_SOURCE_DIR}/cmake/forebay_dependencies.cmake"
  DESTINATION "${package_dir}"
  COMPONENT development)
