#include "images/base/idx_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace slackline::images {
namespace {

constexpr uint8_t kUint8 = 8;
// Memory grows by this much as data really arrives, so that a damaged header cannot ask for all of it.
constexpr size_t kPieceBytes = size_t{16} << 20;
// Largest product of sides. Keeps sizes far from overflow.
constexpr uint64_t kBytesMax = uint64_t{1} << 42;

// zlib's reader, which passes plain files through.
class Reader {
 public:
  static absl::StatusOr<Reader> Open(const std::string& folder, const std::string& name) {
    const std::string plain = folder + "/" + name;
    for (const std::string& path : {plain, plain + ".gz"}) {
      if (gzFile file = gzopen(path.c_str(), "rb"); file != nullptr) return Reader(path, file);
      if (errno != ENOENT && errno != 0) {
        return absl::NotFoundError(absl::StrCat("cannot open ", path, ": ", std::strerror(errno)));
      }
    }
    return absl::NotFoundError(absl::StrCat("there is neither ", plain, " nor ", plain, ".gz"));
  }

  const std::string& path() const { return path_; }

  absl::Status Bad(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
  }

  // Returns how many of `size` bytes there were before the end.
  absl::StatusOr<size_t> Read(void* out, size_t size) {
    size_t done = 0;
    while (done < size) {
      const auto piece = static_cast<unsigned>(std::min(size - done, kPieceBytes));
      const int got = gzread(file_.get(), static_cast<uint8_t*>(out) + done, piece);
      int code = Z_OK;
      const char* message = gzerror(file_.get(), &code);
      stream_cut_ = stream_cut_ || code == Z_BUF_ERROR;
      if (got < 0 && code != Z_BUF_ERROR) return Bad(absl::StrCat("damaged: ", message));
      if (got <= 0) break;
      done += static_cast<size_t>(got);
    }
    return done;
  }

  // The compressed data has ended before its checksum.
  bool stream_cut() const { return stream_cut_; }

 private:
  struct Close {
    void operator()(gzFile_s* file) const { gzclose(file); }
  };

  Reader(std::string path, gzFile file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
  bool stream_cut_ = false;
};

absl::StatusOr<std::vector<uint32_t>> ReadShape(Reader& reader, uint8_t rank) {
  std::array<uint8_t, 4> word;
  const auto next = [&]() -> absl::Status {
    const absl::StatusOr<size_t> got = reader.Read(word.data(), word.size());
    if (!got.ok()) return got.status();
    return *got == word.size() ? absl::OkStatus() : reader.Bad("cut short in the header");
  };
  if (absl::Status status = next(); !status.ok()) return status;
  if (word != std::array<uint8_t, 4>{0, 0, kUint8, rank}) {
    return reader.Bad(absl::StrCat("begins with bytes ", absl::StrJoin(word, " "), "; IDX with uint8 and ", rank,
                                   " sides begins with 0 0 8 ", rank));
  }
  std::vector<uint32_t> shape;
  for (uint8_t i = 0; i < rank; ++i) {
    if (absl::Status status = next(); !status.ok()) return status;
    shape.push_back(uint32_t{word[0]} << 24 | uint32_t{word[1]} << 16 | uint32_t{word[2]} << 8 | uint32_t{word[3]});
  }
  return shape;
}

// Reads `size` bytes; those from `keep` on are read and forgotten.
absl::Status ReadValues(Reader& reader, uint64_t size, uint64_t keep, std::vector<uint8_t>& values) {
  std::vector<uint8_t> piece;
  for (uint64_t done = 0; done < size;) {
    piece.resize(std::min<uint64_t>(size - done, kPieceBytes));
    const absl::StatusOr<size_t> got = reader.Read(piece.data(), piece.size());
    if (!got.ok()) return got.status();
    if (done < keep) {
      values.insert(values.end(), piece.begin(), piece.begin() + std::min<uint64_t>(*got, keep - done));
    }
    done += *got;
    if (*got < piece.size()) {
      return reader.Bad(absl::StrCat("cut short: the header promises ", size, " bytes, ", done, " are there"));
    }
  }
  // This read is also the one that makes zlib compare the checksum.
  uint8_t extra;
  const absl::StatusOr<size_t> got = reader.Read(&extra, 1);
  if (!got.ok()) return got.status();
  if (reader.stream_cut()) return reader.Bad("cut short within the checksum");
  if (*got == 0) return absl::OkStatus();
  return reader.Bad(absl::StrCat("trailing bytes after the ", size, " that the header promises"));
}

}  // namespace

absl::StatusOr<IdxArray> ReadIdxFile(const std::string& folder, const std::string& name, const IdxRequest& request) {
  absl::StatusOr<Reader> reader = Reader::Open(folder, name);
  if (!reader.ok()) return reader.status();
  absl::StatusOr<std::vector<uint32_t>> shape = ReadShape(*reader, request.rank);
  if (!shape.ok()) return shape.status();

  uint64_t bytes = 1;
  for (uint32_t side : *shape) {
    if (side == 0 || side > kBytesMax / bytes) {
      return reader->Bad(absl::StrCat("has sides ", absl::StrJoin(*shape, " x "),
                                      "; each must be at least 1, their product at most ", kBytesMax));
    }
    bytes *= side;
  }
  const uint64_t outermost = shape->front();
  IdxArray array;
  array.shape = *std::move(shape);
  array.kept = request.keep_max == 0 ? outermost : std::min<uint64_t>(request.keep_max, outermost);
  absl::Status status = ReadValues(*reader, bytes, bytes / outermost * array.kept, array.values);
  if (!status.ok()) return status;
  return array;
}

}  // namespace slackline::images
