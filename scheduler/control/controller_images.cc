// How the workers get the images together.
#include "scheduler/control/controller.h"

namespace slackline::scheduler {

absl::StatusOr<wire::FindImagesReply> Controller::FindImages(const wire::FindImagesRequest& request) {
  if (absl::Status same = CheckFingerprint("a worker that asks for images", request.job_fingerprint()); !same.ok()) {
    return same;
  }
  absl::MutexLock lock(&images_mutex_);
  return images_.Ask(request, time_.Now());
}

}  // namespace slackline::scheduler
