// slackline._core: an EmbeddedJob for Python. Knows no torch: buffers come and go by DLPack.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/job/metric_names.h"
#include "common/log/logging.h"
#include "common/metrics/measured.h"
#include "common/rpc/channel.h"
#include "common/text/version_text.h"
#include "python/src/caller.h"
#include "python/src/text.h"
#include "worker/embedded/embedded_job.h"

namespace nb = nanobind;

namespace slackline::python {
namespace {

using worker::EmbeddedJob;

// How long a call in progress may still take once its worker leaves.
constexpr absl::Duration kLeavingPatience = absl::Seconds(2);

void Check(const absl::Status& status) {
  if (!status.ok()) throw StatusError{status};
}

// Sets the exception; needs the GIL.
void Raise(const absl::Status& status) {
  try {
    const nb::object exception =
        nb::module_::import_("slackline._errors")
            .attr("from_status")(absl::StatusCodeToString(status.code()), Text{std::string(status.message())});
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  } catch (nb::python_error& error) {
    error.restore();
  }
}

using Tensor = std::tuple<Text, std::vector<uint64_t>, bool>;
using Vector = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Calls that wait let other Python code run: signal handlers in the same thread, and other threads. That code may call
// Leave(), which ends the call in progress, and what reads; all else is refused.
//
// Thread-safety: safe under the GIL.
class Job {
 public:
  Job(SystemText job_file, std::vector<SystemText> overrides, SystemText scheduler, SystemText name, Text topology)
      : pid_(::getpid()) {
    std::vector<std::string> settings;
    for (SystemText& one : overrides) settings.push_back(std::move(one.bytes));
    auto job = EmbeddedJob::Read({.job_file = std::move(job_file.bytes),
                                  .overrides = std::move(settings),
                                  .scheduler = std::move(scheduler.bytes),
                                  .name = std::move(name.bytes),
                                  .topology = std::move(topology.utf8)});
    Check(job.status());
    job_ = *std::move(job);
    caller_ = std::make_unique<CallThread>();
  }
  ~Job() {
    if (::getpid() == pid_) {
      // Threads of it may be in a wait of some ms.
      nb::gil_scoped_release release;
      caller_.reset();
      job_.reset();
      return;
    }
    // After a fork: its threads are not here.
    (void)caller_.release();
    (void)job_.release();
  }

  const EmbeddedJob::Settings& settings() const { return job_->settings(); }

  // The job's lr, and pattern and lr of each of optimizer.groups.
  std::tuple<double, std::vector<std::tuple<Text, double>>> LearningRates() const {
    const EmbeddedJob::Settings& settings = job_->settings();
    std::vector<std::tuple<Text, double>> groups;
    for (size_t i = 0; i < settings.group_rules.size(); ++i) {
      groups.emplace_back(Text{settings.group_rules[i].match},
                          settings.optimizer.lr * settings.optimizer.groups[i].lr_factor);
    }
    return {settings.optimizer.lr, groups};
  }
  std::optional<size_t> GroupOf(const Text& tensor) const {
    return slackline::GroupOf(job_->settings().group_rules, tensor.utf8);
  }

  // Gives the settings of the script's optimizer, before open(): "lr=0.1"; name, lr_factor and weight_decay of groups;
  // and the group of each trained tensor, from 1, or 0.
  void SetOptimizer(const std::vector<Text>& settings, const std::vector<std::tuple<Text, double, double>>& groups,
                    std::vector<uint32_t> members) {
    caller_->CheckProcess();
    EmbeddedJob::ScriptOptimizer optimizer;
    for (const Text& setting : settings) optimizer.settings.push_back(setting.utf8);
    for (const auto& [name, lr_factor, weight_decay] : groups) {
      optimizer.groups.push_back({.name = name.utf8, .lr_factor = lr_factor, .weight_decay = weight_decay});
    }
    optimizer.members = std::move(members);
    Check(job_->SetOptimizer(optimizer));
  }

  void Open(const std::vector<Tensor>& tensors, uint64_t train_samples, uint64_t test_samples,
            const std::vector<Vector>& parameters) {
    caller_->CheckProcess();
    EmbeddedJob::Model model;
    for (const Tensor& tensor : tensors) {
      model.tensors.push_back(
          {.name = std::get<0>(tensor).utf8, .shape = std::get<1>(tensor), .trained = std::get<2>(tensor)});
    }
    model.train_samples = train_samples;
    model.stream = stream_;
    model.test_samples = test_samples;
    for (const Vector& part : parameters) model.parameters.push_back(absl::MakeSpan(part.data(), part.size()));
    Check(job_->Open(model));
    parameters_ = parameters;
    leaves_early_ = job_->worker().leaves_early();
    open_ = true;
  }

