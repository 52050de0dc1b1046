#include "common/job/rules.h"

#include <cmath>
#include <initializer_list>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/address.h"
#include "common/codec/codec.h"
#include "common/job/data_rules.h"
#include "common/job/job_kinds.h"
#include "common/job/job_timeouts.h"
#include "common/job/metric_names.h"
#include "common/job/model_rules.h"
#include "common/job/optimizer_config.h"
#include "common/job/path_rules.h"
#include "common/job/push_samples.h"
#include "common/job/rule_book.h"
#include "common/job/value.h"
#include "common/job/worker_rules.h"
#include "common/network/interfaces.h"
#include "common/network/ports.h"
#include "common/optimizer/optimizer.h"
#include "common/text/any_of_text.h"

namespace slackline::job_file {
namespace {

constexpr double kClassWeightMax = 1e6;
// Of Beta(a, a). Long before 1e-300 it draws 0 or 1 alone; there, logarithms of what is drawn overflow.
constexpr double kMixAlphaMin = 0.001;

// Settings that only some optimizers have.
struct OptimizerSetting {
  const char* name;
  bool OptimizerFacts::*allowed;
};

constexpr OptimizerSetting kOptimizerSettings[] = {
    {"beta1", &OptimizerFacts::has_moments},     {"beta2", &OptimizerFacts::has_moments},
    {"epsilon", &OptimizerFacts::has_moments},   {"momentum", &OptimizerFacts::has_momentum},
    {"nesterov", &OptimizerFacts::has_momentum}, {"momentum_correction", &OptimizerFacts::has_momentum},
};

// Settings that only some consistency modes have.
struct ModeSetting {
  const char* key;
  bool (*allowed)(const ModeFacts& facts);
};

constexpr ModeSetting kModeSettings[] = {
    {"consistency.staleness_max", [](const ModeFacts& facts) { return facts.has_bound; }},
    {"consistency.staleness_auto", [](const ModeFacts& facts) { return facts.has_bound; }},
    {"consistency.staleness_min", [](const ModeFacts& facts) { return facts.has_bound; }},
    {"consistency.softsync_n", [](const ModeFacts& facts) { return facts.has_groups; }},
    {"consistency.quorum", [](const ModeFacts& facts) { return facts.has_quorum; }},
    {"consistency.quorum_deadline_ms", [](const ModeFacts& facts) { return facts.has_quorum; }},
    {"consistency.grace", [](const ModeFacts& facts) { return facts.has_quorum && !facts.answers_first; }},
    {"consistency.late", [](const ModeFacts& facts) { return facts.has_quorum; }},
    {"consistency.staleness_lr", [](const ModeFacts& facts) { return facts.takes_stale(); }},
    {"consistency.delay_compensation", [](const ModeFacts& facts) { return facts.takes_stale(); }},
    {"consistency.aggregation", [](const ModeFacts& facts) { return facts.joins_workers(); }},
    {"consistency.weight_prediction", [](const ModeFacts& facts) { return facts.takes_stale(); }},
};

class Rules : private RuleBook {
 public:
  using RuleBook::RuleBook;

  // A module's own loss is given labels, one an image.
  void Mixing(const job::Augment& augment, const job::Training& training) {
    const auto refuse_small = [&](const char* key, double alpha) {
      if (alpha == 0 || alpha >= kMixAlphaMin) return;
      Refuse(key, NumberText(alpha), absl::StrCat("0, or a number from ", NumberText(kMixAlphaMin), " to 100"));
    };
    refuse_small("data.augment.mixup_alpha", augment.mixup_alpha());
    refuse_small("data.augment.cutmix_alpha", augment.cutmix_alpha());
    if (training.loss() != job::Training::MODEL) return;
    for (const char* key : {"data.augment.mixup_alpha", "data.augment.cutmix_alpha"}) {
      NeedsOther(augment, key, "training.loss: cross_entropy, mse or bce", "training.loss: model");
    }
  }

