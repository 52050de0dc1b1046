// Decides when checkpoints of a job are made, and follows each one until its folder has its name. The servers write the
// files; the caller makes the calls to them, and names the folder. Pure.
//
// Thread-safety: none.
// Ownership:     borrows `events` and `room`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "checkpoint.pb.h"
#include "common/base/ids.h"
#include "job.pb.h"
#include "scheduler.pb.h"
#include "scheduler/base/event_log.h"
#include "scheduler/base/model_layout.h"
#include "scheduler/checkpoint/checkpoint_round.h"
#include "scheduler/checkpoint/room_wait.h"
#include "scheduler/watch/evaluation_summary.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

class Checkpoints {
 public:
  struct Config {
    job::Job job;  // resolved
    JobId id;
    std::string folder;        // empty: none are made
    uint64_t last_number = 0;  // numbers up to this one are taken
    // Time for which the last checkpoint waits until it is possible.
    absl::Duration servers_max;
  };

  // The job at the time of a call.
  struct Facts {
    absl::Time now;
    absl::Time began = absl::InfiniteFuture();  // when training began
    bool ended = false;
    // Reason why no checkpoint can be made now; only Due() and LastOne() look at it.
    absl::Status possible = absl::OkStatus();
    uint64_t samples = 0;  // trained
    uint32_t epochs = 0;   // done
  };

  // Next step for the last checkpoint.
  enum class Last {
    kNothing,  // it is made, has failed, or is not wanted: the servers may stop
    kBegin,    // Begin() is to be called now
    kWait,
  };

  Checkpoints(Config config, EventLog& events, RoomWait& room);

  // Returns the reason for the checkpoint that is to begin now, if there is one.
  std::optional<std::string> Due(const Facts& facts);
  Last LastOne(const Facts& facts);
  // Begins a checkpoint of a model of `layout` on `servers` (by id, with their names). `state` is the scheduler's, from
  // before any shard is cut: what is done in it is in all of them. Requires: none is in progress.
  void Begin(const std::string& reason, state::Scheduler state, const ModelLayout& layout,
             std::map<ServerId, std::string> servers, const Facts& facts);
  // Returns the call to make to all servers, once each; nullopt if there is none. The caller fills in the server.
  std::optional<wire::BeginCheckpointRequest> TakeCall();

  // Fails the present checkpoint if it has taken too long.
  void Tick(const Facts& facts);
  // Notes a server's answer to a call.
  void Answered(ServerId server, const wire::BeginCheckpointRequest& request,
                const absl::StatusOr<wire::BeginCheckpointReply>& reply, const Facts& facts);
  // Notes the progress in a server's heartbeat. Returns the number of the checkpoint whose outcome the server need not
  // report again; 0 for none.
  uint64_t Heard(ServerId server, const wire::CheckpointProgress& progress, const Facts& facts);
  void ServerLost(ServerId server);
  // Notes that the folder of to_commit() is named, or why it is not.
  void Committed(const absl::StatusOr<std::string>& folder, const Facts& facts);

  // Notes the best evaluation so far: a checkpoint is to keep its weights.
  void KeepBest(const EvaluationSummary& evaluation) { best_due_ = evaluation; }
  void TrainingBegins(absl::Time now) { last_begun_ = now; }
  // Notes that no last checkpoint is wanted.
  void LeaveOutLast() { last_tried_ = true; }

  // True from Begin() until the folder is named, or the checkpoint has failed.
  bool in_progress() const { return round_ || to_commit_; }
  const std::optional<checkpoint::Manifest>& to_commit() const { return to_commit_; }
  uint64_t last_number() const { return last_number_; }
  // Number, folder and epochs of the last whole one; 0 and empty if there is none.
  uint64_t whole() const { return whole_; }
  const std::string& folder() const { return folder_; }
  uint32_t epochs() const { return whole_ > 0 ? epochs_ : 0; }
  absl::Duration Age(absl::Time now) const { return now - whole_at_; }
  // Samples trained in the last whole one of this process, or in the one that the run began with.
  std::optional<uint64_t> samples() const { return samples_; }
  // Number of the last one that failed; 0 for none.
  uint64_t failed() const { return failed_; }
  // Numbers of those that were made and that failed in the life of this process.
  uint64_t made() const { return made_; }
  uint64_t failures() const { return failures_; }
  void Fill(absl::Time now, wire::GetStatusReply& reply) const;

  void Save(state::Scheduler& state) const;
  // Continues from the state of a scheduler that has died.
  void Restore(const state::Scheduler& state, absl::Time now);
  // Continues a run from a checkpoint in `folder`.
  void GoOnFrom(const checkpoint::Manifest& manifest, const std::string& folder, const Facts& facts);

 private:
  // True while the last checkpoint, which failed on a full disk, is tried again.
  bool MayGetRoom(absl::Time now) const;
  // Ends the round if it is over.
  void Follow(const Facts& facts);
  // Gives up the round. Its best evaluation, if any, is due again.
  void DropRound();
  void BestIsDueAgain();
  void Fail(uint64_t number, const absl::Status& why, const Facts& facts);

  const Config config_;
  EventLog& events_;
  RoomWait& room_;

  std::optional<CheckpointRound> round_;  // present one
  checkpoint::Manifest manifest_;         // its manifest, without the files
  std::optional<checkpoint::Manifest> to_commit_;
  uint64_t last_number_ = 0;
  absl::Time last_begun_ = absl::InfinitePast();
  absl::Duration took_;  // time that the servers took for the one to commit
  // Best evaluation, due to be kept; and the one that the present round keeps.
  std::optional<EvaluationSummary> best_due_;
  std::optional<EvaluationSummary> best_of_round_;
  bool last_tried_ = false;               // the one at the end of the run was tried
  std::optional<absl::Time> last_since_;  // since when it is wanted

  // The last whole one.
  uint64_t whole_ = 0;
  absl::Time whole_at_;
  std::string folder_;
  uint32_t epochs_ = 0;
  std::optional<uint64_t> samples_;
  uint64_t made_ = 0;

  // The last one that failed.
  uint64_t failed_ = 0;
  std::string error_;
  bool no_room_ = false;  // for lack of room
  absl::Time failed_at_ = absl::InfinitePast();
  uint64_t failures_ = 0;
};

}  // namespace slackline::scheduler
