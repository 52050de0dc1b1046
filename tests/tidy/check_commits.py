#!/usr/bin/env python3
"""usage: check_commits.py ROOT [BASE]

Each commit since BASE has a body with a sentence that says why; merges need none. Skipped (77) where there is no history: in an
archive, in a shallow clone, or without git.
"""

import re
import shutil
import subprocess
import sys

# Older commits are as they are.
BASE = "016a83205396980c22f38c5637abceee36530f0b"
TRAILER = re.compile(r"^[A-Z][\w-]*-by: .*$", re.MULTILINE)
# Three words, and an end.
SENTENCE = re.compile(r"\w+\W+\w+\W+\w+.*[.!?]", re.DOTALL)


def git(root, *arguments):
    """Returns the output, or None if git fails."""
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, errors="replace", check=False)
    return done.stdout if done.returncode == 0 else None


def no_history(root, base):
    """Returns the reason why commits cannot be checked, or an empty text."""
    if shutil.which("git") is None:
        return "found no git"
    top = git(root, "rev-parse", "--show-prefix")
    if top is None or top.strip():
        return "this tree is no repository of git"
    if git(root, "rev-parse", "--is-shallow-repository").strip() == "true":
        return "the clone is shallow"
    if git(root, "merge-base", "--is-ancestor", base, "HEAD") is None:
        return f"the history has no commit {base[:12]}"
    return ""


def without_reason(log):
    """(hash, title) of each commit whose body has no sentence. The log has NUL between fields and commits."""
    fields = log.split("\0")
    for commit, title, body in zip(fields[0::3], fields[1::3], fields[2::3]):
        if not SENTENCE.search(TRAILER.sub("", body)):
            yield commit.strip(), title


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    root, base = sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else BASE
    if reason := no_history(root, base):
        print(f"SKIP: {reason}")
        return 77
    problems = list(without_reason(git(root, "log", "--no-merges", "--format=%h%x00%s%x00%b%x00", f"{base}..HEAD")))
    for commit, title in problems:
        print(f"{commit} '{title}' has no body; needed is a sentence that says why")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
