# What Lockstep is built on. Debian's package names and reasons stand in tools/packages.txt.
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(libsodium REQUIRED IMPORTED_TARGET libsodium)

# A library's version, pieced together from `#define PREFIX_<PART> number` lines of one of its headers.
function(lockstep_header_version out header)
  set(parts "")
  foreach(name IN LISTS ARGN)
    file(STRINGS ${header} line REGEX "#define[ \t]+${name}[ \t]+[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+[ \t]*$" number "${line}")
    string(STRIP "${number}" number)
    list(APPEND parts ${number})
  endforeach()
  string(REPLACE ";" "." version "${parts}")
  set(${out} ${version} PARENT_SCOPE)
endfunction()

include(${CMAKE_CURRENT_LIST_DIR}/lockstepEngines.cmake)
set(LOCKSTEP_GLOO_VERSION "")
if(TARGET lockstep::gloo)
  lockstep_header_version(LOCKSTEP_GLOO_VERSION ${LOCKSTEP_GLOO_INCLUDE}/gloo/config.h
    GLOO_VERSION_MAJOR GLOO_VERSION_MINOR GLOO_VERSION_PATCH)
endif()

set(LOCKSTEP_MPI_VERSION "")
if(TARGET PkgConfig::ompi)
  find_path(LOCKSTEP_MPI_INCLUDE mpi.h HINTS ${ompi_INCLUDE_DIRS} NO_DEFAULT_PATH)
endif()
if(TARGET PkgConfig::ompi AND LOCKSTEP_MPI_INCLUDE)
  lockstep_header_version(LOCKSTEP_MPI_VERSION ${LOCKSTEP_MPI_INCLUDE}/mpi.h
    OMPI_MAJOR_VERSION OMPI_MINOR_VERSION OMPI_RELEASE_VERSION)
endif()

set(LOCKSTEP_TORCH_VERSION "")
if(LOCKSTEP_TORCH)
  find_package(Torch REQUIRED)
  find_path(LOCKSTEP_TORCH_API torch/version.h PATHS ${TORCH_INCLUDE_DIRS} PATH_SUFFIXES torch/csrc/api/include)
  lockstep_header_version(LOCKSTEP_TORCH_VERSION ${LOCKSTEP_TORCH_API}/torch/version.h
    TORCH_VERSION_MAJOR TORCH_VERSION_MINOR TORCH_VERSION_PATCH)
endif()
