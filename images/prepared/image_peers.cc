#include "images/prepared/image_peers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/http/http_address.h"
#include "common/log/logging.h"
#include "common/storage/checksum.h"

namespace slackline::images {
namespace {

// A peer that sends less than this is too slow.
constexpr double kBytesPerSecondMin = 1e6;
// Until somebody who cannot be reached, or is too busy, is left alone.
constexpr absl::Duration kReachMax = absl::Seconds(2);

absl::Duration TimeFor(uint64_t bytes, absl::Duration silence_max) {
  return silence_max + absl::Seconds(static_cast<double>(bytes) / kBytesPerSecondMin);
}

}  // namespace

ImagePeers::ImagePeers(const Options& options, std::unique_ptr<PeerBoard> board, std::unique_ptr<PeerFiles> serves)
    : options_(options), board_(std::move(board)), serves_(std::move(serves)) {}

absl::StatusOr<std::unique_ptr<ImagePeers>> ImagePeers::Start(const Options& options,
                                                              std::unique_ptr<PeerBoard> board) {
  absl::StatusOr<std::unique_ptr<PeerFiles>> serves = PeerFiles::Start(options.serve);
  if (!serves.ok()) {
    return absl::Status(serves.status().code(), absl::StrCat("data.cache.peers: ", serves.status().message()));
  }
  return std::unique_ptr<ImagePeers>(new ImagePeers(options, std::move(board), *std::move(serves)));
}

ImagePeers::~ImagePeers() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  if (beats_.joinable()) beats_.join();
}

void ImagePeers::Begin(std::vector<PreparedFile> files, size_t spread) {
  {
    absl::MutexLock lock(&mutex_);
    RunningChecksum checksum;
    uint64_t largest = 0;
    for (const PreparedFile& file : files) {
      const std::string name = PeerFileName(file);
      checksum.Add(name.data(), name.size());
      largest = std::max(largest, file.bytes);
    }
    files_checksum_ = checksum.value();
    patience_ = TimeFor(largest, options_.silence_max);
    held_.assign((files.size() + 7) / 8, '\0');
    files_ = std::move(files);
    spread_ = spread;
  }
  beats_ = std::thread([this] { Beat(); });
}

void ImagePeers::Have(size_t i, const std::string& path) {
  PreparedFile file;
  {
    absl::MutexLock lock(&mutex_);
    file = files_[i];
  }
  serves_->Offer(file, path);
  absl::MutexLock lock(&mutex_);
  held_[i / 8] = static_cast<char>(held_[i / 8] | 1 << (i % 8));
}

void ImagePeers::Lose(size_t i) {
  PreparedFile file;
  {
    absl::MutexLock lock(&mutex_);
    file = files_[i];
    held_[i / 8] = static_cast<char>(held_[i / 8] & ~(1 << (i % 8)));
  }
  serves_->Withdraw(file);
}

void ImagePeers::SetFull(bool full) {
  absl::MutexLock lock(&mutex_);
  full_ = full;
}

PeerBoard::Question ImagePeers::MakeQuestion(bool wants) const {
  return {.address = serves_->address(),
          .files_checksum = files_checksum_,
          .files = static_cast<uint32_t>(files_.size()),
          .held = held_,
          .wants = wants,
          .failed = failed_,
          .patience = patience_,
          .spread = static_cast<uint32_t>(spread_),
          .full = full_};
}

absl::StatusOr<PeerBoard::Answer> ImagePeers::Ask(const PeerBoard::Question& question) {
  absl::StatusOr<PeerBoard::Answer> answer = board_->Ask(question);
  if (!answer.ok()) return answer;
  for (const std::optional<uint32_t>& file : {answer->file, answer->drop}) {
    if (file && *file >= question.files) {
      return absl::InternalError(absl::StrCat("found file ", *file, "; there are ", question.files));
    }
  }
  return answer;
}

void ImagePeers::Wait(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&stop_), duration);
}

absl::StatusOr<std::optional<ImagePeers::Source>> ImagePeers::Next() {
  PeerBoard::Question question;
  {
    absl::MutexLock lock(&mutex_);
    question = MakeQuestion(/*wants=*/true);
  }
  const absl::StatusOr<PeerBoard::Answer> answer = Ask(question);
  if (!answer.ok()) return answer.status();
  if (answer->file) return Source{.file = *answer->file, .peer = answer->from};
  Wait(answer->retry);
  return std::nullopt;
}

