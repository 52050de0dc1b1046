#!/usr/bin/env python3
"""usage: summarise_tests_test.py ROOT: the last line of ./test counts right, and the exit code follows it."""

import json
import os
import subprocess
import sys
import tempfile

PASSED = '<testcase name="a" status="run"><system-out>fine</system-out></testcase>'
FAILED = '<testcase name="b" status="fail"><failure message=""/><system-out>no</system-out></testcase>'
SKIPPED = ('<testcase name="c" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
           "<system-out>SKIP: no sbatch here</system-out></testcase>")
NOT_FOUND = '<testcase name="d" status="notrun"><skipped message="Unable to find executable"/></testcase>'
LEAKS = '<testcase name="f" status="fail"><system-out>==7==ERROR: LeakSanitizer: ...</system-out></testcase>'
FAILED_THEN_PASSED = '<testcase name="b" status="run"><system-out>fine</system-out></testcase>'
SKIPPED_THEN_PASSED = '<testcase name="c" status="run"><system-out>fine</system-out></testcase>'
LACKS_A_TOOL = ('<testcase name="g" status="run"><system-out>test_it (a.B.test_it)\nWhat it does. ... skipped '
                "'lint is not installed; ./test --all installs it'</system-out></testcase>")
LACKS_A_RIGHT = ('<testcase name="h" status="run"><system-out>test_it (a.B.test_it) ... skipped "root\'s alone"'
                 "</system-out></testcase>")
SLOW = '<testcase name="i" status="run" time="12.34"><system-out>fine</system-out></testcase>'
CUT_SHORT = '<testcase name="e" status="run"><system-out>'

# (cases of each report, broken stages, expected last line, expected exit code, text that must be there)
CASES = [
    ([[PASSED], [PASSED]], [], "2 passed, 0 failed, 0 skipped", 0, ""),
    ([[PASSED, SLOW]], [], "2 passed, 0 failed, 0 skipped", 0, "Slowest tests:\n    12.3 s  run0: i\n"),
    ([[PASSED, FAILED]], [], "1 passed, 1 failed, 0 skipped", 1, "FAILED   run0: b"),
    ([[PASSED, SKIPPED]], [], "1 passed, 0 failed, 1 skipped", 0, "no sbatch here"),
    ([[NOT_FOUND]], [], "0 passed, 1 failed, 0 skipped", 1, "run0: d"),
    ([[PASSED], [CUT_SHORT]], [], "1 passed, 1 failed, 0 skipped", 1, "run1: ctest's report is no XML"),
    ([[PASSED]], ["cuda: did not build"], "1 passed, 1 failed, 0 skipped", 1, "cuda: did not build"),
]

# (cases of two reports of one stage, expected last line, expected exit code, text that must be there)
CASES_OF_ONE_STAGE = [
    ([PASSED, SKIPPED], [SKIPPED_THEN_PASSED], "2 passed, 0 failed, 0 skipped", 0, ""),
    ([PASSED, SKIPPED], [SKIPPED], "1 passed, 0 failed, 1 skipped", 0, "no sbatch here"),
    ([FAILED, SKIPPED], [SKIPPED_THEN_PASSED], "1 passed, 1 failed, 0 skipped", 1, "FAILED   dev: b"),
    ([PASSED, LACKS_A_TOOL], [LACKS_A_TOOL], "2 passed, 0 failed, 0 skipped", 0, "in part skipped  dev: g, test_it: lint is not"),
    ([PASSED, LACKS_A_RIGHT], [CUT_SHORT], "2 passed, 1 failed, 0 skipped", 1, "in part skipped  dev: h, test_it: root's alone"),
]

# (names that there are, cases of the reports so far, the names that still have to run)
LEFT = [
    ("abc", [], "abc"),
    ("abc", [[PASSED, FAILED]], "c"),
    ("abcdz", [[PASSED, FAILED, SKIPPED, NOT_FOUND]], "cz"),
    ("gh", [[LACKS_A_TOOL, LACKS_A_RIGHT]], "g"),
    ("abc", [[PASSED, SKIPPED], [SKIPPED_THEN_PASSED]], "b"),
    ("ae", [[CUT_SHORT]], "ae"),
]