  void ClassWeights(const job::Training& training, uint32_t classes) {
    const auto& weights = training.class_weights();
    if (weights.empty() || (weights.size() == 1 && weights[0] == "balanced")) return;
    bool some = false;
    for (const std::string& weight : weights) {
      double value = 0;
      const bool number = absl::SimpleAtod(weight, &value) && value >= 0 && value <= kClassWeightMax;
      some |= value > 0;
      if (number) continue;
      return Refuse("training.class_weights", Quoted(weight),
                    absl::StrCat("balanced alone, or numbers from 0 to ", NumberText(kClassWeightMax)));
    }
    if (static_cast<uint32_t>(weights.size()) != classes) {
      Refuse("training.class_weights", Count(weights.size(), "item"),
             absl::StrCat("balanced, or as many as model.classes (", classes, ")"));
    } else if (!some) {
      Refuse("training.class_weights", "zeros alone", "at least one above 0: else nothing is learned");
    }
  }

  void Optimizer(const job::Job& job) {
    const job::Optimizer& optimizer = job.optimizer();
    OptimizerSettings(optimizer, "optimizer", "kind", FactsOf(optimizer));
    if (FactsOf(optimizer).has_momentum && optimizer.nesterov() && optimizer.momentum() == 0) {
      Refuse("optimizer.nesterov", "true without momentum", "true with optimizer.momentum above 0");
    }
    for (int i = 0; i < optimizer.groups_size(); ++i) Group(job, i);
    MomentumCorrection(optimizer, job.consistency());
    WeightPrediction(job);
    Schedule(optimizer.schedule(), job.training());
  }

  void Group(const job::Job& job, int number) {
    const job::ParameterGroup& group = job.optimizer().groups(number);
    const std::string key = absl::StrCat("optimizer.groups[", number, "]");
    if (group.match().empty()) {
      Refuse(key + ".match", Quoted(""), "names of tensors, such as \"*.bias\"", key);
    }
    if (!group.frozen()) return;
    if (group.lr_factor() != 1 || group.weight_decay() >= 0) {
      Refuse(key + ".frozen", "true together with lr_factor or weight_decay",
             "true alone: what is frozen is not changed");
    }
    if (RunsScripts(job)) {
      Refuse(key + ".frozen", "true with model.kind: external",
             "false; a script freezes by requires_grad_(False), and says it that way");
    }
    if (job.worker().stages() > 1) {
      Refuse(key + ".frozen", absl::StrCat("true with worker.stages: ", job.worker().stages()),
             "true with worker.stages: 1");
    }
  }

  void Local(const job::Job& job) {
    const job::Local& local = job.local();
    if (local.steps() == 0 && local.epochs() == 0) return NoLocal(local);
    if (local.steps() > 0 && local.epochs() > 0) {
      Refuse("local.epochs", absl::StrCat(local.epochs(), " together with local.steps: ", local.steps()),
             "exactly one of both above 0");
    }
    if (local.subset_samples() > 0 && job.data().sampling() == job::Data::BALANCED) {
      Refuse("data.sampling", absl::StrCat("balanced with local.subset_samples: ", local.subset_samples()),
             "uniform, or local.subset_samples: 0: subsets are drawn of all images");
    }
    const uint64_t samples = local.steps() > 0 ? uint64_t{local.steps()} * LargestBatchSize(job)
                                               : uint64_t{local.epochs()} * local.subset_samples();
    if (samples > kPushSamplesMax) {
      Refuse(local.steps() > 0 ? "local.steps" : "local.epochs", absl::StrCat(samples, " samples a round"),
             absl::StrCat("at most ", kPushSamplesMax, " samples a round"));
    }
    // The default is one for gradients, with which differences of weights hardly count. A script has another default.
    if (!job.optimizer().has_lr() && !RunsScripts(job)) {
      Refuse("optimizer.lr", "no value together with local training, whose outer learning rate it is",
             "a value: 1 takes the mean of the workers' weights, 0.7 with momentum: 0.9 and nesterov: true is DiLoCo's",
             local.steps() > 0 ? "local.steps" : "local.epochs");
    }
    OptimizerSettings(local, "local", "optimizer", FactsOf(local));
    if (local.epochs() > 0) {
      NeedsOther(job.training(), "training.batch", "local.steps above 0, or no local training", "local.epochs");
    }
    if (local.outlier_factor() > 0 && local.outlier_factor() <= 1) {
      Refuse("local.outlier_factor", NumberText(local.outlier_factor()), "a number above 1, or 0 to keep nothing out");
    }
    const ModeFacts& mode = FactsOf(job.consistency());
    if (mode.waits_for_slowest) {
      const std::string others = AnyOfText(AllModes(), [](const ModeFacts& other) { return !other.waits_for_slowest; });
      NeedsOther(local, "local.lease_s",
                 absl::StrCat("consistency.mode: ", others, ", where nobody waits for one who is away"),
                 std::string(mode.name));
    }
    NoneWithLocal(job);
  }

