#include "common/job/path_rules.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/http/http_address.h"
#include "common/job/data_formats.h"
#include "common/job/rule_book.h"

namespace slackline::job_file {
namespace {

class PathRules : private RuleBook {
 public:
  using RuleBook::RuleBook;

  // What is no server's, and not for a shell: nothing would fetch or find it, and a folder of that name would be made.
  void Path(const std::string& key, const std::string& path) {
    Home(key, path);
    if (IsAddress(path)) {
      Refuse(key, Quoted(path),
             absl::StrCat("a path: data.path alone, with ", FormatsThatTake(kCopies), ", may be an address"));
    }
  }

  void Home(const std::string& key, const std::string& path) {
    if (path == "~" || absl::StartsWith(path, "~/")) {
      Refuse(key, Quoted(path), "a path with the name of the home folder in the place of ~, which only shells know");
    }
  }
};

}  // namespace

void CheckPathRules(const job::Job& job, const std::string& name, const Origins& origins, Mistakes& mistakes) {
  PathRules rules(name, origins, mistakes);
  rules.Home("data.path", job.data().path());
  rules.Path("data.ca_file", job.data().ca_file());
  rules.Path("data.cache.folder", job.data().cache().folder());
  rules.Path("model.weights", job.model().weights());
  rules.Path("model.torchscript", job.model().torchscript());
  for (const std::string& library : job.model().libraries()) rules.Path("model.libraries", library);
  rules.Path("checkpoint.folder", job.checkpoint().folder());
  rules.Path("durability.folder", job.durability().folder());
  rules.Path("output.folder", job.output().folder());
  rules.Path("security.folder", job.security().folder());
  rules.Path("security.token_file", job.security().token_file());
  rules.Path("worker.trace", job.worker().trace());
  const job::Coco& coco = job.data().coco();
  for (int i = 0; i < job::Coco::descriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *job::Coco::descriptor()->field(i);
    if (field.cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_STRING) continue;
    rules.Path(absl::StrCat("data.coco.", field.name()), coco.GetReflection()->GetString(coco, &field));
  }
}

}  // namespace slackline::job_file
