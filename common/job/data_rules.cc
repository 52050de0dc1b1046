#include "common/job/data_rules.h"

#include <initializer_list>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/http/http_address.h"
#include "common/job/data_formats.h"
#include "common/job/rule_book.h"
#include "common/job/value.h"

namespace slackline::job_file {
namespace {

class DataRules : private RuleBook {
 public:
  using RuleBook::RuleBook;

  void Data(const job::Data& data) {
    const std::string format = EnumName(*job::Data::Format_descriptor()->FindValueByNumber(data.format()));
    const auto only_with = [&](DataSettings settings, const google::protobuf::Message& section,
                               std::initializer_list<const char*> keys) {
      if (Takes(data.format(), settings)) return;
      for (const char* key : keys) NeedsOther(section, key, FormatsThatTake(settings), format);
    };
    only_with(kNormalisation, data, {"data.mean", "data.deviation"});
    only_with(kCopies, data, {"data.verify"});
    only_with(kEvaluationSplit, data, {"data.evaluation_split"});
    only_with(kTestAtEnd, data, {"data.test_at_end"});
    if (data.test_at_end() && data.evaluation_split() == job::Data::TEST && Takes(data.format(), kTestAtEnd)) {
      Refuse("data.test_at_end", "true with data.evaluation_split: test",
             "true only with data.evaluation_split: validation; otherwise all evaluations are on the split test");
    }
    only_with(kDecoding, data.decode(), {"data.decode.size", "data.decode.grey", "data.decode.fit"});
    only_with(kCopies, data.cache(), {"data.cache.folder"});
    if (data.cache().folder().empty()) {
      NeedsOther(data.cache(), "data.cache.gigabytes_max", "data.cache.folder", "no folder");
      NeedsOther(data.cache(), "data.cache.peers", "data.cache.folder", "no folder");
    }
    const auto is_digit = [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); };
    if (!data.replaces().empty() && (data.replaces().size() != 16 || !absl::c_all_of(data.replaces(), is_digit))) {
      Refuse("data.replaces", Quoted(data.replaces()),
             "a fingerprint as a resume names it: 16 digits of 0 to 9, a to f");
    }
    Server(data, format);
    ByFile(data, format);
    if (data.augment().rand_augment() == 0) {
      NeedsOther(data.augment(), "data.augment.rand_augment_magnitude", "data.augment.rand_augment above 0",
                 "no rand_augment");
    }
  }

  // data.path as a folder of a file server, and the settings that only such a path has.
  void Server(const job::Data& data, const std::string& format) {
    constexpr char kServers[] = "a data.path that begins with https://, http:// or ftp://";
    const bool served = IsFileServer(data.path());
    const absl::Status understood = served ? CheckServerAddress(data.path()) : absl::OkStatus();
    Understood("data.path", understood);
    if (!served && IsAddress(data.path())) {
      Refuse("data.path", Quoted(data.path()),
             "a folder, or https://files.example.org/FOLDER, http:// or ftp://: there is no other protocol");
    }
    if (!IsHttps(data.path())) {
      NeedsOther(data, "data.ca_file", "a data.path that begins with https://",
                 served ? "another protocol" : "a folder");
    }
    if (!served) {
      if (data.cache().peers()) return;
      NeedsOther(data, "data.http_timeout_s", absl::StrCat(kServers, ", or data.cache.peers: true"), "a folder");
    } else if (!understood.ok()) {
      // Said above.
    } else if (!Takes(data.format(), kCopies)) {
      Refuse("data.path", absl::StrCat(Quoted(data.path()), " with data.format: ", format),
             absl::StrCat("a folder, or ", FormatsThatTake(kCopies)));
    } else if (data.cache().folder().empty()) {
      Refuse("data.path", absl::StrCat(Quoted(data.path()), " without data.cache.folder"),
             "a folder, or a server with data.cache.folder, where each node keeps what it has read");
    }
  }

  // Files that a node gets one by one, as its tasks need them.
  void ByFile(const job::Data& data, const std::string& format) {
    if (data.sampling() != job::Data::BY_FILE) return;
    if (!Takes(data.format(), kCopies)) {
      Refuse("data.sampling", absl::StrCat("by_file with data.format: ", format),
             absl::StrCat("uniform, balanced, or ", FormatsThatTake(kCopies)));
    }
    if (data.cache().peers()) {
      Refuse("data.cache.peers", "true with data.sampling: by_file",
             "false: nodes that serve each other get all files before they train");
    }
  }

  // Nodes send each other images without encryption.
  void Peers(const job::Cache& cache, const job::Security& security) {
    const bool tls = security.mode() == job::Security::TLS;
    if (cache.peers() && tls && !cache.peers_in_clear()) {
      Refuse("data.cache.peers", "true with security.mode: tls",
             "false, or data.cache.peers_in_clear: true: images go from node to node as plain text");
    }
    if (!cache.peers())
      NeedsOther(cache, "data.cache.peers_in_clear", "data.cache.peers: true", "data.cache.peers: false");
    if (!tls) {
      NeedsOther(cache, "data.cache.peers_in_clear", "security.mode: tls",
                 EnumName(*job::Security::Mode_descriptor()->FindValueByNumber(security.mode())));
    }
  }

  // A range has images of one file: what needs others would read files from afar all the time.
  void Spread(const job::Job& job) {
    const job::Cache& cache = job.data().cache();
    if (!cache.peers()) NeedsOther(cache, "data.cache.spread", "data.cache.peers: true", "data.cache.peers: false");
    if (!cache.spread()) return;
    const auto refuse = [&](const std::string& with, const std::string& other) {
      Refuse("data.cache.spread", absl::StrCat("true with ", with), absl::StrCat("false, or ", other));
    };
    if (job.data().sampling() == job::Data::BALANCED) refuse("data.sampling: balanced", "data.sampling: uniform");
    if (job.local().subset_samples() > 0) {
      refuse(absl::StrCat("local.subset_samples: ", job.local().subset_samples()), "local.subset_samples: 0");
    }
    if (job.training().self_supervised().method() != job::SelfSupervised::NONE) {
      refuse("training.self_supervised, whose evaluations read all training images", "no self-supervised training");
    }
  }
};

}  // namespace

void CheckDataRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes) {
  DataRules rules(name, origins, mistakes);
  rules.Data(job.data());
  rules.Peers(job.data().cache(), job.security());
  rules.Spread(job);
}

}  // namespace slackline::job_file
