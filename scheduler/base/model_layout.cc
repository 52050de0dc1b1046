#include "scheduler/base/model_layout.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/parameter_groups.h"
#include "common/job/job_kinds.h"
#include "common/job/optimizer_config.h"
#include "common/job/script_optimizer.h"

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

// Parts of the flat vector, in their order.
enum class Part { kTrained, kAveraged, kFrozen };

Part PartOf(const wire::TensorSpec& tensor) {
  if (tensor.frozen()) return Part::kFrozen;
  return tensor.trained() ? Part::kTrained : Part::kAveraged;
}

const char* NameOf(Part part) {
  switch (part) {
    case Part::kTrained:
      return "tensor ";
    case Part::kAveraged:
      return "buffer ";
    case Part::kFrozen:
      return "frozen tensor ";
  }
  return "tensor ";
}

std::string Describe(const wire::TensorSpec& tensor) {
  return absl::StrCat(NameOf(PartOf(tensor)), tensor.name(), " [", absl::StrJoin(tensor.shape(), ", "), "]");
}

bool Same(const wire::TensorSpec& a, const wire::TensorSpec& b) {
  return a.name() == b.name() && a.trained() == b.trained() && a.frozen() == b.frozen() &&
         std::equal(a.shape().begin(), a.shape().end(), b.shape().begin(), b.shape().end());
}

// Which parameters are in which group: those whose names the job file's patterns match, or those that a script names.
class Groups {
 public:
  Groups(const job::Optimizer& optimizer, bool by_script)
      : by_script_(by_script), used_(static_cast<size_t>(optimizer.groups_size())) {
    for (const job::ParameterGroup& group : optimizer.groups()) rules_.push_back({group.match(), group.frozen()});
  }

  // A parameter that lies behind those before it, from `begin` on.
  absl::Status Add(const wire::TensorSpec& tensor, uint64_t begin, uint64_t elements, ModelLayout& layout) {
    if (tensor.group() > (by_script_ ? rules_.size() : 0)) {
      return absl::InvalidArgumentError(absl::StrCat(Describe(tensor), " is in group ", tensor.group(),
                                                     " of its script, which has ", by_script_ ? rules_.size() : 0));
    }
    const std::optional<size_t> group = GroupFor(tensor);
    const bool frozen = group && rules_[*group].frozen;
    if (group) used_[*group] = true;
    if (frozen != tensor.frozen()) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(tensor), ", but ",
                       frozen ? absl::StrCat("optimizer.groups[", *group, "] (", rules_[*group].match, ") freezes it")
                              : "no group of optimizer.groups freezes it"));
    }
    names_.push_back(tensor.name());
    if (!group || frozen) return absl::OkStatus();
    const auto number = static_cast<uint32_t>(*group);
    if (!layout.groups.empty() && layout.groups.back().end() == begin && layout.groups.back().group() == number) {
      layout.groups.back().set_end(begin + elements);
      return absl::OkStatus();
    }
    wire::GroupRange& range = layout.groups.emplace_back();
    range.set_begin(begin);
    range.set_end(begin + elements);
    range.set_group(number);
    return absl::OkStatus();
  }

  absl::Status AllUsed() const {
    for (size_t i = 0; i < used_.size(); ++i) {
      if (used_[i]) continue;
      if (by_script_) {
        return absl::InvalidArgumentError(
            absl::StrCat("group ", i + 1, " of the script's optimizer (", rules_[i].match, ") has no tensor"));
      }
      return absl::InvalidArgumentError(WhyUnused(rules_, i, names_));
    }
    return absl::OkStatus();
  }

 private:
  std::optional<size_t> GroupFor(const wire::TensorSpec& tensor) const {
    if (!by_script_) return GroupOf(rules_, tensor.name());
    return tensor.group() > 0 ? std::optional<size_t>(tensor.group() - 1) : std::nullopt;
  }

  const bool by_script_;
  std::vector<ParameterGroupRule> rules_;
  std::vector<bool> used_;
  std::vector<std::string> names_;
};

// Checks that the files that are spread have all training samples.
absl::Status CheckBlocks(const wire::RegisterWorkerRequest& request) {
  if (request.block_samples().empty()) return absl::OkStatus();
  uint64_t samples = 0;
  for (const uint32_t one : request.block_samples()) samples += one;
  if (samples == request.train_samples() && absl::c_find(request.block_samples(), 0) == request.block_samples().end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "worker ", request.name(), " has ", request.block_samples_size(), " files that are spread, with ", samples,
      " images; allowed are files of at least 1 image, with ", request.train_samples(), " images in all"));
}

}  // namespace

