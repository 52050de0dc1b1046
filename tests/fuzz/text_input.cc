#include "tests/fuzz/text_input.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

namespace slackline::fuzz {
namespace {

constexpr int kDepthMax = 32;

class Silent : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

}  // namespace

bool ParseText(const uint8_t* data, size_t size, google::protobuf::Message& message) {
  google::protobuf::io::ArrayInputStream stream(data, static_cast<int>(size));
  google::protobuf::TextFormat::Parser parser;
  Silent silent;
  parser.RecordErrorsTo(&silent);
  parser.SetRecursionLimit(kDepthMax);
  return parser.Parse(&stream, &message);
}

}  // namespace slackline::fuzz
