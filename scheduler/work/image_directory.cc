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

std::vector<uint32_t> ImageDirectory::Node::Coming(absl::Time now) const {
  std::vector<uint32_t> files;
  for (const std::optional<Task>* const task : {&share, &need}) {
    if (full || !*task || !(*task)->from.empty() || now >= (*task)->until) continue;
    files.push_back((*task)->file);
  }
  return files;
}

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
  if (request.spread() > request.files()) {
    return absl::InvalidArgumentError(absl::StrCat("found ", request.spread(), " spread files of ", request.files()));
  }
  if (request.has_needs() && request.needs() >= request.spread()) {
    return absl::InvalidArgumentError(
        absl::StrCat("found spread file ", request.needs(), "; allowed are those below ", request.spread()));
  }
  return absl::OkStatus();
}

absl::StatusOr<wire::FindImagesReply> ImageDirectory::Ask(const wire::FindImagesRequest& request, absl::Time now) {
  if (absl::Status checked = Check(request); !checked.ok()) return checked;
  ForgetTheSilent(now);
  if (nodes_.empty()) {
    files_checksum_ = request.files_checksum();
    files_ = request.files();
    spread_ = request.spread();
    holders_.assign(files_, 0);
  }
  if (files_checksum_ != request.files_checksum() || files_ != request.files()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this worker has read another index.json than others of the job: ", request.files(),
                     " files, theirs has ", files_, files_ == request.files() ? ", with other checksums" : ""));
  }
  if (spread_ != request.spread()) {
    return absl::FailedPreconditionError(
        absl::StrCat("this worker spreads ", request.spread(), " files over the nodes, others of the job ", spread_));
  }
  if (!nodes_.contains(request.address()) && nodes_.size() >= options_.nodes_max) {
    return absl::ResourceExhaustedError(absl::StrCat("data.cache.peers: found ", nodes_.size() + 1,
                                                     " workers that share images; allowed are ", options_.nodes_max));
  }
  Node& node = nodes_[request.address()];
  all_came_ = all_came_ || nodes_.size() >= options_.nodes_expected;
  Know(node, request.held());
  node.heard = now;
  wire::FindImagesReply reply;
  reply.set_retry_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(options_.retry)));
  node.full = request.full();
  for (std::optional<Task>* task : {&node.task, &node.share, &node.need}) {
    if (*task && node.Holds((*task)->file)) task->reset();
  }
  if (request.has_needs() || request.wants_share()) AnswerSpread(request, now, node, reply);
  if (!request.wants() || reply.has_file()) return reply;
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
      const int added = static_cast<int>(now >> bit & 1) - static_cast<int>(before >> bit & 1);
      holders_[file] += static_cast<uint32_t>(added);
      if (file < spread_) node.shares += static_cast<size_t>(added);
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
  const uint32_t files = files_ - spread_;
  const uint32_t begin = files == 0 ? 0 : BeginOf(request.address(), files);
  for (uint32_t i = 0; i < files; ++i) {
    const uint32_t file = spread_ + (begin + i) % files;
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
  const std::vector<const std::string*> from = HoldersOf(*rarest, request);
  return Task{.file = *rarest,
              .from = from.empty() ? "" : LeastBusy(from),
              .until = now + absl::Milliseconds(request.patience_ms())};
}

std::vector<const std::string*> ImageDirectory::HoldersOf(uint32_t file, const wire::FindImagesRequest& request) const {
  const std::set<std::string> failed(request.failed().begin(), request.failed().end());
  std::vector<const std::string*> holders;
  for (const auto& [address, node] : nodes_) {
    if (address != request.address() && !failed.contains(address) && node.Holds(file)) holders.push_back(&address);
  }
  return holders;
}

void ImageDirectory::AnswerSpread(const wire::FindImagesRequest& request, absl::Time now, Node& node,
                                  wire::FindImagesReply& reply) {
  std::optional<Task>& task = request.has_needs() ? node.need : node.share;
  task.reset();
  task = request.has_needs() ? Locate(request, now) : ChooseShare(request, now);
  if (task) {
    reply.set_file(task->file);
    reply.set_from(task->from);
    return;
  }
  if (request.has_needs()) return;
  reply.set_retry_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(options_.share_retry)));
  const std::optional<uint32_t> drop = node.full ? ChooseDrop(node, now) : std::nullopt;
  if (!drop) return;
  reply.set_drop(*drop);
  // The node no longer counts as a holder, so that no other holder is told to drop the last copy.
  std::string held = node.held;
  held[*drop / 8] = static_cast<char>(held[*drop / 8] & ~(1 << (*drop % 8)));
  Know(node, held);
}

