// Credentials of a job in a folder of their own, as `slackline credentials` makes them.
#pragma once

#include <memory>
#include <string>

#include "common/security/make_credentials.h"
#include "common/security/security.h"
#include "gtest/gtest.h"
#include "job.pb.h"
#include "tests/security/folder.h"

namespace slackline::security {

// A job with its credentials, as the job's processes see them.
class Credentials {
 public:
  // Makes all files if `mode` is token or tls; a certificate is valid for `valid_for`.
  explicit Credentials(job::Security::Mode mode, absl::Duration valid_for = absl::Hours(1)) {
    job_.set_name("first");
    job_.mutable_security()->set_mode(mode);
    if (mode == job::Security::TOKEN) {
      job_.mutable_security()->set_token_file(folder_.path() + "/token");
      EXPECT_TRUE(MakeToken(job_.security().token_file(), false).ok());
    } else if (mode == job::Security::TLS) {
      job_.mutable_security()->set_folder(folder_.path());
      const absl::Status made = MakeCredentials(MakeFor(folder_.path(), valid_for));
      EXPECT_TRUE(made.ok()) << made;
    }
  }

  const std::string& folder() const { return folder_.path(); }
  const job::Job& job() const { return job_; }

  Security For(Role role) const {
    const absl::StatusOr<Security> opened = Security::Open(job_, role, absl::Seconds(1));
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *opened : Security();
  }

 private:
  TemporaryFolder folder_;
  job::Job job_;
};

}  // namespace slackline::security
