#include "worker/model/torch/stage_streams.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace slackline::worker {
namespace {

// `after` gets nothing done before what `before` has now.
void Chain(const c10::Stream& before, const c10::Stream& after) {
  c10::Event event(before.device_type());
  event.record(before);
  event.block(after);
}

// The tensor's memory is not used again before `stream` is through with what it has now.
void KeepFor(const at::Tensor& tensor, const c10::Stream& stream) {
  c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

}  // namespace

StageStreams::StageStreams(const std::vector<at::Device>& devices) : devices_(devices) {
  if (devices.front().is_cpu()) return;
  const c10::impl::VirtualGuardImpl streams(devices.front().type());
  for (const at::Device& device : devices) {
    const auto made = [&] { return streams.getNewStream(device); };
    lanes_.push_back({.computing = made(), .coming = made(), .going_on = made(), .going_back = made()});
  }
}

void StageStreams::Compute(size_t stage, const std::function<void()>& body) {
  if (on_host()) return body();
  const c10::StreamGuard guard(lanes_[stage].computing);
  body();
}

StageStreams::Point StageStreams::Given(size_t stage) {
  if (on_host()) return nullptr;
  const auto event = std::make_shared<c10::Event>(devices_[stage].type());
  event->record(lanes_[stage].computing);
  return event;
}

// LibTorch copies between devices on the current stream of where the tensor is, which waits before and after for the
// current one of where it comes to.
at::Tensor StageStreams::Take(const at::Tensor& tensor, const Way& way, const Point& made) {
  if (on_host()) return tensor.detach();
  const Lane &from = lanes_[way.from], &to = lanes_[way.to];
  const c10::Stream& going = way.to > way.from ? from.going_on : from.going_back;
  for (const c10::Stream& stream : {going, to.coming}) made->block(stream);
  at::Tensor taken;
  {
    const c10::MultiStreamGuard guard({going, to.coming});
    taken = tensor.detach().to(devices_[way.to], /*non_blocking=*/true);
  }
  KeepFor(tensor, going);
  Chain(to.coming, to.computing);
  KeepFor(taken, to.computing);
  return taken;
}

void StageStreams::WaitFor(const Point& point) {
  if (point != nullptr) point->synchronize();
}

void StageStreams::Finish(size_t stage) {
  if (!on_host()) lanes_[stage].computing.synchronize();
}

}  // namespace slackline::worker
