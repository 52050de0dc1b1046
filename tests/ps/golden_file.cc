#include "tests/ps/golden_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

namespace slackline::ps {
namespace {

const std::map<std::string, OptimizerKind> kKinds = {
    {"sgd", OptimizerKind::kSgd}, {"adam", OptimizerKind::kAdam}, {"adamw", OptimizerKind::kAdamW}};
const std::map<std::string, ScheduleKind> kSchedules = {
    {"constant", ScheduleKind::kConstant}, {"step", ScheduleKind::kStep}, {"cosine", ScheduleKind::kCosine}};

void Set(const std::string& key, const std::string& value, OptimizerConfig& config) {
  const std::map<std::string, double*> numbers = {{"lr", &config.lr},
                                                  {"momentum", &config.momentum},
                                                  {"weight_decay", &config.weight_decay},
                                                  {"beta1", &config.beta1},
                                                  {"beta2", &config.beta2},
                                                  {"epsilon", &config.epsilon},
                                                  {"clip_norm", &config.clip_norm},
                                                  {"ema", &config.ema},
                                                  {"gamma", &config.schedule.gamma},
                                                  {"final_fraction", &config.schedule.final_fraction}};
  const std::map<std::string, uint64_t*> samples = {{"warmup_samples", &config.schedule.warmup_samples},
                                                    {"every_samples", &config.schedule.every_samples},
                                                    {"total_samples", &config.schedule.total_samples}};
  if (key == "kind") {
    config.kind = kKinds.at(value);
  } else if (key == "schedule") {
    config.schedule.kind = kSchedules.at(value);
  } else if (key == "nesterov") {
    config.nesterov = value == "1";
  } else if (numbers.contains(key)) {
    *numbers.at(key) = std::stod(value);
  } else {
    *samples.at(key) = std::stoull(value);
  }
}

GoldenCase ReadHead(std::istringstream& line) {
  GoldenCase result;
  line >> result.name;
  for (std::string setting; line >> setting;) {
    const size_t equals = setting.find('=');
    Set(setting.substr(0, equals), setting.substr(equals + 1), result.config);
  }
  return result;
}

GoldenRow ReadRow(const std::string& time, std::istringstream& line) {
  GoldenRow row{.time = std::stoull(time), .values = {}};
  for (double value = 0; line >> value;) row.values.push_back(value);
  return row;
}

}  // namespace

std::vector<GoldenCase> ReadGoldenFile(const std::string& name) {
  std::ifstream file(std::string(SLACKLINE_TEST_FOLDER "/") + name);
  std::vector<GoldenCase> cases;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string first;
    line >> first;
    if (first == "#") continue;
    if (first == "case") {
      cases.push_back(ReadHead(line));
    } else {
      cases.back().rows.push_back(ReadRow(first, line));
    }
  }
  EXPECT_FALSE(cases.empty()) << name << " cannot be read or is empty";
  return cases;
}

}  // namespace slackline::ps
