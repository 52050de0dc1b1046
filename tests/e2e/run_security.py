"""Secured jobs from outside: trains with real processes, and lets others in only with what they need.

    run_security.py --programs BIN_FOLDER [--patience FACTOR]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from slackline_run import Programs, TrainRun

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
NEEDED = ("slackline", "slackline-scheduler", "slackline-ps", "slackline-worker")
OPTIONS = argparse.Namespace()

JOB = """
name: first
data: {train_images_max: 6000}
output: {report_every_ms: 50}
worker: {threads: 1}
"""


class Secured(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-security-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)

    def slackline(self, *arguments, program="slackline"):
        return subprocess.run([self.programs.path(program), *map(str, arguments)], capture_output=True, text=True,
                              timeout=60 * OPTIONS.patience)

    def make(self, *arguments):
        made = self.slackline("credentials", *arguments)
        self.assertEqual(made.returncode, 0, made.stderr)

    def job(self, name, more):
        path = self.root / name
        path.write_text(JOB + more)
        return path

    def train(self, job):
        run = TrainRun(self.programs, self.root, job, ["training.epochs=100000"])
        self.addCleanup(run.close)
        run.wait_for_training()
        return run, (run.folder / "scheduler.address").read_text().strip()

    def trains_to_the_end(self, job):
        run = TrainRun(self.programs, self.root / "short", job, ["training.epochs=2"])
        self.addCleanup(run.close)
        self.assertEqual(run.wait(), 0, run.diagnosis())
        self.assertIn("Test accuracy", run.stdout())
        return run

    def refuses(self, words, *arguments, program="slackline", code=1):
        result = self.slackline(*arguments, program=program)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stdout + result.stderr)

    def goes_on(self, run):
        samples = int(run.rows()[-1]["samples"])
        run.wait_for_training(samples + 1)

    def test_tls(self):
        self.make(self.root / "credentials", "--job", "first")
        job = self.job("job.yaml", "security: {mode: tls, folder: credentials}\n")
        (self.root / "short").mkdir()
        self.trains_to_the_end(job)
        run, address = self.train(job)
        # The run folder says how to connect; a bare address does not.
        self.assertEqual(self.slackline("status", run.folder).returncode, 0)
        self.assertEqual(self.slackline("status", address, "--job", job).returncode, 0)
        self.refuses(["or it wants certificates, which --job names"], "status", address)
        # Credentials of another job, which has the same name.
        self.make(self.root / "others", "--job", "first")
        others = self.job("others.yaml", "security: {mode: tls, folder: others}\n")
        self.refuses(["certificate verify failed"], "status", address, "--job", others)
        # At once: two minutes of timeouts.startup_ms would change nothing.
        for program in ("slackline-worker", "slackline-ps"):
            self.refuses(["certificate verify failed"], others, "--scheduler", address, program=program)
        # Certificates of another role say so themselves.
        (self.root / "credentials" / "operator.key").replace(self.root / "operator.key")
        (self.root / "credentials" / "operator.crt").replace(self.root / "operator.crt")
        for end in ("key", "crt"):
            (self.root / "credentials" / f"operator.{end}").write_bytes(
                (self.root / "credentials" / f"worker.{end}").read_bytes())
            (self.root / "credentials" / f"operator.{end}").chmod(0o600)
        self.refuses(["found a certificate for spiffe://slackline/first/worker",
                      "allowed is one for spiffe://slackline/first/operator"], "status", run.folder, code=2)
        self.goes_on(run)

    def test_a_revoked_worker_is_refused_and_the_others_go_on(self):
        folder = self.root / "credentials"
        self.make(folder, "--job", "first")
        job = self.job("job.yaml", "security: {mode: tls, folder: credentials}\ncluster: {workers: 1, servers: 1}\n")
        run, address = self.train(job)
        workers = {}
        for name in ("alice", "bob"):
            self.make(folder, "--job", "first", "--worker", name)
            log = open(self.root / f"{name}.log", "wb")
            self.addCleanup(log.close)
            workers[name] = subprocess.Popen(
                [self.programs.path("slackline-worker"), job, "--scheduler", address, "--name", name, "--set",
                 f"security.folder={folder}/workers/{name}", "--set", "training.epochs=100000"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self.addCleanup(workers[name].wait)
            self.addCleanup(workers[name].kill)
            self.programs.wait_for(lambda name=name: f"{name}\n{run.diagnosis()}", lambda name=name: f"{name} joined" in run.events() or
                                   name in json.dumps(self.status(run)), 60, run.process)
        self.make(folder, "--job", "first", "--revoke", "alice")
        said = self.root / "alice.log"
        self.programs.wait_for(lambda: f"the end of alice\n{said.read_text()}", lambda: workers["alice"].poll() is not None, 60, run.process)
        self.assertEqual(workers["alice"].returncode, 1, said.read_text())
        self.assertIn("found the certificate of worker alice of job first, which is revoked", said.read_text())
        self.assertIn("revokes the certificates of alice", (run.folder / "logs/scheduler.log").read_text())
        again = self.slackline(job, "--scheduler", address, "--name", "alice", "--set", f"security.folder={folder}/workers/alice", "--set",
                               "training.epochs=100000", program="slackline-worker")
        self.assertEqual(again.returncode, 1, again.stderr)
        self.assertIn("which is revoked; allowed is another certificate", again.stderr)
        self.goes_on(run)
        self.assertIsNone(workers["bob"].poll())

    def status(self, run):
        return json.loads(self.slackline("status", run.folder, "--json").stdout)

    def test_processes_without_their_credentials_are_wrong_use(self):
        self.make(self.root / "credentials", "--job", "first")
        job = self.job("job.yaml", "security: {mode: tls, folder: credentials}\n")
        for role, program, arguments in (("scheduler", "slackline-scheduler", ["--run-folder", self.root / "run"]),
                                         ("server", "slackline-ps", ["--scheduler", "127.0.0.1:1"]),
                                         ("worker", "slackline-worker", ["--scheduler", "127.0.0.1:1"])):
            key = self.root / "credentials" / f"{role}.key"
            key.chmod(0o644)
            self.refuses([f"{key}: found mode 0644"], job, *arguments, program=program, code=2)
            key.unlink()
            self.refuses([f"{key}: found no such file"], job, *arguments, program=program, code=2)
        self.assertFalse((self.root / "run").exists())

    def test_names_and_places_that_cannot_be_are_wrong_use(self):
        job = self.job("job.yaml", "")
        for program in ("slackline-ps", "slackline-worker"):
            self.refuses(["found the name 'a b/../c'; allowed are 1 to 64 letters"], job, "--scheduler", "127.0.0.1:1",
                         "--name", "a b/../c", program=program, code=2)
            self.refuses([f"found the folder '{self.root}'; allowed is HOST:PORT, or a file"], job, "--scheduler", self.root,
                         program=program, code=2)

    def test_an_address_file_that_is_not_there_is_said_at_once(self):
        job = self.job("job.yaml", "")
        missing = self.root / "nofolder" / "scheduler.address"
        settings = [job, "--scheduler", missing, "--set", "timeouts.startup_ms=2000", "--set", "timeouts.heartbeat_ms=100"]
        for program in ("slackline-ps", "slackline-worker"):
            result = self.slackline(*settings, program=program)
            self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
            self.assertIn(f"no such file yet: {missing}", result.stdout + result.stderr)
        # A worker does not speak of an address that nobody has given it.
        self.assertNotIn("127.0.0.1:0", result.stdout + result.stderr)

    def test_token(self):
        self.make("--token", self.root / "token")
        job = self.job("job.yaml", "security: {mode: token, token_file: token}\n")
        (self.root / "short").mkdir()
        short = self.trains_to_the_end(job)
        token = (self.root / "token").read_text().strip()
        for path in short.folder.rglob("*"):
            if path.is_file():
                self.assertNotIn(token.encode(), path.read_bytes(), f"the token is in {path}")
        run, address = self.train(job)
        self.assertEqual(self.slackline("status", run.folder).returncode, 0)
        self.refuses(["found no token; allowed is a call with the one of security.token_file"], "status", address)
        self.make("--token", self.root / "wrong")
        wrong = self.job("wrong.yaml", "security: {mode: token, token_file: wrong}\n")
        self.refuses(["found another token"], "status", address, "--job", wrong)
        self.refuses(["found another token"], wrong, "--scheduler", address, "--set", "training.epochs=100000",
                     program="slackline-worker")
        self.goes_on(run)

    def test_without_security_only_loopback_is_listened_on(self):
        job = self.job("job.yaml", "")
        ways_out = ["0.0.0.0", "security.mode: tls", "security.mode: token", "security.insecure: true"]
        self.refuses(ways_out, job, "--listen", "0.0.0.0:0", "--run-folder", self.root / "run",
                     program="slackline-scheduler", code=2)
        self.refuses(ways_out, job, "--listen", "0.0.0.0:0", "--scheduler", "127.0.0.1:1", program="slackline-ps", code=2)
        self.refuses(ways_out, "train", job, "--set", "network.listen=0.0.0.0", code=2)
        self.assertFalse((self.root / "run").exists())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--patience", type=float, default=1.0, help="factor on all deadlines")
    parser.add_argument("tests", nargs="*", help="e.g. Secured.test_tls; default: all")
    parser.parse_args(namespace=OPTIONS)
    missing = [name for name in NEEDED if not os.access(pathlib.Path(OPTIONS.programs) / name, os.X_OK)]
    if missing or not DATA.is_dir():
        print("skipped: found no " + (", ".join(missing) if missing else str(DATA)))
        return 77
    return 0 if unittest.main(argv=[sys.argv[0], *OPTIONS.tests], verbosity=2, exit=False).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
