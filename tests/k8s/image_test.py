#!/usr/bin/env python3
"""usage: image_test.py --programs FOLDER [TEST...]: what can be said of k8s/Dockerfile without a container engine."""

import argparse
import fnmatch
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from render import ROOT, skip

try:
    from dockerfile_parse import DockerfileParser
except ImportError:
    skip("there is no dockerfile_parse")

NAMES = ("slackline", "slackline-scheduler", "slackline-ps", "slackline-worker", "slackline-simulator")
# Part of every Debian.
ESSENTIAL = {"libc6", "libgcc-s1", "libstdc++6", "zlib1g"}


def instructions():
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "k8s" / "Dockerfile", pathlib.Path(folder) / "Dockerfile")
        return [(part["instruction"], part["value"]) for part in DockerfileParser(folder).structure
                if part["instruction"] != "COMMENT"]


def stages():
    """Instructions by stage; those before the first are of stage ''."""
    result, stage = {"": []}, ""
    for name, value in instructions():
        if name == "FROM":
            stage = value.split()[-1]
            result[stage] = []
        result[stage].append((name, value))
    return result


def runtime_packages():
    lines = (ROOT / "k8s" / "image" / "runtime-packages.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def ignored(path):
    """As .dockerignore has it: the last pattern that fits decides, and a folder that is let in lets in what is in it."""
    out = False
    for pattern in (ROOT / ".dockerignore").read_text().splitlines():
        if not pattern or pattern.startswith("#"):
            continue
        keep = pattern.startswith("!")
        name = pattern.lstrip("!")
        parents = [str(part) for part in [path, *pathlib.PurePath(path).parents]]
        if any(fnmatch.fnmatchcase(part, name) for part in parents if part != "."):
            out = not keep
    return out


def libraries(program):
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"^\s*(\S+) => (/\S+) \(", text, re.MULTILINE))


