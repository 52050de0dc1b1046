#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/doctor/checks.h"
#include "cli/doctor/words.h"

namespace slackline::cli::doctor {
namespace {

constexpr uint64_t kRoomMin = uint64_t{256} << 20;
// Clocks that are further apart make logs unreadable; certificates are valid from the minute they were made.
constexpr absl::Duration kClocksApartWarning = absl::Seconds(1);
constexpr absl::Duration kClocksApartProblem = absl::Minutes(1);

// Of checkpoints those that stay and one that is being written, of snapshots the same.
uint64_t RoomFor(const job::Job& job, const Load& load) {
  if (!load.parameters) return kRoomMin;
  uint64_t copies = 1 + job.checkpoint().keep() + job.checkpoint().keep_best();
  if (job.durability().mode() == job::Durability::SNAPSHOT) copies += 1 + job.durability().snapshots_kept();
  return kRoomMin + copies * StateBytes(job, *load.parameters);
}

Finding Space(const DiskFacts& disk, const job::Job& job, const Load& load) {
  const uint64_t wanted = RoomFor(job, load);
  const std::string found = absl::StrCat(Bytes(disk.free_bytes), " free in ", disk.tried, " (", disk.file_system, ")");
  if (disk.free_bytes >= wanted) return Fine("disk", found);
  return {Level::kProblem, "disk", found, absl::StrCat(Bytes(wanted), " for what the job keeps"),
          "another folder (output.folder, durability.folder, checkpoint.folder), or a smaller checkpoint.keep"};
}

// The scheduler saves its state every T / 2, and goes on when that is on disk.
void AddSpeed(const DiskFacts& disk, const job::Job& job, const Load& load, Findings& findings) {
  const absl::Duration most = absl::Milliseconds(job.timeouts().heartbeat_ms()) / 2;
  const std::string found = absl::StrFormat("writes %.0f MB/s; a small file is synced and replaced in %s, %s at most",
                                            disk.write_mb_per_s, Time(disk.sync_median), Time(disk.sync_max));
  const std::string check = "disk speed";
  if (disk.sync_median > most) {
    findings.push_back({Level::kWarning, check, found,
                        absl::StrCat(Time(most), " to sync (timeouts.heartbeat_ms / 2), for the scheduler's state"),
                        "a local disk for the run folder, or a longer timeouts.heartbeat_ms"});
    return;
  }
  const double state_mb = load.parameters ? 1e-6 * static_cast<double>(StateBytes(job, *load.parameters)) : 0;
  const bool snapshots = job.durability().mode() == job::Durability::SNAPSHOT;
  if (snapshots && state_mb > disk.write_mb_per_s * job.durability().snapshot_every_s()) {
    findings.push_back({Level::kWarning, check, found,
                        absl::StrFormat("%.0f MB/s: a snapshot of the model has %.0f MB",
                                        state_mb / job.durability().snapshot_every_s(), state_mb),
                        "a faster disk for durability.folder, or a longer durability.snapshot_every_s"});
    return;
  }
  findings.push_back(Fine(check, found));
}

void AddMeaning(const DiskFacts& disk, const job::Job& job, Findings& findings) {
  if (!disk.renames.ok()) {
    findings.push_back({Level::kProblem, "disk", absl::StrCat("a file cannot be replaced: ", disk.renames.message()),
                        "rename()", "another folder: what a run keeps there would not be whole after a crash"});
  }
  if (!disk.locks.ok()) {
    findings.push_back({Level::kWarning, "disk", absl::StrCat("locks do not work: ", disk.locks.message()),
                        "flock(), so that two do not look after one run",
                        "mount NFS as version 4, or Lustre with -o flock; else the file lock.held of the run folder "
                        "stands for a lock, "
                        "which stays when its process is killed"});
  }
  // RocksDB takes one by fcntl(2): the scheduler's state is one, and each shard's snapshots.
  const bool databases =
      absl::StrContains(disk.purpose, kRunFolderPurpose) || absl::StrContains(disk.purpose, kSnapshotsPurpose);
  if (job.durability().mode() != job::Durability::NONE && databases && !disk.record_locks.ok()) {
    findings.push_back(
        {Level::kProblem, "disk", absl::StrCat("locks do not work: ", disk.record_locks.message()),
         "fcntl() locks, for the scheduler's state (run folder) and snapshots (durability.folder)",
         "another folder: a local disk, NFS of version 4, Lustre with -o flock; or durability.mode: none"});
  }
  if (disk.file_system == "tmpfs" || disk.file_system == "ramfs") {
    findings.push_back({Level::kWarning, "disk", absl::StrCat(disk.tried, " lies in memory (", disk.file_system, ")"),
                        "a disk",
                        "another folder: what is kept there is gone when the machine is, and takes memory until then"});
  }
}

}  // namespace

Findings CheckDisk(const DiskFacts& disk, const job::Job& job, const Load& load) {
  if (absl::IsResourceExhausted(disk.writable)) {
    return {{Level::kProblem, "disk",
             absl::StrCat(disk.purpose, ": ", disk.tried, " (", disk.file_system, ") is full, ", Bytes(disk.free_bytes),
                          " were free: ", disk.writable.message()),
             absl::StrCat(Bytes(RoomFor(job, load)), " for what the job keeps in ", disk.path),
             absl::StrCat("make room in ", disk.tried,
                          " (where much is free, a quota may be used up), or choose another folder "
                          "(output.folder, durability.folder, checkpoint.folder)")}};
  }
  if (!disk.writable.ok()) {
    return {{Level::kProblem, "disk", absl::StrCat(disk.purpose, ": ", disk.writable.message()),
             absl::StrCat("a folder ", disk.path, " that can be written"),
             "make it, or choose another (output.folder, durability.folder, checkpoint.folder)"}};
  }
  Findings findings = {Space(disk, job, load)};
  AddSpeed(disk, job, load, findings);
  AddMeaning(disk, job, findings);
  for (Finding& finding : findings) finding.found = absl::StrCat(disk.purpose, ": ", finding.found);
  return findings;
}

Findings CheckPorts(const PortFacts& ports, const job::Job& job, const Load& load) {
  if (!ports.listening.ok()) {
    return {
        {Level::kProblem, "ports", std::string(ports.listening.message()), "an address of this machine to listen on",
         "network.listen or network.interface: the address or the interface of this machine; 0.0.0.0 is all of them"}};
  }
  Findings findings = {Fine("ports", absl::StrCat("can listen on ", ports.address))};
  if (ports.address == "0.0.0.0" || ports.address == "[::]" || ports.address == "::") {
    findings.push_back(
        {Level::kWarning, "address", absl::StrCat("listens on ", ports.address, ", and says so to the others"),
         "an address at which they reach this machine", "--set network.advertise=HOST, or network.interface"});
  }
  if (!ports.metrics_port.ok()) {
    findings.push_back({Level::kProblem, "metrics port", std::string(ports.metrics_port.message()), "a free port",
                        "another network.metrics_port, or 0: then each process chooses one and its log names it"});
  }
  const uint32_t metrics = job.network().metrics() ? 1 : 0;
  const uint32_t own_metrics = job.network().metrics_port() == 0 ? metrics : 0;
  const uint32_t wanted =
      load.servers * (1 + metrics) + load.workers * metrics + (load.scheduler ? 1 + own_metrics : 0);
  if (!job.network().ports().empty() && ports.range_free < wanted) {
    findings.push_back(
        {Level::kProblem, "port range",
         absl::StrCat(ports.range_free, " of the ", ports.range_size, " ports of network.ports are free"),
         absl::StrCat(wanted, ": two for each server and the scheduler, one for each worker"),
         "a larger range, or end what listens there (ss -ltnp)"});
  } else if (!job.network().ports().empty()) {
    findings.push_back(Fine("port range", absl::StrCat("enough of ", job.network().ports(), " are free")));
  }
  return findings;
}

Findings CheckLink(const LinkFacts& link, const std::string& with, const job::Job& job, const Load& load) {
  const std::string check = absl::StrCat("link with ", with);
  const double slower = std::min(link.to_mb_per_s, link.from_mb_per_s);
  const std::string found = absl::StrFormat("%s there and back, %.0f MB/s there, %.0f MB/s back", Time(link.round_trip),
                                            link.to_mb_per_s, link.from_mb_per_s);
  Findings findings;
  const absl::Duration heartbeat = absl::Milliseconds(job.timeouts().heartbeat_ms());
  if (link.round_trip > heartbeat / 2) {
    findings.push_back({Level::kProblem, check, found,
                        absl::StrCat("less than ", Time(heartbeat / 2), " (timeouts.heartbeat_ms / 2)"),
                        "a longer timeouts.heartbeat_ms, or machines that are nearer"});
  } else if (load.parameters) {
    const double megabytes = 4e-6 * static_cast<double>(*load.parameters);
    findings.push_back(
        Fine(check, absl::StrFormat("%s; a push of the whole model in fp32 (%.1f MB) takes %s of it", found, megabytes,
                                    Time(absl::Seconds(megabytes / std::max(1e-3, slower))))));
  } else {
    findings.push_back(Fine(check, found));
  }
  return findings;
}

Finding CheckClocks(const LinkFacts& link, const std::string& whose) {
  const std::string check = absl::StrCat("clock beside ", whose);
  const absl::Duration apart = absl::AbsDuration(link.clock_ahead) - link.round_trip / 2;
  if (apart <= kClocksApartWarning) {
    return Fine(check, absl::StrCat(Time(absl::AbsDuration(link.clock_ahead)), " apart, known to within ",
                                    Time(link.round_trip / 2)));
  }
  return {
      apart > kClocksApartProblem ? Level::kProblem : Level::kWarning, check,
      absl::StrCat(Time(absl::AbsDuration(link.clock_ahead)),
                   link.clock_ahead > absl::ZeroDuration() ? " ahead" : " behind"),
      absl::StrCat("less than ", Time(kClocksApartWarning), " apart, for certificates, logs and the ages of snapshots"),
      "chrony or systemd-timesyncd on both machines"};
}

}  // namespace slackline::cli::doctor
