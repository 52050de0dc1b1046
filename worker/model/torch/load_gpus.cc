// The half of LibTorch that computes on GPUs is loaded, not linked: it brings a gigabyte of libraries, which take
// seconds to load, and whose thread-local memory (94 KB in cuBLASLt alone) would lie on the stack of each thread of
// every worker built so. There is none left on a small stack, such as 100 KiB.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>
#include <link.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "worker/model/model.h"

namespace slackline::worker {

namespace {

constexpr char kCpuHalf[] = "libtorch_cpu.so";
constexpr char kGpuHalf[] = "libtorch_cuda.so";

// Of what the loader has loaded: writes the folder of LibTorch to `folder`, and then looks no further.
int FindFolder(dl_phdr_info* library, size_t /*size*/, void* folder) {
  const std::filesystem::path path(library->dlpi_name);
  if (path.filename() != kCpuHalf) return 0;
  *static_cast<std::filesystem::path*>(folder) = path.parent_path();
  return 1;
}

// Whether LibTorch's half for GPUs is in this process. at::hasCUDA() must not be asked before it is: the first answer
// of LibTorch stays, whatever is loaded later.
bool IsLoaded() { return at::CUDAHooksRegistry()->Has("CUDAHooks"); }

}  // namespace

std::string LibTorchForGpus() {
  if (IsLoaded()) return "what is there already";
  std::filesystem::path folder;
  std::error_code error;
  if (::dl_iterate_phdr(&FindFolder, &folder) == 0 || !std::filesystem::exists(folder / kGpuHalf, error)) return "";
  return folder / kGpuHalf;
}

absl::Status LoadLibTorchForGpus() {
  const auto refuse = [](const std::string& why) {
    return absl::FailedPreconditionError(absl::StrCat("LibTorch ", LibTorchVersion(), " ", why));
  };
  if (!IsLoaded()) {
    const std::string path = LibTorchForGpus();
    if (path.empty()) return refuse("is a build for CPUs");
    // The library registers its hooks with LibTorch, and is never unloaded.
    if (::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      const char* why = ::dlerror();
      return refuse(absl::StrCat("does not load ", path, ": ", why == nullptr ? "for no known reason" : why));
    }
  }
  return at::hasCUDA() ? absl::OkStatus() : refuse("finds no GPU");
}

}  // namespace slackline::worker
