#!/usr/bin/env python3
"""usage: release_test.py ROOT: scripts/release refuses what is not ready, and makes packages, sums, notes and a tag of what is.

The script runs in a small repository whose packages and wheels come from a stub.
"""

import datetime
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from scratch_tree import ScratchTree

ROOT = pathlib.Path()
TODAY = datetime.datetime.now(datetime.timezone.utc).date().isoformat()

CHANGELOG = f"""# Changelog

## [Unreleased]

## [1.2.0] - {TODAY}

### Added

- Servers count their pushes.

## [1.1.0] - 2020-01-31

- Older.
"""
PACKAGES = """#!/usr/bin/env bash
mkdir -p build/packages
echo archive >build/packages/slackline-1.2.0.tar.gz
echo package >build/packages/slackline_1.2.0.deb
echo sum >build/packages/slackline-1.2.0.tar.gz.sha256
[[ $1 != --wheel ]] || echo wheel >build/packages/slackline-1.2.0.whl
"""
STAGES = "".join(f"== {stage}\n" for stage in ("release", "asan", "tsan", "long", "cuda", "search"))
IDENTITY = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "A Tester"), ("EMAIL", "tester@example.org"))}


class Release(ScratchTree):
    def setUp(self):
        super().setUp()
        for name in ("scripts/release", "scripts/lib.sh"):
            self.write(name, (ROOT / name).read_text())
        self.write("scripts/make_packages", PACKAGES)
        self.write(".gitignore", "/build/\n/.cache\n")
        self.write("CMakeLists.txt", "project(slackline VERSION 1.2.0 LANGUAGES CXX\n")
        self.write("k8s/chart/slackline/Chart.yaml", 'version: 1.2.0\nappVersion: "1.2.0"\n')
        self.write("tests/protos/released/1.2.0.txt", "slackline.wire.Hello.worker 2 uint32\n")
        self.write("CHANGELOG.md", CHANGELOG)
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def git(self, *arguments):
        done = subprocess.run(["git", *arguments], cwd=self.tree, capture_output=True, text=True, timeout=60, check=True,
                              env={**os.environ, **IDENTITY})
        return done.stdout.strip()

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")

    def log(self, *, commit=None, stages=STAGES, end="9 passed, 0 failed, 1 skipped"):
        path = self.tree.parent / "tests.log"
        path.write_text(f"{commit or self.git('rev-parse', 'HEAD')}\n{stages}{end}\n")
        return str(path)

    def release(self, *options):
        return subprocess.run(["scripts/release", *options], cwd=self.tree, capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, **IDENTITY}, stdin=subprocess.DEVNULL)

    def refused(self, why, *options):
        done = self.release(*(options or ("--skip-tests",)))
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(why, done.stderr)
        self.assertFalse((self.tree / "build").exists())
        self.assertEqual(self.git("tag").replace("v1.2.0", ""), "")

    def test_a_release_has_packages_a_wheel_sums_notes_and_a_tag(self):
        done = self.release("--tests", self.log())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        dist = self.tree / "build/dist"
        made = ["slackline-1.2.0.tar.gz", "slackline-1.2.0.whl", "slackline_1.2.0.deb"]
        self.assertEqual(sorted(path.name for path in dist.iterdir()), ["NOTES.md", "SHA256SUMS", *made])
        sums = dict(reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines())
        self.assertEqual(sums, {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in made})
        notes = "### Added\n\n- Servers count their pushes.\n"
        self.assertEqual((dist / "NOTES.md").read_text(), "# Slackline 1.2.0\n\n" + notes)
        self.assertEqual(self.git("cat-file", "-t", "v1.2.0"), "tag")
        self.assertEqual(self.git("tag", "--list", "--format=%(contents)", "v1.2.0"), "Slackline 1.2.0\n\n" + notes.strip())
        self.assertEqual(self.git("rev-parse", "v1.2.0^{}"), self.git("rev-parse", "HEAD"))

    def test_a_release_without_tests_says_so(self):
        done = self.release("--skip-tests")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("The tests are skipped", done.stdout)
        self.assertIn("without the tests", self.git("tag", "--list", "--format=%(contents)", "v1.2.0"))

    def test_a_dry_run_shows_the_steps_and_changes_nothing(self):
        done = self.release("--dry-run", "--tests", self.log())
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for step in ("scripts/make_packages", "build/dist/SHA256SUMS", "build/dist/NOTES.md", "tag v1.2.0 on"):
            self.assertIn(step, done.stdout)
        self.assertEqual(self.git("tag"), "")
        self.assertFalse((self.tree / "build").exists())

    def test_a_dry_run_names_everything_that_is_missing(self):
        self.write("new", "")
        self.git("checkout", "--quiet", "-b", "other")
        done = self.release("--dry-run", "--skip-tests")
        self.assertEqual(done.returncode, 1)
        self.assertIn("not ready: the tree has changes: new", done.stderr)
        self.assertIn("not ready: the branch is other; needed is main", done.stderr)
        self.assertIn("tag v1.2.0 on", done.stdout)

    def test_a_changelog_that_is_not_ready_is_refused(self):
        for text, why in ((CHANGELOG.replace(TODAY, "2020-02-01"), f"no line '## [1.2.0] - {TODAY}'"),
                          (CHANGELOG.replace("## [Unreleased]\n", "## [Unreleased]\n\n- More.\n"), "lines under Unreleased: '- More.'"),
                          (CHANGELOG.replace("### Added\n\n- Servers count their pushes.\n", ""), "says nothing about 1.2.0")):
            self.write("CHANGELOG.md", text)
            self.commit()
            self.refused(why)

    def test_a_chart_of_another_version_is_refused(self):
        self.write("k8s/chart/slackline/Chart.yaml", 'appVersion: "1.1.0"\n')
        self.commit()
        self.refused("Chart.yaml has another appVersion than 1.2.0")

    def test_a_release_lists_its_fields(self):
        self.git("mv", "tests/protos/released/1.2.0.txt", "tests/protos/released/1.1.0.txt")
        self.commit()
        self.refused("tests/protos/released has no 1.2.0.txt; make it with scripts/list_fields protos")

    def test_a_tag_is_not_made_twice(self):
        self.git("tag", "v1.2.0")
        self.refused("the tag v1.2.0 exists")

    def test_tests_of_another_commit_or_with_failures_are_refused(self):
        self.refused("found no file", "--tests", "nothing.log")
        self.refused("the first line of", "--tests", self.log(commit="0" * 40))
        self.refused("has no stage asan", "--tests", self.log(stages="== release\n"))
        self.refused("needed is 'N passed, 0 failed, ...'", "--tests", self.log(end="8 passed, 1 failed, 1 skipped"))

    def test_nobody_forgets_the_tests(self):
        for options in ((), ("--dry-run",), ("--tests",), ("--tests", "a", "--skip-tests"), ("--force",)):
            self.assertEqual(self.release(*options).returncode, 2)


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
    if not all(map(shutil.which, ("git", "bash"))):
        print("SKIP: found no git or bash")
        sys.exit(77)
    unittest.main(verbosity=2)