  // `action`: of the guard, which may change the bound.
  void Consistency(const job::Consistency& consistency, job::Guard::Action action) {
    const ModeFacts& facts = FactsOf(consistency);
    if (!facts.has_bound) {
      // A bound is refused below.
    } else if (!consistency.staleness_auto() && action != job::Guard::TIGHTEN) {
      NeedsOther(consistency, "consistency.staleness_min", "consistency.staleness_auto: true or guard.action: tighten",
                 "a fixed bound");
    } else if (consistency.staleness_min() > consistency.staleness_max()) {
      Refuse("consistency.staleness_min", absl::StrCat(consistency.staleness_min()),
             absl::StrCat("at most consistency.staleness_max (", consistency.staleness_max(), ")"));
    }
    for (const auto& [key, allowed] : kModeSettings) {
      if (allowed(facts)) continue;
      NeedsOther(consistency, key, "consistency.mode: " + AnyOfText(AllModes(), allowed),
                 absl::StrCat(facts.name, facts.with));
    }
    DelayCompensation(consistency);
  }

  void Aggregation(const job::Job& job) {
    const job::Consistency& consistency = job.consistency();
    const std::string name =
        EnumName(*job::Aggregation::Kind_descriptor()->FindValueByNumber(consistency.aggregation()));
    if (consistency.aggregation() != job::Aggregation::TRIMMED_MEAN) {
      NeedsOther(consistency, "consistency.trim", "consistency.aggregation: trimmed_mean", "aggregation: " + name);
    }
    if (consistency.aggregation() == job::Aggregation::MEAN) return;
    if (consistency.weighting() != job::Consistency::UNIFORM) {
      Refuse("consistency.aggregation", name + " with weighting: samples",
             name + " with consistency.weighting: uniform: a wrong worker could claim any number of samples");
    }
    const double share = FactsOf(consistency).has_quorum ? consistency.quorum() : 1;
    const int pushes = static_cast<int>(std::ceil(share * job.cluster().workers() - 1e-9));
    if (pushes < kPushesMin) {
      Refuse(
          "consistency.aggregation", absl::StrCat(name, " with steps of ", pushes, pushes == 1 ? " push" : " pushes"),
          absl::StrCat(name, " with at least ", kPushesMin, " in a step, from cluster.workers and consistency.quorum"));
    }
    const auto refuse_sparse = [&](const std::string& key, const std::string& encoding, const std::string& section) {
      if (!encoding.starts_with("topk")) return;
      Refuse(key, encoding + " with aggregation: " + name,
             "fp32, bf16, fp16 or int8: of a value that few pushes have, the others' zeros would remain", section);
    };
    refuse_sparse("wire.encoding", job.wire().encoding(), "");
    for (int i = 0; i < job.wire().groups_size(); ++i) {
      const std::string group = absl::StrCat("wire.groups[", i, "]");
      refuse_sparse(group + ".encoding", job.wire().groups(i).encoding(), group);
    }
  }

  void Guard(const job::Guard& guard, const ModeFacts& mode) {
    const std::string action = EnumName(*job::Guard::Action_descriptor()->FindValueByNumber(guard.action()));
    if (guard.loss_factor() > 0 && guard.loss_factor() <= 1) {
      Refuse("guard.loss_factor", NumberText(guard.loss_factor()), "a number above 1, or 0 for any loss");
    }
    if (guard.action() == job::Guard::TIGHTEN && !mode.has_bound) {
      Refuse("guard.action", absl::StrCat(action, " together with ", mode.name),
             absl::StrCat("tighten only with consistency.mode: ",
                          AnyOfText(AllModes(), [](const ModeFacts& other) { return other.has_bound; }),
                          ", which has a bound"));
    }
    const bool watches = guard.loss_max() > 0 || guard.loss_factor() > 0 || guard.gradient_norm_max() > 0;
    if (guard.action() != job::Guard::WARN && !watches) {
      Refuse("guard.action", absl::StrCat(action, " without a limit"),
             "that with guard.loss_max, guard.loss_factor or guard.gradient_norm_max above 0");
    }
  }

