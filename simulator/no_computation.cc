#include "simulator/no_computation.h"

#include "worker/settings/loaded_job.h"

namespace slackline::simulator {

absl::StatusOr<std::unique_ptr<Computation>> MakeNoComputation(const worker::WorkerConfig& config,
                                                               const LayoutReader& layout_of) {
  absl::StatusOr<worker::LoadedJob> loaded = worker::LoadJob(config);
  if (!loaded.ok()) return loaded.status();
  absl::StatusOr<worker::Layout> layout = layout_of(loaded->spec);
  if (!layout.ok()) return layout.status();
  return std::make_unique<NoComputation>(
      Learned{layout->tensors, layout->elements, layout->trained_elements, loaded->train.size(), loaded->test.size()});
}

}  // namespace slackline::simulator
