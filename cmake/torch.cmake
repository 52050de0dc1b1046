# LibTorch from the private Python environment: `pip install torch` keeps headers, libraries and CMake files in its
# package folder. Gives the target `torch`. It would put its bundled headers in front of ours for every user: link it to
# worker/model/networks and worker/model/torch only.

if(NOT DEFINED Torch_DIR)
  file(GLOB torch_folders ${PROJECT_SOURCE_DIR}/.cache/venv/lib/python3*/site-packages/torch/share/cmake/Torch)
  # One that computes on GPUs, where scripts/cuda_toolchain has brought it.
  set(torch_of_cuda ${PROJECT_SOURCE_DIR}/.cache/cuda/libtorch/torch/share/cmake/Torch)
  if(SLACKLINE_CUDA AND EXISTS ${torch_of_cuda})
    set(torch_folders ${torch_of_cuda})
  endif()
  if(torch_folders)
    list(GET torch_folders 0 torch_folder)
    set(Torch_DIR ${torch_folder} CACHE PATH "LibTorch's CMake files")
  endif()
endif()

# The CMake files of a CUDA build insist on a whole CUDA toolkit, and look for GPUs; its libraries need neither to be
# linked.
cmake_path(SET torch_package NORMALIZE "${Torch_DIR}/../../..")
set(torch_cuda)
if(EXISTS ${torch_package}/version.py)
  file(STRINGS ${torch_package}/version.py torch_cuda REGEX "^cuda: .*= '")
endif()

if(torch_cuda)
  add_library(torch INTERFACE IMPORTED)
  foreach(name torch_cpu c10)
    add_library(torch_part_${name} SHARED IMPORTED)
    set_target_properties(torch_part_${name} PROPERTIES IMPORTED_LOCATION ${torch_package}/lib/lib${name}.so)
    target_link_libraries(torch INTERFACE torch_part_${name})
  endforeach()
  # A worker built with SLACKLINE_CUDA loads the other half when it is asked for a GPU.
  message(STATUS "LibTorch is a CUDA build: linking its CPU half")
  # Its CUDA libraries lie where only the loader looks.
  target_link_options(torch INTERFACE -Wl,--allow-shlib-undefined)
  target_include_directories(torch SYSTEM INTERFACE ${torch_package}/include
    ${torch_package}/include/torch/csrc/api/include)
else()
  find_package(Torch REQUIRED)
  if(SLACKLINE_CUDA)
    message(STATUS "LibTorch is a CPU build: the code for GPUs is compiled and linked, and finds none")
  endif()
endif()
