"""Options of commands in Python, with the form of help that the programs in C++ have (common/text/help.h)."""

import argparse
import textwrap
from typing import Sequence

COLUMNS = 80
# Columns in which the texts of options begin.
COLUMN = 26


def _row(left: str, text: str) -> str:
    indent = " " * COLUMN
    first = f"  {left}"
    if len(first) + 2 > COLUMN:
        return f"{first}\n{textwrap.fill(text, COLUMNS, initial_indent=indent, subsequent_indent=indent)}"
    return textwrap.fill(text, COLUMNS, initial_indent=first.ljust(COLUMN), subsequent_indent=indent)


def _left(action: argparse.Action) -> str:
    if not action.option_strings:
        return str(action.metavar)
    names = ", ".join(action.option_strings)
    return f"{names} {action.metavar}" if action.metavar else names


class CommandParser(argparse.ArgumentParser):
    """A parser whose help begins with an example, and shows its groups in the order in which they were added.

    Args:
        command: For example `slackline plan`.
        about: One sentence.
        example: Command line that a beginner types.
        usage: Arguments behind the command.
        text: Paragraph behind the options.
        examples: Further command lines.
    """

    def __init__(self, command: str, about: str, example: str, usage: str, text: str, examples: Sequence[str]) -> None:
        super().__init__(prog=command, usage=f"{command} {usage}", add_help=False, allow_abbrev=False)
        self._about, self._example, self._text, self._examples = about, example, text, examples
        self._arguments = self.add_argument_group("Arguments")
        self.add_argument("--slackline", help=argparse.SUPPRESS)

    def format_help(self) -> str:
        parts = [textwrap.fill(self._about, COLUMNS), f"Example:\n  {self._example}", f"Usage: {self.usage}"]
        for group in self._action_groups:
            rows = [_row(_left(action), action.help) for action in group._group_actions
                    if action.help and action.help != argparse.SUPPRESS]
            if rows:
                parts.append("\n".join([f"{group.title}:", *rows]))
        parts += [textwrap.fill(self._text, COLUMNS), "\n".join(["More examples:", *(f"  {one}" for one in self._examples)])]
        return "\n\n".join(parts) + "\n"

    def argument(self, *names: str, **settings: object) -> None:
        """Adds a positional argument."""
        self._arguments.add_argument(*names, **settings)  # type: ignore[arg-type]

    def finish(self) -> None:
        """Adds the options that all commands have, behind the others."""
        group = self.add_argument_group("Help")
        # The program that calls us takes it; here for the help.
        group.add_argument("--python", metavar="PROGRAM", help="Python interpreter. Default: that of the build, or python3.")
        group.add_argument("-h", "--help", action="help", help="Show this help and exit.")
