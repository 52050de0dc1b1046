// Decides which worker trains on which samples: cuts the epochs into ranges and leases them, one at a time to each
// worker. Pure.
//
// Epochs flow into each other: once the last samples of an epoch are leased, the next epoch is opened, so nobody waits
// at the end of an epoch. An unfinished range is given out again, but only once its holder is fenced. A sample is thus
// trained at least once, and twice only after a death; such samples are counted.
//
// Sizes follow guided self-scheduling (Polychronopoulos and Kuck 1987): a range has at most the rest of its epoch
// divided by twice the number of workers. Ranges shrink towards the end of every epoch, so epochs end in order and all
// workers run out of work together.
//
// Samples may be in blocks, such as the files of images that are spread over the nodes. A range then lies in one block.
// The range comes from a block that is as near to the worker as any with free samples, drawn at random; a block that is
// far away is preferred whole. Distance never keeps a sample from a worker: if all that is left is far, the worker gets
// it.
//
// Thread-safety: none.
// Units:         samples; positions count from 0 in the epoch's order.
// Invariant:     every sample of an opened epoch is in exactly one of: free, leased, done.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/ids.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// A worker in one of its lives.
struct Holder {
  WorkerId worker;
  Incarnation incarnation;

  friend auto operator<=>(const Holder&, const Holder&) = default;
};

inline state::Holder ToState(const Holder& holder) {
  state::Holder state;
  state.set_worker(holder.worker.value());
  state.set_incarnation(holder.incarnation.value());
  return state;
}
inline Holder FromState(const state::Holder& state) {
  return {WorkerId(state.worker()), Incarnation(state.incarnation())};
}

// Samples [begin, end) of an epoch.
struct DataRange {
  RangeId id;
  uint32_t epoch = 0;
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t size() const { return end - begin; }
  friend bool operator==(const DataRange&, const DataRange&) = default;
};

class DataRanges {
 public:
  struct Config {
    uint64_t samples_per_epoch = 1;
    uint32_t epochs = 1;
    uint32_t batch_size = 1;
    // Longest time that a worker takes for one range, unless a single batch takes longer.
    absl::Duration range_duration = absl::Seconds(2);
    // Size, in batches, of a range for a worker whose speed is not known yet.
    uint32_t first_batches = 10;
    // Number of samples in each block, in the order of positions; empty: the epoch is one block, and ranges come in the
    // order of positions. The sum is samples_per_epoch.
    std::vector<uint32_t> block_samples = {};
    // Seed of the draw of blocks.
    uint64_t seed = 1;
  };

  // Speed and situation of a worker that asks for a range.
  struct Pace {
    // Speed of the worker; 0: unknown.
    double samples_per_second = 0;
    // Samples in a batch of the worker; 0: config.batch_size.
    uint32_t batch_size = 0;
    // Number of workers that train now, this one included.
    size_t workers = 1;
    // Samples left until workers should ask again because something happens then: ranges shrink towards that point,
    // too.
    uint64_t samples_left = std::numeric_limits<uint64_t>::max();
    // Distance of each block from the worker, less is better; 0 and 1 mean that the worker's node has it, or nearly so.
    // Empty, or of another length: all blocks are equally near.
    absl::Span<const uint8_t> distances = {};
  };

  explicit DataRanges(const Config& config);

  // Returns the next range for this worker; nullopt if all samples are leased or done. A holder that has an unfinished
  // range gets that range again. Sizes are whole batches, at least one, except at the end of an epoch or a block.
  std::optional<DataRange> Lease(const Holder& holder, const Pace& pace);

  // Notes that the holder has trained the range. Repeating it changes nothing.
  // Returns how many epochs this has completed; epochs complete in order.
  //   kInvalidArgument  the range was never leased, or this holder never had it
  absl::StatusOr<uint32_t> Done(const Holder& holder, RangeId range);

