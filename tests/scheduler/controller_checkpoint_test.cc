// Checkpoints: how the controller makes them and continues from them.
#include <algorithm>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::controller_checkpoint_test {
namespace {

using ::testing::HasSubstr;

job::Job JobWith(double every_s, uint32_t every_epochs, job::Consistency::Mode mode = job::Consistency::ASYNC,
                 uint32_t epochs = 2) {
  job::Job job = FakeCluster::SmallJob();
  job.mutable_checkpoint()->set_folder("/checkpoints");
  job.mutable_checkpoint()->set_every_s(every_s);
  job.mutable_checkpoint()->set_every_epochs(every_epochs);
  job.mutable_consistency()->set_mode(mode);
  job.mutable_training()->set_epochs(epochs);
  job.mutable_training()->set_evaluate_every_epochs(0);
  return Resolve(job);
}

class ControllerCheckpoint : public testing::Test {
 protected:
  void Start(const job::Job& job) {
    cluster_.emplace(job);
    cluster_->Start();
    cluster_->Seed("ps-1");
    cluster_->Seed("ps-2");
    cluster_->Pass(absl::Milliseconds(100));
  }
  Controller& controller() { return cluster_->controller(); }

  // The servers begin and say that all is written, to what they were told last.
  void ServersWrite() {
    for (auto& [id, told] : cluster_->servers().told()) {
      ASSERT_TRUE(told.checkpoint.has_value()) << told.name;
      const wire::BeginCheckpointRequest request = *std::exchange(told.checkpoint, std::nullopt);
      wire::BeginCheckpointReply reply;
      reply.set_begun(!request.ask_only());
      controller().CheckpointBegun(told.server, request, reply);
      wire::CheckpointProgress& progress = cluster_->checkpoint(told.name);
      progress.set_checkpoint(request.checkpoint());
      progress.set_attempt(request.attempt());
      progress.set_done(true);
      progress.clear_files();
      wire::CheckpointFile& file = *progress.add_files();
      file.set_begin(5000 * (id.value() - 1));
      file.set_end(5000 * id.value());
      file.set_shard(id.value());
    }
    cluster_->Pass(absl::Milliseconds(100));
  }
  bool Asked() {
    for (auto& [id, told] : cluster_->servers().told()) {
      if (told.checkpoint) return true;
    }
    return false;
  }
  checkpoint::Manifest Commit() {
    const auto manifest = controller().DueOnDisk().to_commit;
    EXPECT_TRUE(manifest.has_value());
    if (manifest) controller().CheckpointCommitted("/checkpoints/one");
    return manifest.value_or(checkpoint::Manifest());
  }
  uint64_t Begin(const std::string& reason = "test") {
    wire::CheckpointRequest request;
    request.set_reason(reason);
    const auto reply = controller().Checkpoint(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    return reply.ok() ? reply->checkpoint() : 0;
  }

  std::optional<FakeCluster> cluster_;
};

TEST_F(ControllerCheckpoint, IsWholeWhenAllServersHaveWrittenAndItsFolderIsNamed) {
  Start(JobWith(0, 0));
  EXPECT_EQ(Begin(), 1);
  EXPECT_EQ(Begin(), 1) << "the one that is being made";
  EXPECT_EQ(cluster_->servers().told().begin()->second.checkpoint->folder(),
            "/checkpoints/checkpoint-000001.000000000000004d.partial");
  EXPECT_EQ(controller().GetStatus().checkpoint_in_progress(), 1);
  EXPECT_EQ(controller().GetStatus().checkpoint(), 0);
  ServersWrite();
  const checkpoint::Manifest manifest = Commit();
  EXPECT_EQ(manifest.number(), 1);
  EXPECT_EQ(manifest.files_size(), 2);
  EXPECT_EQ(manifest.elements(), 10000);
  EXPECT_EQ(controller().GetStatus().checkpoint(), 1);
  EXPECT_EQ(controller().GetStatus().checkpoint_in_progress(), 0);
  EXPECT_TRUE(cluster_->HasEvent("checkpoint 1 is on disk"));
  EXPECT_EQ(Begin(), 2);
}

TEST_F(ControllerCheckpoint, ModesThatTakeStepsTogetherAskForTheirVersionsFirst) {
  for (const auto mode :
       {job::Consistency::BSP, job::Consistency::QUORUM, job::Consistency::SSP, job::Consistency::SOFTSYNC}) {
    Start(JobWith(0, 0, mode));
    Begin();
    EXPECT_EQ(cluster_->servers().told().begin()->second.checkpoint->ask_only(), mode == job::Consistency::BSP);
  }
}

TEST_F(ControllerCheckpoint, IsMadeAgainAndAgainByTimeAndByEpochs) {
  Start(JobWith(5, 0));
  cluster_->Pass(absl::Milliseconds(4800));
  EXPECT_FALSE(Asked());
  cluster_->Pass(absl::Milliseconds(300));
  ServersWrite();
  EXPECT_EQ(Commit().reason(), "every 5 s");
  cluster_->Pass(absl::Milliseconds(4500));
  EXPECT_FALSE(Asked());
  cluster_->Pass(absl::Milliseconds(600));
  EXPECT_TRUE(Asked());

  Start(JobWith(0, 2, job::Consistency::ASYNC, 5));
  uint64_t range = cluster_->Range("w-1");
  range = cluster_->Range("w-1", range);
  cluster_->Pass(absl::Seconds(1));
  EXPECT_FALSE(Asked()) << "one epoch is complete";
  range = cluster_->Range("w-1", range);
  cluster_->Pass(absl::Milliseconds(100));
  EXPECT_TRUE(Asked());
}

TEST_F(ControllerCheckpoint, DataPositionIsFromBeforeAnyShardWasCut) {
  Start(JobWith(0, 0));
  const uint64_t first = cluster_->Range("w-1");
  Begin();
  // Done after the cut may have been taken.
  cluster_->Range("w-1", first);
  ServersWrite();
  EXPECT_EQ(Commit().scheduler().tasks().ranges().samples_done(), 0);
}

TEST_F(ControllerCheckpoint, NeverStopsTrainingWhenItFails) {
  Start(JobWith(0, 0));
  Begin();
  for (auto& [id, told] : cluster_->servers().told()) {
    controller().CheckpointBegun(told.server, *told.checkpoint, absl::FailedPreconditionError("no room"));
  }
  EXPECT_EQ(controller().GetStatus().checkpoint_failed(), 1);
  EXPECT_THAT(controller().GetStatus().checkpoint_error(), HasSubstr("server ps-1 refuses: no room"));
  EXPECT_EQ(controller().state(), wire::JOB_TRAINING);
  Begin();
  ServersWrite();
  controller().CheckpointCommitted(absl::ResourceExhaustedError("the disk is full"));
  EXPECT_EQ(controller().GetStatus().checkpoint_failed(), 2);
  EXPECT_EQ(controller().state(), wire::JOB_TRAINING);
}

TEST_F(ControllerCheckpoint, IsNotBegunBeforeThereIsAnything) {
  cluster_.emplace(JobWith(0, 0));
  EXPECT_EQ(controller().Checkpoint({}).status().code(), absl::StatusCode::kUnavailable);
  cluster_->Start();
  EXPECT_EQ(controller().Checkpoint({}).status().message(), "the shards have no weights yet");
}

TEST_F(ControllerCheckpoint, ServersStayForTheLastOne) {
  Start(JobWith(0, 0));
  controller().StopJob("enough", /*failed=*/false);
  EXPECT_EQ(controller().Checkpoint({}).status().code(), absl::StatusCode::kFailedPrecondition);
  // The workers hear of it, and fall silent.
  cluster_->Pass(absl::Milliseconds(200));
  cluster_->Silence("w-1");
  cluster_->Silence("w-2");
  cluster_->Pass(absl::Seconds(1));
  ASSERT_TRUE(Asked());
  EXPECT_TRUE(cluster_->member("ps-1").beats) << "it was not told to stop";
  ServersWrite();
  EXPECT_EQ(Commit().reason(), "enough");
  cluster_->Pass(absl::Milliseconds(200));
  EXPECT_FALSE(cluster_->member("ps-1").beats);
}

TEST_F(ControllerCheckpoint, LastOneKnowsHowFarAStreamIsRead) {
  Start(JobWith(0, 0));
  cluster_->Range("w-1");
  const auto lease = cluster_->LeasePart("w-1");
  ASSERT_TRUE(lease.ok()) << lease.status();
  wire::GetShardMapRequest map;
  map.set_job(FakeCluster::kJob);
  const auto shards = static_cast<uint32_t>(controller().GetShardMap(map)->shards_size());
  cluster_->Reach("ps-1", "w-1", lease->leases(0).lease(), 24, shards / 2);
  cluster_->Reach("ps-2", "w-1", lease->leases(0).lease(), 16, shards / 2);
  controller().StopJob("enough", /*failed=*/false);
  cluster_->Pass(absl::Milliseconds(200));
  // Workers that were told to leave say no goodbye.
  cluster_->Silence("w-1");
  cluster_->Silence("w-2");
  cluster_->Pass(absl::Seconds(1));
  ASSERT_TRUE(Asked());
  ServersWrite();
  const state::Stream stream = Commit().scheduler().tasks().stream();
  ASSERT_EQ(stream.open_size(), 3);
  for (const state::StreamPart& part : stream.open()) {
    EXPECT_FALSE(part.has_holder());
    EXPECT_EQ(part.records(), part.part() == 0 ? 16 : 0);
  }
}

// The servers have begun, and find their disks full.
void FindNoRoom(FakeCluster& cluster) {
  for (auto& [id, told] : cluster.servers().told()) {
    if (!told.checkpoint) continue;
    const wire::BeginCheckpointRequest request = *std::exchange(told.checkpoint, std::nullopt);
    wire::BeginCheckpointReply begun;
    begun.set_begun(true);
    cluster.controller().CheckpointBegun(told.server, request, begun);
    wire::CheckpointProgress& progress = cluster.checkpoint(told.name);
    progress.Clear();
    progress.set_checkpoint(request.checkpoint());
    progress.set_attempt(request.attempt());
    progress.set_done(true);
    progress.set_error("cannot write /checkpoints: No space left on device");
    progress.set_no_room(true);
  }
  cluster.Pass(absl::Milliseconds(100));
}

TEST_F(ControllerCheckpoint, LastOneIsTriedAgainUntilThereIsRoom) {
  Start(JobWith(0, 0));
  controller().StopJob("enough", /*failed=*/false);
  cluster_->Pass(absl::Milliseconds(200));
  cluster_->Silence("w-1");
  cluster_->Silence("w-2");
  cluster_->Pass(absl::Seconds(1));
  for (int attempt = 0; attempt < 5; ++attempt) {
    ASSERT_TRUE(Asked()) << attempt;
    FindNoRoom(*cluster_);
    EXPECT_TRUE(cluster_->member("ps-1").beats) << "the weights are in its memory";
    cluster_->Pass(absl::Milliseconds(2200));
  }
  EXPECT_TRUE(cluster_->HasEvent("No space left on device; it is tried again for 5m (checkpoint.timeout_s)"));
  const wire::GetStatusReply status = controller().GetStatus();
  EXPECT_EQ(std::count_if(status.events().begin(), status.events().end(),
                          [](const std::string& event) { return event.find(" failed: ") != event.npos; }),
            1)
      << "it is said once";
  for (const char* const server : {"ps-1", "ps-2"}) cluster_->checkpoint(server).Clear();
  ServersWrite();
  EXPECT_EQ(Commit().reason(), "enough");
  cluster_->Pass(absl::Milliseconds(200));
  EXPECT_FALSE(cluster_->member("ps-1").beats);
}

TEST_F(ControllerCheckpoint, LastOneIsGivenUpWhereThereIsNoRoomForTooLong) {
  job::Job job = JobWith(0, 0);
  job.mutable_checkpoint()->set_timeout_s(5);
  Start(job);
  controller().StopJob("enough", /*failed=*/false);
  cluster_->Pass(absl::Milliseconds(200));
  cluster_->Silence("w-1");
  cluster_->Silence("w-2");
  cluster_->Pass(absl::Seconds(1));
  ASSERT_TRUE(Asked());
  for (int attempt = 0; attempt < 4; ++attempt) {
    FindNoRoom(*cluster_);
    cluster_->Pass(absl::Seconds(2));
  }
  EXPECT_FALSE(cluster_->member("ps-1").beats) << "it was told to stop";
  EXPECT_GT(controller().GetStatus().checkpoint_failed(), 0);
}

TEST_F(ControllerCheckpoint, LastOneThatFailsOtherwiseIsNotTriedAgain) {
  Start(JobWith(0, 0));
  controller().StopJob("enough", /*failed=*/false);
  cluster_->Pass(absl::Milliseconds(200));
  cluster_->Silence("w-1");
  cluster_->Silence("w-2");
  cluster_->Pass(absl::Seconds(1));
  for (auto& [id, told] : cluster_->servers().told()) {
    controller().CheckpointBegun(told.server, *std::exchange(told.checkpoint, std::nullopt),
                                 absl::FailedPreconditionError("broken"));
  }
  cluster_->Pass(absl::Seconds(5));
  EXPECT_FALSE(Asked());
  EXPECT_FALSE(cluster_->member("ps-1").beats);
}

TEST_F(ControllerCheckpoint, LastOneOfAVeryShortRunWaitsForTheServersToSayThatTheyHaveWeights) {
  cluster_.emplace(JobWith(0, 0));
  cluster_->Start();
  controller().StopJob("enough", /*failed=*/false);
  cluster_->Silence("w-1");
  cluster_->Silence("w-2");
  cluster_->Pass(absl::Milliseconds(1700));
  EXPECT_FALSE(Asked());
  EXPECT_TRUE(cluster_->member("ps-1").beats);
  cluster_->Seed("ps-1");
  cluster_->Seed("ps-2");
  cluster_->Pass(absl::Milliseconds(200));
  EXPECT_TRUE(Asked());
}

TEST_F(ControllerCheckpoint, NoneIsMadeAtTheEndOfWhatIsKeptAlready) {
  Start(JobWith(0, 0));
  cluster_->Range("w-1");
  cluster_->progress("w-1").set_samples(50);
  cluster_->Pass(absl::Milliseconds(100));
  Begin();
  ServersWrite();
  Commit();
  controller().StopJob("no worker is left", /*failed=*/true);
  cluster_->Pass(absl::Seconds(5));
  EXPECT_FALSE(Asked());
  EXPECT_FALSE(cluster_->member("ps-1").beats) << "it was told to stop";
}

TEST_F(ControllerCheckpoint, EpochsCheckpointThatFailedIsMadeUpFor) {
  Start(JobWith(0, 1, job::Consistency::ASYNC, 9));
  cluster_->Range("w-1", cluster_->Range("w-1"));
  cluster_->Pass(absl::Milliseconds(200));
  ASSERT_TRUE(Asked());
  for (auto& [id, told] : cluster_->servers().told()) {
    controller().CheckpointBegun(told.server, *std::exchange(told.checkpoint, std::nullopt),
                                 absl::FailedPreconditionError("no room"));
  }
  cluster_->Pass(absl::Seconds(29));
  EXPECT_FALSE(Asked());
  cluster_->Pass(absl::Seconds(2));
  ASSERT_TRUE(Asked());
  ServersWrite();
  Commit();
  cluster_->Pass(absl::Seconds(40));
  EXPECT_FALSE(Asked()) << "the next one is due after the next epoch";
}

TEST_F(ControllerCheckpoint, RestartedSchedulerGivesNoNumberAgain) {
  Start(JobWith(0, 0));
  Begin();
  ServersWrite();
  Commit();
  EXPECT_EQ(Begin(), 2);
  FakeCluster next(JobWith(0, 0));
  ASSERT_TRUE(next.TakeOver(*cluster_, cluster_->Save()).ok());
  EXPECT_EQ(next.controller().GetStatus().checkpoint(), 1);
  next.Pass(absl::Milliseconds(200));
  const auto again = next.controller().Checkpoint({});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_GT(again->checkpoint(), 3);
}

TEST_F(ControllerCheckpoint, AnotherSeedDoesNotGoOn) {
  Start(JobWith(0, 0));
  Begin();
  ServersWrite();
  job::Job job = JobWith(0, 0);
  job.set_seed(job.seed() + 1);
  FakeCluster next(job);
  EXPECT_THAT(next.controller().GoOnFrom(Commit(), "/checkpoints/one").message(),
              HasSubstr("which says the order of the images"));
}

TEST_F(ControllerCheckpoint, IsMadeOfAJobThatFailsWhileItsServersAreThere) {
  Start(JobWith(0, 0));
  controller().StopJob("no worker is left", /*failed=*/true);
  cluster_->Pass(absl::Seconds(5));
  EXPECT_TRUE(Asked());

  Start(JobWith(0, 0));
  cluster_->Silence("ps-2");
  cluster_->Pass(absl::Seconds(5));
  EXPECT_EQ(controller().state(), wire::JOB_FAILED);
  EXPECT_FALSE(Asked());
  EXPECT_TRUE(cluster_->HasEvent("checkpoint 1 failed: server ps-2 is not there"));
  EXPECT_FALSE(cluster_->member("ps-1").beats) << "it was told to stop";
}

TEST_F(ControllerCheckpoint, NoneIsMadeOfWhatHasDiverged) {
  job::Job job = JobWith(0, 0);
  job.mutable_guard()->set_action(job::Guard::STOP);
  job.mutable_guard()->set_gradient_norm_max(10);
  Start(job);
  cluster_->Range("w-1");
  wire::WorkerProgress& progress = cluster_->progress("w-1");
  progress.set_samples(10000);
  progress.set_loss_sum(10000);
  progress.set_gradient_norm_max(1000);
  cluster_->Pass(absl::Seconds(5));
  ASSERT_EQ(controller().state(), wire::JOB_FAILED) << controller().GetStatus().DebugString();
  EXPECT_FALSE(Asked());
}

TEST_F(ControllerCheckpoint, LastOneThatCannotBeMadeHoldsNobodyUp) {
  Start(JobWith(0, 0));
  controller().StopJob("enough", /*failed=*/false);
  cluster_->Silence("w-1");
  cluster_->Silence("w-2");
  cluster_->Pass(absl::Seconds(3));
  ASSERT_TRUE(Asked());
  cluster_->Pass(absl::Seconds(301));
  EXPECT_FALSE(cluster_->member("ps-1").beats);
  EXPECT_TRUE(cluster_->HasEvent("still awaited: server ps-1 (it has not answered)"));
}

// --- Going on ---------------------------------------------------------------------------------------------------

TEST_F(ControllerCheckpoint, RunGoesOnWhereItWasWithOthers) {
  Start(JobWith(0, 0, job::Consistency::ASYNC, 4));
  uint64_t range = cluster_->Range("w-1");
  range = cluster_->Range("w-1", range);
  cluster_->progress("w-1").set_samples(100);
  cluster_->Pass(absl::Seconds(3));
  Begin();
  ServersWrite();
  const checkpoint::Manifest manifest = Commit();
  EXPECT_EQ(manifest.scheduler().tasks().ranges().samples_done(), 100);

  job::Job job = JobWith(0, 0, job::Consistency::ASYNC, 4);
  job.mutable_cluster()->set_workers(1);
  job.mutable_cluster()->set_servers(1);
  FakeCluster next(job);
  ASSERT_TRUE(next.controller().GoOnFrom(manifest, "/checkpoints/one").ok());
  EXPECT_EQ(next.controller().state(), wire::JOB_STARTING);
  const FakeCluster::Member server = next.AddServer("ps-1");
  EXPECT_GT(server.incarnation, 1'000'000u) << "nobody is taken for one of before";
  next.AddWorker("w-1");
  ASSERT_TRUE(next.servers().told().begin()->second.install.has_value());
  EXPECT_EQ(next.servers().told().begin()->second.install->checkpoint_folder(), "/checkpoints/one");
  next.Answer();
  ASSERT_EQ(next.controller().state(), wire::JOB_TRAINING);
  EXPECT_GE(next.controller().GetStatus().elapsed_seconds(), 3.0);
  EXPECT_EQ(next.controller().GetStatus().samples_done(), 100);
  std::map<std::string, uint64_t> samples;
  for (const WorkerSummary& worker : next.controller().Summary().worker_list) {
    EXPECT_TRUE(samples.emplace(worker.name, worker.totals.samples()).second) << worker.name;
  }
  EXPECT_EQ(samples["w-1"], 100) << "over both runs";
  // The range that was leased is given out again, before others.
  for (int left = 3; left > 0; --left) range = next.Range("w-1", left == 3 ? 0 : range);
  const auto last = next.Next("w-1", range);
  ASSERT_TRUE(last.ok());
  EXPECT_TRUE(last->has_evaluate() && last->evaluate().final()) << last->DebugString();
}

TEST_F(ControllerCheckpoint, AnotherModelDoesNotGoOn) {
  Start(JobWith(0, 0));
  Begin();
  ServersWrite();
  const checkpoint::Manifest manifest = Commit();
  FakeCluster next(JobWith(0, 0));
  ASSERT_TRUE(next.controller().GoOnFrom(manifest, "/checkpoints/one").ok());
  wire::RegisterWorkerRequest other = FakeCluster::WorkerRequest("w-1");
  other.mutable_tensors(0)->set_shape(0, 9999);
  EXPECT_EQ(next.controller().RegisterWorker(other).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ControllerCheckpoint, OtherDataDoNotGoOnUnlessTheJobSaysSo) {
  Start(JobWith(0, 0));
  Begin();
  ServersWrite();
  checkpoint::Manifest manifest = Commit();
  wire::RegisterWorkerRequest worker = FakeCluster::WorkerRequest("w-1");
  worker.set_data_fingerprint(0xabc);
  {
    FakeCluster next(JobWith(0, 0));
    ASSERT_TRUE(next.controller().GoOnFrom(manifest, "/checkpoints/one").ok());
    EXPECT_TRUE(next.controller().RegisterWorker(worker).ok()) << "of a checkpoint that has none";
    EXPECT_EQ(next.Save().first_worker().data_fingerprint(), 0xabc) << "the next one has it";
  }
  manifest.mutable_scheduler()->mutable_first_worker()->set_data_fingerprint(0xdef);
  FakeCluster next(JobWith(0, 0));
  ASSERT_TRUE(next.controller().GoOnFrom(manifest, "/checkpoints/one").ok());
  EXPECT_EQ(next.Save().data_kept(), 0xdef) << "the one after a restart asks, too";
  const absl::Status refused = next.controller().RegisterWorker(worker).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("worker w-1 have the fingerprint 0000000000000abc; allowed is "
                                           "0000000000000def, that of the data which /checkpoints/one was trained on"));
  EXPECT_THAT(refused.message(), HasSubstr("--set data.replaces=0000000000000def"));
  EXPECT_TRUE(next.controller().RegisterWorker(FakeCluster::WorkerRequest("script")).ok())
      << "it says nothing of its data";
  job::Job job = JobWith(0, 0);
  job.mutable_data()->set_replaces("0000000000000def");
  FakeCluster replaced(job);
  ASSERT_TRUE(replaced.controller().GoOnFrom(manifest, "/checkpoints/one").ok());
  EXPECT_TRUE(replaced.HasEvent("other training data take the place"));
  EXPECT_TRUE(replaced.controller().RegisterWorker(worker).ok());
  EXPECT_EQ(replaced.Save().first_worker().data_fingerprint(), 0xabc);
}

TEST_F(ControllerCheckpoint, RunThatIsDoneGoesOnOnlyForMoreEpochs) {
  Start(JobWith(0, 0, job::Consistency::ASYNC, 1));
  const uint64_t range = cluster_->Range("w-1");
  const auto evaluate = cluster_->Next("w-1", range);
  ASSERT_TRUE(evaluate.ok() && evaluate->has_evaluate());
  ASSERT_TRUE(cluster_->Evaluated("w-1", 1, true).ok());
  cluster_->Silence("w-1");
  cluster_->Silence("w-2");
  cluster_->Pass(absl::Seconds(3));
  ServersWrite();
  const checkpoint::Manifest manifest = Commit();
  FakeCluster same(JobWith(0, 0, job::Consistency::ASYNC, 1));
  const absl::Status done = same.controller().GoOnFrom(manifest, "/checkpoints/one");
  EXPECT_EQ(done.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(done.message(), HasSubstr("--set training.epochs=2"));
  FakeCluster longer(JobWith(0, 0, job::Consistency::ASYNC, 2));
  ASSERT_TRUE(longer.controller().GoOnFrom(manifest, "/checkpoints/one").ok());
  longer.Start();
  EXPECT_NE(longer.Range("w-1"), 0);
}

job::Job JobThatKeepsTheBest(uint32_t patience) {
  job::Job job = JobWith(0, 0, job::Consistency::ASYNC, 9);
  job.mutable_training()->set_evaluate_every_epochs(1);
  job.mutable_training()->mutable_early_stopping()->set_patience(patience);
  job.mutable_checkpoint()->set_keep_best(1);
  return job;
}

TEST_F(ControllerCheckpoint, OneIsMadeOfEachBestEvaluation) {
  Start(JobThatKeepsTheBest(/*patience=*/0));
  uint32_t epoch = 0;
  uint64_t range = cluster_->Range("w-1");
  const auto evaluate = [&](double accuracy) {
    const auto work = cluster_->Next("w-1", range);
    ASSERT_TRUE(work.ok() && work->has_evaluate()) << work.status();
    ASSERT_TRUE(cluster_->Evaluated("w-1", ++epoch, false, accuracy).ok());
    range = cluster_->Range("w-1");
    cluster_->Pass(absl::Milliseconds(100));
  };
  evaluate(0.6);
  ServersWrite();
  const checkpoint::Manifest first = Commit();
  EXPECT_EQ(first.reason(), "best test accuracy 60.00 % after epoch 1");
  EXPECT_EQ(first.best().evaluation().accuracy(), 0.6);
  EXPECT_FALSE(first.best().by_loss());
  evaluate(0.5);
  EXPECT_FALSE(Asked()) << "no better";
  evaluate(0.7);
  EXPECT_TRUE(Asked());
  EXPECT_EQ(controller().Save(absl::UnixEpoch()).best_due().accuracy(), 0.7) << "the next scheduler makes it";
  // One that fails is made up for.
  for (auto& [id, told] : cluster_->servers().told()) {
    const wire::BeginCheckpointRequest request = *std::exchange(told.checkpoint, std::nullopt);
    controller().CheckpointBegun(told.server, request, absl::ResourceExhaustedError("disk full"));
  }
  cluster_->Pass(absl::Seconds(31));
  ASSERT_TRUE(Asked());
  ServersWrite();
  EXPECT_EQ(Commit().best().evaluation().accuracy(), 0.7);
  EXPECT_FALSE(controller().Save(absl::UnixEpoch()).has_best_due());
}

TEST_F(ControllerCheckpoint, EarlyEndIsDoneAndItsBestIsKeptWithoutALastOne) {
  job::Job job = JobThatKeepsTheBest(/*patience=*/1);
  job.mutable_checkpoint()->set_at_end(false);
  Start(job);
  uint64_t range = cluster_->Range("w-1");
  ASSERT_TRUE(cluster_->Next("w-1", range)->has_evaluate());
  ASSERT_TRUE(cluster_->Evaluated("w-1", 1, false, 0.5).ok());
  range = cluster_->Range("w-1");
  cluster_->Pass(absl::Milliseconds(100));
  ServersWrite();
  Commit();
  ASSERT_TRUE(cluster_->Next("w-1", range)->has_evaluate());
  ASSERT_TRUE(cluster_->Evaluated("w-1", 2, false, 0.4).ok());
  const auto final = cluster_->Next("w-1");
  ASSERT_TRUE(final.ok() && final->has_evaluate()) << "nothing more to train";
  EXPECT_TRUE(final->evaluate().final());
  ASSERT_TRUE(cluster_->Evaluated("w-1", 2, true, 0.6).ok());
  EXPECT_EQ(controller().state(), wire::JOB_DONE);
  EXPECT_EQ(controller().GetStatus().reason(), "training has ended early, after 2 of 9 epochs");
  cluster_->Silence("w-1");
  cluster_->Silence("w-2");
  cluster_->Pass(absl::Seconds(3));
  ServersWrite();
  EXPECT_EQ(Commit().best().evaluation().accuracy(), 0.6) << "the final evaluation was the best";
}

TEST_F(ControllerCheckpoint, FewerEpochsThanWereBegunAreRefused) {
  Start(JobWith(0, 0, job::Consistency::ASYNC, 4));
  uint64_t range = cluster_->Range("w-1");
  range = cluster_->Range("w-1", range);
  Begin();
  ServersWrite();
  FakeCluster shorter(JobWith(0, 0, job::Consistency::ASYNC, 1));
  EXPECT_THAT(shorter.controller().GoOnFrom(Commit(), "/checkpoints/one").message(),
              HasSubstr("is of epoch 2; training.epochs is 1"));
}

}  // namespace
}  // namespace slackline::scheduler::controller_checkpoint_test
