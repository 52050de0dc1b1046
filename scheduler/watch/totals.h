// Totals of the figures that workers report. Options of wire::WorkerProgress say how each is added up and where it is
// shown, so the code names no figure that needs no rule of its own. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler.pb.h"
#include "scheduler_state.pb.h"

namespace slackline::scheduler {

// Figure that has a total. Names and types of its fields in the report and in the totals are equal.
struct Figure {
  const google::protobuf::FieldDescriptor* reported = nullptr;
  const google::protobuf::FieldDescriptor* total = nullptr;
  const google::protobuf::FieldDescriptor* whole = nullptr;  // total of which it is a part; null for none
  bool may_fall = false;
  bool in_summary = false;
};

// Returns the figures, in the order of state::Totals.
const std::vector<Figure>& Figures();

// Returns what has been added to a total since it was last heard of; 0 when it has shrunk.
inline uint64_t Grown(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

// Returns what a worker has done between two reports of one life.
state::Totals GrowthOf(const wire::WorkerProgress& now, const wire::WorkerProgress& before);

void Add(const state::Totals& more, state::Totals& totals);

// Returns saved totals, with the figures that an earlier version did not have.
state::Totals Completed(state::Totals totals);

// Returns the mean loss of the samples between two standings; nullopt if the loss of none is known.
std::optional<double> LossOf(const state::Totals& now, const state::Totals& before);

// Returns the share of correct samples among those judged between two standings; nullopt if none were judged.
std::optional<double> AccuracyOf(const state::Totals& now, const state::Totals& before);

// Copies each number (uint64 or double) that `out` has under the same name and type as `from`.
void CopyFigures(const google::protobuf::Message& from, google::protobuf::Message& out);

}  // namespace slackline::scheduler
