"""What a tutorial asks its reader to type, and what it says about the output.

A page is Markdown. Fenced blocks of `bash` or `sh` are commands, and a fenced `text` block is the output of the commands above it.
HTML comments above a block tell the test what a reader does not need:

    <!-- stable: PHRASE | PHRASE -->   above output: these parts of its lines occur in each run (`all`: every line does)
    <!-- not run: REASON -->           above commands: a test cannot run them
    <!-- first: COMMAND -->            above commands: the test runs this before them, in place of what it left out
    <!-- terminal: NAME -->            above commands: they keep running, in a terminal of their own
    <!-- after: NAME -->               above commands: they wait until the commands in that terminal have ended well
    <!-- needs: program|module NAME --> and <!-- needs: package --> anywhere: without it the page is skipped

A page that breaks these rules is refused, so that no block is left out without a reason.
"""

import dataclasses
import re

COMMANDS, OUTPUT = ("bash", "sh"), "text"
# Other languages show a file's content. These would be commands that nobody runs.
REFUSED = ("", "shell", "console", "shell-session", "zsh")
FENCE = re.compile(r"^( *)(```+|~~~+)\s*([\w-]*)\s*$")
COMMENT = re.compile(r"^<!--\s*([a-z ]+?):\s*(.+?)\s*-->$")
BEFORE_COMMANDS, BEFORE_OUTPUT = {"not run", "first", "terminal", "after"}, {"stable"}
NEEDS = re.compile(r"package|(?:program|module) [\w.-]+")
REASON_WORDS_MIN = 3


class PageError(Exception):
    """The page and the line that break a rule, and the rule."""


@dataclasses.dataclass
class Step:
    """One block of commands."""

    line: int
    commands: str
    skipped: str = ""
    first: list = dataclasses.field(default_factory=list)
    terminal: str = ""
    after: str = ""
    stable: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Page:
    steps: list
    needs: list


def squeeze(text):
    """Columns of a table differ in width between runs."""
    return " ".join(text.split())


class _Reader:
    def __init__(self, name, text):
        self.name, self.lines, self.at = name, text.splitlines(), 0
        self.page, self.pending, self.shown = Page([], []), [], None

    def refuse(self, message, line=None):
        raise PageError(f"{self.name}:{line or self.at}: {message}")

    def read(self):
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            fence = FENCE.match(line)
            if fence:
                self.block(*fence.groups())
            elif line.lstrip().startswith(("```", "~~~")):
                self.refuse("found a fence with more than a language")
            elif line.startswith("<!--"):
                self.comment(line)
            elif line.strip() and self.pending:
                self.refuse(f"the comment '{self.pending[-1][0]}' stands above no block")
        if self.pending:
            self.refuse(f"the comment '{self.pending[-1][0]}' stands above no block")
        self.check_terminals()
        return self.page

    def comment(self, line):
        found = COMMENT.match(line)
        key, value = found.groups() if found else ("", "")
        if key == "needs" and NEEDS.fullmatch(value):
            self.page.needs.append(value)
        elif key in BEFORE_COMMANDS | BEFORE_OUTPUT:
            self.pending.append((key, value))
        else:
            self.refuse(f"found the comment {line}; tests/start/page.py lists those that are allowed")

    def block(self, indent, fence, language):
        begin, content = self.at, []
        while self.at < len(self.lines) and self.lines[self.at].strip() != fence:
            content.append(self.lines[self.at])
            self.at += 1
        self.at += 1
        notes, self.pending = self.pending, []
        if language in REFUSED:
            self.refuse(f"a block of '{language}'; commands are {' or '.join(COMMANDS)}, output is {OUTPUT}", begin)
        if indent and language in (*COMMANDS, OUTPUT):
            self.refuse("commands and output stand at the margin, outside of lists", begin)
        if language in COMMANDS:
            self.commands(begin, notes, content)
        elif language == OUTPUT:
            self.output(begin, notes, content)
        elif notes:
            self.refuse(f"the comment '{notes[-1][0]}' stands above a block of {language}", begin)

    def commands(self, begin, notes, content):
        step = Step(begin, "\n".join(content) + "\n")
        for key, value in notes:
            if key == "first":
                step.first.append(value)
            elif key == "not run":
                step.skipped = value
                if len(value.split()) < REASON_WORDS_MIN:
                    self.refuse(f"'not run: {value}' gives no reason", begin)
            elif key in BEFORE_COMMANDS:
                setattr(step, key, value)
            else:
                self.refuse(f"the comment '{key}' stands above commands", begin)
        if step.skipped and len(notes) > 1:
            self.refuse("commands that are not run have no other comment", begin)
        self.page.steps.append(step)
        self.shown = step

    def output(self, begin, notes, content):
        step, self.shown = self.shown, None
        if step is None:
            self.refuse("output without commands above it", begin)
        if any(key not in BEFORE_OUTPUT for key, _ in notes):
            self.refuse("only 'stable' stands above output", begin)
        for _, value in notes:
            step.stable += [line for line in content if line.strip()] if value == "all" else value.split(" | ")
        if not step.stable and not step.skipped:
            self.refuse("output without a stable line, so that no test compares it", begin)
        if step.skipped and step.stable:
            self.refuse("output of commands that are not run cannot be stable", begin)
        step.stable = [squeeze(phrase) for phrase in step.stable]
        lines = [squeeze(line) for line in content]
        for phrase in step.stable:
            if not any(phrase in line for line in lines):
                self.refuse(f"'{phrase}' is called stable, but is not in this output", begin)

    def check_terminals(self):
        begun = set()
        for step in self.page.steps:
            if step.after and step.after not in begun:
                self.refuse(f"waits for the terminal '{step.after}', which has not begun", step.line)
            if step.terminal in begun:
                self.refuse(f"the terminal '{step.terminal}' begins twice", step.line)
            if step.terminal:
                begun.add(step.terminal)


def read(name, text):
    """The Page in `text`. Raises PageError with `name` and a line."""
    return _Reader(name, text).read()
