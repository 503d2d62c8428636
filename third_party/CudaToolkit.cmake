# The CUDA backend and its libraries. TANDEM_HAS_CUDA, TANDEM_HAS_CUDNN and TANDEM_HAS_NCCL say what
# was found; build_config.h hands them to the code as constants, its only build switches.
set(TANDEM_HAS_CUDA OFF)
set(TANDEM_HAS_CUDNN OFF)
set(TANDEM_HAS_NCCL OFF)

if(NOT TANDEM_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # Hopper with its own instructions (wgmma); other GPUs get the portable kernels through PTX.
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90a)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit QUIET)
  endif()
  if(CUDAToolkit_FOUND)
    set(TANDEM_HAS_CUDA ON)
    # Not CMAKE_CUDA_STANDARD: CMake 3.25 does not know that this nvcc has C++20.
    string(APPEND CMAKE_CUDA_FLAGS " -std=c++20")
    if(TANDEM_CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER "${TANDEM_CCACHE}")
    endif()
    # TANDEM_CUDNN_ROOT: for machines where cuDNN came with a Python package.
    find_path(TANDEM_CUDNN_INCLUDE cudnn_backend.h
              HINTS "${TANDEM_CUDNN_ROOT}/include" ${CUDAToolkit_INCLUDE_DIRS})
    find_library(TANDEM_CUDNN NAMES cudnn libcudnn.so.9
                 HINTS "${TANDEM_CUDNN_ROOT}/lib" ${CUDAToolkit_LIBRARY_DIR} "${CUDAToolkit_TARGET_DIR}/lib")
    if(TANDEM_CUDNN_INCLUDE AND TANDEM_CUDNN)
      set(TANDEM_HAS_CUDNN ON)
      add_library(tandem_cudnn INTERFACE)
      target_include_directories(tandem_cudnn SYSTEM INTERFACE "${TANDEM_CUDNN_INCLUDE}")
      target_link_libraries(tandem_cudnn INTERFACE "${TANDEM_CUDNN}")
    endif()
    find_path(TANDEM_NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(TANDEM_NCCL NAMES nccl libnccl.so.2
                 HINTS ${CUDAToolkit_LIBRARY_DIR} "${CUDAToolkit_TARGET_DIR}/lib")
    if(TANDEM_NCCL_INCLUDE AND TANDEM_NCCL)
      set(TANDEM_HAS_NCCL ON)
      add_library(tandem_nccl INTERFACE)
      target_include_directories(tandem_nccl SYSTEM INTERFACE "${TANDEM_NCCL_INCLUDE}")
      target_link_libraries(tandem_nccl INTERFACE "${TANDEM_NCCL}")
    endif()
  elseif(TANDEM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TANDEM_CUDA is ON, but no CUDA toolkit was found: put nvcc on PATH, or set "
                        "CMAKE_CUDA_COMPILER, or TANDEM_CUDA=OFF")
  endif()
endif()
message(STATUS "CUDA ${TANDEM_HAS_CUDA}, cuDNN ${TANDEM_HAS_CUDNN}, NCCL ${TANDEM_HAS_NCCL}")
