#include "scheduler/service/server_links.h"

#include <algorithm>

#include "common/log/logging.h"
#include "common/rpc/channel.h"

namespace slackline::scheduler {
namespace {

constexpr absl::Duration kBackOffMin = absl::Milliseconds(20);
constexpr absl::Duration kBackOffMax = absl::Milliseconds(500);

}  // namespace

ServerLink::ServerLink(ServerRef server, std::string name, const std::string& address,
                       const std::shared_ptr<const rpc::Protection>& protection, absl::Duration call_timeout,
                       ServerObserver& observer)
    : server_(server),
      name_(std::move(name)),
      call_timeout_(call_timeout),
      observer_(observer),
      channel_(address, protection),
      thread_([this] { Run(); }) {}

ServerLink::~ServerLink() {
  Close();
  thread_.join();
}

void ServerLink::Install(const wire::InstallShardsRequest& request) {
  absl::MutexLock lock(&mutex_);
  install_ = request;
  // A set is of one shard map.
  if (members_ && members_->generation() != request.generation()) members_.reset();
}

void ServerLink::SetMembers(const wire::SetMembersRequest& request) {
  absl::MutexLock lock(&mutex_);
  const bool later = !members_ || std::pair(members_->generation(), members_->epoch()) <
                                      std::pair(request.generation(), request.epoch());
  if (later) members_ = request;
}

void ServerLink::TakeShards(const wire::TakeShardsRequest& request) {
  absl::MutexLock lock(&mutex_);
  take_ = request;
}

void ServerLink::BeginCheckpoint(const wire::BeginCheckpointRequest& request) {
  absl::MutexLock lock(&mutex_);
  checkpoint_ = request;
}

void ServerLink::Stop(const wire::StopRequest& request) {
  absl::MutexLock lock(&mutex_);
  stop_ = request;
}

void ServerLink::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  if (in_flight_ != nullptr) in_flight_->TryCancel();
}

bool ServerLink::HasWork() const {
  return closed_ || stop_ || take_ || install_ || ((members_ || checkpoint_) && installed_);
}

absl::Status ServerLink::TryNext() {
  std::optional<wire::InstallShardsRequest> install;
  std::optional<wire::TakeShardsRequest> take;
  std::optional<wire::SetMembersRequest> members;
  std::optional<wire::BeginCheckpointRequest> checkpoint;
  std::optional<wire::StopRequest> stop;
  {
    absl::MutexLock lock(&mutex_);
    if (stop_) {
      stop = stop_;
    } else if (take_) {
      take = take_;
    } else if (install_) {
      install = install_;
    } else if (members_) {
      members = members_;
    } else {
      checkpoint = checkpoint_;
    }
  }
  if (stop) return TryStop(*stop);
  if (take) return TryTake(*take);
  if (install) return TryInstall(*install);
  if (members) return TryMembers(*members);
  return TryCheckpoint(*checkpoint);
}

void ServerLink::Run() {
  absl::Duration back_off = kBackOffMin;
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &ServerLink::HasWork));
      if (closed_) return;
    }
    if (const absl::Status status = TryNext(); !status.ok()) {
      if (!BackOff(status, back_off)) return;
      back_off = std::min(2 * back_off, kBackOffMax);
    } else {
      back_off = kBackOffMin;
    }
  }
}

bool ServerLink::BackOff(const absl::Status& status, absl::Duration back_off) {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return false;
    if (rpc::IsRetryable(status)) {
      channel_.Failed();
      log::Warning("server ", name_, " did not answer a call (", status.ToString(), "); the scheduler tries again");
      return !mutex_.AwaitWithTimeout(absl::Condition(&closed_), back_off);
    }
    closed_ = true;
  }
  observer_.Refused(server_, status);
  return false;
}

template <typename Call>
absl::Status ServerLink::Attempt(const Call& call) {
  std::unique_ptr<grpc::ClientContext> context = rpc::ContextWithTimeout(call_timeout_);
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return absl::CancelledError("closed");
    in_flight_ = context.get();
  }
  const grpc::Status status = call(context.get());
  absl::MutexLock lock(&mutex_);
  in_flight_ = nullptr;
  return rpc::FromGrpc(status);
}

absl::Status ServerLink::TryInstall(const wire::InstallShardsRequest& request) {
  wire::InstallShardsReply reply;
  absl::Status status =
      Attempt([&](grpc::ClientContext* context) { return stub()->InstallShards(context, request, &reply); });
  if (!status.ok()) return status;
  {
    absl::MutexLock lock(&mutex_);
    installed_ = true;
    // It may have been told meanwhile to be something else.
    if (install_ && install_->SerializeAsString() == request.SerializeAsString()) install_.reset();
  }
  observer_.Installed(server_, reply);
  return status;
}

