// A small disk in memory (tmpfs), which a test can fill.
#pragma once

#include <stdlib.h>
#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace slackline {

class TinyDisk {
 public:
  explicit TinyDisk(const std::string& size = "64k") {
    std::string name = std::filesystem::temp_directory_path() / "slackline-disk-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
    mounted_ = !path_.empty() && ::mount("tmpfs", path_.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }
  TinyDisk(const TinyDisk&) = delete;
  TinyDisk& operator=(const TinyDisk&) = delete;
  ~TinyDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
    std::error_code error;
    std::filesystem::remove(path_, error);
  }

  // True if the disk is mounted. Mounting needs the right to mount.
  bool there() const { return mounted_; }
  const std::filesystem::path& path() const { return path_; }
  void Fill() const {
    std::ofstream out(path_ / "filler", std::ios::binary);
    while (out << std::string(1024, 'x') << std::flush) {
    }
  }
  void MakeRoom() const { std::filesystem::remove(path_ / "filler"); }

 private:
  std::filesystem::path path_;
  bool mounted_ = false;
};

}  // namespace slackline
