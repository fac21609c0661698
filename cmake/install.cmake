# What cmake --install, the target uninstall and cpack do.
include(CMakePackageConfigHelpers)
set(LOCKSTEP_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# Shared libraries are found beside each other, and from the commands, wherever the tree is moved to.
if(BUILD_SHARED_LIBS)
  file(RELATIVE_PATH from_bin /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set(libraries lockstep_core)
  set(commands lockstep)
  if(LOCKSTEP_TORCH)
    list(APPEND libraries lockstep_lockstep)
    list(APPEND commands lockstep-torch)
  endif()
  set_target_properties(${commands} PROPERTIES INSTALL_RPATH "$ORIGIN/${from_bin}")
  set_target_properties(${libraries} PROPERTIES INSTALL_RPATH "$ORIGIN" VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()

# Two export sets: a program that asks for core alone must not need LibTorch.
install(TARGETS lockstep lockstep-blas-probe)
install(TARGETS lockstep_core EXPORT lockstep-core)
install(EXPORT lockstep-core NAMESPACE lockstep:: DESTINATION ${LOCKSTEP_PACKAGE_DIR})
set(torch_headers "")
if(LOCKSTEP_TORCH)
  install(TARGETS lockstep-torch)
  install(FILES src/cli/bench_ddp_peer.py src/cli/bench_peer.py src/cli/bench_pipeline_peer.py
    src/cli/bench_train_peer.py
    DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep)
  install(TARGETS lockstep_lockstep EXPORT lockstep-torch)
  install(EXPORT lockstep-torch NAMESPACE lockstep:: DESTINATION ${LOCKSTEP_PACKAGE_DIR})
else()
  set(torch_headers REGEX "/lockstep/(lockstep\\.h|comms/tensors\\.h|comms/(data_parallel|pipeline)_comms\\.h|parallel|train)$" EXCLUDE)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" ${torch_headers})
install(FILES ${PROJECT_BINARY_DIR}/include/lockstep/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep)
install(FILES LICENSE NOTICE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(cmake/lockstepConfig.cmake.in ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
  INSTALL_DESTINATION ${LOCKSTEP_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  cmake/lockstepEngines.cmake DESTINATION ${LOCKSTEP_PACKAGE_DIR})

# The built command writes its own completion scripts, while building: installs may run side by side.
if(NOT CMAKE_CROSSCOMPILING)
  set(completions ${PROJECT_BINARY_DIR}/completions)
  add_custom_command(OUTPUT ${completions}/lockstep ${completions}/_lockstep
    COMMAND ${CMAKE_COMMAND} -E make_directory ${completions}
    COMMAND lockstep completion bash > ${completions}/lockstep
    COMMAND lockstep completion zsh > ${completions}/_lockstep
    DEPENDS lockstep VERBATIM)
  add_custom_target(completions ALL DEPENDS ${completions}/lockstep ${completions}/_lockstep)
  add_dependencies(commands completions)  # what the front door builds can be installed
  configure_file(cmake/install_completions.cmake.in ${PROJECT_BINARY_DIR}/install_completions.cmake @ONLY)
  install(SCRIPT ${PROJECT_BINARY_DIR}/install_completions.cmake)
endif()

# The target uninstall goes by our own record: cpack overwrites CMake's install_manifest.txt with /usr paths.
configure_file(cmake/record_install.cmake.in ${PROJECT_BINARY_DIR}/record_install.cmake @ONLY)
configure_file(cmake/uninstall.cmake.in ${PROJECT_BINARY_DIR}/uninstall.cmake @ONLY)
install(SCRIPT ${PROJECT_BINARY_DIR}/record_install.cmake)
add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -P ${PROJECT_BINARY_DIR}/uninstall.cmake USES_TERMINAL)

# cpack -G DEB, or the target package.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR "The Lockstep authors")
set(CPACK_PACKAGE_CONTACT "The Lockstep authors <lockstep@example.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed training on LibTorch: command and C++ library")
set(CPACK_PACKAGE_DESCRIPTION
  "Lockstep trains LibTorch models on many processes and shows how every byte moved.
This package holds the command lockstep, a launcher with torchrun's habits, and the
libraries lockstep::core and lockstep::lockstep with their headers.")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libopenblas0-pthread)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libfmt-dev, libgloo-dev, libhwloc-dev, libopenmpi-dev, libsodium-dev, libtorch-dev, pkgconf, python3-torch")
include(CPack)
