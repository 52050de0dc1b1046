#include "scheduler/status/status_pages.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include "absl/strings/str_cat.h"
#include "scheduler/base/message_json.h"
#include "scheduler/status/settings_and_logs.h"
#include "scheduler/status/status_limits.h"
#include "tests/scheduler/fake_cluster.h"

namespace slackline::scheduler::status_pages_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Served {
 public:
  explicit Served(int streams_max = 2, const std::string& run_folder = "", const std::string& settings = "{}") {
    const StatusPagesOptions options{
        .streams_max = streams_max, .every = absl::Milliseconds(5), .settings = settings, .run_folder = run_folder};
    HttpServer::Options http;
    http.threads = ThreadsFor(options);
    http.handlers = StatusPages(board, options);
    auto started = HttpServer::Start(http);
    EXPECT_TRUE(started.ok()) << started.status();
    server = *std::move(started);
  }
  ~Served() { board.Close(); }

  int Ask(const std::string& path) const {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(::write(socket, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    return socket;
  }
  // Until `enough` was read or the other end is gone.
  static std::string Read(int socket, const std::string& enough = "never") {
    std::string text;
    char buffer[4096];
    ssize_t size = 0;
    while (text.find(enough) == std::string::npos && (size = ::read(socket, buffer, sizeof(buffer))) > 0) {
      text.append(buffer, static_cast<size_t>(size));
    }
    return text;
  }
  std::string Fetch(const std::string& path) const {
    const int socket = Ask(path);
    const std::string text = Read(socket);
    ::close(socket);
    return text;
  }

  StatusBoard board{{.run_folder = "/"}};
  std::unique_ptr<HttpServer> server;
};

wire::JobStatus Named(const std::string& name) {
  wire::JobStatus status;
  status.set_name(name);
  status.set_state("training");
  return status;
}

nlohmann::json Body(const std::string& response) {
  return nlohmann::json::parse(response.substr(response.find("\r\n\r\n") + 4));
}

TEST(StatusPages, ThePageAllowsNothingFromElsewhereAndNothingInline) {
  const Served served;
  for (const char* path : {"/", "/page.css", "/page.js", "/charts.js", "/icon.svg"}) {
    const std::string text = served.Fetch(path);
    EXPECT_THAT(text, StartsWith("HTTP/1.1 200 ")) << path;
    EXPECT_THAT(text, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'")) << path;
    EXPECT_THAT(text, Not(HasSubstr("unsafe-"))) << path;
    EXPECT_THAT(text, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n")) << path;
    EXPECT_THAT(text, HasSubstr("\r\nCache-Control: no-store\r\n")) << path;
  }
  const std::string html = served.Fetch("/");
  EXPECT_THAT(html, Not(testing::ContainsRegex("(src|href)=\"(http|/)")));
  EXPECT_THAT(html, Not(testing::ContainsRegex(" (style|onclick)=")));
  EXPECT_THAT(html, Not(HasSubstr("<style")));
}

TEST(StatusPages, SettingsSayWhichDifferFromTheirDefaults) {
  job::Job job;
  job.mutable_optimizer()->set_lr(0.125);
  job.mutable_worker()->add_groups()->add_devices("cuda:0");
  const Served served(2, "", SettingsJson(job));
  const nlohmann::json settings = Body(served.Fetch("/api/settings"))["settings"];
  const auto find = [&](const std::string& key) {
    for (const nlohmann::json& one : settings) {
      if (one["key"] == key) return one;
    }
    return nlohmann::json();
  };
  EXPECT_EQ(find("optimizer.lr"), nlohmann::json({{"key", "optimizer.lr"}, {"value", "0.125"}, {"default", false}}));
  EXPECT_EQ(find("worker.groups[0].devices")["value"], "[\"cuda:0\"]");
  EXPECT_EQ(find("training.epochs"), nlohmann::json({{"key", "training.epochs"}, {"value", "5"}, {"default", true}}));
  EXPECT_EQ(find("wire.groups")["value"], "[]");
}

class LogsOfARun : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "slackline-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    std::filesystem::create_directories(logs());
    std::ofstream(root_ / "outside.log") << "secret\n";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::filesystem::path run() const { return root_ / "run"; }
  std::filesystem::path logs() const { return run() / "logs"; }

  std::filesystem::path root_;
};

TEST_F(LogsOfARun, HaveTheirLastLines) {
  std::ofstream log(logs() / "worker-1.log");
  for (int line = 1; line <= 150; ++line) log << "line " << line << "\n";
  log << "not UTF-8: \xff" << std::flush;
  std::ofstream(logs() / "worker-2.log") << std::string(kLogBytesShown, 'x') << "\nthe end\n";
  std::ofstream(logs() / "worker-3.log") << "short\n";
  const Served served(2, run());
  const nlohmann::json list = Body(served.Fetch("/api/logs"))["logs"];
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[2], nlohmann::json({{"name", "worker-3"}, {"bytes", 6}}));
  const std::string one = served.Fetch("/api/logs?name=worker-1");
  EXPECT_THAT(one, HasSubstr("\r\nContent-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_THAT(one, HasSubstr("\r\n\r\nline 52\n"));
  EXPECT_THAT(one, HasSubstr("line 150\nnot UTF-8: "));
  EXPECT_THAT(served.Fetch("/api/logs?name=worker-2"), testing::EndsWith("\r\n\r\nthe end\n"));
  EXPECT_THAT(served.Fetch("/api/logs?name=worker-3"), testing::EndsWith("\r\n\r\nshort\n"));
}

TEST_F(LogsOfARun, AreThoseOfTheRunFolderAlone) {
  std::filesystem::create_symlink(root_ / "outside.log", logs() / "link.log");
  std::filesystem::create_directory(logs() / "folder.log");
  ASSERT_EQ(::mkfifo((logs() / "pipe.log").c_str(), 0600), 0);
  std::ofstream(run() / "job.log") << "not a process\n";
  const Served served(2, run());
  EXPECT_TRUE(Body(served.Fetch("/api/logs"))["logs"].empty());
  for (const char* query : {"name=link", "name=folder", "name=pipe", "name=../job", "name=../../outside",
                            "name=%2e%2e/job", "name=", "name=/etc/passwd", "other=1"}) {
    const std::string response = served.Fetch(absl::StrCat("/api/logs?", query));
    EXPECT_THAT(response, StartsWith("HTTP/1.1 404 ")) << query;
    EXPECT_THAT(response, Not(HasSubstr("secret"))) << query;
  }
  std::filesystem::rename(logs(), root_ / "elsewhere");
  std::ofstream(root_ / "elsewhere" / "worker-1.log") << "secret\n";
  std::filesystem::create_directory_symlink(root_ / "elsewhere", logs());
  EXPECT_THAT(served.Fetch("/api/logs?name=worker-1"), StartsWith("HTTP/1.1 404 "));
}

TEST(StatusPages, NobodyIsToldAnythingBeforeThereIsAJob) {
  Served served;
  for (const char* path : {"/api/status", "/api/events"}) {
    EXPECT_THAT(served.Fetch(path), testing::AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("Retry-After: "))) << path;
  }
  served.board.Open([] { return Named("job"); });
  EXPECT_EQ(Body(served.Fetch("/api/status"))["name"], "job");
}

TEST(StatusPages, HostileNamesComeOutAsTheyAreAndBreakNothing) {
  Served served;
  const std::string name = "</script><script>alert('\"1\"')\\\r\n\ndata: \x01";
  served.board.Open([&] {
    wire::JobStatus status = Named("job");
    status.add_workers()->set_name(name);
    status.add_workers()->set_name("not UTF-8: \xff\xfe");
    return status;
  });
  const std::string response = served.Fetch("/api/status");
  EXPECT_THAT(response, HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_EQ(Body(response)["workers"][0]["name"], name);
  EXPECT_THAT(Body(response)["workers"][1]["name"], StartsWith("not UTF-8: "));
  // One event is one line of data, whatever is in it.
  const int socket = served.Ask("/api/events");
  const std::string stream = Served::Read(socket, "}\n\n");
  ::close(socket);
  const std::string event = stream.substr(stream.find("event: status\n"));
  EXPECT_EQ(event.find("\n\n"), event.find('\n', event.find("data: ")));
}

TEST(StatusPages, AStreamSaysTheStatusAgainAndAgainAndEndsWithTheBoard) {
  Served served;
  int said = 0;
  served.board.Open([&] { return Named(absl::StrCat("job ", ++said)); });
  const int socket = served.Ask("/api/events");
  const std::string text = Served::Read(socket, "job 3");
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(text, HasSubstr("\r\nContent-Type: text/event-stream\r\n"));
  EXPECT_THAT(text, HasSubstr("job 3"));
  served.board.Close();
  Served::Read(socket);  // until its end
  ::close(socket);
  EXPECT_THAT(served.Fetch("/api/status"), StartsWith("HTTP/1.1 503 "));
}

TEST(StatusPages, StreamsAreLimitedAndTheirPlacesGetFreeAgain) {
  Served served(/*streams_max=*/2);
  served.board.Open([] { return Named("job"); });
  std::vector<int> sockets;
  for (int i = 0; i < 2; ++i) {
    sockets.push_back(served.Ask("/api/events"));
    EXPECT_THAT(Served::Read(sockets.back(), "event: status"), StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_THAT(served.Fetch("/api/events"), testing::AllOf(StartsWith("HTTP/1.1 503 "), HasSubstr("Retry-After: ")));
  EXPECT_THAT(served.Fetch("/api/status"), StartsWith("HTTP/1.1 200 ")) << "others are answered nevertheless";
  for (const int socket : sockets) ::close(socket);
  // As soon as the server has noticed.
  std::string text;
  while (text.rfind("HTTP/1.1 200 ", 0) != 0) {
    const int socket = served.Ask("/api/events");
    text = Served::Read(socket, "\r\n\r\n");
    ::close(socket);
  }
}

TEST(StatusPages, ManyWhoLookOnCostNoMoreThanOne) {
  int composed = 0;
  StatusBoard board({.run_folder = "/", .checkpoints = "", .fresh = absl::Hours(1)});
  board.Open([&] { return Named(absl::StrCat(++composed)); });
  for (int i = 0; i < 100; ++i) EXPECT_NE(board.Json(), nullptr);
  EXPECT_EQ(composed, 1);
}

// When it ended is what was written down then, of the state that it has now.
TEST(StatusBoard, TheEndIsThatOfTheEventThatSaysSo) {
  StatusBoard board({.run_folder = "/", .checkpoints = ""});
  std::string state = "training";
  board.Open([&] {
    wire::JobStatus status;
    status.set_state(state);
    return status;
  });
  board.history().AddEvent("the job is stopped: SIGTERM", absl::FromUnixMillis(1000));
  board.history().AddEvent("goes on from checkpoint 3: 100 samples", absl::FromUnixMillis(2000));
  EXPECT_FALSE(board.Status().has_ended_unix_ms()) << "it goes on";
  state = "done";
  EXPECT_FALSE(board.Status().has_ended_unix_ms()) << "nothing was written down yet";
  board.history().AddEvent("the job is done", absl::FromUnixMillis(3000));
  board.history().AddEvent("worker w-1 has left", absl::FromUnixMillis(4000));
  EXPECT_EQ(board.Status().ended_unix_ms(), 3000);
  state = "stopped";
  EXPECT_FALSE(board.Status().has_ended_unix_ms()) << "it has gone on since";
  board.history().AddEvent("the job is stopped: SIGTERM", absl::FromUnixMillis(5000));
  EXPECT_EQ(board.Status().ended_unix_ms(), 5000);
  for (const char* const open : {"starting", "training"}) {
    state = open;
    EXPECT_FALSE(board.Status().has_ended_unix_ms()) << open;
  }
}

TEST(MessageJson, EveryFieldIsThereAsWhatItIs) {
  wire::JobStatus status;
  status.mutable_progress()->set_samples_done(uint64_t{1} << 60);
  status.mutable_progress()->set_samples_per_second(1234.56789);
  status.mutable_progress()->set_test_accuracy(std::numeric_limits<double>::infinity());
  status.mutable_curve()->add_loss(std::numeric_limits<double>::quiet_NaN());
  const nlohmann::json json = nlohmann::json::parse(ToJson(status));
  EXPECT_EQ(json["progress"]["samples_done"], uint64_t{1} << 60);
  EXPECT_EQ(json["progress"]["samples_per_second"], 1234.57);
  EXPECT_TRUE(json["progress"]["test_accuracy"].is_null());
  EXPECT_TRUE(json["progress"]["seconds_left"].is_null());
  EXPECT_TRUE(json["curve"]["loss"][0].is_null());
  EXPECT_TRUE(json["disk"].is_null());
  EXPECT_EQ(json["workers"], nlohmann::json::array());
  EXPECT_EQ(json["moving"], "");
}

// --- What the controller says -----------------------------------------------------------------------------------

TEST(ControllerView, ShowsMembersShardsAndTheBound) {
  FakeCluster cluster;
  cluster.Start();
  const wire::JobStatus view = cluster.controller().View();
  EXPECT_EQ(view.state(), "training");
  EXPECT_EQ(view.asynchrony().mode(), "ssp");
  EXPECT_EQ(view.asynchrony().slack_bound(), 4u);
  EXPECT_EQ(view.worker_counts().live(), 2u);
  ASSERT_EQ(view.workers_size(), 2);
  EXPECT_EQ(view.workers(0).name(), "w-1");
  EXPECT_EQ(view.workers(0).state(), "live");
  ASSERT_EQ(view.servers_size(), 2);
  EXPECT_EQ(view.servers(0).bytes() + view.servers(1).bytes(), 40'000u);
  EXPECT_EQ(view.shards_size(), static_cast<int>(view.shards_total()));
  EXPECT_EQ(view.shards(0).server_name(), "ps-1");
}

TEST(ControllerView, ManyWorkersAreCountedAndTheFirstThousandShown) {
  job::Job job = FakeCluster::SmallJob();
  FakeCluster cluster(job);
  cluster.Start();
  for (int i = 0; i < 1500; ++i) cluster.AddWorker(absl::StrCat("more-", i));
  const wire::JobStatus view = cluster.controller().View();
  EXPECT_EQ(view.worker_counts().total(), 1502u);
  EXPECT_EQ(view.workers_size(), static_cast<int>(kWorkersShown));
}

TEST(ControllerView, LookingOnIsNoSignThatSomebodyHasHeardTheEnd) {
  FakeCluster cluster;
  cluster.Start();
  cluster.controller().StopJob("enough", /*failed=*/false);
  EXPECT_EQ(cluster.controller().View().state(), "stopped");
  EXPECT_FALSE(cluster.controller().finished());
}

}  // namespace
}  // namespace slackline::scheduler::status_pages_test
