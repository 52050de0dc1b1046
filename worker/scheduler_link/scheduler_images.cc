#include "worker/scheduler_link/scheduler_images.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/process/steady_flag.h"
#include "common/rpc/channel.h"
#include "common/rpc/followed_channel.h"
#include "common/time/backoff.h"
#include "common/time/clock.h"
#include "scheduler.grpc.pb.h"

namespace slackline::worker {
namespace {

class ImageBoard : public images::PeerBoard {
 public:
  explicit ImageBoard(const ImageBoardOptions& options)
      : options_(options), channel_(options.scheduler, options.protection) {}

  absl::StatusOr<Answer> Ask(const Question& question) override {
    wire::FindImagesRequest request;
    request.set_job_fingerprint(options_.job_fingerprint);
    request.set_address(question.address);
    request.set_files_checksum(question.files_checksum);
    request.set_files(question.files);
    request.set_held(question.held);
    request.set_wants(question.wants);
    request.set_spread(question.spread);
    request.set_wants_share(question.wants_share);
    if (question.needs) request.set_needs(*question.needs);
    request.set_full(question.full);
    request.mutable_failed()->Assign(question.failed.begin(), question.failed.end());
    request.set_patience_ms(static_cast<uint32_t>(
        std::min<int64_t>(absl::ToInt64Milliseconds(question.patience), std::numeric_limits<uint32_t>::max())));
    Backoff backoff(static_cast<uint64_t>(::getpid()));
    for (const absl::Time end = SteadyTime().Now() + options_.timeouts.startup;;) {
      wire::FindImagesReply reply;
      const auto context = rpc::ContextWithTimeout(options_.timeouts.worker_dead());
      const auto stub = wire::Scheduler::NewStub(channel_.channel());
      const absl::Status status = rpc::FromGrpc(stub->FindImages(context.get(), request, &reply));
      if (status.ok()) return FromWire(reply);
      const absl::Duration wait = backoff.Next();
      if (!question.wants || !rpc::IsRetryable(status) || rpc::IsMistrust(status) || SteadyTime().Now() + wait >= end) {
        return absl::Status(status.code(), absl::StrCat("could not ask the scheduler (", options_.scheduler,
                                                        ") for images: ", channel_.Why(status)));
      }
      channel_.Failed();
      SteadyPause(wait);
    }
  }

 private:
  static Answer FromWire(const wire::FindImagesReply& reply) {
    Answer answer = {.file = std::nullopt, .from = reply.from(), .retry = absl::Milliseconds(reply.retry_ms())};
    if (reply.has_file()) answer.file = reply.file();
    if (reply.has_drop()) answer.drop = reply.drop();
    return answer;
  }

  const ImageBoardOptions options_;
  rpc::FollowedChannel channel_;
};

}  // namespace

std::unique_ptr<images::PeerBoard> MakeImageBoard(const ImageBoardOptions& options) {
  return std::make_unique<ImageBoard>(options);
}

}  // namespace slackline::worker
