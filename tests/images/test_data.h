// A folder that is removed with the test, and small IDX files for it.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/check.h"

namespace slackline {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "slackline-test-XXXXXX").string();
    SLACKLINE_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

using Bytes = std::vector<uint8_t>;

// Returns an IDX file as the format's grammar says.
inline Bytes Idx(const std::vector<uint32_t>& shape, const Bytes& values) {
  Bytes file = {0, 0, 8, static_cast<uint8_t>(shape.size())};
  for (uint32_t side : shape) {
    for (int shift : {24, 16, 8, 0}) file.push_back(static_cast<uint8_t>(side >> shift));
  }
  file.insert(file.end(), values.begin(), values.end());
  return file;
}

inline void WriteFile(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

inline Bytes ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(file), {});
}

inline void WriteGzip(const std::string& path, const Bytes& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  SLACKLINE_CHECK(gzwrite(file, bytes.data(), bytes.size()) == static_cast<int>(bytes.size()));
  SLACKLINE_CHECK(gzclose(file) == Z_OK);
}

// Returns values that look random and are the same on every machine.
inline Bytes Noise(size_t size) {
  Bytes values(size);
  uint32_t state = 1;
  for (uint8_t& value : values) value = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  return values;
}

// Writes `count` images of side x side that show their label: row `label` is bright. Networks can learn them.
inline void WriteImages(const std::string& folder, const std::string& stem, uint32_t count, uint32_t side = 28) {
  Bytes pixels = Noise(size_t{count} * side * side), labels(count);
  for (uint32_t i = 0; i < count; ++i) {
    labels[i] = static_cast<uint8_t>(i * 7 % 10);
    for (uint32_t x = 0; x < side; ++x) pixels[(size_t{i} * side + labels[i] % side) * side + x] = 255;
  }
  WriteFile(folder + "/" + stem + "-images-idx3-ubyte", Idx({count, side, side}, pixels));
  WriteFile(folder + "/" + stem + "-labels-idx1-ubyte", Idx({count}, labels));
}

}  // namespace slackline
