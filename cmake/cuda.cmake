# CUDA's compiler and runtime, and NCCL, from where scripts/cuda_toolchain puts them or the user says. Gives the targets
# `nccl` and CUDA::cudart, and slackline_cuda_flags().

if(DEFINED CMAKE_CUDA_COMPILER AND NOT EXISTS ${CMAKE_CUDA_COMPILER})
  message(FATAL_ERROR "There is no ${CMAKE_CUDA_COMPILER}: scripts/cuda_toolchain brings it, or set CMAKE_CUDA_COMPILER "
    "to an nvcc of your own (docs/gpu.md)")
endif()
set(SLACKLINE_NCCL_ROOT ${PROJECT_SOURCE_DIR}/.cache/cuda/nccl CACHE PATH "Holds include/nccl.h and lib/libnccl.so")
find_path(SLACKLINE_NCCL_INCLUDE nccl.h HINTS ${SLACKLINE_NCCL_ROOT}/include NO_CACHE REQUIRED)
find_library(SLACKLINE_NCCL_LIBRARY nccl HINTS ${SLACKLINE_NCCL_ROOT}/lib NO_CACHE REQUIRED)
# LibTorch comes with the shared one, and a program has one runtime: of a static one some functions would take the place of
# those that LibTorch calls.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

add_library(nccl SHARED IMPORTED)
set_target_properties(nccl PROPERTIES IMPORTED_LOCATION ${SLACKLINE_NCCL_LIBRARY})
target_include_directories(nccl SYSTEM INTERFACE ${SLACKLINE_NCCL_INCLUDE})

# Of targets whose sources are all CUDA. nvcc has its own words for what slackline_flags() says.
function(slackline_cuda_flags target)
  # CMake 3.25 knows no C++20 of this compiler.
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_EXTENSIONS OFF)
  # A product and a sum are rounded one by one, as the oracle's are on the CPU.
  target_compile_options(${target} PRIVATE --fmad=false -Xcompiler=-Wall,-Wextra)
  if(SLACKLINE_WERROR)
    target_compile_options(${target} PRIVATE -Xcompiler=-Werror --Werror=all-warnings)
  endif()
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  add_dependencies(slackline_libraries ${target})
endfunction()
