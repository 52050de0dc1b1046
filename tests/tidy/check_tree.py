#!/usr/bin/env python3
"""usage: check_tree.py ROOT

Checks layers, texts and documents of the source tree at ROOT; prints every problem as FILE:LINE: what. Exit code 1 when
there is one.
"""

import sys

import documents
import layers
import texts
from tree import Tree


def problems_of(tree):
    for room in (layers, texts, documents):
        yield from room.check(tree)


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    tree = Tree.read(sys.argv[1])
    if not any(path.startswith("common/") for path in tree.paths()):
        print(f"{sys.argv[1]} is not the root of the source tree: no common/ in it", file=sys.stderr)
        return 2
    problems = list(problems_of(tree))
    for problem in problems:
        print(problem)
    print(f"{len(tree.paths())} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
