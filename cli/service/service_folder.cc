#include "cli/service/service_folder.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/base/process_line.h"
#include "cli/base/replace_file.h"
#include "cli/service/job_queue.h"
#include "common/rpc/channel.h"
#include "common/text/utf8.h"
#include "job.pb.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

// A host that saves answers once its disk has.
constexpr absl::Duration kServiceTimeout = absl::Seconds(10);

// Returns the folder in which programs keep settings of this user.
fs::path UserSettings() {
  if (const char* const home = std::getenv("HOME"); home != nullptr && *home != '\0') return fs::path(home) / ".config";
  const passwd* const user = ::getpwuid(::getuid());
  return fs::path(user == nullptr ? "/" : user->pw_dir) / ".config";
}

fs::path LastService() { return UserSettings() / "slackline" / "service"; }

}  // namespace

fs::path AddressOfService(const fs::path& folder) { return folder / "address"; }
fs::path TokenOfService(const fs::path& folder) { return folder / "token"; }

absl::StatusOr<security::Security> OpenSecurityOfService(const fs::path& folder) {
  job::Job settings;
  settings.set_name("service");
  settings.mutable_security()->set_mode(job::Security::TOKEN);
  settings.mutable_security()->set_token_file(TokenOfService(folder));
  return security::Security::Open(settings, security::Role::kOperator);
}

absl::StatusOr<fs::path> FindService(const std::string& named) {
  const fs::path folder = named.empty() ? fs::path(FirstLine(LastService())) : fs::path(named);
  std::error_code error;
  if (!folder.empty() && fs::is_directory(folder / "book", error)) return fs::absolute(folder).lexically_normal();
  return absl::NotFoundError(absl::StrCat(folder.empty()
                                              ? "found no service of this user"
                                              : absl::StrCat("found no service in ", ValidText(folder.string())),
                                          "; allowed is the folder of a service: start one with `slackline service "
                                          "start`, or name it with --service FOLDER"));
}

absl::Status NoteService(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(LastService().parent_path(), error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot make ", LastService().parent_path().string(), ": ", error.message()));
  }
  return ReplaceFile(LastService(), absl::StrCat(fs::absolute(folder).lexically_normal().string(), "\n"));
}

std::optional<NamedJob> JobOfTarget(const std::string& target) {
  std::error_code error;
  const fs::path path = target;
  const std::string name = path.filename();
  uint64_t id = 0;
  const bool digits = name.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(name, &id) || id == 0 || fs::exists(path, error)) return std::nullopt;
  const fs::path service = path.parent_path();
  if (!service.empty() && !fs::is_directory(service / "book", error)) return std::nullopt;
  return NamedJob{service, id};
}

absl::StatusOr<std::string> RunOfTarget(const std::string& target) {
  std::error_code error;
  const std::optional<NamedJob> job = JobOfTarget(target);
  const absl::StatusOr<fs::path> service =
      job ? FindService(job->service) : absl::StatusOr<fs::path>(absl::NotFoundError("no number"));
  if (!service.ok()) return target;
  const fs::path folder = *service / "jobs" / absl::StrCat(job->id);
  if (fs::exists(folder / "run", error)) return (folder / "run").string();
  if (!fs::exists(folder, error)) return NoSuchJob(job->id);
  return absl::NotFoundError(
      absl::StrCat("job ", job->id, " has not begun, or ended before it did; `slackline jobs ", job->id, "` says why"));
}

JobServiceClient::JobServiceClient(fs::path folder, std::string address,
                                   const std::shared_ptr<const rpc::Protection>& protection)
    : folder_(std::move(folder)), address_(std::move(address)), channel_(rpc::ControlChannel(address_, protection)) {}

absl::StatusOr<JobServiceClient> JobServiceClient::Connect(const std::string& named) {
  const absl::StatusOr<fs::path> folder = FindService(named);
  if (!folder.ok()) return folder.status();
  const std::string address = FirstLine(AddressOfService(*folder));
  if (address.empty()) {
    return absl::NotFoundError(absl::StrCat("the service in ", folder->string(),
                                            " has never listened; start it with `slackline service start`"));
  }
  const absl::StatusOr<security::Security> security = OpenSecurityOfService(*folder);
  if (!security.ok()) return security.status();
  return JobServiceClient(*folder, address, security->To(security::Role::kScheduler));
}

absl::Status JobServiceClient::Call(
    const std::function<grpc::Status(wire::JobService::Stub&, grpc::ClientContext*)>& call) const {
  const auto stub = wire::JobService::NewStub(channel_);
  absl::Status status = rpc::FromGrpc(call(*stub, rpc::ContextWithTimeout(kServiceTimeout).get()));
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return status;
  return absl::UnavailableError(absl::StrCat("no answer from the service at ", address_, ": ", status.message(),
                                             "; `slackline service start --folder ", folder_.string(),
                                             "` starts it again, and its jobs go on meanwhile"));
}

absl::StatusOr<uint64_t> JobServiceClient::Submit(const wire::SubmitRequest& request) const {
  wire::SubmitReply reply;
  const absl::Status status =
      Call([&](auto& stub, grpc::ClientContext* context) { return stub.Submit(context, request, &reply); });
  if (!status.ok()) return status;
  return reply.id();
}

absl::StatusOr<wire::ListJobsReply> JobServiceClient::ListJobs(const wire::ListJobsRequest& request) const {
  wire::ListJobsReply reply;
  const absl::Status status =
      Call([&](auto& stub, grpc::ClientContext* context) { return stub.ListJobs(context, request, &reply); });
  if (!status.ok()) return status;
  return reply;
}

absl::StatusOr<wire::ServiceJob> JobServiceClient::OrderJob(const wire::OrderJobRequest& request) const {
  wire::OrderJobReply reply;
  const absl::Status status =
      Call([&](auto& stub, grpc::ClientContext* context) { return stub.OrderJob(context, request, &reply); });
  if (!status.ok()) return status;
  return reply.job();
}

absl::StatusOr<wire::ReadJobLogReply> JobServiceClient::ReadJobLog(const wire::ReadJobLogRequest& request) const {
  wire::ReadJobLogReply reply;
  const absl::Status status =
      Call([&](auto& stub, grpc::ClientContext* context) { return stub.ReadJobLog(context, request, &reply); });
  if (!status.ok()) return status;
  return reply;
}

}  // namespace slackline::cli
