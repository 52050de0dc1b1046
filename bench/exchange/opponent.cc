#include "bench/exchange/opponent.h"

#include <unistd.h>

#include <cstring>
#include <vector>

#include "bench/exchange/data_path.h"
#include "bench/support/process.h"
#include "bench/support/rate.h"
#include "bench/support/raw_peer.h"

namespace slackline::bench {
namespace {

Row RowOf(const char* what, const Rounds& rounds, uint64_t bytes, double cpu_s) {
  const double gigabytes = 2e-9 * static_cast<double>(bytes) * static_cast<double>(rounds.round_us.size());
  return Row(what)
      .Add("rounds_per_s", rounds.per_s())
      .Add("gb_per_s", gigabytes / rounds.seconds)
      .Add("cpu_s_per_gb", cpu_s / gigabytes);
}

class RawOpponent : public Opponent {
 public:
  // `peer` is null when it runs elsewhere; its processor time is then unknown.
  RawOpponent(const char* what, std::unique_ptr<RawPeer> peer, const std::string& address, uint64_t bytes)
      : what_(what), peer_(std::move(peer)), bytes_(bytes) {
    auto connection = RawConnection::Connect(address, {bytes, bytes});
    ExitOnError(connection.status());
    connection_ = *std::move(connection);
  }

  Row Measure(double seconds) override {
    ExitOnError(connection_->Round());  // warm
    const double before = UsedSeconds();
    const Rounds rounds = Repeat(seconds, [&] { ExitOnError(connection_->Round()); });
    return RowOf(what_, rounds, bytes_, UsedSeconds() - before);
  }

 private:
  double UsedSeconds() const { return CpuSeconds(getpid()) + (peer_ == nullptr ? 0 : CpuSeconds(peer_->pid())); }

  const char* const what_;
  const std::unique_ptr<RawPeer> peer_;
  const uint64_t bytes_;
  std::unique_ptr<RawConnection> connection_;
};

class CopyOpponent : public Opponent {
 public:
  explicit CopyOpponent(uint64_t bytes) : from_(bytes, 1), to_(bytes, 2) {}

  Row Measure(double seconds) override {
    const double before = CpuSeconds(getpid());
    const Rounds rounds = Repeat(seconds, [&] {
      std::memcpy(to_.data(), from_.data(), from_.size());
      std::memcpy(from_.data(), to_.data(), to_.size());
    });
    return RowOf("memcpy both ways", rounds, from_.size(), CpuSeconds(getpid()) - before);
  }

 private:
  std::vector<char> from_, to_;
};

}  // namespace

std::unique_ptr<Opponent> Opponent::Start(const ExchangeBenchOptions& options) {
  const std::string transport = TransportOf(options);
  if (transport == "shm") return std::make_unique<CopyOpponent>(options.bytes());
  if (!options.connect_raw.empty()) {
    return std::make_unique<RawOpponent>("raw socket", nullptr, options.connect_raw, options.bytes());
  }
  if (!options.connect.empty()) return nullptr;
  auto peer = transport == "unix" ? RawPeer::StartUnix() : RawPeer::StartTcp(options.listen);
  const std::string address = peer->address();
  return std::make_unique<RawOpponent>("raw socket", std::move(peer), address, options.bytes());
}

}  // namespace slackline::bench
