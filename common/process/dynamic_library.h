// A shared library that may be absent.
#pragma once

#include <dlfcn.h>

#include <string>

namespace slackline {

// Thread-safety: none.
class DynamicLibrary {
 public:
  // `name` is a name that the system's loader finds, or a path.
  explicit DynamicLibrary(const std::string& name) : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;
  ~DynamicLibrary() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }

  bool there() const { return handle_ != nullptr; }

  // Returns null if the library or the symbol is absent.
  template <typename Function>
  Function* Find(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(handle_, name));
  }

 private:
  void* handle_;
};

}  // namespace slackline