absl::Status ServerLink::TryMembers(const wire::SetMembersRequest& request) {
  wire::SetMembersReply reply;
  absl::Status status =
      Attempt([&](grpc::ClientContext* context) { return stub()->SetMembers(context, request, &reply); });
  if (!status.ok()) return status;
  {
    absl::MutexLock lock(&mutex_);
    const bool same =
        members_ && members_->epoch() == request.epoch() && members_->generation() == request.generation();
    if (same) members_.reset();
  }
  observer_.MembersInstalled(server_, reply);
  return status;
}

absl::Status ServerLink::TryTake(const wire::TakeShardsRequest& request) {
  wire::TakeShardsReply reply;
  const absl::Status status =
      Attempt([&](grpc::ClientContext* context) { return stub()->TakeShards(context, request, &reply); });
  if (!status.ok() && (rpc::IsRetryable(status) || absl::IsCancelled(status))) return status;
  {
    absl::MutexLock lock(&mutex_);
    if (take_ && take_->move() == request.move()) take_.reset();
  }
  if (!status.ok()) observer_.TakeRefused(server_, request, status);
  return absl::OkStatus();
}

absl::Status ServerLink::TryCheckpoint(const wire::BeginCheckpointRequest& request) {
  wire::BeginCheckpointReply reply;
  const absl::Status status =
      Attempt([&](grpc::ClientContext* context) { return stub()->BeginCheckpoint(context, request, &reply); });
  if (!status.ok() && (rpc::IsRetryable(status) || absl::IsCancelled(status))) return status;
  {
    absl::MutexLock lock(&mutex_);
    const bool same =
        checkpoint_ && checkpoint_->checkpoint() == request.checkpoint() && checkpoint_->attempt() == request.attempt();
    if (same) checkpoint_.reset();
  }
  if (status.ok()) {
    observer_.CheckpointBegun(server_, request, reply);
  } else {
    observer_.CheckpointBegun(server_, request, status);
  }
  return absl::OkStatus();
}

absl::Status ServerLink::TryStop(const wire::StopRequest& request) {
  wire::StopReply reply;
  absl::Status status = Attempt([&](grpc::ClientContext* context) { return stub()->Stop(context, request, &reply); });
  if (!status.ok()) return status;
  Close();
  observer_.Stopped(server_);
  return status;
}

ServerLinks::ServerLinks(const Timeouts& timeouts, std::shared_ptr<const rpc::Protection> protection)
    : call_timeout_(std::max(timeouts.server_dead(), absl::Seconds(1))), protection_(std::move(protection)) {}

void ServerLinks::Connect(ServerRef server, const std::string& name, const std::string& address,
                          ServerObserver& observer) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return;
  std::unique_ptr<ServerLink>& link = links_[{server.server, server.incarnation}];
  if (link != nullptr) {
    link->Close();
    old_links_.push_back(std::move(link));
  }
  link = std::make_unique<ServerLink>(server, name, address, protection_, call_timeout_, observer);
}

ServerLink* ServerLinks::Find(ServerRef server) {
  const auto found = links_.find({server.server, server.incarnation});
  return found != links_.end() ? found->second.get() : nullptr;
}

void ServerLinks::Disconnect(ServerRef server) {
  absl::MutexLock lock(&mutex_);
  const auto link = links_.find({server.server, server.incarnation});
  if (link == links_.end()) return;
  link->second->Close();
  old_links_.push_back(std::move(link->second));
  links_.erase(link);
}

void ServerLinks::Install(ServerRef server, const wire::InstallShardsRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (ServerLink* link = Find(server)) link->Install(request);
}

void ServerLinks::SetMembers(ServerRef server, const wire::SetMembersRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (ServerLink* link = Find(server)) link->SetMembers(request);
}

void ServerLinks::TakeShards(ServerRef server, const wire::TakeShardsRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (ServerLink* link = Find(server)) link->TakeShards(request);
}

void ServerLinks::BeginCheckpoint(ServerRef server, const wire::BeginCheckpointRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (ServerLink* link = Find(server)) link->BeginCheckpoint(request);
}

void ServerLinks::Stop(ServerRef server, const wire::StopRequest& request) {
  absl::MutexLock lock(&mutex_);
  if (ServerLink* link = Find(server)) link->Stop(request);
}

void ServerLinks::Close() {
  std::map<std::pair<ServerId, Incarnation>, std::unique_ptr<ServerLink>> links;
  std::vector<std::unique_ptr<ServerLink>> old_links;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    links.swap(links_);
    old_links.swap(old_links_);
  }
}

}  // namespace slackline::scheduler
