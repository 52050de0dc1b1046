// How every process of Slackline opens gRPC channels and servers.
#pragma once

#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace slackline::rpc {

// Makes malloc keep large freed blocks: gRPC allocates and frees a slice for every chunk, and returning each to
// the system costs up to half of the throughput. Call once, first thing in main().
//
// Also turns off the search for deadlocks that the distribution's Abseil makes at every lock, gRPC's too (tests keep
// it); and raises the limit on open files as far as this user may, since shared memory takes one a shard.
void PrepareProcess();

// Turns gRPC's own log off: what it has to say reaches our messages as the status of a call. Call once, in main().
void SilenceGrpcLog();

// Arguments of data-path channels and servers: bandwidth probe off, 16 MiB look-ahead, 4 MiB frames, a local
// subchannel pool, received messages of at most 8 MiB (a frame carries at most 4 MiB of tensor).
grpc::ChannelArguments DataChannelArguments();
void SetDataServerArguments(grpc::ServerBuilder& builder);

// The address, for channels and servers, of an abstract Unix socket.
std::string UnixAddress(const std::string& name);

// A plain-text channel. `address` is host:port or UnixAddress(). Health checks, proxies and retries are off.
std::shared_ptr<grpc::Channel> DataChannel(const std::string& address);
std::shared_ptr<grpc::Channel> ControlChannel(const std::string& address);

// The same code and message on the other side.
absl::Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

// A context whose call gives up after `timeout`, without waiting for a channel that is down.
std::unique_ptr<grpc::ClientContext> ContextWithTimeout(absl::Duration timeout);

// True for codes after which the same call may be tried again: UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED.
bool IsRetryable(const absl::Status& status);

}  // namespace slackline::rpc
