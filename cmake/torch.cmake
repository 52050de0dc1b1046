# LibTorch from the private Python environment: `pip install torch` keeps headers, libraries and CMake files in its
# package folder. Gives the target `torch`. It would put its bundled headers in front of ours for every user: link it to
# worker/model only.

if(NOT DEFINED Torch_DIR)
  file(GLOB torch_folders ${PROJECT_SOURCE_DIR}/.cache/venv/lib/python3*/site-packages/torch/share/cmake/Torch)
  if(torch_folders)
    list(GET torch_folders 0 torch_folder)
    set(Torch_DIR ${torch_folder} CACHE PATH "LibTorch's CMake files")
  endif()
endif()

# A CUDA build of the wheel insists on a CUDA toolkit; its CPU half needs none.
cmake_path(SET torch_package NORMALIZE "${Torch_DIR}/../../..")
set(torch_cuda)
if(EXISTS ${torch_package}/version.py)
  file(STRINGS ${torch_package}/version.py torch_cuda REGEX "^cuda: .*= '")
endif()
find_program(SLACKLINE_NVCC nvcc HINTS /usr/local/cuda/bin)

if(torch_cuda AND NOT SLACKLINE_NVCC)
  message(STATUS "LibTorch is a CUDA build and there is no nvcc: using its CPU half")
  add_library(torch INTERFACE IMPORTED)
  foreach(name torch_cpu c10)
    add_library(torch_half_${name} SHARED IMPORTED)
    set_target_properties(torch_half_${name} PROPERTIES IMPORTED_LOCATION ${torch_package}/lib/lib${name}.so)
    target_link_libraries(torch INTERFACE torch_half_${name})
  endforeach()
  # Its CUDA libraries lie where only the loader looks.
  target_link_options(torch INTERFACE -Wl,--allow-shlib-undefined)
  target_include_directories(torch SYSTEM INTERFACE ${torch_package}/include
    ${torch_package}/include/torch/csrc/api/include)
else()
  find_package(Torch REQUIRED)
endif()
