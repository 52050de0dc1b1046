#include "worker/model/torch/batch_copies.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>

#include "common/base/check.h"

namespace slackline::worker {

BatchCopies::Scope::Scope(BatchCopies& copies) : copies_(copies) {
  SLACKLINE_CHECK(!copies_.open_);
  copies_.open_ = true;
}

BatchCopies::Scope::~Scope() {
  copies_.Await();
  copies_.open_ = false;
}

at::Tensor BatchCopies::ToDevice(const at::Tensor& host) {
  SLACKLINE_CHECK(open_);  // also on CPUs, where it is tested
  if (device_.is_cpu()) return host;
  sources_.push_back(host);
  const at::Tensor copy = host.to(device_, host.scalar_type(), /*non_blocking=*/true);
  if (!read_) read_.emplace(device_.type());
  read_->record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return copy;
}

void BatchCopies::Await() noexcept {
  if (sources_.empty()) return;
  try {
    if (read_) read_->synchronize();
  } catch (const std::exception&) {
    // The next call says it, too.
    read_.reset();
  }
  sources_.clear();
}

}  // namespace slackline::worker
