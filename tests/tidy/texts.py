"""What may not stand in the text of any file, and how long a file may be."""

import re

from layers import matches
from tree import Problem

LINES_MAX = 600
# Files that may be longer, and how long. A new entry needs a reason.
# The simulated network is read as one story, next to the invariants that it checks.
LONGER = {"tests/sim/cluster_sim.cc": 700}

CODE = (".h", ".cc", ".py", ".proto", ".sh", ".cmake", "CMakeLists.txt")

# Folders of one machine. Written in two parts, so that this file keeps its own rule.
MACHINE_PATH = re.compile(r"(?<![\w.}$*-])/(?:wor" + r"k|roo" + r"t|hom" + r"e/\w+)/")
# Files tell no host but the licence, YAML's tag, SVG's namespace and examples: where packages come from is the user's
# own setting. Kubernetes names kinds and resources like hosts.
HOST = re.compile(r"\bhttps?://([\w.-]+)|(?<![\w@/])((?:[a-z0-9-]+\.)+(?:org|com))\b(?!\()")
HOSTS_ALLOWED = re.compile(r"^(www\.apache\.org|www\.w3\.org|yaml\.org|localhost|127\.0\.0\.1|(\w+\.)*example\.(org|com)|"
                           r"monitoring\.coreos\.com|trainer\.kubeflow\.org|nvidia\.com)$")
# The environment is no API.
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\s*\(|\benviron\b")
# The first two read what SLURM sets, the third what `slackline launch` does; cli/run/script.cc looks an interpreter up in $PATH, and cli/run/seat.cc which GPUs are seen; cli/service/service_folder.cc where the user's settings are ($HOME), and cli/commands/service.cc hands all of it to a job; the commands of a wheel put their environment into $PATH; cli/base/sibling.cc reads where the loader looks; python/backend/wheels.py reads SOURCE_DATE_EPOCH; the last hands the sanitizers' settings on to a process that a test starts.
ENVIRONMENT_ALLOWED = ["cli/slurm/allocation\\.cc", "python/slackline_plan/kinds\\.py", "python/slackline/_launched\\.py", "cli/run/(script|seat)\\.cc", "cli/service/service_folder\\.cc", "cli/commands/service\\.cc", "python/slackline_command\\.py", "cli/base/sibling\\.cc", "python/backend/wheels\\.py", "tests/.*\\.py", "bench/.*\\.py", "scripts/.*", "tests/exchange/peer\\.cc"]
# Tests wait for events, with a deadline; programs wait on conditions that something can break.
SLEEP = re.compile(r"\bsleep_(?:for|until)\b|\bSleepFor\b|\bu?sleep\s*\(|\bnanosleep\b|\btime\.sleep\b")
# Looks at processes from outside, again and again until a deadline, in one function.
SLEEP_ALLOWED = ["tests/tidy/.*", "tests/e2e/slackline_run\\.py"]


# A comment names its subject first. Words that put it off:
PUTS_OFF = frozenset("""as at behind beside besides between beyond both by for from in it its neither never nobody none not nothing of on one out
    so such that them there these they those to what whatever where whenever wherever which who whoever whom whose with without""".split())
PUTS_OFF_SHARE_MAX = 0.02
COMMENT_LINE, COMMENT_BEHIND = re.compile(r"\s*//+\s?(.*)$"), re.compile(r"[;{},)]\s*//+\s?(.*)$")


def _search(tree, pattern, endings, message, allowed=()):
    for path, text in tree.files(*endings):
        if matches(path, allowed):
            continue
        for match in pattern.finditer(text):
            yield Problem(path, text.count("\n", 0, match.start()) + 1, f"found '{match.group(0).strip()}': {message}")


def check_machine_paths(tree):
    yield from _search(tree, MACHINE_PATH, (), "a path of one machine")


def check_hosts(tree):
    for path, text in tree.files():
        for match in HOST.finditer(text):
            host = match.group(1) or match.group(2)
            if not HOSTS_ALLOWED.match(host):
                yield Problem(path, text.count("\n", 0, match.start()) + 1, f"names the host {host}")


def comments_of(text):
    """(line, text) of each comment: of lines that follow one another only the first, whose first word counts."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        whole = COMMENT_LINE.match(line)
        found = whole or COMMENT_BEHIND.search(line)
        if found and found.group(1).strip() and not (whole and inside):
            yield number, found.group(1)
        inside = bool(whole and whole.group(1).strip())


def check_comments(tree):
    """At most one in fifty comments of headers and protos begins with a word that puts its subject off."""
    found, vague = 0, []
    for path, text in tree.files(".h", ".proto"):
        for number, comment in comments_of(text):
            words = re.findall(r"[a-z']+", comment.lower())[:2]
            found += 1
            if words and (words[0] in PUTS_OFF or words == ["the", "same"]):
                vague.append(Problem(path, number, f"the comment '{comment[:40]}' does not begin with its subject"))
    if len(vague) > PUTS_OFF_SHARE_MAX * found:
        yield from vague


def check_environment(tree):
    yield from _search(tree, ENVIRONMENT, (".h", ".cc", ".py"), "settings belong in the job file or in flags",
                       ENVIRONMENT_ALLOWED)


def check_sleeps(tree):
    yield from _search(tree, SLEEP, (".h", ".cc", ".py"), "wait for an event, with a deadline", SLEEP_ALLOWED)


def check_length(tree):
    for path, text in tree.files(*CODE):
        lines, lines_max = text.count("\n"), LONGER.get(path, LINES_MAX)
        if lines > lines_max:
            yield Problem(path, lines_max, f"has {lines} lines; allowed are {lines_max}")


def check(tree):
    for one in (check_machine_paths, check_hosts, check_environment, check_sleeps, check_comments, check_length):
        yield from one(tree)