absl::StatusOr<ModelLayout> LayoutOf(const wire::RegisterWorkerRequest& request, const job::Job& job) {
  ModelLayout layout;
  if (request.has_optimizer()) {
    absl::StatusOr<job::Optimizer> optimizer = WithScriptOptimizer(job, request.optimizer());
    if (!optimizer.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("worker ", request.name(), ": ", optimizer.status().message()));
    }
    layout.optimizer = *std::move(optimizer);
  }
  if (PredictsWeights(job) && !KeepsDirection(layout.optimizer ? *layout.optimizer : job.optimizer())) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", request.name(),
                     ": consistency.weight_prediction: found auto, with neither momentum nor adam or adamw "
                     "in the job file or the script; allowed is slackline.Optimizer(..., like=torch.optim.AdamW(...)) "
                     "in the script, or "
                     "--set optimizer.kind=adamw"));
  }
  Groups groups(layout.optimizer ? *layout.optimizer : job.optimizer(), layout.optimizer.has_value());
  Part part = Part::kTrained;
  for (const wire::TensorSpec& tensor : request.tensors()) {
    absl::StatusOr<uint64_t> elements = ElementsOf(tensor);
    if (!elements.ok()) return elements.status();
    if (tensor.trained() && tensor.frozen()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name(), " is both trained and frozen"));
    }
    if (PartOf(tensor) < part) {
      return absl::InvalidArgumentError(absl::StrCat(Describe(tensor), " comes after a ", NameOf(part),
                                                     "; trained tensors come first, then buffers, then frozen ones"));
    }
    part = PartOf(tensor);
    if (part != Part::kAveraged) {
      if (absl::Status added = groups.Add(tensor, layout.elements, *elements, layout); !added.ok()) return added;
    }
    if (part == Part::kFrozen && layout.frozen_from == 0) layout.frozen_from = layout.elements;
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
  if (absl::Status used = groups.AllUsed(); !used.ok()) return used;
  if (request.train_samples() == 0 || request.train_samples() > kSamplesMax) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", request.name(), " sees ", request.train_samples(),
                                                   " training samples; allowed are 1 to ", kSamplesMax));
  }
  if (absl::Status whole = CheckBlocks(request); !whole.ok()) return whole;
  layout.block_samples.assign(request.block_samples().begin(), request.block_samples().end());
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
  if (absl::Status same =
          compare("number of files that are spread", other.block_samples_size(), first.block_samples_size());
      !same.ok()) {
    return same;
  }
  for (int i = 0; i < first.block_samples_size(); ++i) {
    const absl::Status same =
        compare(absl::StrCat("number of images in file ", i + 1), other.block_samples(i), first.block_samples(i));
    if (!same.ok()) return same;
  }
  return compare("number of test samples", other.test_samples(), first.test_samples());
}

absl::Status CheckSameOptimizer(const wire::RegisterWorkerRequest& first, const wire::RegisterWorkerRequest& other) {
  const auto differ = [&](const std::string& what, const std::string& has, const std::string& expected) {
    return absl::InvalidArgumentError(absl::StrCat("the script of worker ", other.name(), " gives ", what, has,
                                                   ", but that of worker ", first.name(), ", the first one, ", expected,
                                                   ": all scripts of a job give the same optimizer"));
  };
  const auto text = [](const wire::RegisterWorkerRequest& request) {
    return request.has_optimizer() ? OptimizerText(request.optimizer()) : "no settings of the optimizer";
  };
  if (first.has_optimizer() != other.has_optimizer()) return differ("", text(other), text(first));
  const std::map<std::string, std::string> expected = SettingsOf(first.optimizer()),
                                           found = SettingsOf(other.optimizer());
  const auto value = [](const std::map<std::string, std::string>& settings, const std::string& key) {
    const auto at = settings.find(key);
    return at != settings.end() ? at->second : "none";
  };
  for (const auto* keys : {&expected, &found}) {
    for (const auto& [key, unused] : *keys) {
      const std::string has = value(found, key), wanted = value(expected, key);
      if (has != wanted) return differ(absl::StrCat(key, ": "), has, wanted);
    }
  }
  for (int i = 0; i < first.tensors_size(); ++i) {
    const uint32_t has = other.tensors(i).group(), wanted = first.tensors(i).group();
    if (has == wanted) continue;
    return differ(absl::StrCat("the group of ", first.tensors(i).name(), ": "), absl::StrCat(has),
                  absl::StrCat(wanted));
  }
  return absl::OkStatus();
}

void ForgetOptimizer(wire::RegisterWorkerRequest& request) {
  request.clear_optimizer();
  for (wire::TensorSpec& tensor : *request.mutable_tensors()) tensor.clear_group();
}

std::string FingerprintText(uint64_t fingerprint) { return absl::StrFormat("%016x", fingerprint); }

absl::Status CheckDataKept(uint64_t kept, const std::string& checkpoint, const wire::RegisterWorkerRequest& worker) {
  const uint64_t found = worker.data_fingerprint();
  if (kept == 0 || found == 0 || found == kept) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the training data of worker ", worker.name(), " have the fingerprint ", FingerprintText(found), "; allowed is ",
      FingerprintText(kept), ", that of the data which ", checkpoint,
      " was trained on. To go on with the others in their place: --set data.replaces=", FingerprintText(kept)));
}

}  // namespace slackline::scheduler
