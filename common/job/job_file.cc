#include "common/job/job_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include "absl/strings/str_cat.h"
#include "common/http/http_address.h"
#include "common/job/job_kinds.h"
#include "common/job/job_timeouts.h"
#include "common/job/mistakes.h"
#include "common/job/reader.h"
#include "common/job/rules.h"
#include "common/job/script_optimizer.h"
#include "common/job/writer.h"
#include "common/job/yaml_tree.h"
#include "common/text/utf8.h"

namespace slackline {
namespace {

// Path of a job file that comes through the standard input; its relative paths count from the present folder.
constexpr char kStandardInput[] = "-";

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::NotFoundError(absl::StrCat(path, ": found a folder; allowed is a job file"));
  }
  std::ifstream file;
  if (path != kStandardInput) file.open(path, std::ios::binary);
  std::istream& in = path == kStandardInput ? std::cin : file;
  // One byte more than allowed, so that the parser sees that it is too much.
  std::string text(job_file::kYamlBytesMax + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in && !in.eof())
    return absl::NotFoundError(absl::StrCat(path, ": cannot read the job file: ", std::strerror(errno)));
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

// FNV-1a: the same in every process and on every machine, unlike Abseil's hash.
uint64_t StableHash(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) {
    hash ^= static_cast<unsigned char>(byte);
    hash *= 0x100000001b3;
  }
  return hash;
}

}  // namespace

absl::StatusOr<job::Job> ParseJob(const std::string& text, const std::string& name,
                                  absl::Span<const std::string> overrides, std::optional<job::Model::Kind> kind) {
  job_file::Mistakes mistakes;
  job_file::Origins origins;
  job::Job job;
  const absl::StatusOr<job_file::YamlNode> root = job_file::ParseYaml(text);
  // Without a tree there is nothing more to say.
  if (!root.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ":", root.status().message()));
  job_file::ReadTree(*root, name, job, origins, mistakes);
  for (const std::string& assignment : overrides) job_file::ApplyOverride(assignment, job, origins, mistakes);
  if (kind && !job.model().has_kind()) job.mutable_model()->set_kind(*kind);
  job_file::CheckRules(job, name, origins, mistakes);
  const absl::Status status = mistakes.ToStatus();
  if (!status.ok()) return status;
  return job;
}

absl::StatusOr<job::Job> ReadJobFile(const std::string& path, absl::Span<const std::string> overrides,
                                     std::optional<job::Model::Kind> kind) {
  const absl::StatusOr<std::string> text = ReadText(path);
  if (!text.ok()) return text.status();
  if (path == kStandardInput && text->empty()) {
    return absl::InvalidArgumentError("standard input: found nothing; allowed is a job file");
  }
  const std::string name = path == kStandardInput ? "standard input" : path;
  absl::StatusOr<job::Job> job = ParseJob(*text, name, overrides, kind);
  if (!job.ok()) return job;
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  // Relative paths count from the job file; nothing stays nothing.
  const auto from_here = [&](const std::filesystem::path& found) {
    return found.is_absolute() || found.empty() ? found.string() : (folder / found).lexically_normal().string();
  };
  if (job->has_data() && !IsFileServer(job->data().path())) {
    job->mutable_data()->set_path(from_here(job->data().path()));
  }
  if (job->data().has_ca_file()) job->mutable_data()->set_ca_file(from_here(job->data().ca_file()));
  if (job->data().has_cache()) {
    job->mutable_data()->mutable_cache()->set_folder(from_here(job->data().cache().folder()));
  }
  if (job->has_model() && job->model().has_weights())
    job->mutable_model()->set_weights(from_here(job->model().weights()));
  if (job->has_model() && job->model().has_torchscript()) {
    job->mutable_model()->set_torchscript(from_here(job->model().torchscript()));
  }
  for (int i = 0; i < job->model().libraries_size(); ++i) {
    job->mutable_model()->set_libraries(i, from_here(job->model().libraries(i)));
  }
  if (job->worker().has_trace()) job->mutable_worker()->set_trace(from_here(job->worker().trace()));
  if (job->has_checkpoint()) job->mutable_checkpoint()->set_folder(from_here(job->checkpoint().folder()));
  if (job->has_security()) {
    job->mutable_security()->set_folder(from_here(job->security().folder()));
    job->mutable_security()->set_token_file(from_here(job->security().token_file()));
  }
  // Their parts go from process to process in messages, which have no room for other bytes.
  for (const auto& [key, kept] : {std::pair{"checkpoint.folder", job->checkpoint().folder()},
                                  std::pair{"durability.folder", job->durability().folder()}}) {
    if (IsUtf8(kept)) continue;
    return absl::InvalidArgumentError(absl::StrCat(ValidText(path), ": ", key, ": found ", ValidText(kept),
                                                   ", not UTF-8; allowed is a path in UTF-8"));
  }
  return job;
}

