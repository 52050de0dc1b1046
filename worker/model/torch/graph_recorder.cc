#include "worker/model/torch/graph_recorder.h"

#include <c10/core/DeviceType.h>
#include <torch/version.h>

#include "absl/strings/str_cat.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <utility>

#include "common/base/check.h"
#define SLACKLINE_LIBTORCH_GRAPHS 1
#endif

namespace slackline::worker {
namespace {

absl::Status None(at::Device device) {
  return absl::InvalidArgumentError(absl::StrCat("worker.cuda_graphs: found true; LibTorch ", TORCH_VERSION,
                                                 " has no graphs for ", c10::DeviceTypeName(device.type(), true),
                                                 " devices; allowed is false"));
}

#ifdef SLACKLINE_LIBTORCH_GRAPHS
class GraphRecorder final : public StepRecorder {
 public:
  explicit GraphRecorder(at::Device device)
      : device_(device), streams_(device.type()), stream_(streams_.getStreamFromGlobalPool(device)) {}

  void OnStream(const std::function<void()>& body) override {
    const c10::StreamGuard guard(stream_);
    body();
  }
  void* stream() const override { return streams_.getStreamNativeHandle(stream_); }

  void Record(const std::function<void()>& work) override {
    graph_.reset();  // its memory first
    std::unique_ptr<at::GraphImplInterface> graph = at::create_graph_impl(device_.type());
    SLACKLINE_CHECK(graph != nullptr);
    // Other threads pin memory meanwhile, and record graphs of their own on other devices.
    graph->capture_begin({0, 0}, at::GraphCaptureMode::ThreadLocal);
    try {
      work();
    } catch (...) {
      LeaveCapture(*graph);
      throw;
    }
    graph->capture_end();
    graph_ = std::move(graph);
  }
  void Replay() override {
    SLACKLINE_CHECK(graph_ != nullptr);
    graph_->replay();
  }

 private:
  // What it says of a capture that has failed already helps nobody.
  static void LeaveCapture(at::GraphImplInterface& graph) {
    try {
      graph.capture_end();
    } catch (const std::exception&) {
      return;
    }
  }

  const at::Device device_;
  const c10::impl::VirtualGuardImpl streams_;
  const c10::Stream stream_;
  std::unique_ptr<at::GraphImplInterface> graph_;
};
#endif

}  // namespace

absl::StatusOr<std::unique_ptr<StepRecorder>> MakeGraphRecorder(at::Device device) {
#ifdef SLACKLINE_LIBTORCH_GRAPHS
  if (at::has_graph_impl(device.type())) return std::make_unique<GraphRecorder>(device);
#endif
  return None(device);
}

}  // namespace slackline::worker
