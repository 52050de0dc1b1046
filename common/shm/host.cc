#include "common/shm/host.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/process/boot_id.h"

namespace slackline::shm {

std::string SocketScope() {
  const std::string boot = BootId();
  char space[64];
  const ssize_t size = ::readlink("/proc/self/ns/net", space, sizeof(space));
  // As long as the buffer: it may have been cut.
  if (boot.empty() || size <= 0 || size == static_cast<ssize_t>(sizeof(space))) return "";
  return absl::StrCat(boot, " ", absl::string_view(space, static_cast<size_t>(size)));
}

}  // namespace slackline::shm
