"""The recipes of packaging/ fit the tree: what they name is there, and the shell in them can be read.

    recipes_test.py ROOT

Neither Apptainer nor conda runs here.
"""
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path()


def sections(text):
    """Of an Apptainer definition: (first word of the section's line, its lines), stage after stage."""
    found = []
    for line in text.splitlines():
        if line.startswith("%"):
            found.append((line, []))
        elif line.startswith("Bootstrap:"):
            found.append((line, [line]))
        elif found:
            found[-1][1].append(line)
    return [(name, "\n".join(lines)) for name, lines in found]


class Definition(unittest.TestCase):
    def setUp(self):
        self.text = (ROOT / "packaging/slackline.def").read_text()
        self.sections = sections(self.text)

    def named(self, name):
        return [body for found, body in self.sections if found == name]

    def test_has_all_that_the_build_reads(self):
        copied = dict(line.split() for line in self.named("%files")[0].split("\n") if line.strip())
        for source, target in copied.items():
            self.assertTrue((ROOT / source).exists(), source)
            self.assertEqual(target, f"/src/{source}")
        cmake = (ROOT / "CMakeLists.txt").read_text() + (ROOT / "cmake/install.cmake").read_text()
        read = set(re.findall(r"add_subdirectory\((\w+)\)|install\(DIRECTORY (\w+)", cmake))
        wanted = {"cmake", "scripts", "packaging", "CMakePresets.json", "LICENSE"} | {a or b for a, b in read}
        self.assertLessEqual(wanted, set(copied))

    def test_its_shell_can_be_read(self):
        for name in ("%post", "%environment", "%runscript", "%test"):
            for body in self.named(name):
                said = subprocess.run(["sh", "-n"], input=body, text=True, capture_output=True)
                self.assertEqual(said.returncode, 0, f"{name}: {said.stderr}")

    def test_each_argument_has_a_default_in_its_stage(self):
        for stage in re.split(r"^(?=Bootstrap:)", self.text, flags=re.MULTILINE)[1:]:
            used = set(re.findall(r"\{\{ (\w+) \}\}", stage))
            given = {line.split("=")[0].strip() for name, body in sections(stage) if name == "%arguments"
                     for line in body.splitlines() if "=" in line}
            self.assertLessEqual(used, given)

    def test_tries_every_program(self):
        programs = re.findall(r"slackline[a-z-]*", re.search(r"for program in (.*); do\n", self.named("%test")[0]).group(1))
        built = re.findall(r"\b(slackline(?:-[a-z]+)?)\b(?=[ )])",
                           "\n".join(re.findall(r"(?:set\(programs|list\(APPEND programs).*", self.install())))
        self.assertEqual(sorted(programs), sorted(built))

    @staticmethod
    def install():
        return (ROOT / "cmake/install.cmake").read_text()


class Environment(unittest.TestCase):
    """The conda environment has what `slackline experiment` needs, in the versions that pip gets."""

    def test_is_an_environment(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("no PyYAML")
        read = yaml.safe_load((ROOT / "packaging/environment.yml").read_text())
        self.assertEqual(set(read), {"name", "channels", "dependencies"})
        self.assertTrue(all(re.fullmatch(r"[a-z-]+ >=[\d.]+,<[\d.]+", line) for line in read["dependencies"]), read)

    def test_agrees_with_pip(self):
        conda = dict(re.findall(r"^  - ([a-z-]+) (>=\S+)$", (ROOT / "packaging/environment.yml").read_text(), re.MULTILINE))
        pip = dict(re.findall(r"^([A-Za-z]+)(>=\S+)$", "".join(
            (ROOT / f"scripts/{name}.txt").read_text() for name in ("requirements", "requirements-test")), re.MULTILINE))
        for name, versions in conda.items():
            if name != "python":
                self.assertEqual(versions, {key.lower(): value for key, value in pip.items()}[name.removesuffix("-base")], name)


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
