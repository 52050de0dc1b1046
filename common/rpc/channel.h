// How every process of Slackline opens gRPC channels and servers.
#pragma once

#include <memory>
#include <string>
#include <utility>

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

// The same, but for what no status says, since it is the other side that is told nothing: why a TLS handshake failed
// here. It goes to our log, at most once a second.
void SilenceGrpcLogButRefusals();

// True if a call failed since this side would not believe who the other one is. A further attempt helps only where
// certificates are being replaced.
bool IsMistrust(const absl::Status& status);

// Arguments of data-path channels and servers: bandwidth probe off, 16 MiB look-ahead, 4 MiB frames, a local
// subchannel pool, received messages of at most 8 MiB (a frame carries at most 4 MiB of tensor).
grpc::ChannelArguments DataChannelArguments();
void SetDataServerArguments(grpc::ServerBuilder& builder);

// The address, for channels and servers, of an abstract Unix socket.
std::string UnixAddress(const std::string& name);

// What goes over a channel beside the calls. Made by security::Security.
struct Protection {
  // Null for plain text.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // Goes out with every call; nothing where the key is empty.
  std::pair<std::string, std::string> metadata;
};

// `address` is host:port or UnixAddress(). Without protection it is plain text. Health checks, proxies and retries are
// off.
std::shared_ptr<grpc::Channel> DataChannel(const std::string& address,
                                           const std::shared_ptr<const Protection>& protection = nullptr);
std::shared_ptr<grpc::Channel> ControlChannel(const std::string& address,
                                              const std::shared_ptr<const Protection>& protection = nullptr);

// The same code and message on the other side.
absl::Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

// A context whose call gives up after `timeout`, without waiting for a channel that is down.
std::unique_ptr<grpc::ClientContext> ContextWithTimeout(absl::Duration timeout);

// True for codes after which the same call may be tried again: UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED.
bool IsRetryable(const absl::Status& status);

}  // namespace slackline::rpc
