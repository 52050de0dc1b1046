#include "simulator/torch_computation.h"

namespace slackline::simulator {

absl::StatusOr<std::unique_ptr<Computation>> MakeTorchComputation(const worker::WorkerConfig&, uint32_t) {
  return absl::UnimplementedError(
      "this slackline-simulator is built without LibTorch and computes no gradients; allowed is --no-gradients, or an "
      "installation with LibTorch: pip install 'slackline[worker]' beside a wheel, else slackline help install");
}

absl::StatusOr<worker::Layout> LayoutOf(const worker::ModelSpec& spec) {
  if (FactsOf(spec.kind).built_in()) return worker::MakeLayout(spec);
  return absl::UnimplementedError(
      "this slackline-simulator is built without LibTorch, which reads model.torchscript; allowed is an installation "
      "with LibTorch: pip install 'slackline[worker]' beside a wheel, else slackline help install");
}

}  // namespace slackline::simulator
