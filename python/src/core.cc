// slackline._core: an EmbeddedJob for Python. Knows no torch: buffers come and go by DLPack.
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/logging.h"
#include "common/rpc/channel.h"
#include "common/version_text.h"
#include "python/src/caller.h"
#include "worker/embedded/embedded_job.h"

namespace nb = nanobind;

namespace slackline::python {
namespace {

using worker::EmbeddedJob;

// Crosses from C++ into Python as the exception of its code.
struct StatusError {
  absl::Status status;
};

void Check(const absl::Status& status) {
  if (!status.ok()) throw StatusError{status};
}

// Sets the exception; needs the GIL.
void Raise(const absl::Status& status) {
  try {
    const nb::object exception =
        nb::module_::import_("slackline._errors")
            .attr("from_status")(absl::StatusCodeToString(status.code()), std::string(status.message()));
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  } catch (nb::python_error& error) {
    error.restore();
  }
}

using Tensor = std::tuple<std::string, std::vector<uint64_t>, bool>;
using Vector = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Thread-safety: as EmbeddedJob, under the GIL.
class Job {
 public:
  Job(std::string job_file, std::vector<std::string> overrides, std::string scheduler, std::string name,
      std::string topology)
      : pid_(::getpid()) {
    auto job = EmbeddedJob::Read({.job_file = std::move(job_file),
                                  .overrides = std::move(overrides),
                                  .scheduler = std::move(scheduler),
                                  .name = std::move(name),
                                  .topology = std::move(topology)});
    Check(job.status());
    job_ = *std::move(job);
    caller_ = std::make_unique<Caller>();
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

  void Open(const std::vector<Tensor>& tensors, uint64_t train_samples, uint64_t test_samples,
            const std::vector<Vector>& parameters) {
    CheckProcess();
    EmbeddedJob::Model model;
    for (const Tensor& tensor : tensors) {
      model.tensors.push_back(
          {.name = std::get<0>(tensor), .shape = std::get<1>(tensor), .trained = std::get<2>(tensor)});
    }
    model.train_samples = train_samples;
    model.test_samples = test_samples;
    for (const Vector& part : parameters) model.parameters.push_back(absl::MakeSpan(part.data(), part.size()));
    Check(job_->Open(model));
    parameters_ = parameters;
    open_ = true;
  }

  nb::object Next(bool range_done) {
    const auto task = Wait([&] { return worker().Next(range_done); });
    Check(task.status());
    if (const auto* range = std::get_if<worker::EmbeddedRange>(&*task)) {
      const worker::RangeWork& work = range->work;
      return nb::make_tuple("range", work.epoch, work.batch_size, nb::cast(range->samples));
    }
    if (const auto* evaluation = std::get_if<worker::EvaluationWork>(&*task)) {
      evaluation_ = *evaluation;
      return nb::make_tuple("evaluation", evaluation->epoch, evaluation->final);
    }
    return nb::make_tuple("end", std::get<worker::EmbeddedEnd>(*task).reason);
  }

  void Ready(uint64_t from) {
    CheckProcess();
    Check(worker().Ready(from));
  }

  std::string Step(uint64_t samples, double loss, uint64_t correct, double compute_seconds) {
    const auto step = Wait([&] {
      return worker().Step({.samples = samples,
                            .loss = loss,
                            .correct = correct,
                            .compute = absl::Seconds(compute_seconds),
                            .data_wait = absl::ZeroDuration()});
    });
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

  // Of 0 samples: there is none. After the last one, writes the weights.
  void Evaluated(uint64_t samples, double loss, double accuracy, double seconds) {
    worker::EvaluationResult result;
    result.work = evaluation_;
    result.loss = loss;
    result.seconds = seconds;
    result.metrics.samples = samples;
    result.metrics.accuracy = accuracy;
    Check(Wait([&] {
      if (result.work.final) {
        if (const absl::Status written = job_->WriteWeights(result); !written.ok()) return written;
      }
      return worker().ReportEvaluation(result);
    }));
  }

  void Alive() {
    CheckProcess();
    worker().Alive();
  }
  void SetBusyElsewhere(bool busy) {
    CheckProcess();
    worker().SetBusyElsewhere(busy);
  }

  void Leave(const std::string& reason, bool in_order) {
    if (!open_) return;
    Check(Wait([&] {
      worker().Leave(reason, in_order);
      return absl::OkStatus();
    }));
  }

  std::tuple<uint32_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, std::optional<std::string>> View() {
    if (!open_) return {0, 0, 0, 0, 0, 0, std::nullopt};
    const worker::EmbeddedView view = worker().view();
    return {view.worker, view.lives, view.steps, view.clock.value(), view.staleness, view.slack, view.ended};
  }

  bool leaves_early() { return worker().leaves_early(); }
  bool open() const { return open_; }
  const std::vector<absl::Span<float>>& push() {
    CheckProcess();
    worker();
    return job_->push();
  }
  // Of the push buffers, and of the parameters.
  std::tuple<size_t, size_t> Parts() {
    if (!open_) return {0, 0};
    return {worker().push_part(), worker().parameters_part()};
  }

 private:
  worker::EmbeddedWorker& worker() {
    if (!open_) throw StatusError{absl::FailedPreconditionError("the worker has no model yet: open() it first")};
    return job_->worker();
  }
  void CheckProcess() const {
    if (::getpid() == pid_) return;
    throw StatusError{absl::FailedPreconditionError(absl::StrCat("process ", ::getpid(), " was forked from ", pid_,
                                                                 ", whose worker this is: only that may use it"))};
  }
  template <typename Call>
  std::invoke_result_t<Call> Wait(Call call) {
    CheckProcess();
    worker();
    return caller_->Run(std::move(call), [this] { job_->worker().Interrupt("interrupted by a signal"); });
  }

  const pid_t pid_;
  std::unique_ptr<EmbeddedJob> job_;
  std::unique_ptr<Caller> caller_;
  std::vector<Vector> parameters_;
  worker::EvaluationWork evaluation_;
  bool open_ = false;
};

void SetUp() {
  rpc::PrepareProcess();
  rpc::SilenceGrpcLog();
}

void LogAs(const std::string& name, const std::string& least) {
  log::Initialise(name, least == "info"      ? log::Least::kInfo
                        : least == "warning" ? log::Least::kWarning
                                             : log::Least::kNothing);
}

}  // namespace
}  // namespace slackline::python

NB_MODULE(_core, module) {
  using slackline::python::Job;
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
  module.def("log_as", &slackline::python::LogAs, nb::arg("name"), nb::arg("least"));
  nb::class_<Job>(module, "Job")
      .def(nb::init<std::string, std::vector<std::string>, std::string, std::string, std::string>(),
           nb::arg("job_file"), nb::arg("overrides"), nb::arg("scheduler"), nb::arg("name"), nb::arg("topology"))
      .def_prop_ro("name", [](const Job& job) { return job.settings().name; })
      .def_prop_ro("seed", [](const Job& job) { return job.settings().seed; })
      .def_prop_ro("batch_size", [](const Job& job) { return job.settings().batch_size; })
      .def_prop_ro("accumulate", [](const Job& job) { return job.settings().accumulate; })
      .def_prop_ro("epochs", [](const Job& job) { return job.settings().epochs; })
      .def_prop_ro("threads", [](const Job& job) { return job.settings().threads; })
      .def_prop_ro("window", [](const Job& job) { return job.settings().window; })
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
      .def("next", &Job::Next, nb::arg("range_done"))
      .def_prop_ro("leaves_early", &Job::leaves_early)
      .def("ready", &Job::Ready, nb::arg("from_element"))
      .def("step", &Job::Step, nb::arg("samples"), nb::arg("loss"), nb::arg("correct"), nb::arg("compute_seconds"))
      .def("evaluated", &Job::Evaluated, nb::arg("samples"), nb::arg("loss"), nb::arg("accuracy"), nb::arg("seconds"))
      .def("alive", &Job::Alive)
      .def("set_busy_elsewhere", &Job::SetBusyElsewhere, nb::arg("busy"))
      .def("leave", &Job::Leave, nb::arg("reason"), nb::arg("in_order"))
      .def("view", &Job::View)
      .def_prop_ro("is_open", &Job::open);
}