  void Training(const job::Training& training) {
    if (training.batch() != job::Training::BALANCE) {
      NeedsOther(training, "training.batch_size_min", "training.batch: balance", "fixed");
    } else if (training.batch_size_min() > training.batch_size()) {
      Refuse("training.batch_size_min", absl::StrCat(training.batch_size_min()),
             absl::StrCat("at most training.batch_size (", training.batch_size(), ")"));
    }
  }

  // What evaluations decide needs some.
  void Metric(const job::Job& job) {
    const job::ComparedMetric& metric = job.training().metric();
    const std::string& name = metric.name();
    if (const absl::Status sound = CheckMetricName(name); !sound.ok()) {
      return Understood("training.metric.name", sound);
    }
    const bool loss = name == kLossMetric;
    if (loss || name == kAccuracyMetric) {
      if (loss != (metric.better() == job::ComparedMetric::LOWER)) {
        Refuse("training.metric.better", absl::StrCat(loss ? "higher" : "lower", " with training.metric.name: ", name),
               loss ? "lower: less loss is better" : "higher: more accuracy is better", "training.metric.name");
      }
    } else if (!RunsScripts(job)) {
      Refuse("training.metric.name", absl::StrCat(Quoted(name), " with model.kind: ", FactsOf(job.model()).name),
             "accuracy or loss, or another name with model.kind: external: only scripts report other figures");
    }
  }

  void Tokens(const job::Job& job) {
    const uint32_t tokens = job.training().tokens_per_sample();
    if (tokens > 0 && !RunsScripts(job)) {
      Refuse("training.tokens_per_sample",
             absl::StrCat(tokens, " with model.kind: ", FactsOf(job.model()).name,
                          job.model().has_kind() ? "" : " (the default)"),
             "0, or more with model.kind: external: the other models' samples are images");
    }
  }

  void Evaluations(const job::Training& training, const job::Checkpoint& checkpoint) {
    const job::EarlyStopping& early = training.early_stopping();
    const bool some = training.evaluate_every_epochs() > 0 || training.evaluate_every_samples() > 0;
    const std::string needs_some = "with training.evaluate_every_epochs or training.evaluate_every_samples above 0";
    if (training.evaluate_every_samples() > 0 && training.evaluate_every_epochs() > 1) {
      Refuse("training.evaluate_every_epochs",
             absl::StrCat(training.evaluate_every_epochs(), " together with training.evaluate_every_samples"),
             "one of the two: leave one out", "training.evaluate_every_samples");
    }
    if (early.patience() == 0) {
      for (const char* key : {"metric", "min_delta", "start_epoch"}) {
        NeedsOther(early, absl::StrCat("training.early_stopping.", key), "training.early_stopping.patience above 0",
                   "patience: 0");
      }
    } else if (!some) {
      Refuse("training.early_stopping.patience", absl::StrCat(early.patience()), needs_some);
    } else if (early.start_epoch() > training.epochs()) {
      Refuse("training.early_stopping.start_epoch", absl::StrCat(early.start_epoch()),
             absl::StrCat("at most training.epochs (", training.epochs(), ")"));
    }
    if (checkpoint.keep_best() == 0) {
      NeedsOther(checkpoint, "checkpoint.metric", "checkpoint.keep_best above 0", "keep_best: 0");
    } else if (!some) {
      Refuse("checkpoint.keep_best", absl::StrCat(checkpoint.keep_best()), needs_some);
    }
  }

  void Timeouts(const job::Timeouts& timeouts, uint32_t heartbeat_ms) {
    const uint64_t least = 2ull * heartbeat_ms;
    const std::string allowed = absl::StrCat("at least twice timeouts.heartbeat_ms (", least, ")");
    if (timeouts.stall_ms() < least) Refuse("timeouts.stall_ms", absl::StrCat(timeouts.stall_ms()), allowed);
    if (timeouts.startup_ms() < least) Refuse("timeouts.startup_ms", absl::StrCat(timeouts.startup_ms()), allowed);
  }

