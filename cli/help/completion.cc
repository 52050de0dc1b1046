#include "cli/help/completion.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/text/help.h"

namespace slackline::cli::help {
namespace {

struct Word {
  std::string text;
  std::string meaning;
};

struct Option {
  // "--set", and "-h" where an option has two names.
  std::vector<std::string> names;
  std::string meaning;
  bool takes_value = false;
  // Values that it allows; empty: any, for example a file.
  std::vector<std::string> values;
};

// A command, and the words that may follow it.
struct Place {
  // "slackline servers add".
  std::string path;
  std::vector<Word> commands;
  std::vector<Option> options;
  // Words that its arguments allow; empty: any.
  std::vector<std::string> values;
};

void AddPlaces(const CLI::App& app, const std::string& path, std::vector<Place>& places) {
  Place place{.path = path, .commands = {}, .options = {}, .values = {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    const std::vector<std::string> values = AllowedWords(*option);
    if (option->get_positional()) {
      place.values.insert(place.values.end(), values.begin(), values.end());
      continue;
    }
    std::vector<std::string> names;
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
    place.options.push_back({names, option->get_description(), option->get_expected_max() != 0, values});
  }
  const auto commands = app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
  for (const CLI::App* command : commands) {
    place.commands.push_back({command->get_name(), command->get_description()});
  }
  places.push_back(std::move(place));
  for (const CLI::App* command : commands) AddPlaces(*command, absl::StrCat(path, " ", command->get_name()), places);
}

// Quotes a text for bash and zsh.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

// Quotes a text for fish.
std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::vector<std::string> OptionNames(const Place& place) {
  std::vector<std::string> names;
  for (const Option& option : place.options) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

std::vector<std::string> CommandNames(const Place& place) {
  std::vector<std::string> names;
  for (const Word& command : place.commands) names.push_back(command.text);
  return names;
}

// All commands below the first place, as a pattern of `case`.
std::string Paths(const std::vector<Place>& places) {
  std::vector<std::string> paths;
  for (size_t i = 1; i < places.size(); ++i) paths.push_back(Quoted(places[i].path));
  return absl::StrJoin(paths, "|");
}

// The branches of `case "$place $before"` for options that take values. `any` and `words` say what a branch does.
template <typename Any, typename Words>
std::string ValueBranches(const std::vector<Place>& places, const Any& any, const Words& words) {
  std::string branches;
  for (const Place& place : places) {
    for (const Option& option : place.options) {
      if (!option.takes_value) continue;
      std::vector<std::string> keys;
      for (const std::string& name : option.names) keys.push_back(Quoted(absl::StrCat(place.path, " ", name)));
      absl::StrAppend(&branches, "    ", absl::StrJoin(keys, "|"), ") ",
                      option.values.empty() ? any : words(option.values), " ;;\n");
    }
  }
  return branches;
}

// The branches of `case $place`: `command` says what to do in a place, and nothing where there is nothing to do.
template <typename Command>
std::string PlaceBranches(const std::vector<Place>& places, absl::string_view indent, const Command& command) {
  std::string branches;
  for (const Place& place : places) {
    const std::string what = command(place);
    if (!what.empty()) absl::StrAppend(&branches, indent, Quoted(place.path), ") ", what, " ;;\n");
  }
  return branches;
}

std::string Bash(const std::vector<Place>& places) {
  std::string script = absl::StrCat(
      "# Completes `slackline` in bash; made by `slackline completion bash`.\n"
      "_slackline() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} place=slackline words='' i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    [[ ${COMP_WORDS[i]} == -- ]] && return\n"
      "    case \"$place ${COMP_WORDS[i]}\" in\n"
      "      ",
      Paths(places), ") place+=\" ${COMP_WORDS[i]}\" ;;\n    esac\n  done\n  case \"$place $before\" in\n");
  absl::StrAppend(&script,
                  ValueBranches(places, "return",
                                [](const std::vector<std::string>& values) {
                                  return absl::StrCat("mapfile -t COMPREPLY < <(compgen -W ",
                                                      Quoted(absl::StrJoin(values, " ")), " -- \"$current\"); return");
                                }),
                  "  esac\n  if [[ $current == -* ]]; then\n    case $place in\n");
  const auto words = [](const std::vector<std::string>& all) {
    return all.empty() ? "" : absl::StrCat("words=", Quoted(absl::StrJoin(all, " ")));
  };
  absl::StrAppend(&script,
                  PlaceBranches(places, "      ", [&](const Place& place) { return words(OptionNames(place)); }),
                  "    esac\n  else\n    case $place in\n", PlaceBranches(places, "      ", [&](const Place& place) {
                    std::vector<std::string> all = CommandNames(place);
                    all.insert(all.end(), place.values.begin(), place.values.end());
                    return words(all);
                  }));
  absl::StrAppend(&script,
                  "    esac\n"
                  "  fi\n"
                  "  [[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
                  "}\n"
                  "complete -o bashdefault -o default -F _slackline slackline\n");
  return script;
}

// `_describe` takes NAME:MEANING, with a backslash before colons of the name.
std::string Described(const std::string& name, const std::string& meaning) {
  return Quoted(absl::StrCat(absl::StrReplaceAll(name, {{":", "\\:"}}), ":", meaning));
}

std::string Zsh(const std::vector<Place>& places) {
  std::string script = absl::StrCat(
      "#compdef slackline\n"
      "# Completes `slackline` in zsh; made by `slackline completion zsh`.\n"
      "_slackline() {\n"
      "  local place=slackline before=${words[CURRENT-1]} i\n"
      "  local -a found\n"
      "  for ((i = 2; i < CURRENT; ++i)); do\n"
      "    if [[ ${words[i]} == -- ]]; then _files; return; fi\n"
      "    case \"$place ${words[i]}\" in\n"
      "      ",
      Paths(places), ") place+=\" ${words[i]}\" ;;\n    esac\n  done\n  case \"$place $before\" in\n");
  absl::StrAppend(&script,
                  ValueBranches(places, "_files; return",
                                [](const std::vector<std::string>& values) {
                                  return absl::StrCat("compadd ", absl::StrJoin(values, " "), "; return");
                                }),
                  "  esac\n  if [[ ${words[CURRENT]} == -* ]]; then\n    case $place in\n");
  const auto found = [](const std::vector<std::string>& all) {
    return all.empty() ? "" : absl::StrCat("found=(", absl::StrJoin(all, " "), ")");
  };
  absl::StrAppend(&script, PlaceBranches(places, "      ", [&](const Place& place) {
    std::vector<std::string> all;
    for (const Option& option : place.options) {
      for (const std::string& name : option.names) all.push_back(Described(name, option.meaning));
    }
    return found(all);
  }));
  absl::StrAppend(&script, "    esac\n    _describe -o option found\n    return\n  fi\n  case $place in\n");
  absl::StrAppend(&script, PlaceBranches(places, "    ", [&](const Place& place) {
    std::vector<std::string> all;
    for (const Word& command : place.commands) all.push_back(Described(command.text, command.meaning));
    for (const std::string& value : place.values) all.push_back(Quoted(value));
    return found(all);
  }));
  absl::StrAppend(
      &script,
      "  esac\n"
      "  if (( $#found )); then _describe command found; else _files; fi\n"
      "}\n"
      "if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then _slackline; else compdef _slackline slackline; fi\n");
  return script;
}

std::string Fish(const std::vector<Place>& places) {
  std::vector<std::string> paths;
  for (size_t i = 1; i < places.size(); ++i) paths.push_back(FishQuoted(places[i].path));
  std::string script = absl::StrCat(
      "# Completes `slackline` in fish; made by `slackline completion fish`.\n"
      "function __slackline_at\n"
      "  set -l place slackline\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$place $word\"\n"
      "      case ",
      absl::StrJoin(paths, " "),
      "\n        set place \"$place $word\"\n    end\n  end\n  test \"$place\" = \"$argv\"\nend\n");
  for (const Place& place : places) {
    const std::string head = absl::StrCat("complete -c slackline -n ", FishQuoted("__slackline_at " + place.path));
    for (const Word& command : place.commands) {
      absl::StrAppend(&script, head, " -f -a ", FishQuoted(command.text), " -d ", FishQuoted(command.meaning), "\n");
    }
    if (!place.values.empty()) {
      absl::StrAppend(&script, head, " -f -a ", FishQuoted(absl::StrJoin(place.values, " ")), "\n");
    }
    for (const Option& option : place.options) {
      std::string names;
      for (const std::string& name : option.names) {
        absl::StrAppend(&names, name[1] == '-' ? " -l " + name.substr(2) : " -s " + name.substr(1));
      }
      absl::StrAppend(&script, head, names, " -d ", FishQuoted(option.meaning));
      if (!option.values.empty()) {
        absl::StrAppend(&script, " -x -a ", FishQuoted(absl::StrJoin(option.values, " ")));
      } else if (option.takes_value) {
        absl::StrAppend(&script, " -r");
      }
      absl::StrAppend(&script, "\n");
    }
  }
  return script;
}

}  // namespace

std::string CompletionScript(const CLI::App& app, absl::string_view shell) {
  std::vector<Place> places;
  AddPlaces(app, "slackline", places);
  if (shell == "zsh") return Zsh(places);
  return shell == "fish" ? Fish(places) : Bash(places);
}

}  // namespace slackline::cli::help
