#include "common/job/worker_rules.h"

#include <map>
#include <optional>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/http/http_address.h"
#include "common/job/job_kinds.h"
#include "common/job/push_samples.h"
#include "common/job/rule_book.h"
#include "common/job/value.h"
#include "common/process/core_wish.h"
#include "common/process/device.h"
#include "common/text/any_of_text.h"

namespace slackline::job_file {
namespace {

using Names = google::protobuf::RepeatedPtrField<std::string>;

bool IsAuto(const Names& devices) { return devices.size() == 1 && devices[0] == kAutoDevices; }

std::string GroupKey(int group) { return absl::StrCat("worker.groups[", group, "]"); }

class WorkerRules : private RuleBook {
 public:
  using RuleBook::RuleBook;

  // Devices of one worker. Which GPUs there are, only its machine knows.
  void Devices(const std::string& key, const Names& names) {
    std::vector<Device> devices;
    for (const std::string& name : names) {
      if (IsAuto(names)) return;
      const std::optional<Device> device = ParseDevice(name);
      if (!device) return Refuse(key, Quoted(name), "cpu, cuda:0, cuda:1 and so on, or auto alone");
      if (!devices.empty() && device->kind != devices.front().kind) {
        return Refuse(key, "CPUs and GPUs together",
                      "one kind: a group waits for its slowest device; worker.groups has several groups");
      }
      if (device->kind == Device::Kind::kCuda && absl::c_linear_search(devices, *device)) {
        return Refuse(key, absl::StrCat(name, " twice"), "each GPU once");
      }
      devices.push_back(*device);
    }
  }

  static bool HasGpus(const job::Worker& worker) {
    const auto gpus = [](const Names& names) {
      return absl::c_any_of(names, [](const auto& n) { return n != "cpu"; });
    };
    return gpus(worker.devices()) ||
           absl::c_any_of(worker.groups(), [&](const auto& group) { return gpus(group.devices()); });
  }

  void OneGroup(const job::Job& job) {
    const job::Worker& worker = job.worker();
    Devices("worker.devices", worker.devices());
    if (static_cast<uint32_t>(worker.devices_size()) > job.training().batch_size()) {
      Refuse("worker.devices", Count(worker.devices_size(), "device"),
             absl::StrCat("at most training.batch_size (", job.training().batch_size(),
                          "), each gets a part of the batch"));
    }
  }

  void Groups(const job::Job& job) {
    const job::Worker& worker = job.worker();
    const std::string together = "a value together with worker.groups";
    if (worker.devices_size() > 0) {
      Refuse("worker.devices", together,
             "one of both: each group says its own (add --set worker.devices=[] or --set worker.groups=[] to take it "
             "back)");
    }
    if (worker.stages() > 1) Refuse("worker.stages", together, "1: groups have the whole model on each device");
    const uint32_t groups = static_cast<uint32_t>(worker.groups_size());
    if (job.cluster().has_workers() && job.cluster().workers() % groups != 0) {
      Refuse("cluster.workers", absl::StrCat(job.cluster().workers()),
             absl::StrCat("a multiple of ", groups, ", the number of worker.groups, of which each node has all"),
             "worker.groups");
    }
    for (int group = 0; group < worker.groups_size(); ++group) Group(job, group);
    Apart(worker);
    CoresApart(worker);
  }

  void PerNode(const job::Job& job) {
    const uint32_t scripts = job.worker().per_node();
    if (!RunsScripts(job)) {
      for (const char* const key : {"worker.per_node", "worker.node_group"}) {
        NeedsOther(job.worker(), key, "model.kind: external",
                   EnumName(*job::Model::Kind_descriptor()->FindValueByNumber(job.model().kind())));
      }
      return;
    }
    if (scripts > 1 && job.worker().groups_size() > 0) {
      Refuse("worker.per_node", absl::StrCat(scripts, " with worker.groups"), "one of both");
    }
    if (job.cluster().has_workers() && job.cluster().workers() % WorkersOfScripts(job.worker()) != 0) {
      Refuse("cluster.workers", absl::StrCat(job.cluster().workers()),
             absl::StrCat("a multiple of ", scripts, " (worker.per_node)"), "worker.per_node");
    }
    NodeGroup(job);
  }

