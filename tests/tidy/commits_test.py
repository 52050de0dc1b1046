#!/usr/bin/env python3
"""check_commits.py finds commits whose body says nothing, and skips where there is no history."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).with_name("check_commits.py")
IDENTITY = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "A Tester"), ("EMAIL", "tester@example.org"))}


class Commits(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="slackline-commits-")
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name) / "tree"
        self.tree.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")
        self.base = self.commit("an old title alone")

    def git(self, *arguments):
        done = subprocess.run(["git", *arguments], cwd=self.tree, capture_output=True, text=True, timeout=60, check=True,
                              env={**os.environ, **IDENTITY})
        return done.stdout.strip()

    def commit(self, message):
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.git("rev-parse", "HEAD")

    def check(self, root=None, base=None):
        done = subprocess.run([sys.executable, CHECK, root or self.tree, base or self.base], capture_output=True, text=True,
                              timeout=60, check=False)
        return done.returncode, done.stdout

    def test_commits_that_say_why_pass(self):
        self.commit("ps: count pushes\n\nNobody saw how many there were.")
        self.git("checkout", "--quiet", "-b", "other", "HEAD~")
        self.commit("docs: a page\n\nReaders looked for it in vain. It is short.\n\nSigned-off-by: A Tester <tester@example.org>")
        self.git("merge", "--quiet", "--no-ff", "--message", "Merge main", "main")
        self.assertEqual(self.check(), (0, ""))

    def test_a_commit_without_a_reason_is_named(self):
        for body in ("", "\n\nfixed", "\n\nSigned-off-by: A Tester <tester@example.org>"):
            self.git("reset", "--quiet", "--hard", self.base)
            commit = self.commit("ps: count pushes" + body)
            self.commit("docs: a page\n\nReaders looked for it in vain.")
            code, said = self.check()
            self.assertEqual(code, 1)
            self.assertEqual(said.splitlines(), [f"{commit[:7]} 'ps: count pushes' has no body; needed is a sentence that says why"])

    def test_no_history_is_a_skip(self):
        self.commit("ps: count pushes")
        shallow = self.tree.parent / "shallow"
        self.git("clone", "--quiet", "--depth=1", f"file://{self.tree}", str(shallow))
        archive = self.tree.parent / "archive"
        archive.mkdir()
        self.assertEqual(self.check(shallow), (77, "SKIP: the clone is shallow\n"))
        self.assertEqual(self.check(archive), (77, "SKIP: this tree is no repository of git\n"))
        self.assertEqual(self.check(base="0" * 40), (77, "SKIP: the history has no commit 000000000000\n"))

    def test_an_archive_inside_another_repository_is_a_skip(self):
        inside = self.tree / "archive"
        inside.mkdir()
        self.assertEqual(self.check(inside)[0], 77)


if __name__ == "__main__":
    if shutil.which("git") is None:
        print("SKIP: found no git")
        sys.exit(77)
    unittest.main(verbosity=2)
