#include "common/text/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/text/wrap_text.h"

namespace slackline {
namespace {

constexpr char kMostUsed[] = "Most used options";
constexpr char kMostUsedCommands[] = "Most used commands";
constexpr char kOthers[] = "Options";
constexpr char kHelp[] = "Help";
constexpr char kOtherCommands[] = "Subcommands";
// Column at which descriptions begin.
constexpr size_t kDescriptionColumn = 26;

// A name of a type as CLI11 has it, taken apart: UINT:INT in [1 - 10] is a number from 1 to 10, TEXT:{a,b} one of two
// words.
struct Type {
  std::string name;
  std::string range;
  std::vector<std::string> words;
};

std::string Number(absl::string_view text) {
  double value = 0;
  return absl::SimpleAtod(text, &value) ? absl::StrFormat("%.0f", value) : std::string(text);
}

Type TypeOf(const CLI::Option& option) {
  std::string whole = option.get_type_name();
  Type type;
  if (const size_t at = whole.find(":{"); at != std::string::npos) {
    const std::string words = whole.substr(at + 2, whole.size() - at - 3);
    type.words = absl::StrSplit(words, ',');
    whole = absl::StrJoin(type.words, "|");
  } else if (const size_t end = whole.find(" in ["); end != std::string::npos) {
    const std::vector<std::string> ends = absl::StrSplit(whole.substr(end + 5, whole.size() - end - 6), " - ");
    if (ends.size() == 2) type.range = absl::StrCat(Number(ends[0]), " to ", Number(ends[1]));
    whole = whole.substr(0, whole.rfind(':', end));
  }
  if (whole == "UINT" || whole == "INT" || whole == "FLOAT") whole = "N";
  type.name = whole;
  return type;
}

// "-h, --help", "--set KEY=VALUE", "JOB".
std::string Left(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true, false);
  std::string name = option.get_name(false, true);
  // A flag that sets false is called --flag{false}.
  name = absl::StrReplaceAll(name.substr(0, name.find('{')), {{",", ", "}});
  const std::string type = option.get_expected_max() == 0 ? "" : TypeOf(option).name;
  return type.empty() ? name : absl::StrCat(name, " ", type);
}

std::string NamesOf(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) names.push_back(option->get_name());
  std::sort(names.begin(), names.end());
  return absl::StrJoin(names, ", ");
}

std::string Description(const CLI::Option& option) {
  std::string text = option.get_description();
  if (!text.empty() && !absl::EndsWith(text, ".")) text += ".";
  if (option.get_expected_max() != 0 && !option.get_positional()) {
    if (const Type type = TypeOf(option); !type.range.empty()) absl::StrAppend(&text, " Allowed: ", type.range, ".");
    if (!option.get_default_str().empty()) absl::StrAppend(&text, " Default: ", option.get_default_str(), ".");
    if (option.get_required()) absl::StrAppend(&text, " Required.");
  }
  if (!option.get_needs().empty()) absl::StrAppend(&text, " Needs ", NamesOf(option.get_needs()), ".");
  if (!option.get_excludes().empty()) absl::StrAppend(&text, " Not with ", NamesOf(option.get_excludes()), ".");
  return text;
}

std::string Row(const std::string& left, const std::string& right) {
  const std::string indent(kDescriptionColumn, ' ');
  std::string first = absl::StrCat("  ", left);
  if (right.empty()) return first + "\n";
  if (Columns(first) + 2 > kDescriptionColumn) return absl::StrCat(first, "\n", WrapText(right, indent, indent));
  first.resize(first.size() + kDescriptionColumn - Columns(first), ' ');
  return WrapText(right, first, indent);
}

std::string Rows(const std::string& title, const std::vector<const CLI::Option*>& options) {
  if (options.empty()) return "";
  std::string rows = absl::StrCat("\n", title, ":\n");
  for (const CLI::Option* option : options) absl::StrAppend(&rows, Row(Left(*option), Description(*option)));
  return rows;
}

std::string Paragraphs(const std::string& text) {
  std::string paragraphs;
  for (const absl::string_view paragraph : absl::StrSplit(text, "\n\n", absl::SkipWhitespace())) {
    const absl::string_view words = absl::StripPrefix(paragraph, "\n");
    absl::StrAppend(&paragraphs, "\n", words[0] == ' ' ? absl::StrCat(words, "\n") : WrapText(words, "", ""));
  }
  return paragraphs;
}

