"""usage: page_test.py BIN_FOLDER: what a page may say, and what the runner does with it."""

import pathlib
import subprocess
import sys
import unittest
from tempfile import TemporaryDirectory

import page

HERE = pathlib.Path(__file__).resolve().parent
START = HERE.parents[1] / "docs" / "start"
WORDS_MAX = 900


def fenced(language, *lines):
    return "\n".join([f"```{language}", *lines, "```", ""])


class Reading(unittest.TestCase):
    def refused(self, text, reason):
        with self.assertRaisesRegex(page.PageError, reason):
            page.read("page.md", text)

    def test_blocks_become_steps_in_order(self):
        read = page.read("page.md", fenced("bash", "one") + "text\n" + fenced("yaml", "a: b") + fenced("sh", "two", "three"))
        self.assertEqual([(step.line, step.commands) for step in read.steps], [(1, "one\n"), (8, "two\nthree\n")])

    def test_comments_belong_to_the_next_block(self):
        read = page.read("page.md", "<!-- needs: program helm -->\n<!-- first: mkdir a -->\n<!-- terminal: server -->\n\n" + fenced("bash", "one"))
        step = read.steps[0]
        self.assertEqual((read.needs, step.first, step.terminal), (["program helm"], ["mkdir a"], "server"))

    def test_a_block_without_a_reason_is_not_left_out(self):
        self.refused("<!-- not run: slow -->\n" + fenced("bash", "one"), "gives no reason")
        self.refused("<!-- not run -->\n" + fenced("bash", "one"), "found the comment")
        for language in ("console", "shell", ""):
            self.refused(fenced(language, "one"), "commands are bash or sh")
        self.refused("- item\n\n  ```bash\n  one\n  ```\n", "at the margin")
        self.refused("<!-- not run: needs a cluster -->\ntext\n" + fenced("bash", "one"), "above no block")

    def test_output_without_a_stable_line_is_refused(self):
        self.refused(fenced("bash", "one") + fenced("text", "1"), "without a stable line")
        self.refused(fenced("bash", "one") + "<!-- stable: 2 -->\n" + fenced("text", "1"), "'2' is called stable, but is not")
        self.refused(fenced("text", "1"), "without commands")

    def test_stable_lines_ignore_the_width_of_columns(self):
        read = page.read("page.md", fenced("bash", "one") + "<!-- stable: a b | c -->\n" + fenced("text", "a    b", "c d"))
        self.assertEqual(read.steps[0].stable, ["a b", "c"])
        everything = page.read("page.md", fenced("bash", "one") + "<!-- stable: all -->\n" + fenced("text", "a    b", "", "c d"))
        self.assertEqual(everything.steps[0].stable, ["a b", "c d"])

    def test_nobody_waits_for_a_terminal_that_never_began(self):
        self.refused("<!-- after: server -->\n" + fenced("bash", "one"), "has not begun")

    def test_tutorials_obey_the_rules_and_are_short(self):
        tutorials = sorted(START.glob("*.md"))
        self.assertGreaterEqual(len(tutorials), 8)
        for path in tutorials:
            with self.subTest(path.name):
                text = path.read_text()
                self.assertTrue(page.read(path.name, text).steps)
                self.assertLessEqual(len(text.split()), WORDS_MAX)


class Running(unittest.TestCase):
    def run_page(self, text):
        with TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "page.md"
            path.write_text(text)
            return subprocess.run([sys.executable, "-B", HERE / "run_page.py", "--programs", PROGRAMS, path], capture_output=True, text=True,
                                  check=False, timeout=120)

    def check(self, text, code, said):
        done = self.run_page(text)
        if done.returncode == 77:
            self.skipTest(done.stdout.strip().removeprefix("SKIP: "))
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(said, done.stdout + done.stderr)

    def test_one_shell_runs_all_blocks(self):
        self.check(fenced("bash", "export A=5; mkdir there; cd there") + fenced("bash", 'echo "$A in $(basename "$PWD")"')
                   + "<!-- stable: 5 in there -->\n" + fenced("text", "5 in there"), 0, "line 4 runs")

    def test_a_command_that_fails_fails_the_page(self):
        self.check(fenced("bash", "echo before", "false", "echo after"), 1, "for line 1 of page.md. Output so far:\nbefore")
        self.check(fenced("bash", "false | true"), 1, "for line 1")

    def test_output_that_differs_fails_the_page(self):
        self.check(fenced("bash", "echo 1") + "<!-- stable: 2 -->\n" + fenced("text", "2"), 1, "the output lacks ['2']")

    def test_reasons_of_blocks_that_are_not_run_are_printed(self):
        self.check("<!-- not run: needs a cluster -->\n" + fenced("bash", "false"), 0, "line 2 is not run: needs a cluster")

    def test_a_terminal_runs_beside_the_shell_and_ends(self):
        terminal = ("<!-- terminal: other -->\n" + fenced("bash", "mkfifo pipe; echo ready; read line <pipe; echo $line; exit 0")
                    + "<!-- stable: ready -->\n" + fenced("text", "ready"))
        self.check(terminal + fenced("bash", "echo word >pipe") + "<!-- after: other -->\n" + fenced("bash", "echo done"), 0, "runs")
        self.check(terminal.replace("exit 0", "exit 3") + fenced("bash", "echo word >pipe"), 1, "terminal 'other' ended with 3")


if __name__ == "__main__":
    PROGRAMS = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
