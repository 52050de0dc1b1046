#include "cli/run/run_checks.h"

#include <stdlib.h>

#include <fstream>
#include <optional>
#include <system_error>

#include <google/protobuf/descriptor.h>
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/base/process.h"
#include "cli/base/sibling.h"
#include "cli/run/cluster.h"
#include "cli/run/run_folder.h"
#include "cli/run/run_lock.h"
#include "cli/run/scheduler_client.h"
#include "common/http/http_address.h"
#include "common/job/job_file.h"
#include "common/job/job_kinds.h"
#include "common/job/value.h"
#include "common/network/on_this_machine.h"
#include "common/network/ports.h"
#include "common/process/device.h"
#include "common/rpc/channel.h"
#include "common/security/check_credentials.h"
#include "images/formats/data_format.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kAnswerTimeout = absl::Seconds(2);
constexpr absl::Duration kLongest = absl::Seconds(60);

bool NamesGpu(const job::Job& job) {
  std::vector<std::string> names(job.worker().devices().begin(), job.worker().devices().end());
  for (const auto& group : job.worker().groups()) {
    names.insert(names.end(), group.devices().begin(), group.devices().end());
  }
  // auto is a cpu where there is no GPU.
  return absl::c_any_of(names, [](const std::string& name) {
    const auto device = ParseDevice(name);
    return device && device->kind == Device::Kind::kCuda;
  });
}

absl::Status AskWorker(const fs::path& worker, const job::Job& job, const fs::path& folder) {
  std::ofstream(folder / "job.yaml") << ToYaml(job);
  absl::StatusOr<Process> process = Process::Start(
      {.name = "slackline-worker", .command = {worker, folder / "job.yaml", "--check-devices"}, .log = folder / "log"});
  if (!process.ok()) return process.status();
  const std::optional<ProcessEnd> end = process->WaitFor(kLongest);
  if (!end) {
    return absl::DeadlineExceededError(absl::StrCat("slackline-worker did not answer within ",
                                                    absl::FormatDuration(kLongest), " which GPUs this machine has"));
  }
  if (end->ok()) return absl::OkStatus();
  const std::string said = process->LastWords();
  return absl::FailedPreconditionError(said.empty() ? absl::StrCat("slackline-worker: ", end->Describe()) : said);
}

// Returns the field's value, or its default, in the form of the job file.
std::string FieldText(const job::Model& model, const google::protobuf::FieldDescriptor& field) {
  if (!field.is_repeated()) return job_file::ScalarText(model, field);
  std::vector<std::string> items;
  for (int i = 0; i < model.GetReflection()->FieldSize(model, &field); ++i) {
    items.push_back(job_file::ScalarText(model, field, i));
  }
  return absl::StrCat("[", absl::StrJoin(items, ","), "]");
}

}  // namespace

absl::Status CheckWeights(const job::Job& job) {
  const auto check = [](const char* key, const std::string& path, const char* allowed) {
    std::error_code error;
    if (path.empty() || std::filesystem::is_regular_file(path, error)) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat(key, ": found no file ", path, "; allowed is ", allowed));
  };
  absl::Status status = check("model.weights", job.model().weights(), "a safetensors file");
  status.Update(check("model.torchscript", job.model().torchscript(), "what torch.jit.save has written"));
  for (const std::string& path : job.model().libraries()) {
    status.Update(check("model.libraries", path, "a library with operators"));
  }
  return status;
}

absl::Status CheckData(const job::Job& job) {
  if (RunsScripts(job)) return absl::OkStatus();                 // scripts bring their own
  if (IsFileServer(job.data().path())) return absl::OkStatus();  // workers ask it as they begin
  const std::filesystem::path folder = job.data().path();
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::NotFoundError(absl::StrCat("data.path: found no folder ", folder.string(),
                                            "; allowed is the folder of the images (Debian's dataset-fashion-mnist "
                                            "is the default's)"));
  }
  const auto check = images::FormatOf(job.data()).check;
  // Workers look at the others as they begin.
  return check == nullptr ? absl::OkStatus() : check(job.data(), job.model().classes());
}

