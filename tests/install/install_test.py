"""What users install: makes the packages of a build, unpacks them elsewhere, and trains with what is in them.

    install_test.py --build BUILD_FOLDER --cpack CPACK --version VERSION [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from floors import is_elf, too_new  # noqa: E402
from loaded import is_glibc, libraries_and_programs, strangers  # noqa: E402
from run_e2e import DATA, SMALL  # noqa: E402
from slackline_run import Programs, TrainRun, processes_with  # noqa: E402

OPTIONS = argparse.Namespace()
PROGRAMS = ("slackline", "slackline-scheduler", "slackline-ps", "slackline-worker", "slackline-simulator")
# Of a training on 6000 images that takes a second or two: long enough to look at its processes.
SETTINGS = ("training.epochs=10", "training.evaluate_every_epochs=0")
PACKING_S = 600
PACKAGES = None


def setUpModule():
    global PACKAGES
    folder = tempfile.TemporaryDirectory(prefix="slackline-packages-")
    unittest.addModuleCleanup(folder.cleanup)
    PACKAGES = pathlib.Path(folder.name)


def package(kind, ending, *definitions):
    """Makes the one package of this kind."""
    folder = PACKAGES / ending
    command = [OPTIONS.cpack, "-G", kind, "-B", str(folder), *definitions]
    packing = subprocess.run(command, cwd=OPTIONS.build, timeout=PACKING_S, capture_output=True, text=True)
    if packing.returncode != 0:
        raise AssertionError(f"cpack failed\n{packing.stdout}\n{packing.stderr}")
    shutil.rmtree(folder / "_CPack_Packages")
    found = sorted(folder.glob("*" + ending))
    if len(found) != 1:
        raise AssertionError(f"found {[path.name for path in folder.iterdir()]}; wanted is one *{ending}")
    return found[0]


class Installed(unittest.TestCase):
    """A tree that somebody has unpacked, and what is tried with it. `bin` leads to the programs, as PATH would."""

    tree = None

    @classmethod
    def unpack(cls, command, folder):
        holder = tempfile.TemporaryDirectory(prefix="slackline-install-")
        cls.addClassCleanup(holder.cleanup)
        cls.holder = pathlib.Path(holder.name)
        target = cls.holder / folder
        target.mkdir(parents=True)
        subprocess.run([*command, str(target)], check=True, timeout=PACKING_S)
        cls.bin = cls.holder / "bin"
        cls.bin.mkdir()
        return target

    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-installed-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)

    def run_program(self, name, *arguments, seconds=120):
        """As somebody without any settings of their own would, through the link."""
        return subprocess.run(["env", "-i", str(self.bin / name), *map(str, arguments)], cwd=self.root,
                              capture_output=True, text=True, timeout=seconds)

    def finish(self, run):
        """The run ends well, and has learned something."""
        self.assertEqual(run.wait(), 0, run.diagnosis())
        accuracy = re.search(r"Test accuracy ([\d.]+) %", run.stdout())
        self.assertIsNotNone(accuracy, run.diagnosis())
        self.assertGreater(float(accuracy.group(1)), 75, run.diagnosis())
        self.assertTrue((run.folder / "model.safetensors").exists())

    def check_training(self, of_the_system=False):
        """Trains, and looks at what all processes of the run have loaded meanwhile."""
        job = self.root / "job.yaml"
        job.write_text(SMALL)
        run_folder = self.root / "run"
        command = ["env", "-i", str(self.bin / "slackline"), "train", str(job), "--run-folder", str(run_folder)]
        for setting in SETTINGS:
            command += ["--set", setting]
        run = TrainRun(Programs(self.bin), self.root, None, command=command)
        self.addCleanup(run.close)
        run.wait_for_training()
        seen, programs = set(), set()
        for pid in processes_with(str(run_folder)):
            paths = libraries_and_programs(pid)
            seen |= paths
            programs |= {pathlib.Path(path).name for path in paths} & set(PROGRAMS)
        self.assertEqual(programs, set(PROGRAMS) - {"slackline-simulator"}, run.diagnosis())
        self.assertEqual(strangers(seen, self.tree, of_the_system), [], "loaded from outside of the installed tree")
        self.assertIn(str(self.tree / "lib/slackline/libtorch_cpu.so"), seen)
        self.finish(run)

    def check_programs(self):
        for name in PROGRAMS:
            with self.subTest(name):
                said = self.run_program(name, "--version")
                self.assertRegex(said.stdout, rf"^{name} {re.escape(OPTIONS.version)} \(", said.stderr)
        script = self.tree / "share/bash-completion/completions/slackline"
        self.assertEqual(script.read_text(), self.run_program("slackline", "completion", "bash").stdout)

    def check_examples(self):
        examples = sorted((self.tree / "share/slackline/examples").glob("*.yaml"))
        self.assertGreater(len(examples), 3)
        for job in examples:
            said = self.run_program("slackline", "check", job)
            self.assertEqual(said.returncode, 0, said.stderr)

    def check_experiment_and_simulator(self):
        experiment = self.tree / "share/slackline/examples/experiments/ssp-bounds.yaml"
        said = self.run_program("slackline", "experiment", experiment, "--dry-run", "--python", sys.executable)
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("All jobs are valid", said.stdout)

    def check_documents(self):
        documents = self.tree / "share/doc/slackline"
        for name in ("README.md", "CHANGELOG.md", "LICENSE", "copyright", "docs/install.md", "docs/job.md", "licences/torch/LICENSE"):
            self.assertTrue((documents / name).is_file(), name)
        self.assertTrue((self.tree / "share/slackline/slurm/slackline.sbatch").is_file())


class Archive(Installed):
    """The archive: everything but glibc, in a folder of any name."""

    @classmethod
    def setUpClass(cls):
        folder = cls.unpack(["tar", "xzf", str(package("TGZ", ".tar.gz")), "-C"], "a folder, with blanks")
        trees = list(folder.iterdir())
        if len(trees) != 1 or OPTIONS.version not in trees[0].name:
            raise AssertionError(f"found {trees} in the archive; wanted is one folder with the version in its name")
        cls.tree = trees[0]
        for name in PROGRAMS:
            (cls.bin / name).symlink_to(cls.tree / "bin" / name)

    def test_trains_with_its_own_libraries(self):
        self.check_training()

    def test_programs_examples_and_documents(self):
        self.check_programs()
        self.check_examples()
        self.check_experiment_and_simulator()
        self.check_documents()

    def test_each_library_comes_with_a_licence(self):
        licences = self.tree / "share/doc/slackline/licences"
        for name in ("libgrpc29", "libprotobuf32", "libssl3", "common-licenses/LGPL-2.1") if shutil.which("dpkg-query") else ():
            self.assertTrue((licences / name).is_file(), f"{name}: {sorted(path.name for path in licences.iterdir())}")

    def test_older_systems_have_all_that_it_asks_for(self):
        files = [path for folder in ("bin", "lib") for path in sorted((self.tree / folder).rglob("*"))
                 if path.is_file() and not path.name.startswith(("libstdc++", "libgcc_s")) and is_elf(path)]
        found, seen = too_new(files)
        self.assertEqual(found, [])
        self.assertGreater(seen, 1000)

    def glibc(self):
        """The machine's own, by what the programs ask for."""
        asked = subprocess.run(["ldd", *(str(self.tree / "bin" / name) for name in PROGRAMS)], capture_output=True,
                               text=True, check=True).stdout
        self.assertNotIn("not found", asked)
        return {path for path in re.findall(r"(/\S*\.so\S*)", asked) if is_glibc(path)}

    def test_trains_where_only_glibc_is_installed(self):
        machine = self.root / "machine"
        for folder in ("proc", "dev", "tmp", "data", "home", "opt", "etc"):
            (machine / folder).mkdir(parents=True)
        (machine / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        for path in self.glibc():
            target = machine / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        (machine / "home/job.yaml").write_text(SMALL)
        try:
            allowed = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], capture_output=True)
        except FileNotFoundError:
            allowed = None
        if allowed is None or allowed.returncode != 0:
            self.skipTest("this machine allows no namespaces of users")
        enter = ('mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && mount --bind "$1" "$0/opt"'
                 ' && mount --bind "$2" "$0/data" && root=$0 && shift 2 && exec env -i "$(command -v chroot)" "$root" "$@"')
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", enter, str(machine), str(self.tree),
                   str(DATA), "/opt/bin/slackline", "train", "/home/job.yaml", "--run-folder", "/home/run"]
        for setting in (*SETTINGS, "data.path=/data"):
            command += ["--set", setting]
        run = TrainRun(Programs(self.bin), machine / "home", None, command=command)
        self.addCleanup(run.close)
        self.finish(run)