absl::StatusOr<ImagePeers::Share> ImagePeers::NextShare() {
  PeerBoard::Question question;
  {
    absl::MutexLock lock(&mutex_);
    question = MakeQuestion(/*wants=*/false);
  }
  question.wants_share = true;
  const absl::StatusOr<PeerBoard::Answer> answer = Ask(question);
  if (!answer.ok()) return answer.status();
  return Share{.file = answer->file, .drop = answer->drop, .retry = answer->retry};
}

absl::StatusOr<std::optional<ImagePeers::Source>> ImagePeers::Find(size_t i) {
  PeerBoard::Question question;
  {
    absl::MutexLock lock(&mutex_);
    question = MakeQuestion(/*wants=*/false);
  }
  question.needs = static_cast<uint32_t>(i);
  const absl::StatusOr<PeerBoard::Answer> answer = Ask(question);
  if (!answer.ok()) return answer.status();
  if (answer->file) return Source{.file = i, .peer = answer->from};
  Wait(answer->retry);
  return std::nullopt;
}

PreparedFile ImagePeers::FileOf(const Source& source) const {
  absl::MutexLock lock(&mutex_);
  return files_[source.file];
}

absl::Status ImagePeers::Fetch(const Source& source, const std::string& path) {
  const PreparedFile file = FileOf(source);
  FileFetch http({.silence_max = options_.silence_max, .give_up = std::min(kReachMax, options_.silence_max)});
  const std::string address = absl::StrCat(kHttpPrefix, source.peer, "/", PeerFileName(file));
  return Judge(source, file, address,
               http.Download(address, path, file.bytes, {.total_max = TimeFor(file.bytes, options_.silence_max)}));
}

absl::StatusOr<std::string> ImagePeers::Read(const Source& source) {
  const PreparedFile file = FileOf(source);
  FileFetch http({.silence_max = options_.silence_max, .give_up = std::min(kReachMax, options_.silence_max)});
  const std::string address = absl::StrCat(kHttpPrefix, source.peer, "/", PeerFileName(file));
  absl::StatusOr<std::string> bytes =
      http.Get(address, file.bytes, {.total_max = TimeFor(file.bytes, options_.silence_max)});
  // A peer may give a file up between the answer and the request.
  if (absl::IsNotFound(bytes.status())) return bytes;
  absl::Status fetched = bytes.status();
  // A file that is too long is the peer's fault.
  if (absl::IsResourceExhausted(fetched)) fetched = absl::DataLossError(fetched.message());
  const absl::Status judged = Judge(source, file, address, fetched);
  return judged.ok() ? bytes : judged;
}

absl::Status ImagePeers::Judge(const Source& source, const PreparedFile& file, const std::string& address,
                               const absl::Status& fetched) {
  if (fetched.ok()) {
    absl::MutexLock lock(&mutex_);
    bytes_fetched_ += file.bytes;
    return fetched;
  }
  // The disk here is full: not the other's fault.
  if (absl::IsResourceExhausted(fetched)) return fetched;
  // Its message has the address with the secret.
  std::string why(fetched.message());
  if (const size_t at = why.find(address); at != std::string::npos) why.erase(at, address.size() + 2);
  log::Warning("data.cache.peers: the worker that serves at ", WithoutSecret(source.peer), " did not send ", file.name,
               ": ", why, "; this worker will not ask it again");
  NoteFailure(source.peer);
  return fetched;
}

void ImagePeers::SentOtherBytes(const Source& source) {
  log::Warning("data.cache.peers: the worker that serves at ", WithoutSecret(source.peer),
               " sent other bytes than those of ", FileOf(source).name,
               " (wrong checksum); this worker will not ask it again");
  NoteFailure(source.peer);
}

void ImagePeers::NoteFailure(const std::string& peer) {
  absl::MutexLock lock(&mutex_);
  failed_.push_back(peer);
}

uint64_t ImagePeers::bytes_fetched() const {
  absl::MutexLock lock(&mutex_);
  return bytes_fetched_;
}

void ImagePeers::Beat() {
  bool silent = false;
  for (;;) {
    PeerBoard::Question question;
    {
      absl::MutexLock lock(&mutex_);
      if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), options_.beat_every)) return;
      question = MakeQuestion(/*wants=*/false);
    }
    const absl::Status told = board_->Ask(question).status();
    if (!told.ok() && !silent) log::Warning("data.cache.peers: ", told.message());
    silent = !told.ok();
  }
}

}  // namespace slackline::images
