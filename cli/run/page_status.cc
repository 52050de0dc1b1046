#include "cli/run/page_status.h"

#include <utility>

#include <google/protobuf/util/json_util.h>
#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/address.h"
#include "common/http/http_get.h"
#include "common/text/json_text.h"

namespace slackline::cli {
namespace {

constexpr int kDepthMax = 16;

wire::JobState StateOf(const std::string& name) {
  for (const auto& [text, state] : {std::pair("starting", wire::JOB_STARTING),
                                    std::pair("training", wire::JOB_TRAINING), std::pair("done", wire::JOB_DONE),
                                    std::pair("failed", wire::JOB_FAILED), std::pair("stopped", wire::JOB_STOPPED)}) {
    if (name == text) return state;
  }
  return wire::JobState();
}

uint64_t Milliseconds(double seconds) { return seconds > 0 ? static_cast<uint64_t>(1000 * seconds) : 0; }

void FillProgress(const wire::JobProgress& from, wire::GetStatusReply& reply) {
  reply.set_epoch(from.epoch());
  reply.set_epochs(from.epochs());
  reply.set_samples_done(from.samples_done());
  reply.set_samples_total(from.samples_total());
  reply.set_samples_per_second(from.samples_per_second());
  reply.set_tokens_per_sample(from.tokens_per_sample());
  reply.set_step(from.steps());
  if (from.has_loss()) reply.set_loss(from.loss());
  if (from.has_train_accuracy()) reply.set_train_accuracy(from.train_accuracy());
  reply.set_has_test_accuracy(from.has_test_accuracy());
  reply.set_test_accuracy(from.test_accuracy());
  if (from.has_test_loss()) reply.set_test_loss(from.test_loss());
  reply.set_test_metric(from.test_metric());
  if (from.has_metric()) *reply.mutable_metric() = from.metric();
  *reply.mutable_train_values() = from.train_values();
  reply.set_seconds_left(from.seconds_left());
  reply.set_elapsed_seconds(from.elapsed_s());
}

// What members of both kinds have.
template <typename View>
wire::MemberStatus& AddMember(const View& view, wire::MemberRole role, wire::GetStatusReply& reply) {
  wire::MemberStatus& member = *reply.add_members();
  member.set_role(role);
  member.set_name(view.name());
  member.set_silent_ms(Milliseconds(view.silent_s()));
  return member;
}

void FillMembers(const wire::JobStatus& from, wire::GetStatusReply& reply) {
  for (const wire::ServerView& server : from.servers()) {
    wire::MemberStatus& member = AddMember(server, wire::MEMBER_ROLE_SERVER, reply);
    member.set_member(server.server());
    member.set_state(server.state());
    member.set_reason(server.reason());
    member.set_address(server.address());
    member.set_shards(server.shards());
    if (!server.has_backup()) continue;
    wire::MemberStatus& backup = AddMember(server.backup(), wire::MEMBER_ROLE_SERVER, reply);
    backup.set_member(server.server());
    backup.set_backup(true);
    backup.set_state(server.backup().in_step() ? "in step" : "catching up");
    backup.set_address(server.backup().address());
  }
  for (const wire::WorkerView& worker : from.workers()) {
    wire::MemberStatus& member = AddMember(worker, wire::MEMBER_ROLE_WORKER, reply);
    member.set_member(worker.worker());
    member.set_state(worker.state());
    member.set_reason(worker.reason());
    member.set_clock(worker.clock());
    member.set_samples(worker.samples());
    member.set_samples_per_second(worker.samples_per_second());
    member.set_address(worker.host());
  }
}

wire::GetStatusReply ReplyOfStatus(wire::JobStatus status) {
  wire::GetStatusReply reply;
  reply.set_name(status.name());
  reply.set_state(StateOf(status.state()));
  reply.set_reason(status.reason());
  FillProgress(status.progress(), reply);
  reply.set_staleness_mean(status.asynchrony().staleness_mean());
  reply.set_staleness_max(status.asynchrony().staleness_max());
  reply.set_slack(status.asynchrony().slack());
  FillMembers(status, reply);
  for (const wire::EventView& event : status.events()) reply.add_events(event.text());
  reply.set_event_count(status.events_total());
  reply.set_moving(status.moving());
  if (status.has_energy()) *reply.mutable_energy() = status.energy();
  *reply.mutable_full() = std::move(status);
  return reply;
}

}  // namespace

std::string PageAddress(const std::string& url) {
  absl::string_view rest = url;
  if (!absl::ConsumePrefix(&rest, "http://")) return "";
  std::string address(rest.substr(0, rest.find_first_of("/?#")));
  return AddressMistake(address).empty() ? address : "";
}

absl::StatusOr<wire::GetStatusReply> ReplyOf(const std::string& json) {
  // A status is not as deep; more would be written out again by as deep a recursion.
  nlohmann::json object = ParseJson(json, kDepthMax);
  if (!object.is_object() || !object.contains("job") || !object.contains("state")) {
    return absl::InvalidArgumentError("found no status of a job");
  }
  // Lists with nulls in them, which protobuf refuses, and nothing here shows.
  object.erase("curve");
  wire::JobStatus status;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const std::string text = DumpJson(object);
  const auto parsed = google::protobuf::util::JsonStringToMessage(text, &status, options);
  if (!parsed.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("found no status of a job: ", std::string(parsed.message())));
  }
  return ReplyOfStatus(std::move(status));
}

absl::StatusOr<PageStatus> AskPage(const std::string& address, absl::Duration timeout) {
  absl::StatusOr<std::string> json = HttpGet(address, "/api/status", timeout);
  if (!json.ok()) return json.status();
  absl::StatusOr<wire::GetStatusReply> reply = ReplyOf(*json);
  if (!reply.ok()) {
    return absl::Status(reply.status().code(),
                        absl::StrCat("http://", address, "/api/status: ", reply.status().message()));
  }
  reply->set_page(absl::StrCat("http://", address, "/"));
  return PageStatus{*std::move(json), *std::move(reply)};
}

}  // namespace slackline::cli
