// One process that trains with LibTorch and nothing else: what a worker's throughput is measured against.
//
//   --loop plain  torch::nn and torch::optim::SGD, as a user of LibTorch would write it
//   --loop model  the worker's Model with SGD on its flat vector: what the compute room gains or loses by itself
//
// Data, batches and prefetching are the worker's in both. The plain loop comes in two forms: --order textbook runs
// ReLU before pooling on the default memory order; --order tuned has every choice of kernels that the worker's model
// makes, so that a ratio to it shows what the rest of Slackline costs.
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <iostream>

#include "bench/plain/networks.h"
#include "common/base/check.h"
#include "images/dataset/dataset.h"
#include "images/dataset/prefetcher.h"
#include "worker/model/model.h"

namespace slackline::worker {
namespace {

using Seconds = std::chrono::duration<double>;

struct Options {
  std::string model = "cnn";
  std::string loop = "plain";
  std::string order = "tuned";
  std::string data = "/usr/share/datasets/fashion-mnist";
  uint32_t batch = 64;
  uint32_t threads = 1;
  double seconds = 5;
  double warmup_seconds = 1;
  double lr = 0.05;
};

// One step on one batch; returns its loss.
using StepFunction = std::function<double(images::Batch&)>;

torch::Tensor ImagesOf(images::Batch& batch, bool channels_last) {
  const auto count = static_cast<int64_t>(batch.size());
  const std::vector<int64_t> shape = {count, 1, 28, 28};
  if (!channels_last) return torch::from_blob(batch.images.data(), shape);
  return torch::from_blob(batch.images.data(), shape, std::vector<int64_t>{784, 1, 28, 1});
}

StepFunction PlainStep(const Options& options) {
  torch::manual_seed(1);
  const bool tuned = options.order == "tuned";
  const auto network = bench::MakePlainNetwork(options.model, tuned ? bench::Order::kTuned : bench::Order::kTextbook);
  auto sgd = std::make_shared<torch::optim::SGD>(network->parameters(), torch::optim::SGDOptions(options.lr));
  return [network, sgd, tuned](images::Batch& batch) {
    const torch::Tensor labels =
        torch::from_blob(batch.labels.data(), {static_cast<int64_t>(batch.size())}, torch::kLong);
    sgd->zero_grad();
    const torch::Tensor loss = torch::cross_entropy_loss(network->forward(ImagesOf(batch, tuned)), labels);
    loss.backward();
    sgd->step();
    return loss.item<double>();
  };
}

// With the widths of the default job file.
ModelSpec SpecOf(const std::string& model) {
  if (model == "resnet18") return {.kind = ModelKind::kResnet18, .hidden = {}, .filters = {}};
  if (model == "cnn") return {.kind = ModelKind::kCnn, .hidden = {128}, .filters = {32, 64}};
  return {.kind = ModelKind::kMlp, .hidden = {192}, .filters = {}};
}

StepFunction ModelStep(const Options& options) {
  const std::shared_ptr<Model> model = *Model::Create(SpecOf(options.model), 1);
  const auto lr = static_cast<float>(options.lr);
  return [model, lr](images::Batch& batch) {
    const absl::StatusOr<StepResult> result = model->Step({.images = batch.images, .labels = batch.labels});
    SLACKLINE_CHECK(result.ok());
    float* const parameters = model->parameters().data();
    const float* const gradient = model->push().data();
    const size_t elements = model->elements();
    for (size_t i = 0; i < elements; ++i) parameters[i] -= lr * gradient[i];
    return result->loss;
  };
}

struct Measured {
  uint64_t samples = 0;
  double seconds = 0;
  double cpu_seconds = 0;             // of all threads: tells more than the clock on a busy machine
  double fastest_step_seconds = 1e9;  // of a full batch: what an undisturbed machine would do
  double loss = 0;                    // of the last step
};

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Goes through epochs until the time is over; the warm-up does not count.
Measured Run(const Options& options, const images::Dataset& data, const StepFunction& step) {
  images::Prefetcher prefetcher(data, {.mean = 0.286, .deviation = 0.353}, 4);
  Measured measured;
  auto begin = std::chrono::steady_clock::now();
  double cpu_begin = CpuSeconds();
  bool warm = false;
  for (uint32_t epoch = 0;; ++epoch) {
    prefetcher.Start(images::EpochOrder(data.size(), 1, epoch), options.batch);
    for (;;) {
      absl::StatusOr<std::unique_ptr<images::Batch>> batch = prefetcher.Next(absl::Seconds(60));
      SLACKLINE_CHECK(batch.ok());
      if (*batch == nullptr) break;
      const auto step_begin = std::chrono::steady_clock::now();
      measured.loss = step(**batch);
      const double step_seconds = Seconds(std::chrono::steady_clock::now() - step_begin).count();
      if ((*batch)->size() == options.batch) {
        measured.fastest_step_seconds = std::min(measured.fastest_step_seconds, step_seconds);
      }
      measured.samples += (*batch)->size();
      prefetcher.Recycle(*std::move(batch));
      measured.seconds = Seconds(std::chrono::steady_clock::now() - begin).count();
      measured.cpu_seconds = CpuSeconds() - cpu_begin;
      if (warm && measured.seconds >= options.seconds) return measured;
      if (!warm && measured.seconds >= options.warmup_seconds) {
        warm = true;
        begin = std::chrono::steady_clock::now();
        cpu_begin = CpuSeconds();
        measured = {};
      }
    }
  }
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains Fashion-MNIST in one process and prints the samples per second.");
  app.add_option("--model", options.model)->check(CLI::IsMember({"mlp", "cnn", "resnet18"}))->capture_default_str();
  app.add_option("--loop", options.loop)->check(CLI::IsMember({"plain", "model"}))->capture_default_str();
  app.add_option("--order", options.order)->check(CLI::IsMember({"textbook", "tuned"}))->capture_default_str();
  app.add_option("--data", options.data, "folder of the IDX files")->capture_default_str();
  app.add_option("--batch", options.batch)->check(CLI::Range(1, 60000))->capture_default_str();
  app.add_option("--threads", options.threads)->check(CLI::Range(1, 1024))->capture_default_str();
  app.add_option("--seconds", options.seconds)->check(CLI::Range(0.01, 3600.0))->capture_default_str();
  app.add_option("--lr", options.lr)->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  const absl::StatusOr<images::Dataset> data = images::Dataset::ReadIdx(options.data, "train");
  if (!data.ok()) {
    std::cerr << data.status().message() << "\n";
    return 1;
  }
  SetComputeThreads(options.threads);
  const Measured measured = Run(options, *data, options.loop == "plain" ? PlainStep(options) : ModelStep(options));
  const auto samples = static_cast<double>(measured.samples);
  std::printf("loop=%s order=%s model=%s batch=%u threads=%u ", options.loop.c_str(), options.order.c_str(),
              options.model.c_str(), options.batch, options.threads);
  std::printf("samples_per_second=%.0f samples_per_cpu_second=%.0f samples_per_second_best=%.0f loss=%.4f\n",
              samples / measured.seconds, samples / measured.cpu_seconds, options.batch / measured.fastest_step_seconds,
              measured.loss);
  return 0;
}

}  // namespace
}  // namespace slackline::worker

int main(int argc, char** argv) { return slackline::worker::Main(argc, argv); }