  void Durability(const job::Durability& durability, const job::Consistency& consistency) {
    if (durability.mode() == job::Durability::REPLICATED &&
        consistency.delay_compensation() == job::DelayCompensation::ADAPTIVE) {
      // What it remembers of each push is not in the mean that a backup gets.
      Refuse("durability.mode", "replicated", "none or snapshot with consistency.delay_compensation: adaptive",
             "consistency.delay_compensation");
    }
    if (durability.mode() == job::Durability::REPLICATED && FactsOf(consistency).answers_first) {
      // It answers a push before it is in a step, and so in a copy.
      Refuse("durability.mode", "replicated",
             absl::StrCat("none or snapshot with consistency.mode: ", FactsOf(consistency).name,
                          FactsOf(consistency).with),
             "consistency.mode");
    }
    const double most = durability.server_return_s() / 2;
    if (durability.mode() == job::Durability::NONE || durability.scheduler_return_s() <= most) return;
    Refuse("durability.scheduler_return_s",
           absl::StrCat(NumberText(durability.scheduler_return_s()),
                        durability.has_scheduler_return_s() ? "" : ", the default"),
           absl::StrCat("at most half of durability.server_return_s (", NumberText(most), ")"),
           "durability.server_return_s");
  }

  void Names(const job::Job& job) {
    bool plain = !job.name().empty() && job.name().size() <= kNameMax && job.name() != "." && job.name() != "..";
    for (const char letter : job.name()) {
      plain = plain && (absl::ascii_isalnum(letter) || letter == '-' || letter == '_' || letter == '.');
    }
    if (!plain) {
      Refuse("name", absl::StrCat("'", absl::Utf8SafeCEscape(job.name().substr(0, kNameMax)), "'"),
             absl::StrCat("1 to ", kNameMax, " letters, digits, '-', '_' and '.'"));
    }
    if (job.data().path().empty()) Refuse("data.path", "no text", "the folder of the images");
    const std::string& targets = job.output().targets_folder();
    if (!targets.empty() && targets.front() != '/') {
      Refuse("output.targets_folder", absl::StrCat("'", absl::Utf8SafeCEscape(targets), "'"), "an absolute path");
    }
    if (!job.output().tensorboard()) {
      NeedsOther(job.output(), "output.trackers", "output.tensorboard: true, whose event files have the curves",
                 "false");
    }
    Listen(job.network());
  }

  void Listen(const job::Network& network) {
    const std::string& host = network.listen();
    const std::string found = absl::StrCat("'", absl::Utf8SafeCEscape(host.substr(0, kNameMax)), "'");
    const std::string& advertise = network.advertise();
    if (!advertise.empty() && !AddressMistake(advertise + ":1").empty()) {
      Refuse("network.advertise", Quoted(advertise),
             "a name or an address without a port; an IPv6 address stands in brackets ([::1])");
    }
    if (host.empty()) return Refuse("network.listen", "no text", "an address of this machine");
    if (host.find(':') == std::string::npos) {
      if (!AddressMistake(host + ":1").empty()) Refuse("network.listen", found, "an IPv4 address, or a name");
      return;
    }
    const bool bracketed = host.front() == '[' && host.back() == ']';
    if (bracketed) return;
    Refuse("network.listen", found, "an IPv4 address, a name, or an IPv6 address in brackets ([::1])");
  }

  // Which interfaces there are is another question: see below.
  void Network(const job::Network& network) {
    if (!network.interface().empty()) {
      NeedsOther(network, "network.listen", "network.interface: \"\"", "network.interface");
      NeedsOther(network, "network.advertise", "network.interface: \"\"", "network.interface");
      Understood("network.interface", network::CheckInterface(network.interface()));
    }
    if (!network.ports().empty()) Understood("network.ports", network::ParsePortRange(network.ports()).status());
  }

