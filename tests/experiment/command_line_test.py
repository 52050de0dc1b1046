"""`slackline experiment` from outside: how the program finds the package and the interpreter, and what it passes on.

    command_line_test.py SLACKLINE
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import support

SLACKLINE = ""
TELL = "import sys\nprint([sys.executable, *sys.argv[1:]])\n"


class CommandLine(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-experiment-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name).resolve()

    def run_slackline(self, *arguments, program=None):
        return subprocess.run([program or SLACKLINE, "experiment", *map(str, arguments)], capture_output=True, text=True,
                              timeout=support.DEADLINE_S, cwd=self.root)

    def test_help_has_the_options_and_examples(self):
        result = self.run_slackline("--python", sys.executable, "--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("\n\nExample:\n  slackline experiment ", result.stdout)
        self.assertIn("\n\nMore examples:\n  slackline experiment ", result.stdout)
        self.assertIn("--keep-going", result.stdout)
        self.assertNotIn("--slackline", result.stdout)

    def test_wrong_use(self):
        for arguments in ((), ("missing.yaml",), ("a.yaml", "b.yaml"), ("a.yaml", "--fast")):
            with self.subTest(arguments):
                result = self.run_slackline("--python", sys.executable, *arguments)
                self.assertEqual(result.returncode, 2)
                self.assertNotEqual(result.stderr, "")

    def test_every_cell_is_checked_by_this_program(self):
        (self.root / "trial.yaml").write_text("run: train\njob:\n  model: {kind: mlp}\ngrid:\n  model.kind: [cnn, tree]\n"
                                              "exclude: [{model.kind: cnn}]\n")
        result = self.run_slackline("trial.yaml", "--python", sys.executable)
        self.assertEqual(result.returncode, 2)
        self.assertIn("cell kind-tree:\n  --set model.kind=tree: model.kind: found 'tree'; allowed is", result.stderr)
        self.assertIn("Nothing was run.", result.stderr)
        self.assertEqual([path.name for path in self.root.iterdir()], ["trial.yaml"])

    def test_modules_that_the_interpreter_lacks_are_named_with_the_pip_line(self):
        bare = self.root / "bare-python"
        bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
        bare.chmod(0o755)
        result = self.run_slackline("trial.yaml", "--python", bare)
        self.assertEqual(result.returncode, 2)
        self.assertIn("has no module yaml, numpy, matplotlib.\n", result.stderr)
        self.assertIn("-m pip install PyYAML numpy matplotlib\n", result.stderr)

    def test_an_interpreter_that_is_not_there_is_named(self):
        result = self.run_slackline("trial.yaml", "--python", "no-such-python")
        self.assertEqual(result.returncode, 2)
        self.assertIn("cannot start the Python interpreter 'no-such-python': No such file", result.stderr)

    def install(self):
        """Only what is under test: the program, and a package that tells how it was called."""
        program = self.root / "bin" / "slackline"
        package = self.root / "share" / "slackline" / "python" / "slackline_experiment"
        program.parent.mkdir()
        package.mkdir(parents=True)
        shutil.copy(SLACKLINE, program)
        (package / "__main__.py").write_text(TELL)
        return program

    def test_the_installed_package_gets_all_arguments(self):
        program = self.install()
        result = self.run_slackline("a.yaml", "--jobs", "2", "--python", sys.executable, "--report", program=program)
        self.assertEqual(
            result.stdout, f"{[sys.executable, '--slackline', str(program), 'a.yaml', '--jobs', '2', '--report']}\n")

    def test_words_after_two_dashes_stay_as_they_are(self):
        program = self.install()
        given = ("a.yaml", "--slurm", f"--python={sys.executable}", "--", "--nodes=1", "--python", "x", ":", "--nodes=2")
        self.assertEqual(self.run_slackline(*given, program=program).stdout,
                         f"{[sys.executable, '--slackline', str(program), *given[:2], *given[3:]]}\n")

    def test_it_is_found_through_a_link_to_the_program(self):
        link = self.root / "link"
        link.symlink_to(self.install())
        self.assertIn("a.yaml", self.run_slackline("a.yaml", "--python", sys.executable, program=link).stdout)

    def test_the_environment_beside_the_package_comes_before_python3(self):
        program = self.install()
        own = self.root / "share" / "slackline" / "venv" / "bin" / "python"
        own.parent.mkdir(parents=True)
        own.write_text("#!/bin/sh\necho own\n")
        own.chmod(0o755)
        self.assertEqual(self.run_slackline("a.yaml", program=program).stdout, "own\n")

    def test_a_program_without_its_package_says_where_it_looked(self):
        program = self.install()
        shutil.rmtree(self.root / "share")
        result = self.run_slackline("a.yaml", program=program)
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn(f"{self.root}/share/slackline/python/slackline_experiment; install all", result.stderr)


if __name__ == "__main__":
    SLACKLINE = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
