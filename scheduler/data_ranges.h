// Which worker trains on which samples: the epochs cut into ranges, leased one at a time to each worker. Pure.
//
// Epochs flow into each other: when the last samples of an epoch are leased, the next one is opened; nobody waits at
// its end. A range that was not finished is given out again, but only once its holder is fenced, so a sample is
// trained at least once, and twice only after a death; those are counted.
//
// Sizes follow guided self-scheduling (Polychronopoulos and Kuck 1987): a range has at most what is left of its epoch
// over twice the number of workers. Ranges shrink towards the end of every epoch, so epochs end in order and all
// workers run out of work together.
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
#include "common/ids.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// One life of a worker.
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
    // A worker takes at most so long for one range, unless that is less than a batch.
    absl::Duration range_duration = absl::Seconds(2);
    // Size of a range for a worker whose speed is not known yet.
    uint32_t first_batches = 10;
  };

  // What is known of a worker that asks for a range.
  struct Pace {
    // 0: unknown.
    double samples_per_second = 0;
    // 0: config.batch_size.
    uint32_t batch_size = 0;
    // How many workers train now, this one included.
    size_t workers = 1;
    // Something happens after so many samples, for which workers should ask again: ranges shrink towards that, too.
    uint64_t samples_left = std::numeric_limits<uint64_t>::max();
  };

  explicit DataRanges(const Config& config);

  // The next range for this worker; nothing when all samples are leased or done. A holder that has an unfinished range
  // gets that one again. Sizes are whole batches, at least one, but for the end of an epoch.
  std::optional<DataRange> Lease(const Holder& holder, const Pace& pace);

  // The holder has trained the range. Saying it again changes nothing.
  // Returns how many epochs this has completed; epochs complete in order.
  //   kInvalidArgument  such a range was never leased, or this holder never had it
  absl::StatusOr<uint32_t> Done(const Holder& holder, RangeId range);

  // The holder leaves the range, and has trained its samples up to position `to`: only the others are given back. Of a
  // range that it does not hold nothing changes.
  // Returns as Done().
  //   kInvalidArgument  the range does not reach that far, or begins behind it
  absl::StatusOr<uint32_t> DoneTo(const Holder& holder, RangeId range, uint64_t to);

  // Nothing more is given out; what is leased is still to be done.
  void CutShort() { cut_short_ = true; }
  bool cut_short() const { return cut_short_; }

  // Gives an unfinished range of a fenced holder back.
  // Returns its samples, 0 for none.
  uint64_t Release(const Holder& holder);

  void Save(state::Ranges& state) const;
  // Of a job that goes on, for ranges that are still as they were made. What was leased after the state was saved is
  // not known: it is given out again, and its holders may say that it is done.
  void Restore(const state::Ranges& state);
  std::vector<Holder> Holders() const;

  bool HasFree() const { return !cut_short_ && (!free_.empty() || next_epoch_ < config_.epochs); }
  bool Holds(const Holder& holder) const { return leased_.contains(holder); }
  // All samples of all epochs are done, or, after CutShort(), all that were leased.
  bool Finished() const { return epochs_done_ == config_.epochs || (cut_short_ && leased_.empty()); }

  // Epochs of which every sample, and every sample of earlier ones, is done.
  uint32_t epochs_done() const { return epochs_done_; }
  uint64_t samples_total() const { return config_.samples_per_epoch * config_.epochs; }
  uint64_t samples_done() const { return samples_done_; }
  uint64_t samples_leased() const { return samples_leased_; }
  // Samples of ranges that were given back: some of them are trained twice.
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

  // Samples of this epoch are done. Returns how many epochs that has completed.
  uint32_t Count(uint32_t epoch, uint64_t samples);
  uint64_t SizeFor(const Holder& holder, const Pace& pace, uint32_t epoch) const;
  // The worker's part of what all workers train in a second; at most an equal part.
  double ShareOf(const Pace& pace) const;
  uint64_t FreeOf(uint32_t epoch) const;
  void Lend(const Holder& holder, const Lent& lent);
  // Requires: there is such a lease.
  DataRange TakeBack(const Holder& holder);

  const Config config_;
  RangeId last_id_;
  // Below it are the numbers that earlier schedulers gave, some of them after they had last saved.
  RangeId forgotten_to_;
  uint32_t next_epoch_ = 0;
  std::set<Span> free_;
  std::map<Holder, Lent> leased_;
  // Of leased_: how many have told a speed, and the sum of those.
  size_t speeds_known_ = 0;
  double speeds_ = 0;
  // What each holder finished last: it may say so twice, and its next range is not its first.
  std::map<Holder, RangeId> finished_;
  // Samples done, of epochs that are not complete.
  std::map<uint32_t, uint64_t> done_;
  uint32_t epochs_done_ = 0;
  uint64_t samples_done_ = 0;
  uint64_t samples_leased_ = 0;
  uint64_t samples_given_twice_ = 0;
  bool cut_short_ = false;
};

}  // namespace slackline::scheduler
