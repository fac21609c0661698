# The libraries that engines stand on, where they are installed: lockstep::gloo, PkgConfig::ompi. Read by the build, and by
# find_package(lockstep) for what was built. Debian's own GlooConfig.cmake names folders that do not exist.
find_path(LOCKSTEP_GLOO_INCLUDE gloo/config.h)
find_library(LOCKSTEP_GLOO_LIBRARY gloo)
mark_as_advanced(LOCKSTEP_GLOO_INCLUDE LOCKSTEP_GLOO_LIBRARY)
if(LOCKSTEP_GLOO_INCLUDE AND LOCKSTEP_GLOO_LIBRARY AND NOT TARGET lockstep::gloo)
  add_library(lockstep::gloo UNKNOWN IMPORTED)
  set_target_properties(lockstep::gloo PROPERTIES
    IMPORTED_LOCATION ${LOCKSTEP_GLOO_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_GLOO_INCLUDE})
endif()
# Nor are they instrumented: what sanitizers say of them, and of threads that they start when loaded, is not of us.
if(NOT TARGET PkgConfig::ompi AND NOT LOCKSTEP_SANITIZE)
  pkg_check_modules(ompi QUIET IMPORTED_TARGET ompi)
endif()
