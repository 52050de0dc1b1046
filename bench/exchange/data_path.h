// The one place where options of the bench become settings of a job, a server and a client.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "bench/exchange/options.h"
#include "common/ids.h"
#include "common/security/security.h"
#include "job.pb.h"
#include "ps/service/exchange.h"
#include "worker/client/client.h"

namespace slackline::bench {

inline constexpr uint64_t kBenchJob = 1;
inline constexpr char kBenchJobName[] = "bench";

//   kInvalidArgument  an encoding that there is not
absl::StatusOr<worker::ClientOptions> MakeClientOptions(const ExchangeBenchOptions& options, WorkerId worker);

job::Job MakeJob(const ExchangeBenchOptions& options);
// Of a process of that role; only in the process itself, since gRPC starts threads.
security::Security OpenSecurity(const ExchangeBenchOptions& options, security::Role role);

// The server's listening address is chosen by the system.
ps::ExchangeOptions MakeServerOptions(const ExchangeBenchOptions& options);

// The transport that "auto" stands for between processes of one host.
std::string TransportOf(const ExchangeBenchOptions& options);

// What a server of these options may have resident at most (docs/ARCHITECTURE.md, "Limits"): 1.15 x (its parameters x
// (1 + superseded versions) + optimizer state) + what it may stage + 64 MB.
uint64_t ResidentBytesAllowed(const ExchangeBenchOptions& options);

}  // namespace slackline::bench
