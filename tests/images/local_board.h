// The scheduler's directory of images without a wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "images/prepared/image_peers.h"
#include "scheduler/work/image_directory.h"

namespace slackline::images {

// The scheduler's directory, which all nodes of a test ask.
struct SharedDirectory {
  absl::Mutex mutex;
  scheduler::ImageDirectory directory;

  explicit SharedDirectory(size_t nodes_expected = 1)
      : directory({.silence_max = absl::Seconds(60),
                   .retry = absl::Milliseconds(5),
                   .share_retry = absl::Milliseconds(5),
                   .nodes_expected = nodes_expected}) {}
};

// Asks the directory.
//
// Thread-safety: safe.
class LocalBoard : public PeerBoard {
 public:
  explicit LocalBoard(SharedDirectory& shared) : shared_(shared) {}
  absl::StatusOr<Answer> Ask(const Question& question) override {
    wire::FindImagesRequest request;
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
    request.set_patience_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(question.patience)));
    absl::MutexLock lock(&shared_.mutex);
    const auto reply = shared_.directory.Ask(request, absl::Now());
    if (!reply.ok()) return reply.status();
    Answer answer = {.file = std::nullopt, .from = reply->from(), .retry = absl::Milliseconds(reply->retry_ms())};
    if (reply->has_file()) answer.file = reply->file();
    if (reply->has_drop()) answer.drop = reply->drop();
    return answer;
  }

 private:
  SharedDirectory& shared_;
};

}  // namespace slackline::images
