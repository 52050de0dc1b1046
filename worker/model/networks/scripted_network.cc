#include "worker/model/networks/scripted_network.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <dlfcn.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "worker/model/layout_builder.h"
#include "worker/model/networks/scripted_scenes.h"
#include "worker/model/networks/torchvision_gradients.h"

namespace slackline::worker {
namespace {

using torch::jit::Module;

constexpr char kOutputs[] = "outputs";

// A tensor of a module: in which part of it, and under which name there.
struct Slot {
  Module owner;
  std::string name;

  at::Tensor get() const { return owner.attr(name).toTensor(); }
  void set(const at::Tensor& tensor) { owner.setattr(name, tensor); }
};

// "a.b.weight" is `weight` of `b` of `a`.
Slot FindSlot(Module module, const std::string& name) {
  size_t begin = 0;
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', begin)) {
    module = module.attr(name.substr(begin, dot - begin)).toModule();
    begin = dot + 1;
  }
  return {module, name.substr(begin)};
}

// Arguments of forward, but for the module itself.
size_t Arguments(const Module& module) {
  return module.get_method("forward").function().getSchema().arguments().size() - 1;
}

std::vector<uint64_t> ShapeOf(const at::Tensor& tensor) { return {tensor.sizes().begin(), tensor.sizes().end()}; }

// Adds what the module has to `builder`.
absl::Status AddModule(const ModelSpec& spec, const Module& module, LayoutBuilder& builder) {
  if (!module.find_method("forward")) return absl::InvalidArgumentError("it has no forward");
  const size_t arguments = Arguments(module);
  if (arguments == 0 || arguments > 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("its forward has ", arguments, " arguments; allowed are images, or images and targets"));
  }
  if (arguments == 2) {
    const c10::Argument& targets = module.get_method("forward").function().getSchema().arguments()[2];
    if (!c10::NoneType::get()->isSubtypeOf(*targets.type())) {
      return absl::InvalidArgumentError(absl::StrCat("the second argument of its forward, ", targets.name(), ", is a ",
                                                     targets.type()->annotation_str(),
                                                     "; allowed is one that may be None, as it is in evaluations, such "
                                                     "as Optional[Tensor]; what torch.jit.trace has "
                                                     "written takes images alone"));
    }
  }
  if (spec.loss == LossKind::kModel && arguments < 2) {
    return absl::InvalidArgumentError("its forward has no argument for targets, which training.loss: model needs");
  }
  std::map<const void*, std::string> memory;
  for (const auto& parameter : module.named_parameters()) {
    const auto& [known, first] = memory.try_emplace(parameter.value.data_ptr(), parameter.name);
    if (!first && parameter.value.numel() > 0) {
      return absl::InvalidArgumentError(absl::StrCat("its parameters ", known->second, " and ", parameter.name,
                                                     " are one tensor; allowed is a tensor for each"));
    }
    if (parameter.value.scalar_type() != at::kFloat) {
      return absl::InvalidArgumentError(absl::StrCat("its parameter ", parameter.name, " is ",
                                                     c10::toString(parameter.value.scalar_type()),
                                                     "; allowed is Float"));
    }
    builder.Parameter(parameter.name, ShapeOf(parameter.value));
  }
  for (const auto& buffer : module.named_buffers()) {
    if (buffer.value.scalar_type() == at::kFloat) builder.Buffer(buffer.name, ShapeOf(buffer.value));
  }
  return absl::OkStatus();
}

class ScriptedNetwork final : public Network {
 public:
  ScriptedNetwork(const ModelSpec& spec, const FlatTensors& tensors)
      : spec_(spec),
        device_(tensors.device()),
        module_(torch::jit::load(spec.torchscript, device_)),
        takes_targets_(Arguments(module_) == 2) {
    for (const auto& parameter : module_.named_parameters()) {
      begin_.emplace_back(tensors.Trained(parameter.name), parameter.value.detach().clone());
      FindSlot(module_, parameter.name).set(tensors.Trained(parameter.name));
    }
    for (const auto& buffer : module_.named_buffers()) {
      if (buffer.value.scalar_type() != at::kFloat) continue;
      const AgreedTensor& averaged = tensors.Averaged(buffer.name);
      begin_.emplace_back(averaged.agreed, buffer.value.clone());
      buffers_.push_back({FindSlot(module_, buffer.name), &averaged});
    }
  }

  void Initialise(at::Generator& /*generator*/) override {
    for (auto& [tensor, value] : begin_) tensor.copy_(value);
  }

  at::Tensor Forward(const at::Tensor& images, Mode mode, Noise& /*noise*/) const override {
    Enter(mode);
    std::vector<c10::IValue> arguments = {images};
    if (takes_targets_) arguments.emplace_back();  // None
    return Outputs(module_.forward(std::move(arguments)), images.size(0));
  }

  at::Tensor Train(const at::Tensor& images, const at::Tensor& labels, Noise& noise) const override {
    if (!takes_targets_) return Forward(images, Mode::kTraining, noise);
    Enter(Mode::kTraining);
    const c10::IValue made = module_.forward({images, labels});
    return spec_.loss == LossKind::kModel ? SumOfLosses(made) : Outputs(made, images.size(0));
  }

