// How the service is found and called: its folder holds its address and token.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/security/security.h"
#include "job_service.grpc.pb.h"

namespace slackline::cli {

// Files of a service's folder: HOST:PORT of the host, once it listens, and the token that callers show.
std::filesystem::path AddressOfService(const std::filesystem::path& folder);
std::filesystem::path TokenOfService(const std::filesystem::path& folder);
//   kNotFound, kPermissionDenied  there is no token, or others may read it
absl::StatusOr<security::Security> OpenSecurityOfService(const std::filesystem::path& folder);

// Returns the folder of the service that commands call: `named`, or if that is empty the one that was started last by
// this user.
//   kNotFound  there is none
absl::StatusOr<std::filesystem::path> FindService(const std::string& named);
// Makes `folder` the service that was started last.
//   kUnavailable  the file cannot be written
absl::Status NoteService(const std::filesystem::path& folder);

// A job as people name it: NUMBER, or SERVICE/NUMBER with the folder of its service.
struct NamedJob {
  // Folder of the service, as for FindService().
  std::string service;
  uint64_t id = 0;
};
// Returns the job that `target` names; nullopt if it is any other text, or the name of a file.
std::optional<NamedJob> JobOfTarget(const std::string& target);
// Returns the run folder of a job if `target` names one; else `target`.
//   kNotFound  the service has no such job, or the job has not begun
absl::StatusOr<std::string> RunOfTarget(const std::string& target);

// Calls a service. Every call gives up after a short while.
//
// Thread-safety: none.
class JobServiceClient {
 public:
  // `named`: as for FindService().
  //   kNotFound      there is no service, or its host has never listened
  //   others         as OpenSecurityOfService()
  static absl::StatusOr<JobServiceClient> Connect(const std::string& named);

  // Errors: those of the calls; kUnavailable if no host answers.
  absl::StatusOr<uint64_t> Submit(const wire::SubmitRequest& request) const;
  absl::StatusOr<wire::ListJobsReply> ListJobs(const wire::ListJobsRequest& request) const;
  absl::StatusOr<wire::ServiceJob> OrderJob(const wire::OrderJobRequest& request) const;
  absl::StatusOr<wire::ReadJobLogReply> ReadJobLog(const wire::ReadJobLogRequest& request) const;

 private:
  JobServiceClient(std::filesystem::path folder, std::string address,
                   const std::shared_ptr<const rpc::Protection>& protection);
  absl::Status Call(const std::function<grpc::Status(wire::JobService::Stub&, grpc::ClientContext*)>& call) const;

  std::filesystem::path folder_;
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace slackline::cli
