// Replication on the completion queue: the streams of backups that follow this server, and the one with which this
// process follows another.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/rpc/channel.h"
#include "common/security/security.h"
#include "parameter_server.grpc.pb.h"
#include "ps/service/shard_table.h"
#include "ps/service/stream.h"

namespace slackline::ps {

class ReplicaStreams;

// One Replicate call of a backup.
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
  // T has passed. A stream that has ended and cannot say so is cut off.
  void Tick();
  const grpc::ServerContext& context() const { return context_; }
  // True while the stream is open and has said no hello.
  bool silent() const { return !attached_ && !end_.has_value(); }
  bool ended() const { return end_.has_value(); }

  // When the call was accepted.
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

// This process's call to the server that it follows, again and again until it is to stop.
//
// Thread-safety: none; the sequencer owns it. Destroyed only when quiet().
class BackupLink {
 public:
  // `silence_max`: of the server; a longer one breaks the call.
  BackupLink(ShardTable& table, grpc::CompletionQueue* queue, const TimeSource& time, absl::Duration silence_max);
  ~BackupLink();

  // From now on the server at `address` is followed, and nobody else.
  void Follow(std::string address, std::shared_ptr<const rpc::Protection> protection);
  void Stop();
  // T has passed.
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
  std::string said_;  // of the last failure, which is not said twice
};

// Both sides, for the server process that is one or the other.
//
// Thread-safety: none; the sequencer owns it, but for its construction.
// Ownership:     borrows the table, the service, the queue and the time.
class ReplicaStreams {
 public:
  // Open streams. A further stream takes the place of the oldest that has said no hello, so that a backup always finds
  // a place.
  static constexpr size_t kStreamsMax = 8;

  // `silence_max`: of a server that is followed, and of a stream before its hello.
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

  // As ShardTable::Hooks::on_backup.
  void OnBackup(const wire::ReplicationSource* source);
  void Tick();
  // No further streams.
  void Close(const absl::Status& status);
  // Nothing is pending any more.
  bool quiet() const { return !awaiting_ && streams_.empty() && link_.quiet(); }

  // --- for ReplicaStream ---
  absl::Status Accepted(ReplicaStream& stream);
  void Finished(ReplicaStream& stream);

 private:
  void Await();
  // Null if all open streams have said hello.
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
