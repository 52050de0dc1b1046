#!/usr/bin/env python3
"""usage: outside_test.py ROOT: ./test --all hides programs from its first stages, and nothing else."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = ""
SCRIPT = """
set -euo pipefail
source scripts/lib.sh
source scripts/outside.sh
hide_programs "$1/links" wanted twice absent
echo "${HIDDEN[*]}"
PATH=$HIDING_PATH
for name in wanted twice kept late ls; do
  command -v "$name" || true
done
"""


class HidePrograms(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="slackline-outside-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def make(self, folder, *names):
        (self.folder / folder).mkdir()
        for name in names:
            program = self.folder / folder / name
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
        return str(self.folder / folder)

    def hide(self, *path):
        done = subprocess.run(["bash", "-c", SCRIPT, "-", self.folder], cwd=ROOT, capture_output=True, text=True, check=True,
                              env={"PATH": ":".join([*path, "/usr/bin", "/bin"])})
        hidden, *found = done.stdout.splitlines()
        return hidden.split(), [pathlib.Path(line).relative_to(self.folder).as_posix() if line.startswith(str(self.folder)) else line
                                for line in found]

    def test_hidden_programs_are_not_found_and_their_neighbours_are(self):
        one = self.make("one", "wanted", "twice", "kept")
        two = self.make("two", "twice", "kept", "late")
        hidden, found = self.hide(one, two)
        self.assertEqual(hidden, ["wanted", "twice", "twice"])
        self.assertEqual(found[:2], [f"links{one}/kept", f"links{two}/late"])
        self.assertRegex(found[2], "/bin/ls$")

    def test_a_folder_without_one_stays_as_it_is(self):
        one = self.make("one", "kept")
        hidden, found = self.hide(one)
        self.assertEqual((hidden, found[0]), ([], "one/kept"))
        self.assertFalse((self.folder / "links").exists())

    def test_links_of_an_earlier_call_are_gone(self):
        one = self.make("one", "wanted", "kept")
        self.hide(one)
        (self.folder / "one/kept").unlink()
        self.assertEqual(self.hide(one)[0], ["wanted"])
        self.assertEqual(list((self.folder / f"links{one}").iterdir()), [])


if __name__ == "__main__":
    ROOT = sys.argv.pop(1)
    unittest.main(verbosity=2)
