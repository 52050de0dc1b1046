#include "scheduler/model_layout.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slackline::scheduler {
namespace {

// 16 TiB of float32; more is a mistake, and sums below it cannot overflow.
constexpr uint64_t kElementsMax = uint64_t{1} << 42;
constexpr uint64_t kSamplesMax = uint64_t{1} << 40;

absl::StatusOr<uint64_t> ElementsOf(const wire::TensorSpec& tensor) {
  uint64_t elements = 1;
  for (uint64_t extent : tensor.shape()) {
    if (extent == 0 || extent > kElementsMax / elements) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name(), " has shape [",
                                                     absl::StrJoin(tensor.shape(), ", "), "]; allowed are 1 to ",
                                                     kElementsMax, " elements"));
    }
    elements *= extent;
  }
  return elements;
}

std::string Describe(const wire::TensorSpec& tensor) {
  return absl::StrCat(tensor.trained() ? "tensor " : "buffer ", tensor.name(), " [",
                      absl::StrJoin(tensor.shape(), ", "), "]");
}

bool Same(const wire::TensorSpec& a, const wire::TensorSpec& b) {
  return a.name() == b.name() && a.trained() == b.trained() &&
         std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

}  // namespace

absl::StatusOr<ModelLayout> LayoutOf(const wire::RegisterWorkerRequest& request) {
  ModelLayout layout;
  bool in_buffers = false;
  for (const wire::TensorSpec& tensor : request.tensors()) {
    absl::StatusOr<uint64_t> elements = ElementsOf(tensor);
    if (!elements.ok()) return elements.status();
    if (tensor.trained() && in_buffers) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(tensor), " comes after a buffer; trained tensors come first"));
    }
    in_buffers = !tensor.trained();
    layout.elements += *elements;
    if (tensor.trained()) layout.trained_elements += *elements;
    if (layout.elements > kElementsMax) {
      return absl::InvalidArgumentError(absl::StrCat("the model has more than ", kElementsMax, " elements"));
    }
  }
  if (layout.trained_elements == 0) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", request.name(), " declares ", request.tensors_size(),
                                                   " tensors, of which none is trained"));
  }
  if (request.train_samples() == 0 || request.train_samples() > kSamplesMax) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", request.name(), " sees ", request.train_samples(),
                                                   " training samples; allowed are 1 to ", kSamplesMax));
  }
  layout.train_samples = request.train_samples();
  layout.test_samples = request.test_samples();
  return layout;
}

absl::Status CheckSame(const wire::RegisterWorkerRequest& first, const wire::RegisterWorkerRequest& other) {
  const auto differ = [&](const std::string& what, const std::string& has, const std::string& expected) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", other.name(), " has ", has, " as its ", what,
                                                   ", but worker ", first.name(), ", the first one, has ", expected));
  };
  for (int i = 0; i < std::min(first.tensors_size(), other.tensors_size()); ++i) {
    if (Same(first.tensors(i), other.tensors(i))) continue;
    return differ(absl::StrCat("tensor number ", i + 1), Describe(other.tensors(i)), Describe(first.tensors(i)));
  }
  const auto compare = [&](const std::string& what, uint64_t has, uint64_t expected) {
    return has == expected ? absl::OkStatus() : differ(what, absl::StrCat(has), absl::StrCat(expected));
  };
  if (absl::Status same = compare("number of tensors", other.tensors_size(), first.tensors_size()); !same.ok())
    return same;
  if (absl::Status same = compare("number of training samples", other.train_samples(), first.train_samples());
      !same.ok()) {
    return same;
  }
  return compare("number of test samples", other.test_samples(), first.test_samples());
}

}  // namespace slackline::scheduler
