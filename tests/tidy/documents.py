"""Documents name files, tests and calls that exist."""

import re

from tree import Problem

ROOMS = "protos|common|images|ps|worker|scheduler|simulator|cli|python|k8s|slurm|monitoring|tests|bench|docs|examples|scripts|cmake|packaging"
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
# `worker/client/session.h` and `worker/client/session.{h,cc}`; not a pattern such as `tests/<room>/`.
QUOTED = re.compile(r"`((?:" + ROOMS + r")/[\w./{},-]*)`")
# `Suite.Name` of a test, or `Service.Call` of a protocol.
NAMED = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")
TEST = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.MULTILINE)
SERVICE = re.compile(r"^service (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
# The head of a record of a decision.
DECISION = re.compile(r"# (\d+)\. (.+)\n\nDate: (\d{4}-\d\d-\d\d)\. Status: \w+")
CALL = re.compile(r"^\s*rpc (\w+)\(", re.MULTILINE)


def expand(path):
    """a.{h,cc} -> a.h a.cc"""
    braces = re.search(r"\{([^}]*)\}", path)
    if not braces:
        return [path]
    return [path[:braces.start()] + part + path[braces.end():] for part in braces.group(1).split(",")]


def resolve(path, link):
    parts = path.split("/")[:-1]
    for part in link.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in (".", ""):
            parts.append(part)
    return "/".join(parts)


def names_of(tree):
    """Every test and every call, as Suite.Name and Service.Call."""
    names = {f"{suite}.{test}" for _, text in tree.files(".cc") for suite, test in TEST.findall(text)}
    for _, text in tree.files(".proto"):
        for service, body in SERVICE.findall(text):
            names.update(f"{service}.{call}" for call in CALL.findall(body))
    return names


def check_status_fields(tree):
    """docs/status-fields.md has every message and field of protos/status.proto."""
    if "protos/status.proto" not in tree or "docs/status-fields.md" not in tree:
        return
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", tree.text("docs/status-fields.md"), re.M | re.S))
    section = ""
    for number, line in enumerate(tree.text("protos/status.proto").splitlines(), 1):
        message, field = re.match(r"message (\w+)", line), re.match(r"  [\w. ]+ (\w+) = \d+;", line)
        if message:
            section = message.group(1)
        if message and section not in sections or field and f"| `{field.group(1)}` |" not in sections.get(section, ""):
            yield Problem("protos/status.proto", number, f"docs/status-fields.md lacks {(message or field).group(1)} of {section}")


def places_of(text):
    """What links to a document may have behind the #: its headings, as those who show it name them."""
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower() for heading in HEADING.findall(text))
    return {re.sub(r"[^\w -]", "", heading).replace(" ", "-") for heading in plain}


def check_links(tree):
    """Links lead to files and folders of the tree, and to headings of its documents."""
    folders = tree.folders()
    for path, text in tree.files(".md"):
        for match in LINK.finditer(text):
            link, place = match.groups()
            if "://" in link:
                continue
            target = resolve(path, link) if link else path
            line = text.count("\n", 0, match.start()) + 1
            if target is None or (target not in tree and target not in folders):
                yield Problem(path, line, f"links to {link}: no such file")
            elif place and target.endswith(".md") and place not in places_of(tree.text(target)):
                yield Problem(path, line, f"links to {link}#{place}: no such heading")


def check_decisions(tree):
    """Each record says its title, date, status and alternatives, and stands in the list."""
    for path, text in tree.files(".md"):
        folder, _, name = path.rpartition("/")
        if folder != "docs/adr" or not name[:4].isdigit():
            continue
        head = DECISION.match(text)
        if head is None or int(head.group(1)) != int(name[:4]):
            yield Problem(path, 1, f"begins otherwise than '# {int(name[:4])}. TITLE', an empty line, 'Date: YYYY-MM-DD. Status: ...'")
        elif f"| [{name[:4]}]({name}) | {head.group(3)} | {head.group(2)} |\n" not in tree.text("docs/adr/README.md"):
            yield Problem(path, 1, "docs/adr/README.md does not list its number, date and title")
        if "Alternatives" not in text:
            yield Problem(path, 1, "names no alternatives")


def check_help_topics(tree):
    """What a text calls a topic of `slackline help` is one."""
    if "cli/help/topics.cmake" not in tree:
        return
    topics = set(re.findall(r"([a-z-]+)=[a-z-]+\.md", tree.text("cli/help/topics.cmake")))
    for path, text in tree.files(".cc", ".py", ".md"):
        for match in re.finditer(r"slackline help ([a-z-]+)", text):
            if match.group(1) not in topics and path.split("/")[0] not in ("tests", "CHANGELOG.md"):
                yield Problem(path, text.count("\n", 0, match.start()) + 1, f"names the topic {match.group(1)}: cli/help/topics.cmake lacks it")


def check(tree):
    yield from check_help_topics(tree)
    yield from check_status_fields(tree)
    yield from check_decisions(tree)
    yield from check_links(tree)
    folders = tree.folders()
    names = names_of(tree)
    for path, text in tree.files(".md"):
        for match in QUOTED.finditer(text):
            for name in expand(match.group(1)):
                if name not in tree and name.rstrip("/") not in folders:
                    yield Problem(path, text.count("\n", 0, match.start()) + 1, f"names {name}: no such file")
        for match in NAMED.finditer(text):
            if match.group(1) not in names:
                line = text.count("\n", 0, match.start()) + 1
                yield Problem(path, line, f"names {match.group(1)}: no such test or call")
