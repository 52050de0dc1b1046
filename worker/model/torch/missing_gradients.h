// MissingGradients: operators without a gradient end the step. Uses LibTorch.
#pragma once

#include <c10/util/Exception.h>

namespace slackline::worker {

// MissingGradients makes an exception of the warning that backward gives at an operator without a gradient. Gradients
// end at such an operator, so the parameters before it would silently learn less, or nothing. LibTorch has a mode for
// this, AutogradFallbackMode::Error, and has not implemented it. Other warnings go where they went before.
//
// Thread-safety: none; counts for the thread that made it, while it lives.
class MissingGradients final : private c10::WarningHandler {
 public:
  MissingGradients() : before_(c10::WarningUtils::get_warning_handler()), guard_(this) {}
  MissingGradients(const MissingGradients&) = delete;
  MissingGradients& operator=(const MissingGradients&) = delete;

 private:
  void process(const c10::Warning& warning) override;

  c10::WarningHandler* const before_;
  const c10::WarningUtils::WarningHandlerGuard guard_;
};

}  // namespace slackline::worker