std::string CommandLines(const std::string& title, const std::string& lines) {
  if (lines.empty()) return "";
  std::string shown = absl::StrCat("\n", title, ":\n");
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipWhitespace())) {
    absl::StrAppend(&shown, "  ", line, "\n");
  }
  return shown;
}

// Thread-safety: immutable.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(HelpText help) : help_(std::move(help)) {}

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const override {
    std::string text = WrapText(app->get_description(), "", "");
    absl::StrAppend(&text, CommandLines("Example", help_.example), "\n", Usage(*app, name));
    absl::StrAppend(&text, Rows("Arguments", app->get_options([](const CLI::Option* option) {
      return option->get_positional() && !option->get_group().empty();
    })));
    absl::StrAppend(&text, Commands(*app), Options(*app), Paragraphs(help_.text));
    return absl::StrCat(text, CommandLines("More examples", help_.examples));
  }

 private:
  static std::string Usage(const CLI::App& app, const std::string& name) {
    std::string usage = name;
    if (!Shown(app).empty()) usage += " COMMAND";
    std::vector<std::string> required;
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_positional()) {
        const std::string shown =
            absl::StrCat(option->get_name(true, false), option->get_items_expected_max() > 1 ? "..." : "");
        absl::StrAppend(&usage, " ", option->get_required() ? shown : absl::StrCat("[", shown, "]"));
      } else if (option->get_required()) {
        required.push_back(Left(*option));
      }
    }
    if (!required.empty()) absl::StrAppend(&usage, " ", absl::StrJoin(required, " "));
    return WrapText(absl::StrCat(usage, " [OPTIONS]"), "Usage: ", "       ");
  }

  static std::vector<const CLI::App*> Shown(const CLI::App& app) {
    return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
  }

  std::string Commands(const CLI::App& app) const {
    const std::vector<const CLI::App*> commands = Shown(app);
    std::vector<std::string> groups;
    for (const CLI::App* command : commands) {
      if (std::find(groups.begin(), groups.end(), command->get_group()) == groups.end()) {
        groups.push_back(command->get_group());
      }
    }
    std::string text;
    for (const std::string& group : Ordered(groups)) {
      absl::StrAppend(&text, "\n", group == kOtherCommands ? "Commands" : group, ":\n");
      for (const CLI::App* command : commands) {
        if (command->get_group() == group) absl::StrAppend(&text, Row(command->get_name(), command->get_description()));
      }
    }
    return text;
  }

  std::string Options(const CLI::App& app) const {
    std::string text;
    for (const std::string& group : Ordered(app.get_groups())) {
      if (group.empty()) continue;
      absl::StrAppend(&text, Rows(group, app.get_options([&](const CLI::Option* option) {
        return !option->get_positional() && option->get_group() == group;
      })));
    }
    return text;
  }

  // Puts the groups into the order in which the help shows them.
  std::vector<std::string> Ordered(std::vector<std::string> groups) const {
    const auto rank = [this](const std::string& group) {
      if (group == kMostUsed || group == kMostUsedCommands) return size_t{0};
      if (group == kHelp) return help_.groups.size() + 2;
      size_t place = 1;
      for (const auto& [title, names] : help_.groups) {
        if (title == group) break;
        ++place;
      }
      return place;
    };
    std::stable_sort(groups.begin(), groups.end(),
                     [&](const std::string& a, const std::string& b) { return rank(a) < rank(b); });
    return groups;
  }

  const HelpText help_;
};

}  // namespace

void SetHelp(CLI::App& command, const HelpText& help) {
  const auto group = [&](const std::string& names, const std::string& options, const std::string& commands) {
    for (const absl::string_view one : absl::StrSplit(names, ' ', absl::SkipEmpty())) {
      const std::string name(one);
      if (name[0] == '-') {
        command.get_option(name)->group(options);
      } else {
        command.get_subcommand(name)->group(commands);
      }
    }
  };
  group(help.most_used, kMostUsed, kMostUsedCommands);
  for (const auto& [title, names] : help.groups) group(names, title, title);
  command.set_help_flag("-h,--help", "Show this help and exit")->group(kHelp);
  if (CLI::Option* const version = command.get_version_ptr()) {
    version->description("Show the version and exit")->group(kHelp);
  }
  command.formatter(std::make_shared<HelpFormatter>(help));
}

std::vector<std::string> AllowedWords(const CLI::Option& option) { return TypeOf(option).words; }

}  // namespace slackline