  // Says before Open() that the samples come from a stream.
  void SetStream(uint32_t parts, uint64_t fingerprint, uint32_t passes) {
    stream_ = worker::StreamFacts{.parts = parts, .fingerprint = fingerprint, .passes = passes};
  }

  // Lease, part, pass and position of each part that the worker holds. `ended`: leases and numbers of records.
  std::vector<std::tuple<uint64_t, uint32_t, uint32_t, uint64_t>> LeaseParts(
      uint32_t wanted, const std::vector<std::tuple<uint64_t, uint64_t>>& ended) {
    if (leaving_) return {};
    std::vector<worker::PartPosition> ends;
    for (const auto& [lease, records] : ended) ends.push_back({.lease = lease, .records = records, .ended = true});
    const auto leased = Wait("the lease of a part", [&] { return worker().LeaseParts(wanted, ends); });
    if (leaving_ && MayBeLeft(leased.status())) return {};
    Check(leased.status());
    std::vector<std::tuple<uint64_t, uint32_t, uint32_t, uint64_t>> leases;
    for (const worker::PartLease& one : *leased) leases.emplace_back(one.lease, one.part, one.pass, one.records);
    return leases;
  }

  // Sets the positions of the next step.
  void SetParts(const std::vector<std::tuple<uint64_t, uint64_t>>& positions) {
    part_positions_.clear();
    for (const auto& [lease, records] : positions) part_positions_.push_back({.lease = lease, .records = records});
  }

  nb::object Next(bool range_done) {
    const auto end = [](const std::string& reason) { return nb::make_tuple("end", Text{reason}); };
    if (leaving_) return end(*leaving_);
    const auto task = Wait("the draw of samples", [&] { return worker().Next(range_done); });
    if (leaving_ && MayBeLeft(task.status())) return end(*leaving_);
    Check(task.status());
    if (const auto* range = std::get_if<worker::EmbeddedRange>(&*task)) {
      const worker::RangeWork& work = range->work;
      // The records of a stream are in its parts: the range is only their number.
      return nb::make_tuple("range", work.epoch, work.batch_size,
                            stream_ ? nb::object(nb::int_(work.end - work.begin)) : nb::cast(range->samples),
                            work.begin);
    }
    if (const auto* evaluation = std::get_if<worker::EvaluationWork>(&*task)) {
      evaluation_ = *evaluation;
      return nb::make_tuple("evaluation", evaluation->epoch, evaluation->final);
    }
    return end(std::get<worker::EmbeddedEnd>(*task).reason);
  }

  void Ready(uint64_t from) {
    caller_->CheckProcess();
    CheckIdle("backward()");
    if (!leaving_) Check(worker().Ready(from));
  }

  std::string Step(uint64_t samples, std::optional<double> loss, std::optional<uint64_t> correct,
                   std::optional<double> gradient_norm, double compute_seconds, std::vector<double> learning_rates,
                   uint64_t local_steps) {
    if (leaving_) return "ended";
    const auto step = Wait("optimizer.step()", [&] {
      return worker().Step({.samples = samples,
                            .loss = loss,
                            .correct = correct,
                            .gradient_norm = gradient_norm,
                            .learning_rates = learning_rates,
                            .parts = part_positions_,
                            .local_steps = local_steps,
                            .compute = absl::Seconds(compute_seconds),
                            .data_wait = absl::ZeroDuration()});
    });
    if (leaving_ && MayBeLeft(step.status())) return "ended";
    Check(step.status());
    switch (step->outcome) {
      case worker::EmbeddedStep::Outcome::kTaken:
        return "taken";
      case worker::EmbeddedStep::Outcome::kRejoined:
        return "rejoined";
      case worker::EmbeddedStep::Outcome::kEnded:
        break;
    }
    return "ended";
  }

  void Skip(uint64_t samples) {
    caller_->CheckProcess();
    CheckIdle("optimizer.step()");
    if (!leaving_) worker().Skip(samples);
  }

  // Reports an evaluation; 0 samples say that there is none. `values`: the other figures. After the last evaluation,
  // writes the weights.
  void Evaluated(uint64_t samples, std::optional<double> loss, std::optional<double> accuracy, NamedValues values,
                 double seconds) {
    if (leaving_) return;
    worker::EvaluationResult result;
    result.work = evaluation_;
    result.loss = loss;
    result.seconds = seconds;
    result.metrics.samples = samples;
    result.metrics.accuracy = accuracy;
    result.metrics.values = std::move(values);
    const absl::Status reported = Wait("an evaluation", [&] {
      if (result.work.final) {
        if (const absl::Status written = job_->WriteWeights(result); !written.ok()) return written;
      }
      return worker().ReportEvaluation(result);
    });
    if (!leaving_ || !MayBeLeft(reported)) Check(reported);
  }

