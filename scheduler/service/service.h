// The Scheduler service of scheduler.proto over gRPC: passes each call on to the controller, unchanged. The
// threads that receive calls also answer them, since a thread for each would cost more than its work; but for those of
// SlowLane.
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
#include "scheduler/service/slow_lane.h"
#include "scheduler/status/status_board.h"

namespace slackline::scheduler {

// Thread-safety: safe.
// Ownership:     borrows `controller` and `board`.
class SchedulerService final : public wire::Scheduler::CallbackService {
 public:
  using Context = grpc::CallbackServerContext;

  // `board`: source of the full status for clients that ask for it; null: nobody gets it.
  // `slow_calls_max`: as for SlowLane.
  SchedulerService(Controller& controller, security::Guard guard, StatusBoard* board, int slow_calls_max)
      : controller_(controller), guard_(std::move(guard)), board_(board), slow_lane_(slow_calls_max) {}

  grpc::ServerUnaryReactor* RegisterServer(Context*, const wire::RegisterServerRequest*,
                                           wire::RegisterServerReply*) override;
  grpc::ServerUnaryReactor* RegisterWorker(Context*, const wire::RegisterWorkerRequest*,
                                           wire::RegisterWorkerReply*) override;
  grpc::ServerUnaryReactor* Heartbeat(Context*, const wire::HeartbeatRequest*, wire::HeartbeatReply*) override;
  grpc::ServerUnaryReactor* FindImages(Context*, const wire::FindImagesRequest*, wire::FindImagesReply*) override;
  grpc::ServerUnaryReactor* GetShardMap(Context*, const wire::GetShardMapRequest*, wire::GetShardMapReply*) override;
  grpc::ServerUnaryReactor* NextTask(Context*, const wire::NextTaskRequest*, wire::NextTaskReply*) override;
  grpc::ServerUnaryReactor* LeaseParts(Context*, const wire::LeasePartsRequest*, wire::LeasePartsReply*) override;
  grpc::ServerUnaryReactor* ReportEvaluation(Context*, const wire::EvaluationReport*, wire::EvaluationReply*) override;
  grpc::ServerUnaryReactor* GetStatus(Context*, const wire::GetStatusRequest*, wire::GetStatusReply*) override;
  grpc::ServerUnaryReactor* StopJob(Context*, const wire::StopJobRequest*, wire::StopJobReply*) override;
  grpc::ServerUnaryReactor* ChangeServers(Context*, const wire::ChangeServersRequest*,
                                          wire::ChangeServersReply*) override;
  grpc::ServerUnaryReactor* Checkpoint(Context*, const wire::CheckpointRequest*, wire::CheckpointReply*) override;
  grpc::ServerUnaryReactor* ReportExit(Context*, const wire::ReportExitRequest*, wire::ReportExitReply*) override;

 private:
  // Checks that the caller may use `method`, and returns the caller.
  absl::StatusOr<security::AdmittedCaller> Admit(const Context& context, absl::string_view method) const;
  // Checks that the caller may use `method`, and answers with the status that `handle` returns for the caller.
  // `method`: the name without package and service.
  template <typename Handle>
  grpc::ServerUnaryReactor* Serve(Context* context, absl::string_view method, Handle handle) const;
  // Likewise, for what may take long; `handle` is called later, on another thread.
  template <typename Handle>
  grpc::ServerUnaryReactor* ServeSlowly(Context* context, absl::string_view method, Handle handle);

  Controller& controller_;
  const security::Guard guard_;
  StatusBoard* const board_;
  SlowLane slow_lane_;
};

// Limits on what strangers and faulty clients can take of the process. Clients that work stay far below all of them.
struct ServiceLimits {
  // Time from a connection's beginning until it speaks HTTP/2; a client that says nothing is cut off then.
  absl::Duration handshake = absl::Seconds(10);
  // Longest time of a connection without a call.
  absl::Duration idle = absl::Minutes(30);
  // Largest number of calls of one connection that are in progress together. Further ones wait at the caller.
  int calls_of_connection = 64;
  // Largest number of calls of all connections together that wait for the status or for images, or whose reply has not
  // left yet; a further one is RESOURCE_EXHAUSTED.
  int slow_calls = 128;
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
  SchedulerServer(Controller& controller, security::Guard guard, StatusBoard* board, int slow_calls_max)
      : service_(controller, std::move(guard), board, slow_calls_max) {}

  SchedulerService service_;
  std::unique_ptr<grpc::Server> server_;
  uint16_t port_ = 0;
};

}  // namespace slackline::scheduler
