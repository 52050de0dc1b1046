#include "tests/exchange/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"

namespace slackline {
namespace {

// Suppressions and options of the sanitizers are to hold there, too.
std::vector<char*> SanitizerSettings() {
  std::vector<char*> settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.substr(0, text.find('=')).ends_with("SAN_OPTIONS")) settings.push_back(*entry);
  }
  settings.push_back(nullptr);
  return settings;
}

}  // namespace

PeerProcess::PeerProcess(const std::vector<std::string>& arguments) {
  int in[2], out[2];
  EXPECT_EQ(::pipe2(in, O_CLOEXEC), 0);
  EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
  std::vector<std::string> words = {SLACKLINE_PEER_PROCESS};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  const int spawned = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), SanitizerSettings().data());
  // A signal to the process -1 would go to every process of this machine.
  if (spawned != 0) throw std::system_error(spawned, std::generic_category(), argv[0]);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  stdin_ = shm::Descriptor(in[1]);
  stdout_ = shm::Descriptor(out[0]);
}

absl::StatusOr<std::string> PeerProcess::ReadLine() {
  constexpr int kTimeoutMs = 60'000;
  std::string line;
  for (char byte = 0;; line.push_back(byte)) {
    pollfd ready = {stdout_.get(), POLLIN, 0};
    if (::poll(&ready, 1, kTimeoutMs) != 1) return absl::DeadlineExceededError("the peer process says nothing");
    if (::read(stdout_.get(), &byte, 1) != 1) return absl::UnavailableError("the peer process has ended");
    if (byte == '\n') return line;
  }
}

std::string PeerProcess::WordsAfter(const std::string& word) {
  while (true) {
    const absl::StatusOr<std::string> line = ReadLine();
    if (!line.ok()) {
      ADD_FAILURE() << line.status() << "; awaited was '" << word << "'";
      return "";
    }
    absl::string_view words = *line;
    if (absl::ConsumePrefix(&words, word + " ")) return std::string(words);
    if (absl::StartsWith(words, "failed ")) ADD_FAILURE() << *line << "; awaited was '" << word << "'";
  }
}

void PeerProcess::Stop() {
  ASSERT_GT(pid_, 0) << "the peer process was killed";
  ASSERT_EQ(::kill(pid_, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
  ASSERT_TRUE(WIFSTOPPED(status)) << "the peer process has ended with wait status " << status;
}

void PeerProcess::Resume() {
  ASSERT_GT(pid_, 0) << "the peer process was killed";
  ASSERT_EQ(::kill(pid_, SIGCONT), 0);
}

void PeerProcess::Kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

uint64_t PeerProcess::peak_bytes() const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  for (std::string line; std::getline(status, line);) {
    absl::string_view kib = line;
    if (absl::ConsumePrefix(&kib, "VmHWM:")) return std::stoull(std::string(kib)) * 1024;
  }
  return 0;
}

std::unique_ptr<PeerProcess> StartWorker(uint32_t number, Path path, const worker::ShardMap& map) {
  auto worker = std::make_unique<PeerProcess>(
      std::vector<std::string>{"worker", std::to_string(number), Name(path), ToLine(map.servers[0]),
                               std::to_string(map.elements), std::to_string(map.shards.size())});
  EXPECT_EQ(worker->WordsAfter("begins"), std::to_string(number));
  return worker;
}

}  // namespace slackline