  // Whether the files are there is another question: a job file may be checked anywhere.
  void Security(const job::Security& security, const job::Network& network) {
    const std::string mode = EnumName(*job::Security::Mode_descriptor()->FindValueByNumber(security.mode()));
    const bool tls = security.mode() == job::Security::TLS, token = security.mode() == job::Security::TOKEN;
    if (tls && security.folder().empty()) {
      Refuse("security.folder", "no text", "the folder of the certificates, with security.mode: tls", "security");
    }
    if (token && security.token_file().empty()) {
      Refuse("security.token_file", "no text", "the file with the token, with security.mode: token", "security");
    }
    if (!tls) NeedsOther(security, "security.folder", "security.mode: tls", mode);
    if (!token) NeedsOther(security, "security.token_file", "security.mode: token", mode);
    if (tls || token) return NeedsOther(security, "security.insecure", "security.mode: none", mode);
    const std::string& host = network.listen();
    if (security.insecure() || IsLoopback(host) || host.empty()) return;
    Refuse("network.listen", absl::StrCat("'", absl::Utf8SafeCEscape(host.substr(0, kNameMax)), "' without security"),
           kListeningAllowed);
  }

  void Limits(const job::Limits& limits, const job::Cluster& cluster) {
    if (limits.streams_max() >= cluster.workers()) return;
    Refuse("limits.streams_max", absl::StrCat(limits.streams_max()),
           absl::StrCat("at least cluster.workers (", cluster.workers(), "), each has a connection to every server"));
  }

  void Wire(const job::Wire& wire) {
    Encoding("wire.encoding", wire.encoding());
    for (int i = 0; i < wire.groups_size(); ++i) {
      const std::string group = absl::StrCat("wire.groups[", i, "]");
      Encoding(group + ".encoding", wire.groups(i).encoding(), group);
      if (wire.groups(i).match().empty()) {
        Refuse(group + ".match", "no text", "names of tensors, such as \"*.bias\"", group);
      }
    }
  }

 private:
  // Fewer values have no extremes that could be left out.
  static constexpr int kPushesMin = 3;
  // As a server takes it.
  static constexpr uint64_t kPushSamplesMax = uint64_t{1} << 30;

  void NoLocal(const job::Local& local) {
    const google::protobuf::Descriptor& section = *job::Local::descriptor();
    for (int i = 0; i < section.field_count(); ++i) {
      NeedsOther(local, absl::StrCat("local.", section.field(i)->name()), "local.steps or local.epochs above 0",
                 "neither local.steps nor local.epochs");
    }
  }

  // Refuses the settings of other optimizers in a section, whose field `choice` names its optimizer.
  void OptimizerSettings(const google::protobuf::Message& section, const std::string& name, const std::string& choice,
                         const OptimizerFacts& facts) {
    for (const OptimizerSetting& setting : kOptimizerSettings) {
      if (facts.*setting.allowed || section.GetDescriptor()->FindFieldByName(setting.name) == nullptr) continue;
      const auto allowed = [&](const OptimizerFacts& other) { return other.*setting.allowed; };
      NeedsOther(section, absl::StrCat(name, ".", setting.name),
                 absl::StrCat(name, ".", choice, ": ", AnyOfText(AllOptimizers(), allowed)), std::string(facts.name));
    }
  }

  // Refuses settings that make no sense for a push that is a difference of weights.
  void NoneWithLocal(const job::Job& job) {
    const std::string needed = "local.steps: 0 and local.epochs: 0", actual = "local training";
    NeedsOther(job.wire(), "wire.window", needed, actual);
    NeedsOther(job.training(), "training.accumulate", needed, actual);
    NeedsOther(job.consistency(), "consistency.delay_compensation", needed, actual);
    NeedsOther(job.consistency(), "consistency.weight_prediction", needed, actual);
    NeedsOther(job.optimizer(), "optimizer.scaling", needed, actual);
  }

  void MomentumCorrection(const job::Optimizer& optimizer, const job::Consistency& consistency) {
    if (optimizer.momentum_correction() == job::MomentumCorrection::NONE || !FactsOf(optimizer).has_momentum) return;
    const ModeFacts& mode = FactsOf(consistency);
    if (!mode.takes_stale()) {
      const std::string others = AnyOfText(AllModes(), [](const ModeFacts& other) { return other.takes_stale(); });
      NeedsOther(optimizer, "optimizer.momentum_correction", "consistency.mode: " + others, std::string(mode.name));
    }
    if (optimizer.momentum() == 0) {
      Refuse("optimizer.momentum_correction", "asynchrony without momentum",
             "asynchrony with optimizer.momentum above 0");
    }
  }