  // Scripts of a node that are one worker.
  void NodeGroup(const job::Job& job) {
    if (!job.worker().node_group()) return;
    const uint32_t scripts = job.worker().per_node();
    const std::string key = "worker.node_group";
    if (scripts == 1) return Refuse(key, "true with worker.per_node: 1", "worker.per_node: 2 and more");
    if (job.wire().window() > 1) {
      Refuse(key, absl::StrCat("true with wire.window: ", job.wire().window()), "wire.window: 1");
    }
    if (job.training().batch_size() % scripts != 0) {
      Refuse("training.batch_size", absl::StrCat(job.training().batch_size()),
             absl::StrCat("a multiple of ", scripts, " (worker.per_node), since worker.node_group shares it out"), key);
    }
  }

  // Which cores there are, only the machine knows.
  void Cores(const std::string& key, const Names& cores) {
    if (!Misread(key)) Understood(key, ParseCores(std::vector<std::string>(cores.begin(), cores.end())).status());
  }

  // What is recorded is done again as it was: a step must not depend on what the host draws or decides meanwhile.
  // A collector is beside the worker, or on the cluster's own network.
  void TraceOtlp(const std::string& address) {
    if (address.empty()) return;
    if (!IsHttp(address) || !CheckServerAddress(address).ok()) {
      Refuse("worker.trace_otlp", Quoted(address), "the address of a collector, such as http://127.0.0.1:4318");
    }
  }

  void CudaGraphs(const job::Job& job) {
    const job::Worker& worker = job.worker();
    if (!worker.cuda_graphs()) return;
    const auto refuse = [this](const std::string& with, const std::string& allowed) {
      Refuse("worker.cuda_graphs", "true with " + with, "false, or " + allowed);
    };
    // A setting that did nothing would be believed.
    if (!HasGpus(worker)) refuse("devices that are all cpu", "a GPU: cuda:0, cuda:1 and so on, or auto");
    const job::Model& model = job.model();
    const ModelFacts& facts = FactsOf(model);
    if (!facts.built_in()) {
      return refuse(absl::StrCat("model.kind: ", facts.name), "a model.kind that is known here");
    }
    if (model.checkpointing()) refuse("model.checkpointing", "model.checkpointing: false");
    if (DropoutOf(model) > 0) refuse("dropout", "model.dropout: 0");
    if (StochasticDepthOf(model) > 0) refuse("stochastic depth", "model.stochastic_depth: 0");
  }

  void Precision(const job::Job& job) {
    const job::Worker& worker = job.worker();
    const bool half =
        absl::c_any_of(worker.groups(), [](const auto& g) { return g.precision() == job::WorkerGroup::FP16; }) ||
        worker.precision() == job::Worker::FP16;
    if (!half) {
      for (const char* key : {"worker.loss_scale", "worker.loss_scale_growth_steps"}) {
        NeedsOther(worker, key, "worker.precision: fp16", "no fp16");
      }
    } else if (TrainsLocally(job)) {
      Refuse("worker.precision", "fp16 with local training",
             "float32 or bf16: its own steps do not skip what overflows", "worker");
    }
  }

  // Whether the model has so many layers, its own room says.
  void Stages(const job::Worker& worker, const job::Model& model) {
    if (worker.stages() <= 1) return NeedsOther(worker, "worker.micro_batches", "worker.stages above 1", "no stages");
    const std::string stages = absl::StrCat("worker.stages: ", worker.stages());
    const auto refuse = [&](const std::string& with, const std::string& allowed) {
      Refuse("worker.stages", absl::StrCat(worker.stages(), " with ", with), "1, or " + allowed);
    };
    const ModelFacts& facts = FactsOf(model);
    if (!facts.has_stages) {
      const std::string cut = AnyOfText(AllModels(), [](const ModelFacts& other) { return other.has_stages; });
      refuse(absl::StrCat("model.kind: ", facts.name), "model.kind: " + cut);
    } else if (model.batch_norm()) {
      refuse("model.batch_norm", "model.batch_norm: false: stages see parts of a batch");
    }
    if (model.dropout() > 0) refuse("dropout", "model.dropout: 0: stages see parts of a batch");
    if (model.stochastic_depth() > 0) {
      refuse("stochastic depth", "model.stochastic_depth: 0: stages see parts of a batch");
    }
    if (worker.cuda_graphs()) refuse("worker.cuda_graphs", "worker.cuda_graphs: false: nothing is recorded of stages");
    if (worker.groups_size() > 0) return;
    if (IsAuto(worker.devices())) {
      return Refuse("worker.devices", absl::StrCat(kAutoDevices, " with ", stages),
                    "as many devices as worker.stages, by their names", "worker.stages");
    }
    if (static_cast<uint32_t>(worker.devices_size()) != worker.stages()) {
      Refuse("worker.devices", absl::StrCat(Count(worker.devices_size(), "device"), " with ", stages),
             "as many as worker.stages", "worker.stages");
    }
  }

