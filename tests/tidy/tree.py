"""The text files of a source tree, and what can be wrong with them."""

import os
from typing import NamedTuple

# Not ours, or made by tools.
SKIPPED_FOLDERS = {".git", "build", ".cache", "runs", "__pycache__", "node_modules"}


class Problem(NamedTuple):
    path: str
    line: int
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.text}"


class Tree:
    """Paths relative to the root, with '/' between, and their text. Files that are not UTF-8 are left out."""

    def __init__(self, texts):
        self._texts = dict(sorted(texts.items()))

    @classmethod
    def read(cls, root):
        texts = {}
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
            for name in set(names) - SKIPPED_FOLDERS:  # .git is a file in a working tree that is not the first
                path = os.path.join(folder, name)
                try:
                    with open(path, encoding="utf-8") as file:
                        texts[os.path.relpath(path, root).replace(os.sep, "/")] = file.read()
                except (UnicodeDecodeError, OSError):
                    continue
        return cls(texts)

    def __contains__(self, path):
        return path in self._texts

    def text(self, path):
        return self._texts[path]

    def paths(self):
        return list(self._texts)

    def folders(self):
        found = set()
        for path in self._texts:
            while "/" in path:
                path = path.rsplit("/", 1)[0]
                found.add(path)
        return found

    def files(self, *endings):
        """(path, text) of the files whose name ends so; of all files without endings."""
        for path, text in self._texts.items():
            if not endings or path.endswith(endings):
                yield path, text
