#include "common/metrics/metrics.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "absl/time/clock.h"

namespace slackline::metrics_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What 127.0.0.1:port answers for a path, headers included.
std::string Get(uint16_t port, const std::string& path) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string reply;
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
    if (::send(socket, request.data(), request.size(), 0) == static_cast<ssize_t>(request.size())) {
      char piece[4096];
      for (ssize_t size; (size = ::recv(socket, piece, sizeof(piece), 0)) > 0;) {
        reply.append(piece, static_cast<size_t>(size));
      }
    }
  }
  ::close(socket);
  return reply;
}

TEST(Metrics, TheSameNameAndLabelsGiveTheSameSeries) {
  Metrics metrics;
  Counter& pushes = metrics.counter("slackline_ps_pushes_total", "Pushes.", {{"answer", "applied"}});
  EXPECT_EQ(&pushes, &metrics.counter("slackline_ps_pushes_total", "Pushes.", {{"answer", "applied"}}));
  EXPECT_NE(&pushes, &metrics.counter("slackline_ps_pushes_total", "Pushes.", {{"answer", "discarded"}}));
  pushes.Add();
  pushes.Add(2);
  EXPECT_EQ(pushes.value(), 3);
}

TEST(Metrics, AScrapeSeesEverySeries) {
  Metrics metrics(Metrics::Labels{{"job", "trial"}});
  const absl::StatusOr<uint16_t> port = metrics.Serve({});
  ASSERT_TRUE(port.ok()) << port.status();
  metrics.counter("slackline_test_steps_total", "Steps.").Add(4);
  metrics.gauge("slackline_test_slack_steps", "Slack.", {{"worker", "w"}}).Set(2.5);
  metrics.histogram("slackline_test_wait_seconds", "Waits.", {0.1, 1}).Observe(0.5);
  const std::string text = Get(*port, "/metrics");
  EXPECT_THAT(text, HasSubstr("slackline_test_steps_total{job=\"trial\"} 4"));
  EXPECT_THAT(text, HasSubstr("slackline_test_slack_steps{job=\"trial\",worker=\"w\"} 2.5"));
  EXPECT_THAT(text, HasSubstr("slackline_test_wait_seconds_bucket{job=\"trial\",le=\"1\"} 1"));
}

TEST(Metrics, AProbeLearnsWhatAProcessWaitsFor) {
  Metrics metrics;
  const absl::StatusOr<uint16_t> port =
      metrics.Serve({.handlers = {{"/page", [](const HttpRequest&) { return HttpResponse{.body = "a page"}; }}}});
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_THAT(Get(*port, "/healthz"), HasSubstr(" 200 "));
  EXPECT_THAT(Get(*port, "/readyz"), AllOf(HasSubstr(" 503 "), HasSubstr("starts")));
  metrics.SetMissing("waits for servers");
  EXPECT_THAT(Get(*port, "/readyz"), AllOf(HasSubstr(" 503 "), HasSubstr("waits for servers")));
  metrics.SetMissing("");
  EXPECT_THAT(Get(*port, "/readyz"), HasSubstr(" 200 "));
  EXPECT_THAT(Get(*port, "/page"), HasSubstr("a page"));
}

TEST(Metrics, TheEndpointEndsAtOnce) {
  const absl::Time start = absl::Now();
  for (int i = 0; i < 10; ++i) {
    Metrics metrics;
    ASSERT_TRUE(metrics.Serve({}).ok());
  }
  EXPECT_LT(absl::Now() - start, absl::Seconds(5)) << "the HTTP server alone takes 1 s or more each";
}

TEST(Metrics, ATakenPortIsUnavailable) {
  Metrics first;
  const absl::StatusOr<uint16_t> port = first.Serve({});
  ASSERT_TRUE(port.ok()) << port.status();
  Metrics second;
  const absl::Status taken = second.Serve({.port = *port}).status();
  EXPECT_TRUE(absl::IsUnavailable(taken)) << taken;
  EXPECT_THAT(std::string(taken.message()), HasSubstr("127.0.0.1:" + std::to_string(*port)));
}

}  // namespace
}  // namespace slackline::metrics_test
