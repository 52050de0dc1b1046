#include "bench/scheduler_load/control_server.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/check.h"
#include "parameter_server.grpc.pb.h"

namespace slackline::bench {

class ControlServer::Service final : public wire::ParameterServerControl::Service {
 public:
  grpc::Status InstallShards(grpc::ServerContext*, const wire::InstallShardsRequest*,
                             wire::InstallShardsReply*) override {
    return grpc::Status::OK;
  }
  grpc::Status SetMembers(grpc::ServerContext*, const wire::SetMembersRequest* request,
                          wire::SetMembersReply* reply) override {
    reply->set_epoch(request->epoch());
    return grpc::Status::OK;
  }
  grpc::Status Stop(grpc::ServerContext*, const wire::StopRequest*, wire::StopReply*) override {
    return grpc::Status::OK;
  }
};

ControlServer::ControlServer() : service_(std::make_unique<Service>()) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service_.get());
  server_ = builder.BuildAndStart();
  SLACKLINE_CHECK(server_ != nullptr && port != 0);
  address_ = absl::StrCat("127.0.0.1:", port);
}

ControlServer::~ControlServer() { server_->Shutdown(absl::ToChronoTime(absl::Now() + absl::Seconds(1))); }

}  // namespace slackline::bench
