#include "cli/run/not_started.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace slackline::cli::not_started_test {
namespace {

class NotStartedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/not_started_test_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    run_ = pattern;
    std::ofstream(run_ / "processes.json") << R"([
      {"name": "scheduler", "role": "scheduler", "pid": 1, "restarts": 0, "state": "exit code 1"},
      {"name": "ps-1", "role": "server", "pid": 2, "restarts": 0, "state": "running"},
      {"name": "ps-2", "role": "server", "pid": 3, "restarts": 2, "state": "exit code 1"},
      {"name": "worker-1", "role": "worker", "pid": 4, "restarts": 0, "state": "exit code 0"},
      {"name": "worker-2", "role": "worker", "pid": 5, "restarts": 0, "state": "killed by signal 9"},
      {"name": "worker-3", "role": "worker", "pid": 6, "restarts": 0, "state": "exit code 2"}])";
    status_.add_members()->set_name("worker-2");
  }
  void TearDown() override { std::filesystem::remove_all(run_); }

  std::filesystem::path run_;
  wire::GetStatusReply status_;
};

TEST_F(NotStartedTest, ThoseThatHaveEndedAndThatTheSchedulerDoesNotKnow) {
  const std::vector<ProcessRecord> found = NotStarted(run_, status_);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(RenderNotStarted("runs/first", found),
            "ps-2 could not be started: exit code 1, started 3 times; runs/first/logs/ps-2.log says why\n"
            "worker-3 could not be started: exit code 2, started 1 time; runs/first/logs/worker-3.log says why\n");
}

TEST_F(NotStartedTest, JsonHasThemAsAFieldOfItsOwnAndKeepsTheOthers) {
  const std::vector<ProcessRecord> found = NotStarted(run_, status_);
  const std::string text = WithNotStarted("{\"loss\":0.123450,\"disk\":{\"free\":1}}", "runs/first", found);
  EXPECT_THAT(text, ::testing::StartsWith("{\"loss\":0.123450,\"disk\":{\"free\":1},\"not_started\":[{"));
  const nlohmann::json json = nlohmann::json::parse(text);
  ASSERT_EQ(json["not_started"].size(), 2u);
  EXPECT_EQ(json["not_started"][0], (nlohmann::json{{"name", "ps-2"},
                                                    {"role", "server"},
                                                    {"state", "exit code 1"},
                                                    {"starts", 3},
                                                    {"log", "runs/first/logs/ps-2.log"}}));
  EXPECT_EQ(WithNotStarted("{}", "r", {}), "{\"not_started\":[]}");
  EXPECT_EQ(WithNotStarted("{\"a\":1}\n", "r", {}), "{\"a\":1,\"not_started\":[]}\n");
}

}  // namespace
}  // namespace slackline::cli::not_started_test
