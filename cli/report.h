// The end of a run, for people: how good the model is, where it lies, and what to try next.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "job.pb.h"
#include "scheduler.pb.h"

namespace slackline::cli {

// "mAP 37.00 % (58.20 % at an overlap of 0.5)", and of masks where there are some. Requires: of objects.
std::string RenderPrecision(const wire::EvaluationReport& evaluation);
// Test accuracy, or what it is of objects, then precision, recall and F1 of each class and their means.
std::string RenderEvaluation(const wire::EvaluationReport& evaluation);
// The same under a first line of the caller's.
std::string RenderEvaluation(const wire::EvaluationReport& evaluation, const std::string& first);
// Energy by phase, power, and energy times delay; "energy: not metered" of null.
std::string RenderEnergy(const wire::EnergyView* energy);
// Where the results lie. `folder` is read.
std::string RenderResults(const std::filesystem::path& folder);
// Commands that change one thing about this job, ready to paste. `train` is how this run was started, up to its job
// file.
std::string RenderNext(const job::Job& job, const std::string& train, const std::filesystem::path& folder);
// What is still to happen to the servers: who may join, who is to leave, who is dead and so holds the others up.
std::vector<std::string> PendingServers(const wire::GetStatusReply& status);
// State, progress and a table of the members.
std::string RenderStatus(const wire::GetStatusReply& status);

}  // namespace slackline::cli
