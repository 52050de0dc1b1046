#include "bench/exchange/data_path.h"

#include "absl/strings/str_cat.h"
#include "bench/exchange/secrets.h"
#include "bench/support/process.h"

namespace slackline::bench {
namespace {

// As the job file's wire.error_feedback.
bool HasFeedback(const std::string& setting, const codec::Codec& codec) {
  const bool coarse = codec.encoding == codec::Encoding::kInt8 || codec.encoding == codec::Encoding::kTopK;
  return setting == "always" || (setting == "auto" && coarse);
}

}  // namespace

absl::StatusOr<worker::ClientOptions> MakeClientOptions(const ExchangeBenchOptions& options, WorkerId worker) {
  const absl::StatusOr<codec::Codec> codec = codec::ParseCodec(options.wire);
  if (!codec.ok()) return codec.status();
  worker::ClientOptions client;
  client.push_runs = {{options.elements(), *codec, HasFeedback(options.error_feedback, *codec)}};
  if (codec->encoding == codec::Encoding::kBf16) client.pull_encoding = codec->encoding;
  client.job = JobId(kBenchJob);
  client.worker = worker;
  client.incarnation = Incarnation(1);
  client.window = options.window;
  client.background = options.backward_ms > 0;
  const std::string transport = TransportOf(options);
  client.same_host = transport == "tcp"    ? worker::SameHost::kTcp
                     : transport == "unix" ? worker::SameHost::kUnix
                                           : worker::SameHost::kSharedMemory;
  return client;
}

job::Job MakeJob(const ExchangeBenchOptions& options) {
  job::Job job;
  job.mutable_consistency()->set_mode(job::Consistency::ASYNC);
  job.mutable_optimizer()->set_lr(1e-6);
  if (options.optimizer == "momentum") job.mutable_optimizer()->set_momentum(0.9);
  if (options.optimizer == "adam") job.mutable_optimizer()->set_kind(job::Optimizer::ADAM);
  job.mutable_training()->set_batch_size(1);
  job.mutable_cluster()->set_workers(options.members());
  job.mutable_wire()->set_window(options.window);
  const std::string transport = TransportOf(options);
  job.mutable_wire()->set_same_host(transport == "tcp"    ? job::Wire::TCP
                                    : transport == "unix" ? job::Wire::UNIX
                                                          : job::Wire::SHARED_MEMORY);
  job.mutable_limits()->set_staging_bytes_max(options.staging_megabytes * 1'000'000);
  return job;
}

security::Security OpenSecurity(const ExchangeBenchOptions& options, security::Role role) {
  job::Job job;
  job.set_name(kBenchJobName);
  if (options.security == "token") {
    job.mutable_security()->set_mode(job::Security::TOKEN);
    job.mutable_security()->set_token_file(Secrets::TokenFile(options.security_folder));
  } else if (options.security == "tls") {
    job.mutable_security()->set_mode(job::Security::TLS);
    job.mutable_security()->set_folder(options.security_folder);
  }
  auto opened = security::Security::Open(job, role);
  ExitOnError(opened.status());
  return *std::move(opened);
}

ps::SequencerOptions MakeServerOptions(const ExchangeBenchOptions& options) {
  ps::SequencerOptions server;
  server.listen = absl::StrCat(options.listen, ":0");
  server.job = MakeJob(options);
  server.security = OpenSecurity(options, security::Role::kServer);
  return server;
}

std::string TransportOf(const ExchangeBenchOptions& options) {
  return options.transport == "auto" ? "shm" : options.transport;
}

uint64_t ResidentBytesAllowed(const ExchangeBenchOptions& options) {
  const job::Job job = MakeJob(options);
  const uint64_t parameters = options.bytes() / options.servers;
  const uint64_t state_arrays = options.optimizer == "sgd" ? 0 : options.optimizer == "momentum" ? 1 : 2;
  const uint64_t staging = job.limits().staging_bytes_max() > 0
                               ? job.limits().staging_bytes_max()
                               : parameters * (uint64_t{options.window} * options.members() + 1);
  const uint64_t held = parameters * (1 + job.limits().pinned_versions_max()) + parameters * state_arrays;
  return held + held * 15 / 100 + staging + 64'000'000;
}

}  // namespace slackline::bench