class ArchiveWithoutLibTorch(Installed):
    """The other archive, on a machine that has a LibTorch."""

    @classmethod
    def setUpClass(cls):
        file = package("TGZ", "-without-libtorch.tar.gz", "-D", "SLACKLINE_WITHOUT_LIBTORCH=ON")
        (cls.tree,) = cls.unpack(["tar", "xzf", str(file), "-C"], "a folder, with blanks").iterdir()
        for name in PROGRAMS:
            (cls.bin / name).symlink_to(cls.tree / "bin" / name)
        cls.torch = (pathlib.Path(OPTIONS.build) / "lib/slackline").resolve()
        cls.link = cls.tree / "lib/slackline/torch"

    def make_link(self, folder):
        self.link.symlink_to(folder)
        self.addCleanup(self.link.unlink)

    def train(self, **environment):
        job = self.root / "job.yaml"
        job.write_text(SMALL)
        variables = [f"{name}={value}" for name, value in environment.items()]
        command = ["env", "-i", *variables, str(self.bin / "slackline"), "train", str(job), "--run-folder", str(self.root / "run")]
        for setting in SETTINGS:
            command += ["--set", setting]
        run = TrainRun(Programs(self.bin), self.root, None, command=command)
        self.addCleanup(run.close)
        return run

    def test_has_all_but_libtorch(self):
        names = {path.name for path in self.tree.rglob("*")}
        self.assertLessEqual({*PROGRAMS, "libgrpc.so.29", "libtorch.txt"} if shutil.which("dpkg-query") else {*PROGRAMS}, names)
        self.assertEqual([name for name in names if name.startswith(("libtorch", "libc10")) and ".so" in name], [])

    def test_trains_with_a_linked_libtorch(self):
        self.make_link(self.torch)
        self.finish(self.train())

    def test_trains_with_one_in_the_loaders_path(self):
        self.finish(self.train(LD_LIBRARY_PATH=self.torch))

    def test_says_which_libtorch_is_missing(self):
        run = self.train()
        self.assertEqual(run.wait(), 1, run.diagnosis())
        self.assertRegex(run.stderr(), r"built for LibTorch [\d.]+, and there is no .*/torch/libtorch_cpu.so; link the folder lib")

    def test_refuses_another_version_with_both(self):
        other = self.root / "libtorch"
        (other / "lib").mkdir(parents=True)
        (other / "lib/libtorch_cpu.so").touch()
        (other / "build-version").write_text("2.6.0+cpu\n")
        self.make_link(other / "lib")
        run = self.train()
        self.assertEqual(run.wait(), 1, run.diagnosis())
        self.assertRegex(run.stderr(), r"built for LibTorch [\d.]+, and .*/torch has 2\.6\.0; ")