  void WeightPrediction(const job::Job& job) {
    if (!PredictsWeights(job)) return;
    const job::Consistency& consistency = job.consistency();
    const job::Optimizer& optimizer = job.optimizer();
    if (consistency.delay_compensation() != job::DelayCompensation::NONE) {
      Refuse("consistency.weight_prediction", "auto with delay compensation",
             "auto with consistency.delay_compensation: none");
    }
    // A script may bring an optimizer, which is checked then.
    if (RunsScripts(job) && !optimizer.has_kind()) return;
    if (KeepsDirection(optimizer)) return;
    Refuse("consistency.weight_prediction",
           absl::StrCat("auto with optimizer.kind: ", FactsOf(optimizer).name, " without momentum"),
           "auto with optimizer.momentum above 0, or with optimizer.kind: adam or adamw and beta1 above 0");
  }

  void DelayCompensation(const job::Consistency& consistency) {
    const auto kind = consistency.delay_compensation();
    const std::string name = EnumName(*job::DelayCompensation::Kind_descriptor()->FindValueByNumber(kind));
    const std::string actual = "delay_compensation: " + name;
    if (kind == job::DelayCompensation::NONE) {
      for (const char* key : {"consistency.dc_lambda", "consistency.dc_references_max"}) {
        NeedsOther(consistency, key, "consistency.delay_compensation: constant or adaptive", actual);
      }
    }
    if (kind != job::DelayCompensation::ADAPTIVE) {
      NeedsOther(consistency, "consistency.dc_mean_square", "consistency.delay_compensation: adaptive", actual);
    }
  }

  void Encoding(const std::string& key, const std::string& text, const std::string& section = "") {
    if (codec::ParseCodec(text).ok()) return;
    Refuse(key, Quoted(text), "one of fp32, bf16, fp16, int8, and topk:F with a fraction F above 0 and at most 1",
           section);
  }

  void Schedule(const job::Schedule& schedule, const job::Training& training) {
    const std::string kind = EnumName(*job::Schedule::Kind_descriptor()->FindValueByNumber(schedule.kind()));
    if (schedule.kind() != job::Schedule::STEP) {
      NeedsOther(schedule, "optimizer.schedule.every_epochs", "optimizer.schedule.kind: step", kind);
      NeedsOther(schedule, "optimizer.schedule.gamma", "optimizer.schedule.kind: step", kind);
    }
    if (schedule.kind() != job::Schedule::COSINE) {
      NeedsOther(schedule, "optimizer.schedule.final_fraction", "optimizer.schedule.kind: cosine", kind);
    }
    if (schedule.warmup_epochs() > training.epochs()) {
      Refuse("optimizer.schedule.warmup_epochs", NumberText(schedule.warmup_epochs()),
             absl::StrCat("at most training.epochs (", training.epochs(), ")"));
    }
  }
};

}  // namespace

void CheckRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes) {
  Rules rules(name, origins, mistakes);
  rules.Names(job);
  CheckModelRules(job, name, origins, mistakes);
  CheckDataRules(job, name, origins, mistakes);
  rules.Mixing(job.data().augment(), job.training());
  rules.ClassWeights(job.training(), job.model().classes());
  rules.Optimizer(job);
  rules.Consistency(job.consistency(), job.guard().action());
  rules.Aggregation(job);
  rules.Guard(job.guard(), FactsOf(job.consistency()));
  rules.Training(job.training());
  rules.Metric(job);
  rules.Tokens(job);
  rules.Evaluations(job.training(), job.checkpoint());
  rules.Local(job);
  CheckPathRules(job, name, origins, mistakes);
  CheckCocoRules(job, name, origins, mistakes);
  CheckWorkerRules(job, name, origins, mistakes);
  CheckSelfSupervisedRules(job, name, origins, mistakes);
  rules.Timeouts(job.timeouts(), HeartbeatMsOf(job));
  rules.Durability(job.durability(), job.consistency());
  rules.Wire(job.wire());
  rules.Limits(job.limits(), job.cluster());
  rules.Network(job.network());
  rules.Security(job.security(), job.network());
}

}  // namespace slackline::job_file
