// Fields that a release had keep their numbers and types, or their numbers are reserved: peers and files of that
// release are understood.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include "absl/strings/str_cat.h"
#include "checkpoint.pb.h"
#include "google/protobuf/descriptor.h"
#include "job.pb.h"

namespace slackline::released_protos_test {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;

// A line of scripts/list_fields: "slackline.wire.Hello.worker 2 uint32".
struct Released {
  std::string scope;  // message or enum
  std::string name;
  int number = 0;
  std::string type;  // "value" for the value of an enum
};

std::vector<Released> Read(const std::filesystem::path& path) {
  std::vector<Released> all;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    Released one;
    std::string full;
    words >> full >> one.number >> std::ws;
    std::getline(words, one.type);
    const size_t dot = full.rfind('.');
    one.scope = full.substr(0, dot);
    one.name = full.substr(dot + 1);
    all.push_back(one);
  }
  return all;
}

std::string TypeOf(const FieldDescriptor& field) {
  const std::string type(field.message_type() != nullptr ? field.message_type()->full_name()
                         : field.enum_type() != nullptr  ? field.enum_type()->full_name()
                                                         : field.type_name());
  return absl::StrCat(field.is_repeated() ? "repeated " : "", type);
}

// Returns how a field or value differs from the release; empty if it does not.
std::string BreakOf(const Released& released) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  if (released.type == "value") {
    const EnumDescriptor* const scope = pool.FindEnumTypeByName(released.scope);
    if (scope == nullptr) return "its enum is not there";
    const EnumValueDescriptor* const value = scope->FindValueByNumber(released.number);
    if (value == nullptr) return scope->IsReservedNumber(released.number) ? "" : "its number is not reserved";
    return value->name() == released.name ? "" : absl::StrCat("its number is that of ", value->name());
  }
  const Descriptor* const scope = pool.FindMessageTypeByName(released.scope);
  if (scope == nullptr) return "its message is not there";
  const FieldDescriptor* const field = scope->FindFieldByNumber(released.number);
  if (field == nullptr) return scope->IsReservedNumber(released.number) ? "" : "its number is not reserved";
  if (field->name() != released.name) return absl::StrCat("its number is that of ", field->name());
  return TypeOf(*field) == released.type ? "" : absl::StrCat("its type is ", TypeOf(*field));
}

TEST(ReleasedProtos, FieldsStayWhatTheyWere) {
  // Links the messages, which the pool has only then.
  ASSERT_NE(checkpoint::Manifest::descriptor(), nullptr);
  ASSERT_NE(job::Job::descriptor(), nullptr);
  size_t releases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(RELEASED)) {
    ++releases;
    const std::vector<Released> fields = Read(entry.path());
    EXPECT_GT(fields.size(), 100u) << entry.path();
    for (const Released& field : fields) {
      EXPECT_EQ(BreakOf(field), "") << field.scope << "." << field.name << " " << field.number << " " << field.type
                                    << ", in " << entry.path().filename();
    }
  }
  EXPECT_GE(releases, 1u);
}

TEST(ReleasedProtos, ChangesAreSeen) {
  const std::string scope = "slackline.wire.Hello";
  EXPECT_EQ(BreakOf({scope, "worker", 2, "uint32"}), "");
  EXPECT_EQ(BreakOf({scope, "worker", 2, "uint64"}), "its type is uint32");
  EXPECT_EQ(BreakOf({scope, "worker", 2, "repeated uint32"}), "its type is uint32");
  EXPECT_EQ(BreakOf({scope, "shards", 6, "repeated slackline.wire.ShardClock"}), "");
  EXPECT_EQ(BreakOf({scope, "shards", 6, "repeated slackline.wire.ShardState"}),
            "its type is repeated slackline.wire.ShardClock");
  EXPECT_EQ(BreakOf({scope, "author", 2, "uint32"}), "its number is that of worker");
  EXPECT_EQ(BreakOf({scope, "worker", 99, "uint32"}), "its number is not reserved");
  EXPECT_EQ(BreakOf({"slackline.wire.Hallo", "worker", 2, "uint32"}), "its message is not there");
  EXPECT_EQ(BreakOf({"slackline.wire.Role", "ROLE_READER", 1, "value"}), "its number is that of ROLE_WORKER");
}

}  // namespace
}  // namespace slackline::released_protos_test