class DebianPackage(Installed):
    """The Debian package: LibTorch is inside, the rest is Debian's."""

    @classmethod
    def setUpClass(cls):
        if not shutil.which("dpkg-shlibdeps"):
            raise unittest.SkipTest("no dpkg-dev: no Debian package was made")
        cls.file = package("DEB", ".deb")
        cls.tree = cls.unpack(["dpkg-deb", "-x", str(cls.file)], "system") / "usr"
        for name in PROGRAMS:
            (cls.bin / name).symlink_to(cls.tree / "bin" / name)

    def fields(self):
        said = subprocess.run(["dpkg-deb", "--field", str(self.file)], capture_output=True, text=True, check=True)
        return dict(line.split(": ", 1) for line in said.stdout.splitlines() if ": " in line)

    def test_says_what_it_needs(self):
        fields = self.fields()
        self.assertEqual((fields["Package"], fields["Version"]), ("slackline", OPTIONS.version))
        needed = {word.split()[0] for word in fields["Depends"].split(", ")}
        self.assertLessEqual({"libc6", "libssl3", "zlib1g"}, needed)
        for library in ("libgrpc", "libprotobuf", "libabsl"):
            self.assertTrue(any(name.startswith(library) for name in needed), f"{library} is not in {sorted(needed)}")
        self.assertIn("python3-yaml", fields["Recommends"])

    def test_puts_files_only_where_a_package_may(self):
        files = {str(path.relative_to(self.tree)) for path in self.tree.rglob("*") if not path.is_dir()}
        self.assertEqual([path for path in self.tree.parent.iterdir()], [self.tree])
        places = re.compile("bin/slackline|lib/slackline/|share/((doc/)?slackline|bash-completion|zsh|fish)/")
        outside = [path for path in files if not places.match(path)]
        self.assertEqual(outside, [])
        self.assertEqual([path for path in files if path.startswith("lib/") and re.search("grpc|absl|ssl|stdc", path)], [])

    def test_trains_with_the_libraries_of_debian(self):
        self.check_training(of_the_system=True)

    def test_programs_examples_and_documents(self):
        self.check_programs()
        self.check_examples()
        self.check_experiment_and_simulator()
        self.check_documents()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, help="build folder")
    parser.add_argument("--cpack", default="cpack")
    parser.add_argument("--version", required=True, help="the one that the packages must have")
    parser.add_argument("tests", nargs="*", help="e.g. Archive; default: all")
    parser.parse_args(namespace=OPTIONS)
    missing = [name for name in PROGRAMS if not os.access(pathlib.Path(OPTIONS.build) / "bin" / name, os.X_OK)]
    if missing or not DATA.is_dir():
        print("SKIP: found no " + (", ".join(missing) if missing else str(DATA)))
        return 77
    return 0 if unittest.main(argv=[sys.argv[0], *OPTIONS.tests], verbosity=2, exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
