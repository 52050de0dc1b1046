// Runs a target over files instead of libFuzzer: each argument is a file, or a folder of them.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace slackline::fuzz {
namespace {

int Replay(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  // Shows which one it was when the target stops the process.
  std::printf("%s: %zu bytes\n", path.c_str(), bytes.size());
  std::fflush(stdout);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return 1;
}

int ReplayAll(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return Replay(path);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) files += ReplayAll(entry.path());
  return files;
}

}  // namespace
}  // namespace slackline::fuzz

int main(int argc, char** argv) {
  int files = 0;
  for (int i = 1; i < argc; ++i) files += slackline::fuzz::ReplayAll(argv[i]);
  std::printf("%d files replayed\n", files);
  return files > 0 ? 0 : 1;  // a corpus that is not there is not one that passes
}
