# Finds what Tandem builds on. Nothing is vendored: a missing library ends the configuration with
# the name of the Debian package to install.
function(tandem_require found package what)
  if(NOT ${found})
    message(FATAL_ERROR "${what} was not found. Install it with: apt-get install ${package}")
  endif()
endfunction()

find_program(TANDEM_CCACHE ccache)
if(TANDEM_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${TANDEM_CCACHE}")
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

find_package(fmt QUIET)
tandem_require(fmt_FOUND libfmt-dev "fmt")
find_package(nlohmann_json QUIET)
tandem_require(nlohmann_json_FOUND nlohmann-json3-dev "nlohmann/json")
find_package(CLI11 QUIET)
tandem_require(CLI11_FOUND libcli11-dev "CLI11")
find_package(MPI QUIET COMPONENTS CXX)
tandem_require(MPI_CXX_FOUND "libopenmpi-dev openmpi-bin" "MPI")

find_path(TANDEM_CBLAS_INCLUDE cblas.h PATH_SUFFIXES openblas openblas-pthread x86_64-linux-gnu/openblas-pthread)
find_library(TANDEM_OPENBLAS openblas)
if(NOT TANDEM_CBLAS_INCLUDE OR NOT TANDEM_OPENBLAS)
  message(FATAL_ERROR "OpenBLAS was not found. Install it with: apt-get install libopenblas-dev")
endif()
add_library(tandem_openblas INTERFACE)
target_include_directories(tandem_openblas SYSTEM INTERFACE "${TANDEM_CBLAS_INCLUDE}")
target_link_libraries(tandem_openblas INTERFACE "${TANDEM_OPENBLAS}")

if(TANDEM_TESTS)
  find_package(Catch2 2 QUIET)
  tandem_require(Catch2_FOUND catch2 "Catch2 2.13")
endif()
