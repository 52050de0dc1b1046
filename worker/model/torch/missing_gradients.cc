#include "worker/model/torch/missing_gradients.h"

#include <string>

namespace slackline::worker {

void MissingGradients::process(const c10::Warning& warning) {
  const std::string& text = warning.msg();
  const size_t name_end = text.find(": an autograd kernel was not registered");
  TORCH_CHECK(name_end == std::string::npos, "model.torchscript: the operator ", text.substr(0, name_end),
              " has no gradient, so the parameters before it would not learn; expected is a library in "
              "model.libraries that registers its gradient, or a module that detaches the operator's inputs");
  before_->process(warning);
}

}  // namespace slackline::worker