job::Job Resolve(const job::Job& job) {
  job::Job resolved = job;
  job_file::SetDefaults(resolved);
  job::Model& model = *resolved.mutable_model();
  const ModelFacts& facts = FactsOf(model);
  if (model.hidden_size() == 0) model.mutable_hidden()->Add(facts.hidden.begin(), facts.hidden.end());
  if (model.filters_size() == 0) model.mutable_filters()->Add(facts.filters.begin(), facts.filters.end());
  job::SelfSupervised& self_supervised = *resolved.mutable_training()->mutable_self_supervised();
  if (self_supervised.method() != job::SelfSupervised::NONE && self_supervised.projection_size() == 0) {
    const bool contrastive = self_supervised.method() == job::SelfSupervised::CONTRASTIVE;
    self_supervised.add_projection(contrastive ? 2048 : 4096);
    self_supervised.add_projection(contrastive ? 128 : 256);
  }
  if (resolved.worker().groups_size() > 0 && !job.cluster().has_workers()) {
    resolved.mutable_cluster()->set_workers(static_cast<uint32_t>(resolved.worker().groups_size()));
  }
  if (!job.timeouts().has_heartbeat_ms()) {
    resolved.mutable_timeouts()->clear_heartbeat_ms();
    resolved.mutable_timeouts()->set_heartbeat_ms(HeartbeatMsOf(resolved));
  }
  LeaveToScript(job, resolved);
  return resolved;
}

std::string ToYaml(const job::Job& job) { return job_file::WriteYaml(Resolve(job)); }

std::vector<SettingView> SettingsOf(const job::Job& job) {
  job::Job plain;
  plain.mutable_model()->set_kind(job.model().kind());
  std::map<std::string, std::string> defaults;
  for (SettingView& setting : job_file::Flatten(Resolve(plain))) defaults[setting.key] = std::move(setting.value);
  // Which kind a job has is its own choice.
  if (job.model().kind() != job::Model().kind()) defaults.erase("model.kind");
  std::vector<SettingView> settings = job_file::Flatten(Resolve(job));
  for (SettingView& setting : settings) {
    const auto found = defaults.find(setting.key);
    setting.is_default = found != defaults.end() && found->second == setting.value;
  }
  return settings;
}

uint64_t Fingerprint(const job::Job& job) {
  job::Job same = Resolve(job);
  same.clear_output();
  same.clear_network();
  same.mutable_data()->clear_path();
  same.mutable_data()->clear_cache();
  same.mutable_data()->clear_http_timeout_s();
  same.mutable_data()->clear_ca_file();
  same.mutable_security()->clear_folder();
  same.mutable_security()->clear_token_file();
  same.mutable_security()->clear_insecure();
  same.mutable_worker()->clear_threads();
  same.mutable_worker()->clear_cores();
  for (job::WorkerGroup& group : *same.mutable_worker()->mutable_groups()) group.clear_cores();
  same.mutable_worker()->clear_trace();
  same.mutable_worker()->clear_trace_otlp();
  same.mutable_cluster()->clear_worker_restarts_max();
  // A build that knows more settings must find the same while nobody uses them: processes are replaced one by one.
  job_file::ClearDefaults(same);
  // Builds before 0.2.0 wrote this default into the job.
  if (same.worker().groups_size() == 0 && same.worker().devices_size() == 0) same.mutable_worker()->add_devices("cpu");
  // Maps have no order of their own.
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    same.SerializeToCodedStream(&coded);
  }
  return StableHash(bytes);
}

}  // namespace slackline
