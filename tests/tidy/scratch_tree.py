"""A tree of files for tests of scripts."""

import pathlib
import tempfile
import unittest


class ScratchTree(unittest.TestCase):
    """Gives each test an empty folder, `tree`, which is removed at the end."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="slackline-tree-")
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name) / "tree"

    def write(self, name, text):
        """Writes an executable file."""
        path = self.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