  at::Tensor TrainScenes(absl::Span<const images::Scene> scenes) const override {
    Enter(Mode::kTraining);
    return SumOfLosses(LossesIn(module_.forward({ImagesOf(scenes, device_), ObjectsOf(scenes, device_)})));
  }

  std::vector<images::DetectedObjects> Detect(absl::Span<const images::Scene> scenes) const override {
    Enter(Mode::kEvaluation);
    return FoundIn(module_.forward({ImagesOf(scenes, device_), c10::IValue()}), scenes, spec_.classes);
  }

 private:
  struct Buffer {
    Slot slot;
    const AgreedTensor* tensor;
  };

  // In training a module moves its statistics where they are: in what is pushed.
  void Enter(Mode mode) const {
    const bool training = mode == Mode::kTraining;
    if (module_.is_training() != training) module_.train(training);
    for (Buffer& buffer : buffers_) buffer.slot.set(training ? buffer.tensor->pushed : buffer.tensor->agreed);
  }

  // Types do not change from mode to mode: who returns a dictionary of losses in training has outputs in one else.
  at::Tensor Outputs(c10::IValue made, int64_t images) const {
    if (made.isGenericDict()) {
      const auto dictionary = made.toGenericDict();
      const auto found = dictionary.find(kOutputs);
      TORCH_CHECK(found != dictionary.end(), "model.torchscript: forward has returned a dictionary without \"",
                  kOutputs, "\"");
      made = found->value();
    }
    const int64_t classes = spec_.classes;
    if (!made.isTensor() || made.toTensor().dim() != 2 || made.toTensor().size(0) != images ||
        made.toTensor().size(1) != classes) {
      const std::string found =
          made.isTensor() ? absl::StrCat("a tensor of ", c10::str(made.toTensor().sizes())) : made.tagKind();
      TORCH_CHECK(false, "model.torchscript: forward has returned ", found, "; expected is a tensor of [", images, ", ",
                  classes, "], the images and model.classes");
    }
    return made.toTensor();
  }

  static at::Tensor SumOfLosses(const c10::IValue& made) {
    at::Tensor sum;
    const auto add = [&sum](const std::string& name, const at::Tensor& loss) {
      TORCH_CHECK(loss.numel() == 1, "model.torchscript: ", name, " is a tensor of ", loss.sizes(),
                  "; expected is one number");
      sum = sum.defined() ? sum + loss.sum() : loss.sum();
    };
    if (made.isTensor()) add("the loss that forward has returned", made.toTensor());
    if (made.isGenericDict()) {
      for (const auto& entry : made.toGenericDict()) {
        TORCH_CHECK(entry.key().isString() && entry.value().isTensor(), "model.torchscript: forward has returned a ",
                    "dictionary of other things than names and losses");
        add(absl::StrCat("loss \"", entry.key().toStringRef(), "\""), entry.value().toTensor());
      }
    }
    TORCH_CHECK(sum.defined(), "model.torchscript: in training forward has returned ", made.tagKind(),
                "; expected is a loss, or a dictionary of losses");
    return sum;
  }

  const ModelSpec spec_;
  const at::Device device_;
  mutable Module module_;
  const bool takes_targets_;
  mutable std::vector<Buffer> buffers_;
  // What each tensor begins with.
  std::vector<std::pair<at::Tensor, at::Tensor>> begin_;
};

}  // namespace

absl::Status LoadLibraries(const std::vector<std::string>& files) {
  if (!files.empty()) RegisterTorchvisionGradients();
  for (const std::string& file : files) {
    // As torch.ops.load_library does: operators make themselves known as they are loaded.
    if (::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) continue;
    const char* const why = ::dlerror();
    return absl::InvalidArgumentError(
        absl::StrCat("model.libraries: ", file, " does not load: ", why == nullptr ? "no reason is known" : why));
  }
  return absl::OkStatus();
}

absl::StatusOr<Layout> MakeScriptedLayout(const ModelSpec& spec) {
  if (absl::Status loaded = LoadLibraries(spec.libraries); !loaded.ok()) return loaded;
  const auto named = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("model.torchscript: ", spec.torchscript, ": ", what));
  };
  LayoutBuilder builder;
  try {
    // Wherever its tensors were when it was saved.
    const Module module = torch::jit::load(spec.torchscript, at::kCPU);
    if (absl::Status added = AddModule(spec, module, builder); !added.ok()) return named(added.message());
  } catch (const c10::Error& error) {
    return named(absl::StrCat("cannot be read as a module: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return named(absl::StrCat("cannot be read as a module: ", error.what()));
  }
  return std::move(builder).Finish(spec.groups);
}

std::unique_ptr<Network> MakeScriptedNetwork(const ModelSpec& spec, const FlatTensors& tensors) {
  return std::make_unique<ScriptedNetwork>(spec, tensors);
}

}  // namespace slackline::worker
