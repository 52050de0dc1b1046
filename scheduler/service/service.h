// The Scheduler service of scheduler.proto over gRPC: passes each call on to the controller, unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/security.h"
#include "scheduler.grpc.pb.h"
#include "scheduler/control/controller.h"
#include "scheduler/status/status_board.h"

namespace slackline::scheduler {

// Thread-safety: safe.
// Ownership:     borrows `controller` and `board`.
class SchedulerService final : public wire::Scheduler::Service {
 public:
  // `board`: source of the full status for clients that ask for it; null: nobody gets it.
  SchedulerService(Controller& controller, security::Guard guard, StatusBoard* board = nullptr)
      : controller_(controller), guard_(std::move(guard)), board_(board) {}

  grpc::Status RegisterServer(grpc::ServerContext*, const wire::RegisterServerRequest*,
                              wire::RegisterServerReply*) override;
  grpc::Status RegisterWorker(grpc::ServerContext*, const wire::RegisterWorkerRequest*,
                              wire::RegisterWorkerReply*) override;
  grpc::Status Heartbeat(grpc::ServerContext*, const wire::HeartbeatRequest*, wire::HeartbeatReply*) override;
  grpc::Status FindImages(grpc::ServerContext*, const wire::FindImagesRequest*, wire::FindImagesReply*) override;
  grpc::Status GetShardMap(grpc::ServerContext*, const wire::GetShardMapRequest*, wire::GetShardMapReply*) override;
  grpc::Status NextTask(grpc::ServerContext*, const wire::NextTaskRequest*, wire::NextTaskReply*) override;
  grpc::Status LeaseParts(grpc::ServerContext*, const wire::LeasePartsRequest*, wire::LeasePartsReply*) override;
  grpc::Status ReportEvaluation(grpc::ServerContext*, const wire::EvaluationReport*, wire::EvaluationReply*) override;
  grpc::Status GetStatus(grpc::ServerContext*, const wire::GetStatusRequest*, wire::GetStatusReply*) override;
  grpc::Status StopJob(grpc::ServerContext*, const wire::StopJobRequest*, wire::StopJobReply*) override;
  grpc::Status ChangeServers(grpc::ServerContext*, const wire::ChangeServersRequest*,
                             wire::ChangeServersReply*) override;
  grpc::Status Checkpoint(grpc::ServerContext*, const wire::CheckpointRequest*, wire::CheckpointReply*) override;
  grpc::Status ReportExit(grpc::ServerContext*, const wire::ReportExitRequest*, wire::ReportExitReply*) override;

 private:
  // Checks that the caller may use `method`, and returns the caller. `method`: the name without package and service.
  absl::StatusOr<security::AdmittedCaller> Admit(const grpc::ServerContext& context, absl::string_view method) const;

  Controller& controller_;
  const security::Guard guard_;
  StatusBoard* const board_;
};

// Limits on what strangers and faulty clients can take of the process. A call is over in microseconds, so clients that
// work stay far below all of them.
struct ServiceLimits {
  // Time from a connection's beginning until it speaks HTTP/2; a client that says nothing is cut off then.
  absl::Duration handshake = absl::Seconds(10);
  // Longest time of a connection without a call.
  absl::Duration idle = absl::Minutes(30);
  // Largest number of calls of one connection that are in progress together. Further ones wait at the caller.
  int calls_of_connection = 64;
  // Number of threads that answer calls, of all connections together; a call that finds none is RESOURCE_EXHAUSTED.
  int threads = 128;
  // Memory that gRPC may take for requests and replies.
  size_t bytes = size_t{1} << 30;
};

// A listening server with the Scheduler service.
//
// Thread-safety: safe.
// Threads:       those of gRPC, until destroyed.
class SchedulerServer {
 public:
  // Starts to listen on host:port; port 0 lets the system choose. `board`: as for SchedulerService.
  //   kUnavailable  the address cannot be listened on
  static absl::StatusOr<std::unique_ptr<SchedulerServer>> Start(const std::string& address, Controller& controller,
                                                                const security::Security& security = {},
                                                                StatusBoard* board = nullptr,
                                                                const ServiceLimits& limits = {});
  ~SchedulerServer();

  uint16_t port() const { return port_; }

 private:
  SchedulerServer(Controller& controller, security::Guard guard, StatusBoard* board)
      : service_(controller, std::move(guard), board) {}

  SchedulerService service_;
  std::unique_ptr<grpc::Server> server_;
  uint16_t port_ = 0;
};

}  // namespace slackline::scheduler
