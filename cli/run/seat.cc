#include "cli/run/seat.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/process/thread_cores.h"

namespace slackline::cli {
namespace {

namespace fs = std::filesystem;

// Returns part `seat` of `all`, in their order. The first parts are longer by one if it does not come out even.
template <typename Item>
absl::Span<const Item> PartOf(absl::Span<const Item> all, uint32_t seat, uint32_t seats) {
  const size_t each = all.size() / seats, more = all.size() % seats;
  const size_t begin = seat * each + std::min<size_t>(seat, more);
  return all.subspan(begin, each + (seat < more ? 1 : 0));
}

}  // namespace

Machine ThisMachine() {
  Machine machine;
  machine.cores = ThreadCores();
  std::error_code error;
  if (fs::exists("/dev/kfd", error)) machine.gpu_variable = "ROCR_VISIBLE_DEVICES";
  if (const char* const named = std::getenv(machine.gpu_variable.c_str()); named != nullptr) {
    machine.gpus = absl::StrSplit(named, ',', absl::SkipEmpty());
    return machine;
  }
  const bool amd = machine.gpu_variable == "ROCR_VISIBLE_DEVICES";
  const auto file_of = [&](size_t gpu) {
    return amd ? absl::StrCat("/dev/dri/renderD", 128 + gpu) : absl::StrCat("/dev/nvidia", gpu);
  };
  while (fs::exists(file_of(machine.gpus.size()), error)) machine.gpus.push_back(absl::StrCat(machine.gpus.size()));
  return machine;
}

std::vector<std::string> EnvironmentOfSeat(const Machine& machine, uint32_t seat, uint32_t seats) {
  std::vector<std::string> environment = {absl::StrCat("SLACKLINE_LOCAL_RANK=", seat),
                                          absl::StrCat("SLACKLINE_LOCAL_WORLD_SIZE=", seats)};
  const size_t gpus = machine.gpus.size();
  if (gpus >= seats) {
    environment.push_back(
        absl::StrCat(machine.gpu_variable, "=", absl::StrJoin(PartOf<std::string>(machine.gpus, seat, seats), ",")));
  } else if (gpus > 0) {
    environment.push_back(absl::StrCat(machine.gpu_variable, "=", machine.gpus[seat * gpus / seats]));
  }
  if (machine.cores.size() >= seats) {
    environment.push_back(
        absl::StrCat("SLACKLINE_CORES=", absl::StrJoin(PartOf<uint32_t>(machine.cores, seat, seats), ",")));
  }
  return environment;
}

}  // namespace slackline::cli
