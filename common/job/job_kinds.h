// Facts about the kinds that a job names.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/job/consistency_modes.h"
#include "common/job/model_kinds.h"
#include "job.pb.h"

namespace slackline {

// Declared in common/optimizer/optimizer.h, which the pure cores cannot include.
enum class OptimizerKind;
struct OptimizerFacts;
const OptimizerFacts& FactsOf(OptimizerKind kind);

inline const ModelFacts& FactsOf(const job::Model& model) { return FactsOf(static_cast<ModelKind>(model.kind())); }

// Return the probabilities in training: the job's or the reference's, and 0 for models that draw nothing.
inline double DropoutOf(const job::Model& model) {
  return model.dropout() < 0 ? FactsOf(model).dropout.value_or(0) : model.dropout();
}
inline double StochasticDepthOf(const job::Model& model) {
  return model.stochastic_depth() < 0 ? FactsOf(model).stochastic_depth.value_or(0) : model.stochastic_depth();
}

inline const OptimizerFacts& FactsOf(const job::Optimizer& optimizer) {
  return FactsOf(static_cast<OptimizerKind>(optimizer.kind()));
}
// Returns the entry of the optimizer that workers use in local training.
inline const OptimizerFacts& FactsOf(const job::Local& local) {
  return FactsOf(static_cast<OptimizerKind>(local.optimizer()));
}

inline const ModeFacts& FactsOf(const job::Consistency& consistency) {
  return FactsOf(static_cast<ConsistencyMode>(consistency.mode()), consistency.late() == job::Consistency::COUNT);
}

// Returns whether workers are scripts, with a model and data of their own.
inline bool RunsScripts(const job::Job& job) { return job.model().kind() == job::Model::EXTERNAL; }

// Returns whether workers pull other weights than evaluations use.
inline bool PredictsWeights(const job::Job& job) {
  return job.consistency().weight_prediction() != job::WeightPrediction::NONE;
}

// Returns the number of workers that the scripts of a node are.
inline uint32_t WorkersOfScripts(const job::Worker& worker) { return worker.node_group() ? 1 : worker.per_node(); }

// Returns what texts for people call the job's samples: the data of scripts may be anything.
inline absl::string_view SamplesNoun(const job::Job& job) { return RunsScripts(job) ? "samples" : "images"; }

}  // namespace slackline
