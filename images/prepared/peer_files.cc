#include "images/prepared/peer_files.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/network/ports.h"

namespace slackline::images {
namespace {

constexpr size_t kSecretBytes = 16;
constexpr size_t kPieceBytes = size_t{256} << 10;
// So many others at a time; more wait until one is done.
constexpr int kServingThreads = 4;

std::string DrawSecret() {
  std::string bytes(kSecretBytes, '\0');
  size_t drawn = 0;
  while (drawn < bytes.size()) {
    const ssize_t got = ::getrandom(bytes.data() + drawn, bytes.size() - drawn, 0);
    SLACKLINE_CHECK(got > 0 || errno == EINTR);
    if (got > 0) drawn += static_cast<size_t>(got);
  }
  return absl::BytesToHexString(bytes);
}

// In a time that does not say where they differ.
bool SameSecret(absl::string_view a, absl::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~OpenFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

// Of "bytes=FROM-"; 0 for none, nothing for another kind of range.
std::optional<uint64_t> BeginOf(absl::string_view range) {
  uint64_t from = 0;
  if (range.empty()) return from;
  if (!absl::ConsumePrefix(&range, "bytes=") || !absl::ConsumeSuffix(&range, "-")) return std::nullopt;
  if (!absl::SimpleAtoi(range, &from)) return std::nullopt;
  return from;
}

}  // namespace

std::string PeerFileName(const PreparedFile& file) { return absl::StrFormat("%016x-%d", file.checksum, file.bytes); }

absl::string_view WithoutSecret(absl::string_view address) { return address.substr(0, address.find('/')); }

PeerFiles::PeerFiles() : secret_(DrawSecret()) {}

absl::StatusOr<std::unique_ptr<PeerFiles>> PeerFiles::Start(const Options& options) {
  std::unique_ptr<PeerFiles> files(new PeerFiles());
  const auto start = [&files, &options](uint16_t port) {
    HttpServer::Options http;
    http.address = options.listen;
    http.port = port;
    http.threads = kServingThreads;
    http.otherwise = [self = files.get()](const HttpRequest& request) { return self->Answer(request); };
    absl::StatusOr<std::unique_ptr<HttpServer>> server = HttpServer::Start(std::move(http));
    if (server.ok()) files->server_ = *std::move(server);
    return server.status();
  };
  if (options.ports.empty()) {
    if (absl::Status started = start(0); !started.ok()) return started;
  } else {
    const absl::StatusOr<network::PortRange> range = network::ParsePortRange(options.ports);
    if (!range.ok()) return range.status();
    const auto port = network::TakePort(options.listen, *range, network::AnyFirst(), start);
    if (!port.ok()) return port.status();
  }
  files->address_ = absl::StrCat(options.advertise.empty() ? options.listen : options.advertise, ":",
                                 files->server_->port(), "/", files->secret_);
  return files;
}

void PeerFiles::Offer(const PreparedFile& file, const std::string& path) {
  absl::MutexLock lock(&mutex_);
  offered_[PeerFileName(file)] = {.path = path, .bytes = file.bytes};
}

void PeerFiles::Withdraw(const PreparedFile& file) {
  absl::MutexLock lock(&mutex_);
  offered_.erase(PeerFileName(file));
}

uint64_t PeerFiles::bytes_sent() const {
  absl::MutexLock lock(&mutex_);
  return bytes_sent_;
}

HttpResponse PeerFiles::Answer(const HttpRequest& request) {
  const HttpResponse nothing = {.code = 404, .body = "found nothing\n"};
  absl::string_view path = request.path;
  if (!absl::ConsumePrefix(&path, "/")) return nothing;
  const size_t slash = path.find('/');
  if (slash == absl::string_view::npos || !SameSecret(path.substr(0, slash), secret_)) return nothing;
  Offered offered;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = offered_.find(std::string(path.substr(slash + 1)));
    if (found == offered_.end()) return nothing;
    offered = found->second;
  }
  const std::optional<uint64_t> from = BeginOf(request.header("Range"));
  if (!from || *from > offered.bytes) return {.code = 416, .body = "allowed is Range: bytes=FROM-\n"};
  const auto file = std::make_shared<const OpenFile>(offered.path);
  if (file->descriptor() < 0) return nothing;
  HttpResponse response = {.code = *from > 0 ? 206 : 200, .type = "application/octet-stream", .body = ""};
  if (*from > 0) {
    response.headers["Content-Range"] = absl::StrCat("bytes ", *from, "-", offered.bytes - 1, "/", offered.bytes);
  }
  response.stream_bytes = offered.bytes - *from;
  response.stream = [this, file, begin = *from, end = offered.bytes](HttpStream& stream) {
    Send(stream, file->descriptor(), begin, end);
  };
  return response;
}

void PeerFiles::Send(HttpStream& stream, int descriptor, uint64_t from, uint64_t end) {
  std::string piece;
  while (from < end) {
    piece.resize(std::min<uint64_t>(kPieceBytes, end - from));
    const ssize_t got = ::pread(descriptor, piece.data(), piece.size(), static_cast<off_t>(from));
    if (got < 0 && errno == EINTR) continue;
    // The other one sees that it is cut short.
    if (got <= 0) return;
    piece.resize(static_cast<size_t>(got));
    if (!stream.Send(piece)) return;
    from += piece.size();
    absl::MutexLock lock(&mutex_);
    bytes_sent_ += piece.size();
  }
}

}  // namespace slackline::images
