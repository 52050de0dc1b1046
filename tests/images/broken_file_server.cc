#include "tests/images/broken_file_server.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/check.h"

namespace slackline::images {
namespace {

constexpr char kRangeField[] = "\r\nRange: ";

bool SendAll(int connection, absl::string_view data) {
  while (!data.empty()) {
    const ssize_t sent = ::send(connection, data.data(), data.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

BrokenFileServer::BrokenFileServer() {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  SLACKLINE_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(listener_, 8) == 0);
  SLACKLINE_CHECK(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  SLACKLINE_CHECK(::pipe(wake_) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread(&BrokenFileServer::Run, this);
}

BrokenFileServer::~BrokenFileServer() {
  SLACKLINE_CHECK(::write(wake_[1], "", 1) == 1);
  thread_.join();
  for (const int descriptor : {listener_, wake_[0], wake_[1]}) ::close(descriptor);
}

std::string BrokenFileServer::Address(const std::string& path) const {
  return absl::StrCat("http://127.0.0.1:", port_, path);
}

void BrokenFileServer::Serve(const std::string& path, const std::string& body) {
  absl::MutexLock lock(&mutex_);
  files_[path] = body;
}

void BrokenFileServer::BreakOff(std::vector<uint64_t> after) {
  absl::MutexLock lock(&mutex_);
  breaks_.assign(after.begin(), after.end());
}

void BrokenFileServer::Say(std::vector<int> codes) {
  absl::MutexLock lock(&mutex_);
  codes_.assign(codes.begin(), codes.end());
}

void BrokenFileServer::KnowNoRanges() {
  absl::MutexLock lock(&mutex_);
  no_ranges_ = true;
}

void BrokenFileServer::KeepRangesToItself() {
  absl::MutexLock lock(&mutex_);
  ranges_unsaid_ = true;
}

void BrokenFileServer::ShiftRanges(uint64_t by) {
  absl::MutexLock lock(&mutex_);
  range_shift_ = by;
}

void BrokenFileServer::Hang() {
  absl::MutexLock lock(&mutex_);
  hangs_ = true;
}

std::vector<std::string> BrokenFileServer::ranges() const {
  absl::MutexLock lock(&mutex_);
  return ranges_;
}

uint64_t BrokenFileServer::bytes_sent() const {
  absl::MutexLock lock(&mutex_);
  return bytes_sent_;
}

void BrokenFileServer::Run() {
  for (;;) {
    pollfd ready[] = {{listener_, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    if (::poll(ready, 2, -1) < 0) continue;
    if (ready[1].revents != 0) return;
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    Talk(connection);
    ::close(connection);
  }
}

void BrokenFileServer::Talk(int connection) {
  std::string heard;
  for (;;) {
    // Another connection may come while this one is kept.
    pollfd ready[] = {{connection, POLLIN, 0}, {wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    if (::poll(ready, 3, -1) < 0) continue;
    if (ready[1].revents != 0 || (ready[0].revents == 0 && ready[2].revents != 0)) return;
    char bytes[4096];
    const ssize_t got = ::recv(connection, bytes, sizeof(bytes), 0);
    if (got <= 0) return;
    heard.append(bytes, static_cast<size_t>(got));
    const size_t end = heard.find("\r\n\r\n");
    if (end == std::string::npos) continue;
    if (!Answer(connection, heard.substr(0, end))) return;
    heard.erase(0, end + 4);
  }
}

bool BrokenFileServer::Answer(int connection, absl::string_view request) {
  std::string answer;
  std::optional<uint64_t> cut;
  {
    absl::MutexLock lock(&mutex_);
    const size_t field = request.find(kRangeField);
    const absl::string_view range =
        field == absl::string_view::npos
            ? absl::string_view()
            : request.substr(field + sizeof(kRangeField) - 1).substr(0, request.substr(field + 2).find("\r\n") - 7);
    ranges_.emplace_back(range);
    if (hangs_) return true;
    if (!codes_.empty()) {
      answer = absl::StrCat("HTTP/1.1 ", codes_.front(), " Told\r\nContent-Length: 0\r\n\r\n");
      codes_.pop_front();
      return SendAll(connection, answer);
    }
    const std::vector<absl::string_view> words = absl::StrSplit(request.substr(0, request.find("\r\n")), ' ');
    const auto file = files_.find(std::string(words.size() > 1 ? words[1] : ""));
    if (file == files_.end()) return SendAll(connection, "HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n");
    uint64_t from = 0;
    const bool partial = !no_ranges_ && absl::SimpleAtoi(range.substr(std::min<size_t>(range.size(), 6),
                                                                      range.size() < 7 ? 0 : range.size() - 7),
                                                         &from);
    std::string body = file->second.substr(std::min<uint64_t>(from, file->second.size()));
    const uint64_t size = file->second.size();
    const std::string range_sent =
        partial && !ranges_unsaid_
            ? absl::StrCat("Content-Range: bytes ", from + range_shift_, "-", size - 1, "/", size, "\r\n")
            : "";
    answer = absl::StrCat("HTTP/1.1 ", partial ? 206 : 200, " OK\r\n", range_sent, "Content-Length: ", body.size(),
                          "\r\n\r\n");
    if (!breaks_.empty()) {
      cut = breaks_.front();
      breaks_.pop_front();
      body.resize(std::min<uint64_t>(body.size(), *cut));
    }
    bytes_sent_ += body.size();
    answer += body;
  }
  return SendAll(connection, answer) && !cut;
}

}  // namespace slackline::images