  // Notes that the holder leaves the range after training its samples up to position `to`: only its other samples are
  // given back, by Release(). Changes nothing if the holder does not hold the range.
  // Returns the same as Done().
  //   kInvalidArgument  the range ends before `to`, or begins after it
  absl::StatusOr<uint32_t> DoneTo(const Holder& holder, RangeId range, uint64_t to);

  // Stops giving out ranges; ranges that are leased are still to be done.
  void CutShort() { cut_short_ = true; }
  bool cut_short() const { return cut_short_; }

  // Gives back the unfinished range of a fenced holder.
  // Returns its number of samples, 0 if there is none.
  uint64_t Release(const Holder& holder);

  void Save(state::Ranges& state) const;
  // Continues a job from a saved state. Requires: the ranges are still as constructed. Ranges that were leased after
  // the state was saved are unknown: their samples are given out again, and their holders may report them done.
  void Restore(const state::Ranges& state);
  std::vector<Holder> Holders() const;

  bool HasFree() const { return !cut_short_ && (!free_.empty() || next_epoch_ < config_.epochs); }
  bool Holds(const Holder& holder) const { return leased_.contains(holder); }
  // True if all samples of all epochs are done, or, after CutShort(), all that were leased.
  bool Finished() const { return epochs_done_ == config_.epochs || (cut_short_ && leased_.empty()); }

  // Number of epochs of which every sample, and every sample of earlier epochs, is done.
  uint32_t epochs_done() const { return epochs_done_; }
  uint64_t samples_total() const { return config_.samples_per_epoch * config_.epochs; }
  uint64_t samples_done() const { return samples_done_; }
  uint64_t samples_leased() const { return samples_leased_; }
  // Number of samples in ranges that were given back: some of them are trained twice.
  uint64_t samples_given_twice() const { return samples_given_twice_; }

 private:
  struct Span {
    uint32_t epoch = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
    friend auto operator<=>(const Span&, const Span&) = default;
  };

  struct Lent {
    DataRange range;
    double samples_per_second = 0;
  };

  // Counts samples of this epoch as done. Returns how many epochs that has completed.
  uint32_t Count(uint32_t epoch, uint64_t samples);
  uint64_t SizeFor(const Holder& holder, const Pace& pace, uint32_t epoch) const;
  // Returns the worker's share of what all workers train in a second; at most an equal share.
  double ShareOf(const Pace& pace) const;
  uint64_t FreeOf(uint32_t epoch) const;
  // Adds free samples, cut at the ends of blocks.
  void AddFree(const Span& span);
  // Returns the span in free_ from which to lease. Requires: free_ is not empty.
  std::set<Span>::const_iterator Choose(const Pace& pace) const;
  // Returns the block at this position.
  size_t BlockAt(uint64_t position) const;
  void Lend(const Holder& holder, const Lent& lent);
  // Ends the holder's lease and returns its range. Requires: the holder has a lease.
  DataRange TakeBack(const Holder& holder);

  const Config config_;
  // Position at which each block ends; empty if there are no blocks.
  std::vector<uint64_t> block_ends_;
  RangeId last_id_;
  // Bound below which all numbers are of earlier schedulers, which gave some of them after their last save.
  RangeId forgotten_to_;
  uint32_t next_epoch_ = 0;
  std::set<Span> free_;
  std::map<Holder, Lent> leased_;
  // Number of holders in leased_ that have reported a speed, and the sum of their speeds.
  size_t speeds_known_ = 0;
  double speeds_ = 0;
  // Last range that each holder finished: the holder may report it twice, and its next range is not its first.
  std::map<Holder, RangeId> finished_;
  // Samples done, by epoch, of epochs that are not complete.
  std::map<uint32_t, uint64_t> done_;
  uint32_t epochs_done_ = 0;
  uint64_t samples_done_ = 0;
  uint64_t samples_leased_ = 0;
  uint64_t samples_given_twice_ = 0;
  bool cut_short_ = false;
};

}  // namespace slackline::scheduler
