// Opens gRPC channels and servers, the same way in every process of Slackline.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/retryable.h"

namespace slackline::rpc {

// Makes malloc keep large freed blocks: gRPC allocates and frees a slice for every chunk, and returning each to the
// system costs up to half of the throughput. Call it once, first in main().
//
// Also turns off the deadlock detection that the distribution's Abseil runs at every lock, gRPC's included (tests keep
// it). Finally raises the limit on open files as far as this user may, since shared memory takes one file per shard.
void PrepareProcess();

// Turns gRPC's own log off: its information reaches our messages as the status of a call. Call it once, in main().
void SilenceGrpcLog();

// Like SilenceGrpcLog(), except for the reason why a TLS handshake failed here. No status reports it: the call is the
// other side's, which is not told the reason. It goes to our log, at most one line per second.
void SilenceGrpcLogButRefusals();

// Returns true if a call failed because this side does not trust the identity of the other side. A retry helps only
// while certificates are being replaced.
bool IsMistrust(const absl::Status& status);

// Return or set the arguments of data-path channels and servers: bandwidth probe off, 16 MiB look-ahead, 4 MiB frames,
// a local subchannel pool, received messages of at most 8 MiB (a frame carries at most 4 MiB of tensor).
grpc::ChannelArguments DataChannelArguments();
void SetDataServerArguments(grpc::ServerBuilder& builder);

// Returns the address of an abstract Unix socket, for channels and servers.
std::string UnixAddress(const std::string& name);

// Credentials and metadata of a channel. Made by security::Security.
struct Protection {
  // Credentials of the channel; null for plain text.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // Metadata sent with every call; none if the key is empty.
  std::pair<std::string, std::string> metadata;
};

// `address` is host:port or UnixAddress(). Without `protection` the channel is plain text. Health checks, proxies and
// retries are off.
std::shared_ptr<grpc::Channel> DataChannel(const std::string& address,
                                           const std::shared_ptr<const Protection>& protection = nullptr);
std::shared_ptr<grpc::Channel> ControlChannel(const std::string& address,
                                              const std::shared_ptr<const Protection>& protection = nullptr);

// Convert a status with its code and message. ToGrpc() shortens a message that would exceed gRPC's limit on metadata.
absl::Status FromGrpc(const grpc::Status& status);
grpc::Status ToGrpc(const absl::Status& status);

// Returns a context whose call fails after `timeout`, and does not wait for a channel that is down.
std::unique_ptr<grpc::ClientContext> ContextWithTimeout(absl::Duration timeout);

}  // namespace slackline::rpc