absl::Status CheckPorts(const job::Network& network, const Crowd& crowd, const std::string& where) {
  if (network.ports().empty()) return absl::OkStatus();
  const absl::StatusOr<network::PortRange> range = network::ParsePortRange(network.ports());
  if (!range.ok()) return range.status();
  // A metrics_port is the scheduler's.
  const size_t scheduler = !crowd.scheduler ? 0 : network.metrics() && network.metrics_port() == 0 ? 2 : 1;
  const size_t metrics = network.metrics() ? 1 : 0;
  const size_t needed = scheduler + crowd.servers * (1 + metrics) + crowd.workers * metrics;
  if (range->size() >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("network.ports: found ", network.ports(), ", which is ", range->size(),
                                                 range->size() == 1 ? " port" : " ports", "; allowed are at least ",
                                                 needed, " for the processes ", where));
}

absl::Status CheckNetwork(const job::Job& job) {
  const absl::StatusOr<job::Network> network = network::OnThisMachine(job.network());
  if (!network.ok()) return network.status();
  absl::Status status = security::CheckListening(network->listen(), job.security());
  status.Update(
      CheckPorts(*network, {true, ServerProcesses(job), job.cluster().workers()}, "of this job on this machine"));
  return status;
}

std::vector<absl::Status> CheckHere(const job::Job& job, Purpose purpose) {
  std::vector<absl::Status> checks = {CheckData(job), CheckWeights(job)};
  if (purpose == Purpose::kTrain) {
    checks.push_back(CheckNetwork(job));
    checks.push_back(CheckDevices(job));
  }
  std::erase_if(checks, [](const absl::Status& check) { return check.ok(); });
  return checks;
}

absl::Status CheckFreePorts(const job::Job& job, uint32_t servers) {
  if (job.network().ports().empty()) return absl::OkStatus();
  const absl::StatusOr<job::Network> network = network::OnThisMachine(job.network());
  if (!network.ok()) return network.status();
  const absl::StatusOr<network::PortRange> range = network::ParsePortRange(network->ports());
  if (!range.ok()) return range.status();
  const uint32_t needed = servers * (network->metrics() ? 2 : 1);
  const absl::StatusOr<uint32_t> free = network::CountFreePorts(network->listen(), *range, needed);
  if (!free.ok()) return free.status();
  if (*free >= needed) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("network.ports: found ", *free, " free of ", network->ports(),
                                                    "; allowed are at least ", needed, " for ", servers, " more server",
                                                    servers == 1 ? "" : "s", " on this machine"));
}

absl::Status CheckNobodyRuns(const std::filesystem::path& run, const security::Security& security) {
  if (const std::string who = WhoRuns(run); !who.empty()) {
    return absl::AlreadyExistsError(absl::StrCat("the run in ", run.string(), " still runs: ", who, " supervises it"));
  }
  const absl::StatusOr<std::string> address = RunFolder::ReadAddressFile(run);
  if (!address.ok()) return absl::OkStatus();
  SchedulerClient scheduler(*address, security.To(security::Role::kScheduler));
  const absl::Status answer = scheduler.GetStatus(kAnswerTimeout).status();
  // Nobody is there. Whoever refuses us, or does not answer in time, is somebody.
  if (absl::IsUnavailable(answer) && !rpc::IsMistrust(answer)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the run in ", run.string(), " still runs: its scheduler is at ", *address,
                   answer.ok() ? "" : absl::StrCat(" (", WhoSays(*address, answer), ")"),
                   "; if that is somebody else, remove ", RunFolder::AddressFile(run).string()));
}

