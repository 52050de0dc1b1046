# What we build on, from the distribution's packages; LibTorch from the private Python environment.

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Protobuf REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(GRPCPP REQUIRED IMPORTED_TARGET grpc++)
find_program(GRPC_CPP_PLUGIN grpc_cpp_plugin REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
find_package(prometheus-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(ZLIB REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)

if(SLACKLINE_TORCH)
  # `pip install torch` keeps CMake files in its package folder; setup puts it into .cache/venv.
  if(NOT DEFINED Torch_DIR)
    file(GLOB torch_folders ${PROJECT_SOURCE_DIR}/.cache/venv/lib/python3*/site-packages/torch/share/cmake/Torch)
    if(torch_folders)
      list(GET torch_folders 0 torch_folder)
      set(Torch_DIR ${torch_folder} CACHE PATH "LibTorch's CMake files")
    endif()
  endif()
  find_package(Torch REQUIRED)
  # Torch's target would put its bundled headers in front of ours for every user: link it to worker/model only.
endif()
