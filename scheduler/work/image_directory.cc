#include "scheduler/work/image_directory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace slackline::scheduler {
namespace {

constexpr size_t kAddressBytesMax = 512;

// Where somebody's search begins, so that those who ask together are sent to different files.
uint32_t BeginOf(const std::string& address, uint32_t files) {
  uint32_t hash = 2166136261;  // FNV-1a
  for (const char letter : address) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619;
  return hash % files;
}

}  // namespace

absl::Status ImageDirectory::Check(const wire::FindImagesRequest& request) const {
  if (request.address().empty() || request.address().size() > kAddressBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("found an address of ", request.address().size(), " bytes; allowed are 1 to ", kAddressBytesMax));
  }
  if (request.files() == 0) return absl::InvalidArgumentError("found no files; allowed are 1 and more");
  if (request.files() > options_.files_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("data.cache.peers: found ", request.files(), " files; allowed are ", options_.files_max));
  }
  if (const size_t bytes = (size_t{request.files()} + 7) / 8; request.held().size() != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("found ", request.held().size(), " bytes for ", request.files(), " files; allowed are ", bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<wire::FindImagesReply> ImageDirectory::Ask(const wire::FindImagesRequest& request, absl::Time now) {
  if (absl::Status checked = Check(request); !checked.ok()) return checked;
  ForgetTheSilent(now);
  if (nodes_.empty()) {
    files_checksum_ = request.files_checksum();
    files_ = request.files();
    holders_.assign(files_, 0);
  }
  if (files_checksum_ != request.files_checksum() || files_ != request.files()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this worker has read another index.json than others of the job: ", request.files(),
                     " files, theirs has ", files_, files_ == request.files() ? ", with other checksums" : ""));
  }
  if (!nodes_.contains(request.address()) && nodes_.size() >= options_.nodes_max) {
    return absl::ResourceExhaustedError(absl::StrCat("data.cache.peers: found ", nodes_.size() + 1,
                                                     " workers that share images; allowed are ", options_.nodes_max));
  }
  Node& node = nodes_[request.address()];
  Know(node, request.held());
  node.heard = now;
  wire::FindImagesReply reply;
  reply.set_retry_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(options_.retry)));
  if (node.task && node.Holds(node.task->file)) node.task.reset();
  if (!request.wants()) return reply;
  node.task.reset();
  node.task = Choose(request, now);
  if (!node.task) return reply;
  reply.set_file(node.task->file);
  reply.set_from(node.task->from);
  return reply;
}

void ImageDirectory::Know(Node& node, const std::string& held) {
  node.held.resize(held.size(), '\0');
  for (size_t i = 0; i < held.size(); ++i) {
    const unsigned now = static_cast<unsigned char>(held[i]), before = static_cast<unsigned char>(node.held[i]);
    for (unsigned bit = 0; now != before && bit < 8; ++bit) {
      const size_t file = 8 * i + bit;
      // What is behind the last file means nothing.
      if (file >= files_) break;
      holders_[file] += (now >> bit & 1) - (before >> bit & 1);
    }
  }
  node.held = held;
}

void ImageDirectory::ForgetTheSilent(absl::Time now) {
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    if (now - it->second.heard <= options_.silence_max) {
      ++it;
      continue;
    }
    Know(it->second, std::string(it->second.held.size(), '\0'));
    it = nodes_.erase(it);
  }
}

std::optional<ImageDirectory::Task> ImageDirectory::Choose(const wire::FindImagesRequest& request,
                                                           absl::Time now) const {
  const std::set<std::string> failed(request.failed().begin(), request.failed().end());
  std::vector<const Node*> unreached;
  std::set<uint32_t> on_its_way;
  for (const auto& [address, node] : nodes_) {
    if (failed.contains(address)) unreached.push_back(&node);
    if (node.task && node.task->from.empty() && now < node.task->until) on_its_way.insert(node.task->file);
  }
  const Node& asker = nodes_.at(request.address());
  std::optional<uint32_t> rarest;
  size_t fewest = 0;
  const uint32_t begin = BeginOf(request.address(), files_);
  for (uint32_t i = 0; i < files_; ++i) {
    const uint32_t file = (begin + i) % files_;
    if (asker.Holds(file)) continue;
    const auto lost =
        std::count_if(unreached.begin(), unreached.end(), [file](const Node* node) { return node->Holds(file); });
    const size_t count = holders_[file] - static_cast<size_t>(lost);
    if (count == 0 && on_its_way.contains(file)) continue;
    if (rarest && count >= fewest) continue;
    rarest = file;
    fewest = count;
    if (count == 0) break;
  }
  if (!rarest) return std::nullopt;
  std::vector<const std::string*> from;
  for (const auto& [address, node] : nodes_) {
    if (address != request.address() && !failed.contains(address) && node.Holds(*rarest)) from.push_back(&address);
  }
  return Task{.file = *rarest,
              .from = from.empty() ? "" : LeastBusy(from),
              .until = now + absl::Milliseconds(request.patience_ms())};
}

std::string ImageDirectory::LeastBusy(const std::vector<const std::string*>& holders) const {
  std::map<std::string, size_t> served;
  for (const auto& [address, node] : nodes_) {
    if (node.task) ++served[node.task->from];
  }
  const auto busy = [&](const std::string* address) {
    const auto found = served.find(*address);
    return found == served.end() ? 0 : found->second;
  };
  return **std::min_element(holders.begin(), holders.end(),
                            [&](const std::string* a, const std::string* b) { return busy(a) < busy(b); });
}

}  // namespace slackline::scheduler
