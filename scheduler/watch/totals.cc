#include "scheduler/watch/totals.h"

#include <algorithm>
#include <cmath>

#include "common/base/check.h"
#include "figure_options.pb.h"
#include "google/protobuf/descriptor.h"

namespace slackline::scheduler {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

bool IsWhole(const FieldDescriptor& field) { return field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64; }

bool IsNumber(const FieldDescriptor& field) {
  return !field.is_repeated() && (IsWhole(field) || field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE);
}

// Sets the number to what `make` returns, given the getter of numbers of its type.
template <typename Make>
void SetNumber(Message& out, const FieldDescriptor& field, Make make) {
  if (IsWhole(field)) {
    out.GetReflection()->SetUInt64(&out, &field, make(&Reflection::GetUInt64));
  } else {
    out.GetReflection()->SetDouble(&out, &field, make(&Reflection::GetDouble));
  }
}

std::vector<Figure> FindFigures() {
  const Descriptor& totals = *state::Totals::descriptor();
  std::vector<Figure> figures;
  for (int i = 0; i < totals.field_count(); ++i) {
    const FieldDescriptor* const total = totals.field(i);
    const FieldDescriptor* const reported = wire::WorkerProgress::descriptor()->FindFieldByName(total->name());
    SLACKLINE_CHECK(reported != nullptr && IsNumber(*total) && reported->cpp_type() == total->cpp_type());
    const google::protobuf::FieldOptions& options = reported->options();
    const FieldDescriptor* const whole = totals.FindFieldByName(options.GetExtension(wire::part_of));
    SLACKLINE_CHECK(!options.HasExtension(wire::part_of) || (whole != nullptr && whole->index() < total->index()));
    figures.push_back({.reported = reported,
                       .total = total,
                       .whole = whole,
                       .may_fall = options.GetExtension(wire::may_fall),
                       .in_summary = options.GetExtension(wire::in_summary)});
  }
  return figures;
}

// Samples whose pushes are in the weights. Workers of an earlier version do not report them.
uint64_t AppliedOf(const wire::WorkerProgress& progress) {
  return progress.has_samples_applied() ? progress.samples_applied() : progress.samples();
}

}  // namespace

const std::vector<Figure>& Figures() {
  static const std::vector<Figure>* const figures = new std::vector<Figure>(FindFigures());
  return *figures;
}

state::Totals GrowthOf(const wire::WorkerProgress& now, const wire::WorkerProgress& before) {
  state::Totals grown;
  const Reflection& report = *now.GetReflection();
  const Reflection& totals = *grown.GetReflection();
  for (const Figure& figure : Figures()) {
    if (IsWhole(*figure.total)) {
      uint64_t growth = Grown(report.GetUInt64(now, figure.reported), report.GetUInt64(before, figure.reported));
      // A peer may report more than it trained.
      if (figure.whole != nullptr) growth = std::min(growth, totals.GetUInt64(grown, figure.whole));
      totals.SetUInt64(&grown, figure.total, growth);
    } else {
      // Peers may send numbers that are none.
      const double growth = report.GetDouble(now, figure.reported) - report.GetDouble(before, figure.reported);
      const bool counts = std::isfinite(growth) && (figure.may_fall || growth > 0);
      totals.SetDouble(&grown, figure.total, counts ? growth : 0);
    }
  }
  grown.set_samples_applied(Grown(AppliedOf(now), AppliedOf(before)));
  return grown;
}

void Add(const state::Totals& more, state::Totals& totals) {
  const Reflection& from = *more.GetReflection();
  for (const Figure& figure : Figures()) {
    SetNumber(totals, *figure.total,
              [&](auto get) { return (from.*get)(totals, figure.total) + (from.*get)(more, figure.total); });
  }
}

state::Totals Completed(state::Totals totals) {
  if (!totals.has_samples_applied()) totals.set_samples_applied(totals.samples());
  return totals;
}

std::optional<double> LossOf(const state::Totals& now, const state::Totals& before) {
  const uint64_t samples = Grown(now.samples(), before.samples());
  const uint64_t without = Grown(now.samples_without_loss(), before.samples_without_loss());
  if (samples <= without) return std::nullopt;
  return (now.loss_sum() - before.loss_sum()) / static_cast<double>(samples - without);
}

std::optional<double> AccuracyOf(const state::Totals& now, const state::Totals& before) {
  const uint64_t samples = Grown(now.samples(), before.samples());
  const uint64_t unjudged = Grown(now.samples_unjudged(), before.samples_unjudged());
  if (samples <= unjudged) return std::nullopt;
  return static_cast<double>(Grown(now.correct(), before.correct())) / static_cast<double>(samples - unjudged);
}

void CopyFigures(const Message& from, Message& out) {
  for (int i = 0; i < out.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* const to = out.GetDescriptor()->field(i);
    const FieldDescriptor* const figure = from.GetDescriptor()->FindFieldByName(to->name());
    if (figure == nullptr || !IsNumber(*to) || !IsNumber(*figure) || to->cpp_type() != figure->cpp_type()) continue;
    SetNumber(out, *to, [&](auto get) { return (from.GetReflection()->*get)(from, figure); });
  }
}

}  // namespace slackline::scheduler
