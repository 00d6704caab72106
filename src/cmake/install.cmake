# What `cmake --install` lays down, and how a program that uses rvget finds it: find_package(rvget)
# gives rvget::rvget, pkg-config gives rvget.
include(CMakePackageConfigHelpers)

# How a consumer finds each library that rvget links: a line for rvget-config.cmake, and what goes
# into rvget.pc (a package it requires, or flags where the library has no .pc file).
set(boost_version 1.81)
set(find_Boost_headers "find_dependency(Boost ${boost_version})")
foreach(part json program_options)
  set(find_Boost_${part} "find_dependency(Boost ${boost_version} COMPONENTS ${part})")
  set(flags_Boost_${part} -lboost_${part})
endforeach()
set(find_Threads_Threads "find_dependency(Threads)")
set(flags_Threads_Threads -pthread)
set(find_spdlog_spdlog "find_dependency(spdlog)")
set(requires_spdlog_spdlog spdlog)
foreach(part SSL Crypto)
  set(find_OpenSSL_${part} "find_dependency(OpenSSL)")
endforeach()
set(requires_OpenSSL_SSL libssl)
set(requires_OpenSSL_Crypto libcrypto)
foreach(part core pull push)
  set(find_prometheus-cpp_${part} "find_dependency(prometheus-cpp)")
  set(requires_prometheus-cpp_${part} prometheus-cpp-${part})
endforeach()
foreach(package IBVERBS:libibverbs RDMACM:librdmacm MLX5:libmlx5)
  string(REPLACE ":" ";" package ${package})
  list(GET package 0 target)
  list(GET package 1 name)
  set(find_PkgConfig_${target} "find_dependency(PkgConfig)
pkg_check_modules(${target} REQUIRED IMPORTED_TARGET ${name})")
  set(requires_PkgConfig_${target} ${name})
endforeach()

set(find_lines)
set(pc_requires)
set(pc_flags)
get_target_property(linked rvget LINK_LIBRARIES)
foreach(library ${linked})
  if(library MATCHES "^\\$<BUILD_INTERFACE:" OR library MATCHES "^::@")
    continue()  # not in the installed interface; or a mark of the directory that linked it
  endif()
  string(REPLACE "::" "_" key ${library})
  if(NOT DEFINED find_${key})
    message(FATAL_ERROR "rvget links ${library}: say in src/cmake/install.cmake how a consumer finds it")
  endif()
  list(APPEND find_lines "${find_${key}}")
  list(APPEND pc_requires ${requires_${key}})
  list(APPEND pc_flags ${flags_${key}})
endforeach()
list(REMOVE_DUPLICATES find_lines)
list(JOIN find_lines "\n" RVGET_FIND_DEPENDENCIES)
list(JOIN pc_requires ", " RVGET_PC_REQUIRES)
list(JOIN pc_flags " " RVGET_PC_FLAGS)
# A program that links the static library links its dependencies too; with the shared one it need not.
set(RVGET_PC_PRIVATE "")
set(RVGET_PC_FLAGS_PRIVATE "")
get_target_property(type rvget TYPE)
if(type STREQUAL SHARED_LIBRARY)
  set(RVGET_PC_PRIVATE ".private")
  set(RVGET_PC_FLAGS_PRIVATE "${RVGET_PC_FLAGS}")
  set(RVGET_PC_FLAGS "")
endif()

set_target_properties(rvget PROPERTIES VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} EXPORT_NAME rvget)
install(TARGETS rvget EXPORT rvget-targets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/rvget DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.hpp")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
  FILES_MATCHING PATTERN "*.1")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/rvget)
install(EXPORT rvget-targets NAMESPACE rvget:: DESTINATION ${package_directory})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/rvget-config.cmake.in
  ${PROJECT_BINARY_DIR}/rvget-config.cmake INSTALL_DESTINATION ${package_directory})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/rvget-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/rvget-config.cmake
  ${PROJECT_BINARY_DIR}/rvget-config-version.cmake DESTINATION ${package_directory})
# Everything relative to where rvget.pc lies, so that the prefix may be chosen at installation.
foreach(directory LIBDIR INCLUDEDIR)
  file(RELATIVE_PATH RVGET_PC_${directory} ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_${directory}})
endforeach()
file(RELATIVE_PATH RVGET_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_CURRENT_LIST_DIR}/rvget.pc.in ${PROJECT_BINARY_DIR}/rvget.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/rvget.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
