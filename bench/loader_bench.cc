// How many prepared images a second the worker's loader makes ready, with nobody to use them. bench/race_loader.py
// races it with PyTorch's DataLoader.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <utility>

#include "common/base/check.h"
#include "images/dataset/dataset.h"
#include "images/dataset/prefetcher.h"
#include "images/prepared/prepared_index.h"

namespace slackline::worker {
namespace {

struct LoaderOptions {
  std::string data;
  uint32_t batch = 64;
  double seconds = 3;
  bool flip = false;
  uint32_t crop_padding = 0;
  uint32_t threads = 1;
};

using LoaderSeconds = std::chrono::duration<double>;

int Main(int argc, char** argv) {
  LoaderOptions options;
  CLI::App app("Goes through prepared images again and again, and prints how many a second.");
  app.add_option("DATA", options.data, "Folder that `slackline prepare` wrote")->required();
  app.add_option("--batch", options.batch)->check(CLI::Range(1, 65536))->capture_default_str();
  app.add_option("--seconds", options.seconds)->check(CLI::Range(0.01, 3600.0))->capture_default_str();
  app.add_flag("--flip", options.flip, "Half of the images are mirrored");
  app.add_option("--crop-padding", options.crop_padding)->check(CLI::Range(0, 1024))->capture_default_str();
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 256))->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const absl::StatusOr<images::PreparedIndex> index = images::ReadPreparedIndex(options.data);
  const absl::StatusOr<images::Dataset> data =
      index.ok() ? images::Dataset::OpenPrepared(options.data, *index, "train", {}) : index.status();
  if (!data.ok()) {
    std::fprintf(stderr, "%s\n", std::string(data.status().message()).c_str());
    return 1;
  }
  images::Prefetcher prefetcher(*data, {}, 4, {.flip_horizontal = options.flip, .crop_padding = options.crop_padding},
                                1, options.threads);
  uint64_t samples = 0;
  double sum = 0;
  const auto begin = std::chrono::steady_clock::now();
  double seconds = 0;
  const std::clock_t cpu_begin = std::clock();
  for (uint32_t epoch = 0; seconds < options.seconds; ++epoch) {
    prefetcher.Start(images::EpochOrder(data->size(), 1, epoch), options.batch, epoch);
    while (seconds < options.seconds) {
      absl::StatusOr<std::unique_ptr<images::Batch>> batch = prefetcher.Next(absl::Seconds(60));
      SLACKLINE_CHECK(batch.ok());
      if (*batch == nullptr) break;
      samples += (*batch)->size();
      sum += (*batch)->images.front();
      prefetcher.Recycle(*std::move(batch));
      seconds = LoaderSeconds(std::chrono::steady_clock::now() - begin).count();
    }
  }
  const double cpu = static_cast<double>(std::clock() - cpu_begin) / CLOCKS_PER_SEC;
  const auto count = static_cast<double>(samples);
  std::printf("samples_per_second=%.0f samples_per_cpu_second=%.0f sum=%.3f\n", count / seconds, count / cpu, sum);
  return 0;
}

}  // namespace
}  // namespace slackline::worker

int main(int argc, char** argv) { return slackline::worker::Main(argc, argv); }