 private:
  void Group(const job::Job& job, int number) {
    const job::WorkerGroup& group = job.worker().groups(number);
    const std::string place = GroupKey(number), key = place + ".devices";
    // What is wrong with it was said.
    if (Misread(place)) return;
    if (group.devices_size() == 0) {
      return Refuse(key, "no device", "at least one: cpu, cuda:0, cuda:1 and so on, or auto alone", place);
    }
    Devices(key, group.devices());
    Cores(place + ".cores", group.cores());
    if (group.batch() > 0 && job.training().batch() == job::Training::BALANCE) {
      Refuse(place + ".batch", absl::StrCat(group.batch(), " together with training.batch: balance"),
             "0, or training.batch: fixed");
    }
    const uint32_t batch = BatchSizeOf(job, static_cast<uint32_t>(number));
    if (static_cast<uint32_t>(group.devices_size()) > batch) {
      Refuse(key, Count(group.devices_size(), "device"),
             absl::StrCat("at most the group's batch (", batch, "), each gets a part of it"), place);
    }
  }

  // No core is of two groups.
  void CoresApart(const job::Worker& worker) {
    std::map<uint32_t, int> owners;
    for (int group = 0; group < worker.groups_size(); ++group) {
      const Names& cores = worker.groups(group).cores();
      const absl::StatusOr<CoreWish> wish = ParseCores(std::vector<std::string>(cores.begin(), cores.end()));
      if (!wish.ok()) continue;
      for (const uint32_t core : wish->cores) {
        const auto [owner, first] = owners.emplace(core, group);
        if (first) continue;
        Refuse(GroupKey(group) + ".cores", absl::StrCat("core ", core, ", which is of ", GroupKey(owner->second)),
               "cores of no other group", GroupKey(group));
        break;
      }
    }
  }

  // No GPU is in two groups.
  void Apart(const job::Worker& worker) {
    std::map<std::string, int> owners;  // of GPUs
    for (int group = 0; group < worker.groups_size(); ++group) {
      for (const std::string& name : worker.groups(group).devices()) {
        if (name == "cpu") continue;
        // All GPUs are also each of them.
        const auto known = name == kAutoDevices                         ? owners.begin()
                           : owners.contains(std::string(kAutoDevices)) ? owners.find(std::string(kAutoDevices))
                                                                        : owners.find(name);
        if (known == owners.end()) {
          owners.emplace(name, group);
        } else if (known->second != group) {
          Refuse(GroupKey(group) + ".devices",
                 absl::StrCat(name, known->first == name ? ", which is" : absl::StrCat(" beside ", known->first),
                              " in ", GroupKey(known->second)),
                 "each GPU in one group", GroupKey(group));
        }
      }
    }
  }
};

}  // namespace

void CheckWorkerRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes) {
  WorkerRules rules(name, origins, mistakes);
  if (job.worker().groups_size() > 0) {
    rules.Groups(job);
  } else {
    rules.OneGroup(job);
  }
  rules.PerNode(job);
  rules.Cores("worker.cores", job.worker().cores());
  rules.Precision(job);
  rules.TraceOtlp(job.worker().trace_otlp());
  rules.CudaGraphs(job);
  rules.Stages(job.worker(), job.model());
}

}  // namespace slackline::job_file
