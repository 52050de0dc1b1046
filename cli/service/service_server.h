// The service over gRPC.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/service/job_host.h"
#include "common/security/security.h"
#include "job_service.grpc.pb.h"

namespace slackline::cli {

// Passes each call on to the host.
//
// Thread-safety: safe.
// Ownership:     borrows `host`.
class JobServiceCalls final : public wire::JobService::Service {
 public:
  JobServiceCalls(JobHost& host, security::Guard guard) : host_(host), guard_(std::move(guard)) {}

  grpc::Status Submit(grpc::ServerContext*, const wire::SubmitRequest*, wire::SubmitReply*) override;
  grpc::Status ListJobs(grpc::ServerContext*, const wire::ListJobsRequest*, wire::ListJobsReply*) override;
  grpc::Status OrderJob(grpc::ServerContext*, const wire::OrderJobRequest*, wire::OrderJobReply*) override;
  grpc::Status ReadJobLog(grpc::ServerContext*, const wire::ReadJobLogRequest*, wire::ReadJobLogReply*) override;

 private:
  template <typename Reply, typename Handle>
  grpc::Status Serve(const grpc::ServerContext& context, const char* method, Reply* reply, Handle handle) const;

  JobHost& host_;
  const security::Guard guard_;
};

// A listening server with the service. Callers show the token of the service's folder, which only its owner can read.
//
// Thread-safety: safe.
// Threads:       those of gRPC, until destroyed.
class JobServiceServer {
 public:
  // Listens on host:port; port 0 lets the system choose. Makes the token in `folder` if there is none, and writes the
  // address there.
  //   kUnavailable  the address cannot be listened on, or a file cannot be written
  static absl::StatusOr<std::unique_ptr<JobServiceServer>> Start(const std::string& address,
                                                                 const std::filesystem::path& folder, JobHost& host);
  ~JobServiceServer();

  uint16_t port() const { return port_; }

 private:
  JobServiceServer(JobHost& host, security::Guard guard) : calls_(host, std::move(guard)) {}

  JobServiceCalls calls_;
  std::unique_ptr<grpc::Server> server_;
  uint16_t port_ = 0;
};

}  // namespace slackline::cli