# (cases of the first run, those of the second, expected last line, expected exit code, text that must be there)
CASES_AGAIN = [
    ([PASSED, FAILED], [FAILED_THEN_PASSED], "2 passed, 0 failed, 0 skipped", 0, "FLAKY    run: b"),
    ([PASSED, FAILED], [FAILED], "1 passed, 1 failed, 0 skipped", 1, "FAILED   run: b"),
    ([PASSED, FAILED], [CUT_SHORT], "0 passed, 1 failed, 0 skipped", 1, "no XML"),
]

# (cases of a run, the names worth a second one)
WORTH = [([PASSED], []), ([PASSED, FAILED, SKIPPED, NOT_FOUND], ["b"]), ([FAILED, LEAKS], []), ([FAILED] * 4, [])]


def write_report(path, cases):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"<testsuite>{''.join(cases)}</testsuite>")


def run_tool(*arguments):
    tool = os.path.join(sys.argv[1], "scripts", "summarise_tests")
    return subprocess.run([sys.executable, tool, *arguments], capture_output=True, text=True, check=False)


def second_runs_are_right(folder):
    first, second = os.path.join(folder, "first.xml"), os.path.join(folder, "second.xml")
    for cases, again, last_line, code, text in CASES_AGAIN:
        write_report(first, cases)
        write_report(second, again)
        done = run_tool(f"run={first}={second}")
        if (done.stdout.splitlines()[-1], done.returncode, text in done.stdout) != (last_line, code, True):
            print(f"wanted {last_line!r}, exit code {code} and {text!r}; found:\n{done.stdout}{done.stderr}")
            return False
    for cases, names in WORTH:
        write_report(first, cases)
        done = run_tool("--try-again", first)
        if done.returncode != 0 or done.stdout.split() != names:
            print(f"worth a second run should be {names}; found:\n{done.stdout}{done.stderr}")
            return False
    return True


def reports_of_one_stage_count_once(folder):
    first, second = os.path.join(folder, "first.xml"), os.path.join(folder, "second.xml")
    for cases, more, last_line, code, text in CASES_OF_ONE_STAGE:
        write_report(first, cases)
        write_report(second, more)
        done = run_tool(f"dev={first}", f"dev={second}")
        if (done.stdout.splitlines()[-1:], done.returncode, text in done.stdout) != ([last_line], code, True):
            print(f"wanted {last_line!r}, exit code {code} and {text!r}; found:\n{done.stdout}{done.stderr}")
            return False
    return True


def what_is_left_is_right(folder):
    listing = os.path.join(folder, "listing.json")
    for names, reports, left in LEFT:
        with open(listing, "w", encoding="utf-8") as file:
            json.dump({"kind": "ctestInfo", "tests": [{"name": name} for name in names]}, file)
        paths = [os.path.join(folder, f"left{number}.xml") for number, _ in enumerate(reports)]
        for path, cases in zip(paths, reports):
            write_report(path, cases)
        done = run_tool("--left", listing, *paths)
        if (done.returncode, done.stdout.split()) != (0, list(left)):
            print(f"of {names} should be left {left}; found:\n{done.stdout}{done.stderr}")
            return False
    return True


def main():
    with tempfile.TemporaryDirectory() as folder:
        for reports, broken, last_line, code, text in CASES:
            command = []
            for problem in broken:
                command += ["--broken", problem]
            for number, cases in enumerate(reports):
                path = os.path.join(folder, f"{number}.xml")
                write_report(path, cases)
                command.append(f"run{number}={path}")
            done = run_tool(*command)
            found = (done.stdout.splitlines()[-1:], done.returncode, text in done.stdout)
            if found != ([last_line], code, True):
                print(f"wanted {last_line!r}, exit code {code} and {text!r}; found:\n{done.stdout}{done.stderr}")
                return 1
        checks = (second_runs_are_right, reports_of_one_stage_count_once, what_is_left_is_right)
        return 0 if all(check(folder) for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
