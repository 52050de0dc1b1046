// gRPC side of a server process: one completion queue and one thread, which is also the sequencer of all shards.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/process/steady_flag.h"
#include "common/security/security.h"
#include "common/time/clock.h"
#include "common/time/timeouts.h"
#include "job.pb.h"
#include "ps/base/service_metrics.h"
#include "ps/service/control.h"
#include "ps/service/mailbox.h"
#include "ps/service/memory_desk.h"
#include "ps/service/replica_stream.h"
#include "ps/service/shard_table.h"
#include "ps/service/snapshot_keeper.h"
#include "ps/service/worker_stream.h"
#include "ps/store/checkpoint_writer.h"
#include "scheduler.pb.h"

namespace slackline::ps {

struct SequencerOptions {
  // Address to listen on, as host:port; port 0 lets the system choose.
  std::string listen = "127.0.0.1:0";
  job::Job job;
  Timeouts timeouts;
  security::Security security;
  // Time limit for a new connection to begin to speak.
  absl::Duration handshake = absl::Seconds(10);
  // Callback when the scheduler tells the process to end. Runs on the sequencer thread; must not block.
  std::function<void(const std::string& reason)> on_stop;
};

// Serves the workers, the backups and the scheduler's control calls of one server process.
//
// Thread-safety: port(), SetIdentity(), progress(), AwaitNews() and WakeUp() are safe.
// Threads:       one (the sequencer), born in Start(), joined in the destructor; gRPC's own for control calls.
// Ownership:     borrows metrics and time.
class Sequencer : private StreamOwner {
 public:
  //   kUnavailable  cannot listen on the address
  static absl::StatusOr<std::unique_ptr<Sequencer>> Start(SequencerOptions options, Metrics& metrics,
                                                          const TimeSource& time);
  // Ends all streams with UNAVAILABLE.
  ~Sequencer() override;

  uint16_t port() const { return static_cast<uint16_t>(port_); }
  // Address for processes on this host; its `host` is empty if they use the port.
  const wire::LocalAddress& local() const { return local_; }

  // Tells the server which server it is. Until then it takes no shards.
  absl::Status SetIdentity(const ServerIdentity& identity);
  //   kDeadlineExceeded  the sequencer is busy
  absl::StatusOr<ShardTable::Progress> progress();
  // Blocks until `timeout` is over, or until the scheduler should hear news at once: all shards now have weights or are
  // on disk, or no longer do or are. News from before the call counts.
  void AwaitNews(absl::Duration timeout) { news_.Take(timeout); }
  // Makes AwaitNews() return: the current call, or else the next one.
  void WakeUp() { news_.Raise(); }
  // Makes the destructor write a last snapshot of each shard that keeps snapshots, when nobody can push any more.
  void SnapshotAtEnd() { snapshot_at_end_ = true; }
  // Records that the scheduler knows the outcome of this checkpoint.
  void CheckpointHeard(uint64_t checkpoint);
  // Records the scheduler's promise that the backup of this attachment will not take over.
  void BackupReleased(uint64_t attachment);

 private:
  // Event that calls a method.
  class Call : public Event {
   public:
    Call(Sequencer* sequencer, void (Sequencer::*method)()) : sequencer_(sequencer), method_(method) {}
    void Happened(bool /*ok*/) override { (sequencer_->*method_)(); }

   private:
    Sequencer* const sequencer_;
    void (Sequencer::*const method_)();
  };

  Sequencer(SequencerOptions options, Metrics& metrics, const TimeSource& time);
  absl::Status Listen();
  // Opens the sockets that wire.same_host asks for, as far as the system has them.
  void ListenLocally(grpc::ServerBuilder& builder);

  absl::Status Accepted(WorkerStream& stream) override;
  void Finished(WorkerStream& stream) override;
  absl::Duration WaitForTurn(absl::Duration cost) override;

  void Run();
  void OnTick();
  void OnHeartbeat();
  void SetTick();
  void OnMail() { mailbox_->Deliver(); }
  void AwaitStream();
  void EndSilentStreams();
  void EndStreams(const absl::Status& status);
  void Stop(const wire::StopRequest& request);
  ShardTable::Hooks MakeHooks();
  void KeepSnapshots(std::vector<StoredShard> stores);
  void WriteCheckpoint(CheckpointCut cut);
  // Stops both writers: waits for a snapshot that is being written, gives up a checkpoint.
  void StopWriters();
  // Raises news_ if AwaitNews() has news to report. Runs on the sequencer.
  void LookForNews();

  const SequencerOptions options_;
  const int ticks_per_heartbeat_;
  ServiceMetrics metrics_;
  const TimeSource& time_;
  // Flag that is set, on any thread, when a version is released. Shared with views that gRPC may hold longest.
  const std::shared_ptr<std::atomic<bool>> unpinned_ = std::make_shared<std::atomic<bool>>(false);

  SteadyFlag news_;

  Call tick_event_{this, &Sequencer::OnTick};
  Call mail_event_{this, &Sequencer::OnMail};
  ExchangeService service_;
  std::unique_ptr<ControlService> control_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  int local_port_ = 0;
  wire::LocalAddress local_;
  std::unique_ptr<MemoryDesk> desk_;

  // Members from here to drained_ belong to the sequencer.
  ShardTable table_;
  std::unique_ptr<SnapshotKeeper> keeper_;    // null if there are no snapshots
  std::unique_ptr<CheckpointWriter> writer_;  // null before the first checkpoint
  std::set<WorkerStream*> streams_;           // accepted; owned
  bool seeded_ = false, durable_ = false;     // state at the last news
  std::unique_ptr<ReplicaStreams> replicas_;
  grpc::Alarm tick_;
  int ticks_ = 0;          // since the last heartbeat
  bool awaiting_ = false;  // a WorkerStream waits for a client's call
  bool stopping_ = false;
  absl::Time turn_at_ = absl::InfinitePast();   // earliest turn of the next frame that takes long to parse
  absl::Time cut_at_ = absl::InfiniteFuture();  // when stopping: time at which connections are cut
  bool draining_ = false;                       // the queue shuts down when the last stream is gone
  bool drained_ = false;                        // the queue is shut down

  bool snapshot_at_end_ = false;
  std::thread thread_;
};

}  // namespace slackline::ps