  void Alive() {
    caller_->CheckProcess();
    worker().Alive();
  }
  void SetValues(NamedValues values) {
    caller_->CheckProcess();
    worker().SetValues(std::move(values));
  }
  void SetBusyElsewhere(bool busy) {
    caller_->CheckProcess();
    worker().SetBusyElsewhere(busy);
  }

  // Ends the call in progress first, of this thread or of another one. That call then says that the job is over.
  // Returns false while an earlier Leave() is under way.
  bool Leave(const Text& reason, bool in_order) {
    caller_->CheckProcess();
    if (leaving_) return caller_->running() == nullptr;
    leaving_ = reason.utf8;
    if (!open_) return true;
    try {
      caller_->AwaitIdle(kLeavingPatience, [&] { worker().Interrupt(reason.utf8); });
    } catch (const PythonErrorIsSet&) {
      leaving_.reset();  // it may try again
      throw;
    }
    Check(Wait("worker.leave()", [&] {
      worker().Leave(reason.utf8, in_order);
      return absl::OkStatus();
    }));
    return true;
  }

  std::tuple<uint32_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, std::optional<Text>> View() {
    worker::EmbeddedView view;
    if (open_) view = worker().view();
    if (!view.ended) view.ended = leaving_;
    std::optional<Text> ended;
    if (view.ended) ended = Text{*view.ended};
    return {view.worker, view.lives, view.steps, view.clock.value(), view.staleness, view.slack, ended};
  }

  bool leaves_early() const { return leaves_early_; }
  bool open() const { return open_; }
  // Before the caller writes to push(): a call that waits may still send what is there.
  void CheckIdle(const std::string& name) const {
    if (!leaving_) caller_->CheckIdle(name);
  }
  std::optional<std::string> running() const {
    const char* const name = caller_->running();
    return name != nullptr ? std::optional<std::string>(name) : std::nullopt;
  }
  const std::vector<absl::Span<float>>& push() {
    caller_->CheckProcess();
    worker();
    return job_->push();
  }
  // Of the push buffers, and of the parameters.
  std::tuple<size_t, size_t> Parts() const { return {push_part_, parameters_part_}; }

 private:
  worker::EmbeddedWorker& worker() {
    if (!open_) throw StatusError{absl::FailedPreconditionError("the worker has no model yet: open() it first")};
    return job_->worker();
  }
  // What a call that Leave() has ended may return.
  static bool MayBeLeft(const absl::Status& status) { return status.ok() || absl::IsCancelled(status); }
  template <typename Call>
  std::invoke_result_t<Call> Wait(const char* name, Call call) {
    caller_->CheckProcess();
    worker();
    const auto run = [&] {
      auto result = call();
      push_part_ = job_->worker().push_part();
      parameters_part_ = job_->worker().parameters_part();
      return result;
    };
    return caller_->Run(name, run, [this] { job_->worker().Interrupt("interrupted by a signal"); });
  }

  const pid_t pid_;
  std::unique_ptr<EmbeddedJob> job_;
  std::unique_ptr<CallThread> caller_;
  std::vector<Vector> parameters_;
  worker::EvaluationWork evaluation_;
  std::optional<worker::StreamFacts> stream_;
  std::vector<worker::PartPosition> part_positions_;  // of the next step
  bool open_ = false;
  bool leaves_early_ = false;
  // Why the worker leaves, or has left.
  std::optional<std::string> leaving_;
  // The worker's, after the last call: the caller's thread writes them.
  std::atomic<size_t> push_part_ = 0, parameters_part_ = 0;
};

void SetUp() {
  rpc::PrepareProcess();
  rpc::SilenceGrpcLog();
}

// Checks the names of figures that a script reports.
void CheckNames(const std::vector<Text>& names) {
  for (const Text& name : names) Check(CheckMetricName(name.utf8));
  if (names.size() <= kMetricNamesMax) return;
  Check(absl::InvalidArgumentError(
      absl::StrCat("found ", names.size(), " names of figures; allowed is at most ", kMetricNamesMax)));
}

void LogAs(const Text& name, const std::string& least) {
  log::Initialise(name.utf8, least == "info"      ? log::Least::kInfo
                             : least == "warning" ? log::Least::kWarning
                                                  : log::Least::kNothing);
}

}  // namespace
}  // namespace slackline::python

