#include "scheduler/service/address.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace slackline::scheduler {

std::string ListenAddress(const std::string& flag, const job::Network& network) {
  return flag.empty() ? absl::StrCat(network.listen(), ":0") : flag;
}

std::string AdvertisedAddress(const std::string& listen, const job::Network& network, uint16_t port) {
  const std::string host = network.advertise().empty() ? listen.substr(0, listen.rfind(':')) : network.advertise();
  return absl::StrCat(host, ":", port);
}

absl::Status WriteAddressFile(const std::string& path, const std::string& address) {
  const std::string unfinished = path + ".tmp";
  std::ofstream out(unfinished);
  out << address << '\n' << std::flush;
  if (!out) return absl::UnavailableError(absl::StrCat("cannot write ", unfinished));
  std::error_code error;
  std::filesystem::rename(unfinished, path, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", error.message()));
  return absl::OkStatus();
}

}  // namespace slackline::scheduler
