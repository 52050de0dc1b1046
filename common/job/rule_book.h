// Helpers for rules about settings: the place where a setting was written, and the way to refuse it.
#pragma once

#include <cstddef>
#include <string>

#include <google/protobuf/message.h>
#include "absl/status/status.h"
#include "common/job/mistakes.h"
#include "common/job/reader.h"

namespace slackline::job_file {

// Thread-safety: none.
// Ownership:     borrows all constructor arguments.
class RuleBook {
 public:
  // `name` is the file's name. It is the place of settings that nobody wrote.
  RuleBook(const std::string& name, const Origins& origins, Mistakes& mistakes)
      : name_(name), origins_(origins), mistakes_(mistakes) {}

 protected:
  // Largest number of bytes of a name in a message.
  static constexpr size_t kNameMax = 100;

  // Refuses `key` of `section` if it differs from its default although it needs `needed` and the job has `actual`.
  void NeedsOther(const google::protobuf::Message& section, const std::string& key, const std::string& needed,
                  const std::string& actual);

  // Refuses `key` unless `read` is OK. The message of `read` must be "found X; allowed is Y".
  void Understood(const std::string& key, const absl::Status& read);

  // Refuses `key`. If nobody wrote the key, the message names the place of `section`.
  void Refuse(const std::string& key, const std::string& found, const std::string& allowed,
              const std::string& section = "");

  // Returns whether `key`, or a key below it, was read with a mistake. Its value is then unknown.
  bool Misread(const std::string& key) const { return mistakes_.Has(key); }

  static std::string Quoted(const std::string& text);
  // Returns "1 item", "2 items".
  static std::string Count(int count, const std::string& noun);

 private:
  const std::string& name_;
  const Origins& origins_;
  Mistakes& mistakes_;
};

}  // namespace slackline::job_file
