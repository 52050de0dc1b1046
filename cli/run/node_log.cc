#include "cli/run/node_log.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace slackline::cli {
namespace {

// Most bytes of a script that are copied before the next one's turn: what a pipe of Linux holds.
constexpr size_t kTurnBytesMax = 65536;

absl::Status PipeError(const std::filesystem::path& path) {
  return absl::UnavailableError(absl::StrCat("cannot make the pipe ", path.string(), ": ", ::strerror(errno)));
}

// A line is one write: others, such as this process, append to the same file.
void WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

ScriptLines::ScriptLines(uint32_t rank) : begin_(absl::StrCat("[", rank, "] ")) {}

std::string ScriptLines::Add(absl::string_view bytes) {
  std::string out;
  absl::StrAppend(&unended_, bytes);
  const absl::string_view all = unended_;
  size_t begin = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] != '\n' && all[i] != '\r') continue;
    Append(all.substr(begin, i + 1 - begin), out);
    begin = i + 1;
  }
  unended_.erase(0, begin);
  if (unended_.size() >= kLineBytesMax) out += Rest();
  return out;
}

std::string ScriptLines::Rest() {
  std::string out;
  if (!unended_.empty()) Append(absl::StrCat(std::exchange(unended_, ""), "\n"), out);
  return out;
}

void ScriptLines::Append(absl::string_view line, std::string& out) {
  if (absl::StartsWith(line, "Traceback (most recent call last):")) {
    in_traceback_ = true;
  } else if (in_traceback_ && line.size() > 1 && line.front() != ' ') {
    exception_ = std::string(absl::StripAsciiWhitespace(line));
    in_traceback_ = false;
  }
  const bool bare = line.size() == 1 || absl::StartsWith(line, "{\"");
  absl::StrAppend(&out, bare ? "" : begin_, line);
}

absl::StatusOr<std::unique_ptr<NodeLog>> NodeLog::Open(const std::filesystem::path& folder, uint32_t scripts, int log) {
  std::unique_ptr<NodeLog> made = absl::WrapUnique(new NodeLog(folder, log));
  made->end_ = ::eventfd(0, EFD_CLOEXEC);
  if (made->end_ < 0) return PipeError(folder);
  for (uint32_t rank = 0; rank < scripts; ++rank) {
    const std::filesystem::path path = made->PipeOf(rank);
    if (::mkfifo(path.c_str(), 0600) != 0) return PipeError(path);
    const int pipe = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (pipe < 0) return PipeError(path);
    made->lines_.emplace_back(rank);
    made->pipes_.push_back(pipe);
  }
  made->thread_ = std::thread([log_of_node = made.get()] { log_of_node->Copy(); });
  return made;
}

void NodeLog::Close() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    WriteAll(end_, {reinterpret_cast<const char*>(&one), sizeof(one)});
    thread_.join();
  }
  for (const int pipe : std::exchange(pipes_, {})) ::close(pipe);
  if (end_ >= 0) ::close(std::exchange(end_, -1));
}

std::filesystem::path NodeLog::PipeOf(uint32_t rank) const { return folder_ / absl::StrCat("output-", rank); }

void NodeLog::Copy() {
  std::vector<pollfd> waits;
  for (const int pipe : pipes_) waits.push_back({pipe, POLLIN, 0});
  waits.push_back({end_, POLLIN, 0});
  while (waits.back().revents == 0) {
    ::poll(waits.data(), waits.size(), -1);
    for (size_t rank = 0; rank < pipes_.size(); ++rank) {
      // poll() passes over a negative descriptor.
      if (waits[rank].revents != 0 && !CopyFrom(rank)) waits[rank] = {-1, 0, 0};
    }
  }
  // A process of a script that has ended may hold its pipe open, so that an end of it may never come.
  for (size_t rank = 0; rank < pipes_.size(); ++rank) {
    CopyFrom(rank);
    WriteAll(log_, lines_[rank].Rest());
  }
}

bool NodeLog::CopyFrom(size_t rank) {
  std::array<char, kTurnBytesMax> bytes;
  const ssize_t size = ::read(pipes_[rank], bytes.data(), bytes.size());
  if (size > 0) WriteAll(log_, lines_[rank].Add({bytes.data(), static_cast<size_t>(size)}));
  return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace slackline::cli
