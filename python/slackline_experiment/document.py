"""YAML with line numbers: what the experiment file is read from.

Scalars are read as YAML 1.2 does, as the job file is: `1e-3` is a number, and `on` is text.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, Optional

import yaml


class Wrong(Exception):
    """A wrong use, told to the user as it stands; ends the command with exit code 2."""


@dataclass
class Mistakes:
    """What is wrong with one file. Every mistake says its line, what was found and what is allowed."""

    file: str
    found: list[str] = field(default_factory=list)

    def add(self, node: yaml.Node, text: str) -> None:
        self.found.append(f"{self.file}:{node.start_mark.line + 1}: {text}")

    def raise_if_any(self) -> None:
        if self.found:
            raise Wrong("\n".join(self.found))


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


for _tag, _pattern, _first in (
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
        ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
        ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789"))):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


def compose(text: str, file: str) -> Optional[yaml.Node]:
    """The root of the document; None for an empty one."""
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise Wrong(f"{file}:{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise Wrong(f"{file}: not YAML: {error}") from error


def value_of(node: yaml.Node) -> Any:
    loader = _Loader("")
    try:
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        raise Wrong(f"line {node.start_mark.line + 1}: not a value: {error.problem}") from error
    finally:
        loader.dispose()


def load(text: str, file: str) -> Any:
    node = compose(text, file)
    return None if node is None else value_of(node)


def flattened(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a job by dotted key."""
    if isinstance(value, dict) and value:
        for name, below in value.items():
            yield from flattened(below, f"{key}.{name}" if key else str(name))
    else:
        yield key, value


def describe(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return f"'{node.value}'"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


def entries(node: yaml.Node, what: str, mistakes: Mistakes) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Key as text, key and value of a mapping; a mistake for anything else and for a repeated key."""
    if not isinstance(node, yaml.MappingNode):
        mistakes.add(node, f"{what}: found {describe(node)}; allowed is a mapping")
        return
    seen: set[str] = set()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            mistakes.add(key, f"{what}: found {describe(key)} as a key; allowed is text")
        elif key.value in seen:
            mistakes.add(key, f"{what}: found the key '{key.value}' twice")
        else:
            seen.add(key.value)
            yield key.value, key, value


def items(node: yaml.Node, what: str, mistakes: Mistakes) -> list[yaml.Node]:
    """The items of a list; a mistake for anything else and for an empty one."""
    if isinstance(node, yaml.SequenceNode) and node.value:
        return list(node.value)
    found = "an empty list" if isinstance(node, yaml.SequenceNode) else describe(node)
    mistakes.add(node, f"{what}: found {found}; allowed is a list with at least one item")
    return []


def as_flow(value: Any) -> str:
    """As `--set KEY=` takes it: text as it stands, lists and mappings as one line of YAML."""
    if isinstance(value, bool) or value is None:
        return "null" if value is None else str(value).lower()
    if isinstance(value, (int, float, str)):
        return str(value)
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=1 << 30, allow_unicode=True)
    return text.strip()


def as_text(value: Any) -> str:
    """A value as tables and legends show it."""
    return f"{value:g}" if isinstance(value, float) else as_flow(value)


def overrides_of(sets: Mapping[str, Any]) -> list[str]:
    words = []
    for key, value in sets.items():
        words += ["--set", f"{key}={as_flow(value)}"]
    return words
