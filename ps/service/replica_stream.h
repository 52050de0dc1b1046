// Replication on the completion queue: streams of backups that follow this server, and the stream with which this
// process follows another server.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/security/security.h"
#include "common/time/clock.h"
#include "parameter_server.grpc.pb.h"
#include "ps/service/shard_table.h"
#include "ps/service/worker_stream.h"

namespace slackline::ps {

class ReplicaStreams;

// Handles one Replicate call of a backup, on the followed server.
//
// Thread-safety: none; the sequencer owns it.
class ReplicaStream : public ReplicaSink {
 public:
  ReplicaStream(ReplicaStreams& owner, ShardTable& table) : owner_(owner), table_(table), call_(&context_) {}

  void Request(ExchangeService& service, grpc::ServerCompletionQueue* queue) {
    service.RequestReplicate(&context_, &call_, queue, queue, &requested_);
  }
  void Wake() override { Pump(); }
  void End(const absl::Status& status) override;
  // Runs every T. Cuts the connection of a stream that has ended but cannot deliver its status.
  void Tick();
  const grpc::ServerContext& context() const { return context_; }
  // Returns true while the stream is open and has said no hello.
  bool silent() const { return !attached_ && !end_.has_value(); }
  bool ended() const { return end_.has_value(); }

  // Time at which the call was accepted.
  absl::Time accepted_at = absl::InfinitePast();

 private:
  class Tag : public Event {
   public:
    Tag(ReplicaStream* stream, void (ReplicaStream::*method)(bool)) : stream_(stream), method_(method) {}
    void Happened(bool ok) override { (stream_->*method_)(ok); }

   private:
    ReplicaStream* const stream_;
    void (ReplicaStream::*const method_)(bool);
  };

  void OnRequested(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void Read();
  absl::Status Receive(const wire::BackupFrame& frame);
  void Pump();
  void FinishWhenQuiet();

  ReplicaStreams& owner_;
  ShardTable& table_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> call_;
  Tag requested_{this, &ReplicaStream::OnRequested};
  Tag read_{this, &ReplicaStream::OnRead};
  Tag written_{this, &ReplicaStream::OnWritten};
  Tag finished_{this, &ReplicaStream::OnFinished};
  grpc::ByteBuffer incoming_;
  bool attached_ = false;
  bool reading_ = false;
  bool writing_ = false;
  std::optional<absl::Status> end_;
  int ticks_since_end_ = 0;
  bool finishing_ = false;
  bool done_ = false;
};

// This process's call to the server that it follows. The call is repeated until Stop().
//
// Thread-safety: none; the sequencer owns it. Destroyed only when quiet().
class BackupLink {
 public:
  // `silence_max`: a longer silence of the server breaks the call.
  BackupLink(ShardTable& table, grpc::CompletionQueue* queue, const TimeSource& time, absl::Duration silence_max);
  ~BackupLink();

  // Follows the server at `address` from now on, and no other.
  void Follow(std::string address, std::shared_ptr<const rpc::Protection> protection);
  void Stop();
  // Runs every T.
  void Tick();
  bool quiet() const { return attempt_ == nullptr; }

 private:
  struct Attempt;
  class Tag : public Event {
   public:
    Tag(BackupLink* link, void (BackupLink::*method)(bool)) : link_(link), method_(method) {}
    void Happened(bool ok) override { (link_->*method_)(ok); }

   private:
    BackupLink* const link_;
    void (BackupLink::*const method_)(bool);
  };

  void Connect();
  void OnStarted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void Read();
  void Say(const wire::BackupFrame& frame);
  void Acknowledge();
  void Break(const absl::Status& why);
  void Finish();
  void EndWhenQuiet();

  ShardTable& table_;
  grpc::CompletionQueue* const queue_;
  const TimeSource& time_;
  const absl::Duration silence_max_;
  std::string address_;
  std::shared_ptr<const rpc::Protection> protection_;
  bool wanted_ = false;
  Tag started_{this, &BackupLink::OnStarted};
  Tag read_{this, &BackupLink::OnRead};
  Tag written_{this, &BackupLink::OnWritten};
  Tag finished_{this, &BackupLink::OnFinished};
  std::unique_ptr<Attempt> attempt_;
  std::string said_;  // last failure that was logged; it is not logged twice
};

// Streams of both sides of replication: a server process is followed, or follows another.
//
// Thread-safety: none; the sequencer owns it, except during construction.
// Ownership:     borrows the table, the service, the queue and the time.
class ReplicaStreams {
 public:
  // Largest number of open streams. A further stream replaces the oldest that has said no hello, so that a backup
  // always finds a place.
  static constexpr size_t kStreamsMax = 8;

  // `silence_max`: longest silence of a followed server, and of a stream before its hello.
  ReplicaStreams(ShardTable& table, ExchangeService& service, grpc::ServerCompletionQueue* queue,
                 const security::Security& security, const TimeSource& time, absl::Duration silence_max)
      : table_(table),
        service_(service),
        queue_(queue),
        security_(security),
        time_(time),
        silence_max_(silence_max),
        link_(table, queue, time, silence_max) {
    Await();
  }

  // Implements ShardTable::Hooks::on_backup.
  void OnBackup(const wire::ReplicationSource* source);
  void Tick();
  // Ends all streams with `status` and accepts no further ones.
  void Close(const absl::Status& status);
  // Returns true when no operation is pending.
  bool quiet() const { return !awaiting_ && streams_.empty() && link_.quiet(); }

  // --- Calls from ReplicaStream ---
  absl::Status Accepted(ReplicaStream& stream);
  void Finished(ReplicaStream& stream);

 private:
  void Await();
  // Returns the oldest open stream without a hello; null if all open streams have said hello.
  ReplicaStream* OldestSilent() const;

  ShardTable& table_;
  ExchangeService& service_;
  grpc::ServerCompletionQueue* const queue_;
  const security::Security security_;
  const TimeSource& time_;
  const absl::Duration silence_max_;
  BackupLink link_;
  std::set<ReplicaStream*> streams_;  // accepted; owned
  bool awaiting_ = false;
  bool closed_ = false;
};

}  // namespace slackline::ps