std::set<uint32_t> ImageDirectory::OnTheirWay(const std::string& address, absl::Time now) const {
  std::set<uint32_t> files;
  for (const auto& [other, node] : nodes_) {
    if (other == address) continue;
    for (const uint32_t file : node.Coming(now)) files.insert(file);
  }
  return files;
}

size_t ImageDirectory::ShareMax() const {
  const size_t nodes = std::max(options_.nodes_expected, nodes_.size());
  return (spread_ + nodes - 1) / nodes;
}

std::optional<ImageDirectory::Task> ImageDirectory::ChooseShare(const wire::FindImagesRequest& request,
                                                                absl::Time now) const {
  const Node& asker = nodes_.at(request.address());
  if (asker.full) return std::nullopt;
  const size_t share = ShareMax();
  if (asker.shares >= share) {
    // A node that is expected and has not come yet has room.
    if (!all_came_) return std::nullopt;
    for (const auto& [address, node] : nodes_) {
      if (&node != &asker && !node.full && node.shares < share) return std::nullopt;
    }
  }
  std::set<uint32_t> taken = OnTheirWay(request.address(), now);
  if (asker.need) taken.insert(asker.need->file);
  const uint32_t begin = spread_ == 0 ? 0 : BeginOf(request.address(), spread_);
  for (uint32_t i = 0; i < spread_; ++i) {
    const uint32_t file = (begin + i) % spread_;
    if (holders_[file] > 0 || taken.contains(file)) continue;
    return Task{.file = file, .from = "", .until = now + absl::Milliseconds(request.patience_ms())};
  }
  return std::nullopt;
}

std::optional<ImageDirectory::Task> ImageDirectory::Locate(const wire::FindImagesRequest& request,
                                                           absl::Time now) const {
  const uint32_t file = request.needs();
  const std::vector<const std::string*> from = HoldersOf(file, request);
  if (from.empty() && OnTheirWay(request.address(), now).contains(file)) return std::nullopt;
  return Task{.file = file,
              .from = from.empty() ? "" : LeastBusy(from),
              .until = now + absl::Milliseconds(request.patience_ms())};
}

std::optional<uint32_t> ImageDirectory::ChooseDrop(const Node& asker, absl::Time now) const {
  const std::set<uint32_t> coming = OnTheirWay("", now);
  std::optional<uint32_t> drop;
  bool missing = false;
  for (uint32_t file = 0; file < spread_; ++file) {
    missing = missing || (holders_[file] == 0 && !coming.contains(file));
    if (asker.Holds(file) && holders_[file] > 1 && (!drop || holders_[file] > holders_[*drop])) drop = file;
  }
  return missing ? drop : std::nullopt;
}

std::vector<uint8_t> ImageDirectory::DistancesFrom(const std::string& address, absl::Span<const uint32_t> borrowed,
                                                   absl::Time now) const {
  const auto found = nodes_.find(address);
  if (found == nodes_.end()) return {};
  const Node& node = found->second;
  std::vector<uint8_t> distances(spread_, node.full ? kOnlyAtTheOrigin : kFree);
  for (const uint32_t file : OnTheirWay(address, now)) distances[file] = kComingElsewhere;
  for (uint32_t file = 0; file < spread_; ++file) {
    if (holders_[file] > 0) distances[file] = kElsewhere;
  }
  for (const uint32_t file : node.Coming(now)) distances[file] = kComing;
  for (uint32_t file = 0; file < spread_; ++file) {
    if (node.Holds(file)) distances[file] = kHere;
  }
  for (const uint32_t file : borrowed) {
    if (file < spread_) distances[file] = kHere;
  }
  return distances;
}

std::string ImageDirectory::LeastBusy(const std::vector<const std::string*>& holders) const {
  std::map<std::string, size_t> served;
  for (const auto& [address, node] : nodes_) {
    if (node.task) ++served[node.task->from];
    if (node.need) ++served[node.need->from];
  }
  const auto busy = [&](const std::string* address) {
    const auto found = served.find(*address);
    return found == served.end() ? 0 : found->second;
  };
  return **std::min_element(holders.begin(), holders.end(),
                            [&](const std::string* a, const std::string* b) { return busy(a) < busy(b); });
}

}  // namespace slackline::scheduler
