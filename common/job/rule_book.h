// What rules about settings share: where a setting was written, and how it is refused.
#pragma once

#include <cstddef>
#include <string>

#include <google/protobuf/message.h>
#include "absl/status/status.h"
#include "common/job/mistakes.h"
#include "common/job/reader.h"

namespace slackline::job_file {

// Thread-safety: none.
// Ownership:     borrows all that it is given.
class RuleBook {
 public:
  // `name`: of the file, for settings that nobody wrote.
  RuleBook(const std::string& name, const Origins& origins, Mistakes& mistakes)
      : name_(name), origins_(origins), mistakes_(mistakes) {}

 protected:
  // Of a name that a message shows.
  static constexpr size_t kNameMax = 100;

  // Refuses `key` of `section` if it is set although `actual` stands where it needs `needed`.
  void NeedsOther(const google::protobuf::Message& section, const std::string& key, const std::string& needed,
                  const std::string& actual);

  // `read` is OK, or "found X; allowed is Y".
  void Understood(const std::string& key, const absl::Status& read);

  // `section`: where the mistake is when the key itself is nowhere.
  void Refuse(const std::string& key, const std::string& found, const std::string& allowed,
              const std::string& section = "");

  // Something was wrong with `key`, or below it, when it was read: what it says is not known.
  bool Misread(const std::string& key) const { return mistakes_.Has(key); }

  static std::string Quoted(const std::string& text);
  // "1 item", "2 items".
  static std::string Count(int count, const std::string& noun);

 private:
  const std::string& name_;
  const Origins& origins_;
  Mistakes& mistakes_;
};

}  // namespace slackline::job_file
