"""The command's own help: `--help`, `slackline help`, and the completion of words in shells.

    help_test.py SLACKLINE
"""
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SLACKLINE = ""

# Commands whose options are those of this program. The others are Python packages, or the simulator.
COMMANDS = ("train", "launch", "check", "status", "resume", "checkpoint", "stop", "runs", "checkpoints", "export", "credentials", "servers",
            "servers add", "servers drain", "slurm", "slurm submit", "slurm run", "placement", "doctor", "prepare", "evaluate",
            "help", "completion")


def run(*arguments):
    return subprocess.run([SLACKLINE, *arguments], capture_output=True, text=True, timeout=60)


class Help(unittest.TestCase):
    def test_begins_with_an_example_and_keeps_to_80_columns(self):
        for command in ("", *COMMANDS, "slurm node"):
            with self.subTest(command):
                result = run(*command.split(), "--help")
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                lines = result.stdout.splitlines()
                self.assertEqual([line for line in lines if len(line) > 80], [])
                self.assertIn("  -h, --help              Show this help and exit.", lines)
                if command != "slurm node":
                    self.assertEqual(lines[1:3], ["", "Example:"])
                    self.assertIn(f"slackline {command.split()[0] if command else 'train'}", lines[3])

    def test_shows_three_options_before_all_others(self):
        for command in ("train", "launch", "status", "resume", "slurm submit", "prepare", "evaluate", "doctor"):
            with self.subTest(command):
                text = run(*command.split(), "--help").stdout
                groups = re.findall(r"^([A-Z][^:\n]*):\n((?:  .*\n)+)", text, re.MULTILINE)
                titles = [title for title, _ in groups]
                self.assertEqual(titles[:3], ["Example", "Arguments", "Most used options"])
                self.assertEqual(len(re.findall("^  -", groups[2][1], re.MULTILINE)), 3)

    def test_says_ranges_words_and_defaults(self):
        self.assertRegex(run("servers", "add", "--help").stdout,
                         r"--count N +Number of servers to add. Allowed: 1 to 10000.\s+Default: 1.")
        self.assertIn("--for train|simulate", run("check", "--help").stdout)
        self.assertRegex(run("status", "--help").stdout, r"Not\s+with --watch\.")

    def test_lists_the_topics(self):
        result = run("help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"(?m)^  resume +Save and resume a run$")
        self.assertRegex(result.stdout, r"(?m)^  modes +\S")

    def test_shows_every_topic_as_plain_text(self):
        topics = re.findall(r"^  ([a-z-]+) ", run("help").stdout, re.MULTILINE)
        self.assertGreater(len(topics), 10)
        for topic in topics:
            with self.subTest(topic):
                result = run("help", topic)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertRegex(result.stdout, r"^.+\n=+\n")
                prose = re.sub(r"(?m)^    .*$|`[^`]*`", "", result.stdout)
                for mark in ("](", "**", "```", "<!--"):
                    self.assertNotIn(mark, prose)
                # Code keeps its lines, and a long word has no place to break at.
                long = [line for line in result.stdout.splitlines()
                        if len(line) > 80 and not line.startswith("    ") and " " in line.strip()]
                self.assertEqual(long, [])
        self.assertIn("\n    slackline resume runs/first  ", run("help", "resume").stdout)

    def test_shows_the_help_of_a_command(self):
        self.assertEqual(run("help", "train").stdout, run("train", "--help").stdout)

    def test_names_the_nearest_topic(self):
        result = run("help", "resum")
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("found the unknown topic 'resum'; did you mean 'resume'?\nTopics: ", result.stderr)
        self.assertIn("found the unknown topic 'qqqqqqq'\nTopics: ", run("help", "qqqqqqq").stderr)

    def on_a_terminal(self, pager):
        """What appears on the terminal of `slackline help resume`."""
        main, side = pty.openpty()
        with open(main, "rb", buffering=0) as shown:
            process = subprocess.Popen([SLACKLINE, "help", "resume"], stdin=side, stdout=side, stderr=side,
                                       env={**os.environ, "PAGER": pager})
            os.close(side)
            text = b""
            try:
                while part := shown.read(4096):
                    text += part
            except OSError:
                pass  # how Linux tells that nobody has the other end any more
            return process.wait(60), text.decode()

    def test_pages_on_a_terminal_only(self):
        code, text = self.on_a_terminal("sed 's/^/paged: /'")
        self.assertEqual(code, 0)
        self.assertIn("paged: Save and resume a run", text)
        code, text = self.on_a_terminal("/nowhere/pager")
        self.assertEqual(code, 0)
        self.assertIn("Save and resume a run", text)


class Completion(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("job.yaml", "notes.txt"):
            (self.folder / name).touch()

    def script(self, shell):
        path = self.folder / f"completion.{shell}"
        path.write_text(run("completion", shell).stdout)
        return path

    def in_bash(self, *words):
        """The words that bash offers for the last word; files are bash's own part."""
        ask = ('source "$1"; shift; function=$(complete -p slackline); function=${function#*-F }; COMP_WORDS=("$@"); '
               'COMP_CWORD=$(($# - 1)); ${function%% *}; printf "%s\\n" "${COMPREPLY[@]}"')
        result = subprocess.run(["bash", "--norc", "-c", ask, "bash", self.script("bash"), *words], capture_output=True, text=True,
                                timeout=60, cwd=self.folder)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout.split()

    @unittest.skipUnless(shutil.which("bash"), "no bash")
    def test_bash_offers_commands_options_and_words(self):
        for words, offered in ((("slackline", "tra"), ["train", "trace", "track"]),
                               (("slackline", "slurm", ""), ["submit", "wait", "run", "node"]),
                               (("slackline", "servers", "add", "--c"), ["--count"]),
                               (("slackline", "train", "job.yaml", "--q"), ["--quiet"]),
                               (("slackline", "check", "job.yaml", "--for", ""), ["train", "simulate"]),
                               (("slackline", "completion", "f"), ["fish"]),
                               (("slackline", "help", "resu"), ["resume"]),
                               (("slackline", "train", ""), []),
                               (("slackline", "status", "--json", "--w"), ["--watch"]),
                               (("slackline", "train", "--run-folder", "--"), []),
                               (("slackline", "launch", "train.py", "job.yaml", "--", "--"), [])):
            with self.subTest(words):
                self.assertEqual(self.in_bash(*words), offered)
        self.assertNotIn("--report-to", self.in_bash("slackline", "doctor", "--"), "it is hidden")
        self.assertLess({"--help", "-h", "--set", "--run-folder"}, set(self.in_bash("slackline", "train", "-")))

    @unittest.skipUnless(shutil.which("zsh"), "no zsh")
    def test_zsh_offers_commands_options_and_words(self):
        # The functions of zsh's own that the script calls print the words, all of them: zsh chooses those that fit.
        ask = ('compdef() {}; compadd() { print -l -- "$@" }; _files() { print files }; _describe() { print -l -- "${(P@)@[-1]}" }; '
               'source "$1"; shift; words=("$@"); CURRENT=$#; _slackline')
        for words, offered in ((("slackline", "servers", ""), ["add", "drain"]),
                               (("slackline", "check", "j", "--for", ""), ["train", "simulate"]),
                               (("slackline", "checkpoints", "--"), ["--verify", "--help", "-h"]),
                               (("slackline", "train", "--quiet", ""), ["files"])):
            with self.subTest(words):
                done = subprocess.run(["zsh", "-f", "-c", ask, "zsh", self.script("zsh"), *words], capture_output=True, text=True,
                                      timeout=60)
                self.assertEqual(([line.split(":")[0] for line in done.stdout.splitlines()], done.stderr), (offered, ""))

    @unittest.skipUnless(shutil.which("fish"), "no fish")
    def test_fish_offers_commands_and_words(self):
        for line, offered in (("slackline tra", {"train", "trace", "track"}), ("slackline check --for ", {"train", "simulate"}),
                              ("slackline servers ad", {"add"}), ("slackline train --qu", {"--quiet"})):
            done = subprocess.run(["fish", "--no-config", "-c", f"source {self.script('fish')}; complete -C '{line}'"],
                                  capture_output=True, text=True, timeout=60, cwd=self.folder)
            self.assertEqual({found.split("\t")[0] for found in done.stdout.splitlines()}, offered, done.stderr)

    def test_other_shells_are_wrong_use(self):
        self.assertEqual(run("completion", "csh").returncode, 2)
        self.assertEqual(run("completion").returncode, 2)


if __name__ == "__main__":
    SLACKLINE = str(pathlib.Path(sys.argv[1]).resolve())
    unittest.main(argv=sys.argv[:1], verbosity=1)
