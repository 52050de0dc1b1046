// What the kernel's sockets give on this machine: the ceiling of the gRPC path. A stand-in for iperf3, which bench/run
// also asks where it is installed.
//
// A stream goes one way; a ping-pong of N bytes goes there and back, and counts both.
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/support/command_line.h"
#include "bench/support/rate.h"
#include "bench/support/raw_peer.h"
#include "bench/support/report.h"

namespace slackline::bench {
namespace {

// Acknowledged by one byte each, so that what is counted has arrived.
constexpr uint64_t kStreamRoundBytes = 256 << 20;

void Measure(const std::string& what, const RawPeer& peer, const RawRound& round, double seconds, Report& report) {
  auto connection = RawConnection::Connect(peer.address(), round);
  ExitOnError(connection.status());
  ExitOnError((*connection)->Round());  // warm
  const double cpu = CpuSeconds(getpid()) + CpuSeconds(peer.pid());
  const Rounds rounds = Repeat(seconds, [&] { ExitOnError((*connection)->Round()); });
  const double used = CpuSeconds(getpid()) + CpuSeconds(peer.pid()) - cpu;
  const double gigabytes = 1e-9 * static_cast<double>(round.taken_bytes + round.answered_bytes);
  const double moved = gigabytes * static_cast<double>(rounds.round_us.size());
  report.Add(Row(what)
                 .Add("rounds_per_s", rounds.per_s())
                 .Add("gb_per_s", moved / rounds.seconds)
                 .Add("cpu_s_per_gb", used / moved)
                 .Add("p50_us", rounds.p50_us())
                 .Add("p99_us", rounds.p99_us()));
}

int Main(int argc, char** argv) {
  std::string host = "127.0.0.1";
  std::vector<uint64_t> sizes = {1024, 100'000'000};
  Effort effort{.seconds = 1};
  CLI::App app("What the kernel's TCP and Unix sockets give.", "socket_ceiling");
  app.add_option("--bytes", sizes, "Sizes of the ping-pongs")->capture_default_str();
  AddEffort(app, effort);
  if (const auto exit_code = Parse(app, argc, argv)) return *exit_code;

  const auto tcp = RawPeer::StartTcp(host);
  const auto local = RawPeer::StartUnix();
  Report report(effort.json);
  for (int repeat = 0; repeat < effort.repeats; ++repeat) {
    for (const auto& [name, peer] : {std::pair("tcp", tcp.get()), std::pair("unix", local.get())}) {
      Measure(absl::StrCat(name, " stream"), *peer, {kStreamRoundBytes, 1}, effort.seconds, report);
      for (const uint64_t size : sizes) {
        Measure(absl::StrCat(name, " ping-pong ", size), *peer, {size, size}, effort.seconds, report);
      }
    }
  }
  report.Finish();
  return 0;
}

}  // namespace
}  // namespace slackline::bench

int main(int argc, char** argv) { return slackline::bench::Main(argc, argv); }
