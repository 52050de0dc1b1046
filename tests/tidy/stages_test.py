#!/usr/bin/env python3
"""usage: stages_test.py ROOT: ./test --all hides the outside tools from its first stage, and then runs what that has not run.

./test runs in a small tree with tests of its own, and with a scripts/setup that installs nothing.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import unittest

from scratch_tree import ScratchTree

ROOT = pathlib.Path()
TOOL = ".cache/outside/bin/tool"

# name: (label, what it does in bash)
TESTS = {
    "plain": ("core", "true"),
    "makes": ("e2e", "true"),
    "uses": ("long", "true"),
    "checks": ("tidy", f"[[ -e {TOOL} ]] || {{ echo 'SKIP: no tool'; exit 77; }}"),
    "lacks": ("tidy", "echo 'SKIP: no GPU'; exit 77"),
    "in_part": ("tidy", f"""[[ -e {TOOL} ]] || echo "test_it (a.B.test_it) ... skipped 'no tool; ./test --all installs it'" """),
    "promises": ("accuracy", "true"),
}

PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(small NONE)
enable_testing()
add_custom_target(benches)
add_custom_target(ledger-worker)
""" + "".join(f"""
add_test(NAME {name} COMMAND bash tests/{name} WORKING_DIRECTORY ${{PROJECT_SOURCE_DIR}})
set_tests_properties({name} PROPERTIES LABELS {label} SKIP_RETURN_CODE 77)
""" for name, (label, _) in TESTS.items())

ROOM = """
foreach(program slackline slackline-scheduler slackline-ps slackline-worker)
  add_custom_target(${program})
endforeach()
add_subdirectory(tests/small)
"""
ROOM_TESTS = """
foreach(name near far)
  add_test(NAME ${name} COMMAND bash -c "echo ${name} >>${PROJECT_SOURCE_DIR}/ran")
endforeach()
set_tests_properties(far PROPERTIES LABELS long)
"""

NOT_LONG = {"exclude": {"label": "^(long|accuracy)$"}}
PRESETS = {
    "version": 6,
    "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"}],
    "buildPresets": [{"name": "release", "configurePreset": "release"}],
    "testPresets": [{"name": "release", "configurePreset": "release", "filter": NOT_LONG},
                    {"name": "long", "configurePreset": "release"}],
}

SETUP = f"""#!/usr/bin/env bash
echo "setup $*" >>ran
[[ $* != "--for all" ]] || {{ mkdir -p .cache/outside/bin && touch {TOOL}; }}
"""


class Stages(ScratchTree):
    def setUp(self):
        super().setUp()
        for name in ("test", "scripts/lib.sh", "scripts/outside.sh", "scripts/stages.sh", "scripts/summarise_tests"):
            self.write(name, (ROOT / name).read_text())
        self.write("scripts/setup", SETUP)
        self.write("scripts/packages-all.txt", "")
        for name, (_, body) in TESTS.items():
            self.write(f"tests/{name}", f"echo {name} >>ran\n{body}\n")
        self.write("CMakeLists.txt", PROJECT)
        self.write("CMakePresets.json", json.dumps(PRESETS))
        self.write(".cache/venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')

    def run_stages(self, *options):
        done = subprocess.run(["./test", *options], cwd=self.tree, capture_output=True, text=True, timeout=100, check=False,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def ran(self):
        return (self.tree / "ran").read_text().splitlines()

    def test_what_release_has_run_does_not_run_again(self):
        self.write(TOOL, "")
        said = self.run_stages("--all", "--stage", "release", "--stage", "long")
        ran = self.ran()
        middle = ran.index("setup --for all")
        self.assertEqual(ran[0], "setup --for test")
        self.assertEqual(sorted(ran[1:middle]), ["checks", "in_part", "lacks", "makes", "plain"])
        self.assertEqual(sorted(ran[middle + 1:]), ["checks", "in_part", "lacks", "promises", "uses"])
        self.assertEqual(said.splitlines()[-1], "6 passed, 0 failed, 1 skipped")
        self.assertIn("skipped  release: lacks: no GPU", said)
        self.assertNotIn("no tool", said[said.index("Times "):])

    def test_outside_tools_come_back(self):
        self.write(TOOL, "")
        said = self.run_stages("--all", "--stage", "release")
        self.assertIn("skipped  release: checks: no tool", said)
        self.assertTrue((self.tree / TOOL).exists())

    def test_without_all_they_are_used(self):
        self.write(TOOL, "")
        self.assertEqual(self.run_stages("--stage", "release").splitlines()[-1], "4 passed, 0 failed, 1 skipped")

    def test_a_room_runs_its_own_tests_but_the_long_ones(self):
        self.write("CMakeLists.txt", PROJECT + ROOM)
        self.write("tests/small/CMakeLists.txt", ROOM_TESTS)
        said = self.run_stages("--room", "small")
        self.assertEqual(self.ran(), ["setup --for test", "near"])
        self.assertEqual(said.splitlines()[-1], "1 passed, 0 failed, 0 skipped")

    def test_a_room_that_is_not_there_is_refused(self):
        self.write("tests/small/CMakeLists.txt", ROOM_TESTS)
        done = subprocess.run(["./test", "--room", "large"], cwd=self.tree, capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual((done.returncode, done.stderr), (2, "./test: --room 'large'; allowed are small\n"))

    def test_the_workflow_runs_all_stages(self):
        done = subprocess.run(["./test", "--stage", "none"], cwd=self.tree, capture_output=True, text=True, timeout=100, check=False)
        stages = done.stderr.strip().removeprefix("./test: --stage 'none'; allowed are ")
        self.assertIn(f"stage: [{stages}]\n", (ROOT / ".github/workflows/test.yml").read_text())

    def test_long_alone_runs_all(self):
        said = self.run_stages("--stage", "long")
        self.assertEqual(sorted(self.ran()[2:]), ["checks", "in_part", "lacks", "makes", "plain", "promises", "uses"])
        self.assertEqual(said.splitlines()[-1], "6 passed, 0 failed, 1 skipped")


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
    if not all(map(shutil.which, ("cmake", "ninja", "setsid"))):
        print("SKIP: found no cmake, ninja or setsid")
        sys.exit(77)
    unittest.main(verbosity=2)