absl::Status CheckUnused(const job::Job& job, const std::filesystem::path& run) {
  const std::filesystem::path folder = checkpoint::FolderOfRun(job.checkpoint().folder(), run);
  if (checkpoint::List(folder).empty()) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(folder.string(), " has checkpoints of another run in ", run.string(),
                                               ": remove them, or choose another run folder"));
}

absl::Status CheckWorkIsLeft(const checkpoint::Choice& from, const job::Job& job) {
  const state::Tasks& tasks = from.manifest.scheduler().tasks();
  const uint32_t epochs = job.training().epochs();
  const uint32_t done = tasks.ranges().epochs_done();
  // Between the last epoch and its evaluation nothing is left to train, but something to do.
  if (done < epochs || (done == epochs && !tasks.complete())) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(done, done == 1 ? " epoch is" : " epochs are", " done in ",
                                                    from.path.string(), ", and training.epochs is ", epochs,
                                                    "; to train on: --set training.epochs=", done + 1));
}

absl::StatusOr<security::Security> OpenSecurity(const job::Job& job) {
  if (job.security().mode() == job::Security::TLS) {
    for (const security::Role role : security::kRoles) {
      const absl::Status status = security::CheckPair(job.security().folder(), {job.name(), role}, absl::Now());
      if (!status.ok()) return status;
    }
  }
  return security::Security::Open(job, security::Role::kOperator);
}

absl::Status CheckDevices(const job::Job& job) {
  if (RunsScripts(job) || !NamesGpu(job)) return absl::OkStatus();
  const absl::StatusOr<fs::path> worker = Sibling(kWorkerProgram);
  if (!worker.ok()) return worker.status();
  std::error_code error;
  std::string folder = fs::temp_directory_path(error) / "slackline-check-XXXXXX";
  if (error || ::mkdtemp(folder.data()) == nullptr) return absl::UnavailableError("cannot make a temporary folder");
  const absl::Status status = AskWorker(*worker, job, folder);
  fs::remove_all(folder, error);
  return status;
}

absl::Status CheckModelKept(const job::Job& before, const job::Job& after) {
  std::vector<std::string> mistakes;
  const google::protobuf::Descriptor& fields = *job::Model::descriptor();
  for (int i = 0; i < fields.field_count(); ++i) {
    const std::string kept = FieldText(before.model(), *fields.field(i));
    const std::string found = FieldText(after.model(), *fields.field(i));
    if (found == kept) continue;
    mistakes.push_back(absl::StrCat("model.", fields.field(i)->name(), ": found ", found, "; allowed is ", kept,
                                    ", as the checkpoints of the run have it"));
  }
  return mistakes.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(mistakes, "\n"));
}

absl::Status CheckImagesKept(uint64_t samples, uint64_t fingerprint, const job::Job& after) {
  if (RunsScripts(after) || samples == 0) return absl::OkStatus();
  const uint64_t most = after.data().train_images_max();
  if (const auto look = images::FormatOf(after.data()).look; look != nullptr) {
    const std::optional<images::TrainingImages> found = look(after.data());
    if (!found) return absl::OkStatus();  // another check says what is wrong with the file
    if (found->count == samples) {
      const std::string kept = absl::StrFormat("%016x", fingerprint);
      if (fingerprint == 0 || found->fingerprint == fingerprint || after.data().replaces() == kept)
        return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("data.path: found training images in ", after.data().path(), " with the fingerprint ",
                       absl::StrFormat("%016x", found->fingerprint), "; allowed is ", kept,
                       ", that of the data which the checkpoint was trained on: they were prepared anew since. To go "
                       "on with the others in their place: --set data.replaces=",
                       kept));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("data.path: found ", found->count, " training images in ", after.data().path(),
                     most == 0 ? "" : absl::StrCat(" (data.train_images_max: ", most, ")"), "; allowed are ", samples,
                     ", as the checkpoint has them"));
  }
  if (most == 0 || most >= samples) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("data.train_images_max: found ", most, "; allowed is ", samples,
                                                 ", as many images as the checkpoint has"));
}

}  // namespace slackline::cli