class ImageTest(unittest.TestCase):
    def test_stages_begin_with_a_base_that_can_be_chosen_and_need_no_registry(self):
        parts = stages()
        self.assertEqual(parts[""], [("ARG", "BASE=debian:12-slim")])
        self.assertEqual([parts[stage][0][1] for stage in ("builder", "runtime")], ["${BASE} AS builder", "${BASE} AS runtime"])

    def test_it_runs_as_nobody_in_particular_and_without_a_shell(self):
        runtime = stages()["runtime"]
        values = dict(runtime)
        self.assertEqual(values["USER"], "65532:65532")
        self.assertEqual(values["ENTRYPOINT"], '["slackline"]')
        self.assertTrue(values["CMD"].startswith("["))
        # What is installed or changed is so before, as root.
        self.assertNotIn("RUN", [name for name, _ in runtime[[name for name, _ in runtime].index("USER"):]])

    def test_each_list_of_packages_is_removed_where_it_was_fetched(self):
        for name, value in stages()["runtime"]:
            if name == "RUN" and "apt-get update" in value:
                self.assertIn("--no-install-recommends", value)
                self.assertIn("rm -rf /var/lib/apt/lists/*", value)

    def test_what_is_copied_is_there_and_is_not_ignored(self):
        for stage in ("builder", "runtime"):
            for name, value in stages()[stage]:
                self.assertNotEqual(name, "ADD")
                if name != "COPY" or "--from=" in value:
                    continue
                for source in value.split()[:-1]:
                    self.assertTrue((ROOT / source).exists(), source)
                    if source != ".":
                        self.assertFalse(ignored(source), source)

    def test_the_build_sees_what_it_needs_and_no_more(self):
        folders = re.findall(r"^add_subdirectory\((\w+)\)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE)
        self.assertIn("worker", folders)
        for path in [*folders, "CMakeLists.txt", "CMakePresets.json", "cmake/flags.cmake", "scripts/setup", "scripts/packages.txt",
                     "worker/CMakeLists.txt", "docs/resume.md", "LICENSE", "k8s/image/slackline-pod"]:
            self.assertTrue((ROOT / path).exists(), path)
            self.assertFalse(ignored(path), path)
        for path in (".git", ".cache", "build", "docs", "runs", "k8s/base/job.yaml", "credentials"):
            self.assertTrue(ignored(path), path)

    def test_all_programs_are_built_and_are_where_the_pods_look_for_them(self):
        builder = " ".join(value for _, value in stages()["builder"])
        runtime = " ".join(value for _, value in stages()["runtime"])
        self.assertIn("--target slackline_programs", builder)
        self.assertIn("for component in programs torch;", builder)
        self.assertIn("for program in /opt/slackline/bin/*; do ln -s \"$program\" /usr/local/bin/", runtime)
        self.assertIn("k8s/image/slackline-pod /usr/local/bin/", runtime)

    def test_the_runtime_has_the_packages_that_the_programs_need_and_no_others(self):
        if not shutil.which("dpkg-query") or "bookworm" not in pathlib.Path("/etc/os-release").read_text():
            self.skipTest("only Debian 12 knows which of its packages have these libraries")
        found = {}
        for program in NAMES:
            found.update(libraries(f"{PROGRAMS}/{program}"))
        found = {library: path for library, path in found.items() if "/lib/slackline/" not in path}
        self.assertEqual([path for path in found.values() if "/.cache/" in path], [])
        # The linker says /lib, dpkg may know /usr/lib.
        places = {library: {path, str(pathlib.Path(path).resolve()), path.removeprefix("/usr"), f"/usr{path}"}
                  for library, path in found.items()}
        lines = subprocess.run(["dpkg-query", "-S", *sorted(set().union(*places.values()))], capture_output=True, text=True,
                               check=False).stdout.splitlines()
        owners = {line.split(": ")[1]: line.split(":")[0] for line in lines}
        self.assertEqual([library for library in found if not places[library] & set(owners)], [])
        needed = set(owners.values())
        self.assertEqual(sorted(needed - ESSENTIAL), sorted(set(runtime_packages()) - ESSENTIAL - {"dataset-fashion-mnist", "ca-certificates"}))
        self.assertLessEqual(ESSENTIAL & set(runtime_packages()), needed)

    def test_the_list_of_packages_is_read_as_apt_would_get_it(self):
        run = next(value for name, value in stages()["runtime"] if name == "RUN" and "sed" in value)
        expression = re.search(r"sed (-e '.*?' -e '.*?') ", run).group(1)
        read = subprocess.run(["sh", "-c", f"sed {expression} {ROOT}/k8s/image/runtime-packages.txt"], capture_output=True, text=True,
                              check=True).stdout.split()
        self.assertEqual(read, runtime_packages())

    def test_what_is_installed_there_starts_with_the_libraries_of_debian(self):
        with tempfile.TemporaryDirectory() as folder:
            for component in ("programs", "torch"):
                subprocess.run(["cmake", "--install", PROGRAMS.parent, "--prefix", folder, "--component", component], check=True,
                               stdout=subprocess.DEVNULL)
            installed = {path.name for path in pathlib.Path(folder, "lib/slackline").iterdir()}
            wanted = {name for name, path in libraries(f"{PROGRAMS}/slackline-worker").items() if "/lib/slackline/" in path}
            self.assertEqual(installed, wanted)
            self.assertIn("libtorch_cpu.so", installed)
            for program in NAMES:
                start = subprocess.run([f"{folder}/bin/{program}", "--version"], capture_output=True, text=True, check=False, env={})
                self.assertIn(program, start.stdout, start.stderr)

    def test_scripts_have_no_mistakes_that_shellcheck_knows(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is not installed; ./test --all installs it")
        done = subprocess.run(["shellcheck", ROOT / "k8s/image/slackline-pod"], capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", required=True)
    options, rest = parser.parse_known_args()
    PROGRAMS = pathlib.Path(options.programs).resolve()
    if not (PROGRAMS / "slackline-worker").exists():
        print("SKIP: there is no slackline-worker: it needs LibTorch")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