NB_MODULE(_core, module) {
  using slackline::python::Job;
  using slackline::python::SystemText;
  using slackline::python::Text;
  nb::register_exception_translator([](const std::exception_ptr& exception, void*) {
    try {
      std::rethrow_exception(exception);
    } catch (const slackline::python::StatusError& error) {
      slackline::python::Raise(error.status);
    } catch (const slackline::python::PythonErrorIsSet&) {
    }
  });
  // A script may end with its worker in a global.
  nb::set_leak_warnings(false);
  slackline::python::SetUp();
  module.doc() = "The exchange with the servers and the scheduler, in C++.";
  module.def("version", [] { return slackline::VersionText("slackline"); });
  module.def("check_names", &slackline::python::CheckNames, nb::arg("names"));
  module.def("log_as", &slackline::python::LogAs, nb::arg("name"), nb::arg("least"));
  nb::class_<Job>(module, "Job")
      .def(nb::init<SystemText, std::vector<SystemText>, SystemText, SystemText, Text>(), nb::arg("job_file"),
           nb::arg("overrides"), nb::arg("scheduler"), nb::arg("name"), nb::arg("topology"))
      .def_prop_ro("name", [](const Job& job) { return Text{job.settings().name}; })
      .def_prop_ro("seed", [](const Job& job) { return job.settings().seed; })
      .def_prop_ro("batch_size", [](const Job& job) { return job.settings().batch_size; })
      .def_prop_ro("accumulate", [](const Job& job) { return job.settings().accumulate; })
      .def_prop_ro("epochs", [](const Job& job) { return job.settings().epochs; })
      .def_prop_ro("threads", [](const Job& job) { return job.settings().threads; })
      .def_prop_ro("window", [](const Job& job) { return job.settings().window; })
      .def_prop_ro("local_steps", [](const Job& job) { return job.settings().local_steps; })
      .def_prop_ro("names_lr", [](const Job& job) { return job.settings().names_lr; })
      .def_prop_ro("learning_rates", &Job::LearningRates)
      .def("group_of", &Job::GroupOf, nb::arg("tensor"))
      .def("set_optimizer", &Job::SetOptimizer, nb::arg("settings"), nb::arg("groups"), nb::arg("members"))
      .def("open", &Job::Open, nb::arg("tensors"), nb::arg("train_samples"), nb::arg("test_samples"),
           nb::arg("parameters"))
      .def("push_buffers",
           [](nb::handle_t<Job> self) {
             std::vector<nb::ndarray<nb::pytorch, float, nb::ndim<1>>> buffers;
             for (const absl::Span<float> part : nb::cast<Job&>(self).push()) {
               buffers.emplace_back(part.data(), std::initializer_list<size_t>{part.size()}, self);
             }
             return buffers;
           })
      .def("parts", &Job::Parts)
      .def("set_stream", &Job::SetStream, nb::arg("parts"), nb::arg("fingerprint"), nb::arg("passes"))
      .def("lease_parts", &Job::LeaseParts, nb::arg("wanted"), nb::arg("ended"))
      .def("set_parts", &Job::SetParts, nb::arg("positions"))
      .def("next", &Job::Next, nb::arg("range_done"))
      .def_prop_ro("leaves_early", &Job::leaves_early)
      .def("ready", &Job::Ready, nb::arg("from_element"))
      .def("step", &Job::Step, nb::arg("samples"), nb::arg("loss").none(), nb::arg("correct").none(),
           nb::arg("gradient_norm").none(), nb::arg("compute_seconds"), nb::arg("learning_rates"),
           nb::arg("local_steps") = 0)
      .def("skip", &Job::Skip, nb::arg("samples"))
      .def("evaluated", &Job::Evaluated, nb::arg("samples"), nb::arg("loss").none(), nb::arg("accuracy").none(),
           nb::arg("values"), nb::arg("seconds"))
      .def("set_values", &Job::SetValues, nb::arg("values"))
      .def("alive", &Job::Alive)
      .def("set_busy_elsewhere", &Job::SetBusyElsewhere, nb::arg("busy"))
      .def("leave", &Job::Leave, nb::arg("reason"), nb::arg("in_order"))
      .def("view", &Job::View)
      .def_prop_ro("is_open", &Job::open)
      .def_prop_ro("running", &Job::running)
      .def("check_idle", &Job::CheckIdle, nb::arg("name"));
}
