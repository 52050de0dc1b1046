"""The `slackline` command from outside: exit codes and messages of what needs no cluster.

    command_test.py SLACKLINE EXAMPLES_FOLDER
"""
import fcntl
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

SLACKLINE = ""
EXAMPLES = pathlib.Path()


def run(*arguments, program=None, cwd=None):
    return subprocess.run([program or SLACKLINE, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          cwd=cwd)


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def data(self):
        """A folder that holds the files of a data set, as far as anybody looks who does not train."""
        folder = self.folder / "data"
        folder.mkdir()
        for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
            (folder / f"{name}-ubyte.gz").touch()
        return folder

    def write(self, text):
        path = self.folder / "job.yaml"
        path.write_text(text)
        return path

    def test_every_example_is_valid(self):
        examples = sorted(EXAMPLES.glob("*.yaml"))
        self.assertGreaterEqual(len(examples), 4)
        for example in examples:
            with self.subTest(example.name):
                result = run("check", example)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertTrue(result.stdout.endswith(f"# OK: {example} is a valid job.\n"))

    def test_exception_of_a_script_of_a_node_is_the_reason(self):
        log = self.folder / "log"
        with log.open("ab") as out:
            code = subprocess.run([SLACKLINE, "node-scripts", "2", "/usr/bin/env", "python3", "-c", "raise ValueError('no more')"],
                                  stdout=out, stderr=out, timeout=60).returncode
        self.assertEqual(code, 1)
        self.assertRegex(log.read_text().splitlines()[-1],
                         r"process \d of the node \(pid \d+\): exit code 1: ValueError: no more; process \d of the node ")

    def test_missing_packages_of_trackers_are_named_before_a_run(self):
        python = self.folder / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
        python.chmod(0o755)
        (self.folder / "train.py").touch()
        result = run("launch", self.folder / "train.py", self.write("output: {trackers: wandb}\n"), "--python", python,
                     cwd=self.folder)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, r"output\.trackers: the Python interpreter \S+ has no module yaml, wandb\.")
        self.assertIn("-m pip install PyYAML wandb", result.stderr)
        self.assertFalse((self.folder / "runs").exists())

    def test_check_prices_what_delay_compensation_keeps(self):
        compensated = self.write("consistency: {delay_compensation: adaptive, dc_references_max: 10}\n")
        self.assertIn("takes at most 44 bytes for each parameter", run("check", compensated).stdout)
        self.assertNotIn("bytes for each parameter", run("check", self.write("{}\n")).stdout)

    def test_check_doubts_what_slows_down_nobody(self):
        job = self.write("cluster: {workers: 2}\nworker: {slowdown: {2: 3, 7: 3}}\n")
        doubted = run("check", job)
        self.assertEqual(doubted.returncode, 0)
        self.assertIn("# Warning: worker.slowdown: found 7, the number of no worker; those of the job are 1 to 2", doubted.stdout)
        self.assertNotIn("Warning", run("check", job, "--set", "cluster.workers=7").stdout)

    def test_what_check_prints_is_a_valid_job_that_prints_the_same(self):
        first = run("check", self.write("model: {kind: cnn}\n"), "--set", "optimizer.lr=0.1")
        self.assertIn("  lr: 0.1\n", first.stdout)
        second = run("check", self.write(first.stdout))
        self.assertEqual(second.stdout, first.stdout)

    def test_results_that_cannot_be_written_are_a_failure(self):
        with open("/dev/full", "w") as full:
            for arguments in (("check", self.write("{}\n")), ("--version",)):
                with self.subTest(arguments):
                    result = subprocess.run([SLACKLINE, *map(str, arguments)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
                    self.assertEqual(result.returncode, 1)
                    self.assertEqual(result.stderr, "standard output did not take all that was printed; is its disk full?\n")

    def test_mistakes_are_wrong_use_with_their_line(self):
        job = self.write("optimizer:\n  lr: fast\nepochs: 3\n")
        for command in ("check", "train"):
            with self.subTest(command):
                result = run(command, job, cwd=self.folder)
                self.assertEqual(result.returncode, 2)
                self.assertIn(f"{job}:2: optimizer.lr: found 'fast'; allowed is a number from 0 to 1000",
                              result.stderr)
                self.assertIn(f"{job}:3: found the unknown key 'epochs'; did you mean 'training.epochs'?",
                              result.stderr)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["job.yaml"], "nothing was started")

    def test_groups_that_match_no_parameter_are_said_before_anything_starts(self):
        job = self.write("optimizer: {groups: [{match: fc1.*}, {match: conv*, frozen: true}]}\n")
        said = ('optimizer.groups[1].match: found "conv*", which matches none of the parameters (* stands for any text, '
                "? for one letter); they are fc1.weight, fc1.bias, fc2.weight, fc2.bias")
        commands = [("check",), ("train",), ("slurm", "submit"), ("slurm", "submit", "--dry-run"), ("doctor",)]
        if (pathlib.Path(SLACKLINE).parent / "slackline-simulator").exists():
            commands.append(("simulate", "--check"))
        for command in commands:
            with self.subTest(command):
                result = run(*command, job, cwd=self.folder)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn(said, result.stderr)
        self.assertEqual(run("check", job, "--set", "model.kind=cnn").returncode, 0)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["job.yaml"], "nothing was started")

    def test_check_says_what_this_machine_has_not(self):
        checked = run("check", self.write("network: {interface: nowhere0}\n"))
        self.assertEqual(checked.returncode, 0, "other machines may have it")
        self.assertIn("# On this machine it cannot run: network.interface: ", checked.stdout)

    def test_check_says_that_it_has_asked_no_server(self):
        job = self.write("data: {format: prepared, path: 'http://files.example.org/p', cache: {folder: c}}\n")
        said = "# Not looked at: http://files.example.org/p. Workers read its index as they begin"
        self.assertIn(f"{said}; `slackline doctor` reads it before.\n", run("check", job).stdout)
        self.assertIn(f"{said}, and with data.augment.rand_augment refuse pixels other than uint8; ",
                      run("check", job, "--set", "data.augment.rand_augment=2").stdout)
        with_user = f"http:{'//'}me:secret@files.example.org/p"
        refused = run("check", job, "--set", f"data.path={with_user}")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("data.path: found a user before '@' in 'http:", refused.stderr)

    def test_wrong_flags_are_wrong_use(self):
        for arguments in ((), ("dance",), ("train",), ("check", "a", "b"), ("train", "a", "--fast"),
                          ("credentials",), ("credentials", "a"), ("credentials", "a", "--job", "b/c"),
                          ("credentials", "a", "--job", "b", "--days", "0"), ("credentials", "--token", "a", "--renew"),
                          ("credentials", "a", "--job", "b", "--token", "c"),
                          ("status", "nonsense"), ("status", "host:"), ("status", ":1"), ("check", self.folder / "missing.yaml"), ("check", self.folder)):
            with self.subTest(arguments):
                result = run(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertNotEqual(result.stderr, "")

    def test_an_empty_name_of_a_run_folder_is_refused(self):
        job = self.write("{}\n")
        for command in (("train", job), ("slurm", "submit", job), ("slurm", "run", job), ("doctor", job)):
            with self.subTest(command):
                result = run(*command, "--run-folder", "", cwd=self.folder)
                self.assertEqual(result.returncode, 2)
                self.assertIn("--run-folder: found an empty text; allowed is the name of a folder", result.stderr)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["job.yaml"], "nothing was started")

    def test_a_name_of_a_run_folder_that_is_not_utf8_is_refused(self):
        job = self.write("{}\n")
        latin = os.fsdecode(b"l\xe4ufe")
        result = run("train", job, "--run-folder", latin, cwd=self.folder)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--run-folder: found bytes that are not UTF-8; allowed is a path in UTF-8", result.stderr)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["job.yaml"], "nothing was started")
        (self.folder / latin).mkdir()
        result = run("train", job, "--set", f"data.path={self.data()}", cwd=self.folder / latin)
        self.assertEqual(result.returncode, 2)
        self.assertIn("l\ufffdufe/runs/", result.stderr)
        self.assertIn("found bytes that are not UTF-8; allowed is a path in UTF-8", result.stderr)
        self.assertEqual(list((self.folder / latin).iterdir()), [], "nothing was made")

    def test_data_without_images_are_said_before_anything_starts(self):
        empty = self.folder / "empty"
        empty.mkdir()
        job = self.write(f"data: {{path: {empty}}}\n")
        missing = ("data.path: found no train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, "
                   f"t10k-labels-idx1-ubyte in {empty}; allowed is")
        checked = run("check", job)
        self.assertEqual(checked.returncode, 0, "other machines may have them")
        self.assertIn(f"# On this machine it cannot run: {missing}", checked.stdout)
        started = run("train", job, "--run-folder", self.folder / "run")
        self.assertEqual(started.returncode, 2)
        self.assertIn(missing, started.stderr)
        self.assertFalse((self.folder / "run").exists())

    def test_an_unknown_command_is_named_with_those_that_exist(self):
        known = ("train, status, resume, check, doctor, prepare, credentials, placement, launch, slurm, servers, checkpoint, "
                 "stop, service, submit, jobs, logs, cancel, rm, runs, checkpoints, export, evaluate, trace, track, compare, experiment, simulate, plan, help, completion\n")
        for word, found in (("frobnicate", "found 'frobnicate'; allowed is "),
                            ("statsu", "found 'statsu'; did you mean 'status'? Allowed is ")):
            result = run(word)
            self.assertEqual((result.returncode, result.stderr), (2, f"slackline: {found}{known}"))

    def test_unknown_words_after_a_command_are_named_with_those_that_exist(self):
        for arguments, words in ((("servers", "ad", "r1"), "found 'ad' after 'servers'; did you mean 'add'? Allowed is add, drain"),
                                 (("servers",), "found no command after 'servers'; allowed is add, drain"),
                                 (("slurm", "sub"), "found 'sub' after 'slurm'; allowed is submit, wait, run, node"),
                                 ((), "found no command; allowed is train, status, resume, ")):
            with self.subTest(arguments):
                result = run(*arguments)
                self.assertEqual(result.returncode, 2)
                self.assertIn(f"slackline: {words}", result.stderr)
        self.assertEqual(run("servers", "--help").returncode, 0)

    def test_what_is_no_run_is_wrong_use_everywhere(self):
        job = self.write("name: first\nsecurity: {mode: tls, folder: made}\n")
        run("credentials", self.folder / "made", "--job", "first")
        (self.folder / "made" / "operator.crt").unlink()
        for command in ("status", "checkpoint", "stop"):
            missing = run(command, "127.0.0.1:1", "--job", job)
            self.assertEqual(missing.returncode, 2)
            self.assertIn("operator.crt: found no such file", missing.stderr)
            self.assertEqual(run(command, "127.0.0.1:1", "--job", self.folder / "nofile.yaml").returncode, 2)
        empty = self.folder / "empty"
        empty.mkdir()
        listed = run("checkpoints", empty)
        self.assertEqual(listed.returncode, 2)
        self.assertIn(f"found no run in {empty} (job.yaml), and no checkpoints; allowed is", listed.stderr)
        self.assertEqual(run("checkpoint", empty).stderr,
                         f"slackline: found no {empty}/scheduler.address; allowed is the folder of a run, or HOST:PORT\n")
        self.assertEqual(run("checkpoint", empty).returncode, 2)
        self.write("{}\n")
        none = run("checkpoints", self.folder)
        self.assertEqual((none.returncode, none.stdout), (0, f"There are no checkpoints in {self.folder}/checkpoints.\n"))

    def test_nobody_is_said_to_have_said_what_the_connection_says(self):
        for arguments in (("servers", "add", "127.0.0.1:1"), ("checkpoint", "127.0.0.1:1")):
            result = run(*arguments)
            self.assertEqual(result.returncode, 1)
            self.assertIn("no answer from the scheduler at 127.0.0.1:1: ", result.stderr)
            self.assertNotIn("says", result.stderr)

    def test_version_tells_the_build(self):
        result = run("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^slackline \d+\.\d+\.\d+ \([^,]+, \w+ [\d.]+, \w*\)\n$")

    def test_credentials_are_made_once_and_checked(self):
        folder = self.folder / "made"
        made = run("credentials", folder, "--job", "first", "--days", "2")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertEqual(sorted(path.name for path in folder.iterdir()), sorted(
            ["ca.crt", "ca.key"] + [role + end for role in ("scheduler", "server", "worker", "operator")
                                    for end in (".crt", ".key")]))
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        for path in folder.iterdir():
            self.assertEqual(path.stat().st_mode & 0o777, 0o600, path)
        again = run("credentials", folder, "--job", "first")
        self.assertEqual(again.returncode, 2)
        self.assertIn("found a file; allowed is none", again.stderr)
        self.assertEqual(run("credentials", folder, "--job", "first", "--renew").returncode, 0)
        job = self.write("name: first\nsecurity: {mode: tls, folder: made}\n")
        self.assertEqual((run("check", job).returncode, run("check", job).stderr), (0, ""))
        (folder / "worker.key").chmod(0o644)
        self.assertEqual((run("check", job).returncode, run("check", job).stderr),
                         (2, f"{folder}/worker.key: found mode 0644; allowed is 0600 or less, since it is a secret\n"))
        for path in folder.glob("worker.*"):
            path.unlink()
        self.assertEqual(run("check", job).returncode, 0)
        missing = run("train", job, "--set", f"data.path={self.data()}")
        self.assertEqual(missing.returncode, 2)
        self.assertIn(f"{folder}/worker.crt: found no such file", missing.stderr)

    def test_credentials_are_renewed_for_the_same_job_and_as_long(self):
        folder = self.folder / "made"
        self.assertIn("valid for 30 days", run("credentials", folder, "--job", "first", "--days", "30").stdout)
        wrong = run("credentials", folder, "--job", "wrong", "--renew")
        self.assertEqual((wrong.returncode, wrong.stderr),
                         (2, "slackline credentials: found the job name 'wrong'; allowed is 'first', which the "
                             f"certificates in {folder} are of\n"))
        for days, words in (((), "valid for 30 days"), (("--days", "7"), "valid for 7 days"), ((), "valid for 7 days")):
            renewed = run("credentials", folder, "--job", "first", "--renew", *days)
            self.assertEqual((renewed.returncode, renewed.stderr), (0, ""))
            self.assertIn(words, renewed.stdout)
        self.assertIn("valid for 365 days", run("credentials", self.folder / "other", "--job", "first").stdout)

    def test_a_worker_has_credentials_of_its_own_until_they_are_revoked(self):
        folder = self.folder / "made"
        own = ("credentials", folder, "--job", "first", "--worker", "alice")
        self.assertEqual(run("credentials", folder, "--job", "first").returncode, 0)
        made = run(*own)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertIn(f"Give {folder}/workers/alice, and nothing else, to who runs this worker", made.stdout)
        self.assertEqual(sorted(path.name for path in (folder / "workers/alice").iterdir()), ["ca.crt", "worker.crt", "worker.key"])
        job = self.write("name: first\nsecurity: {mode: tls, folder: made/workers/alice}\n")
        self.assertEqual((run("check", job).returncode, run("check", job).stderr), (0, ""))
        again = run(*own)
        self.assertEqual(again.returncode, 2)
        self.assertIn("worker.crt: found a certificate; allowed is another name, or --renew", again.stderr)
        self.assertEqual(run(*own, "--renew").returncode, 0)
        unknown = run("credentials", folder, "--job", "first", "--revoke", "alcie")
        self.assertEqual((unknown.returncode, unknown.stderr),
                         (2, f"slackline credentials: found no worker alcie in {folder}/workers; allowed is one that is there, or any name with "
                             "--force\n"))
        self.assertFalse((folder / "revoked").exists())
        for name, flags in (("alice", ()), ("carol", ("--force",)), ("alice", ())):
            revoked = run("credentials", folder, "--job", "first", "--revoke", name, *flags)
            self.assertEqual((revoked.returncode, revoked.stderr), (0, ""))
        self.assertEqual((folder / "revoked").read_text(), "alice\ncarol\n")
        self.assertIn("'alice', which", run(*own, "--renew").stderr)
        (folder / "revoked").write_text("alice\nb c\n")
        self.assertIn(f"{folder}/revoked: found a line that is no name", run("check", job, "--set", f"security.folder={folder}").stderr)
        for wrong in (("--worker", "bob", "--force"), ("--worker", "bob", "--revoke", "alice"), ("--revoke", "alice", "--renew")):
            self.assertEqual(run("credentials", folder, "--job", "first", *wrong).returncode, 2)

    def test_a_token_is_made_once_and_checked(self):
        token = self.folder / "token"
        made = run("credentials", "--token", token)
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertNotIn(token.read_text().strip(), made.stdout)
        self.assertEqual(token.stat().st_mode & 0o777, 0o600)
        self.assertEqual(run("credentials", "--token", token).returncode, 2)
        job = self.write("security: {mode: token, token_file: token}\n")
        self.assertEqual(run("check", job).returncode, 0)
        token.chmod(0o640)
        self.assertIn(f"{token}: found mode 0640", run("check", job).stderr)
        token.unlink()
        self.assertIn(f"{token}: found no such file", run("check", job).stderr)

    def test_missing_programs_are_named(self):
        alone = self.folder / "bin" / "slackline"
        alone.parent.mkdir()
        shutil.copy(SLACKLINE, alone)
        job = self.write(f"data: {{path: {self.data()}}}\n")
        result = run("train", job, program=alone, cwd=self.folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn(f"found no slackline-scheduler, slackline-ps, slackline-worker in {alone.parent}", result.stderr)

    def test_check_fails_where_this_machine_must_do_it_and_cannot(self):
        job = self.write("data: {path: nowhere}\nnetwork: {interface: nowhere0}\n")
        train, simulate = (run("check", job, "--for", purpose) for purpose in ("train", "simulate"))
        self.assertEqual((train.returncode, simulate.returncode), (1, 1))
        for checked in (train, simulate):
            self.assertIn(f"{job}: data.path: found no folder {self.folder}/nowhere", checked.stderr)
        self.assertIn("\nnetwork.interface: ", train.stderr)
        self.assertNotIn("network.interface", simulate.stderr)
        self.assertIn("model.kind: found external", run("check", self.write("model: {kind: external}\n"), "--for", "train").stderr)
        self.assertEqual(run("check", job, "--for", "fun").returncode, 2)

    def test_check_says_what_is_left_to_a_script(self):
        checked = run("check", self.write("model: {kind: external}\noptimizer: {lr: 0.5}\n"))
        self.assertIn("\noptimizer:\n  lr: 0.5\n  clip_norm: 0\n", checked.stdout)
        self.assertIn("without like=: sgd, lr 0.5, weight_decay 0.\n", checked.stdout)
        self.assertNotIn("like=", run("check", self.write("optimizer: {lr: 0.5}\n")).stdout)

    def bin_with(self, **programs):
        """A copy of `slackline` beside scripts in the place of the other programs."""
        folder = self.folder / "bin"
        folder.mkdir()
        for name, text in programs.items():
            (folder / f"slackline-{name}").write_text(f"#!/bin/sh\n{text}\n")
            (folder / f"slackline-{name}").chmod(0o755)
        shutil.copy(SLACKLINE, folder / "slackline")
        return folder / "slackline"

    def test_devices_are_asked_of_the_worker_where_a_gpu_is_named(self):
        program = self.bin_with(scheduler="", ps="", worker='echo "$2: no cuda:7 here"; exit 1')
        head = f"data: {{path: {self.data()}}}\n"
        for devices in ("worker: {devices: [cuda:7]}", "worker: {groups: [{devices: [cuda:7]}]}"):
            job = self.write(f"{head}{devices}\n")
            refused = run("check", job, "--for", "train", program=program)
            self.assertEqual((refused.returncode, refused.stderr), (1, f"{job}: --check-devices: no cuda:7 here\n"))
            told = run("check", job, program=program)
            self.assertEqual(told.returncode, 0)
            self.assertIn("# On this machine it cannot run: --check-devices: no cuda:7 here.\n", told.stdout)
        for devices in ("worker: {devices: [auto]}", "worker: {devices: [cpu]}"):
            self.assertEqual(run("check", self.write(f"{head}{devices}\n"), "--for", "train", program=program).returncode, 0)
        (program.parent / "slackline-ps").unlink()
        self.assertIn("found no slackline-ps in ", run("check", self.write(head), "--for", "train", program=program).stderr)

    def test_the_doctor_looks_for_all_programs(self):
        program = self.bin_with(scheduler="", ps="", worker="")
        found = json.loads(run("doctor", self.write(f"data: {{path: {self.data()}}}\n"), "--run-folder", self.folder / "run", "--json",
                               "--disk-megabytes", "1", program=program).stdout)
        self.assertIn(f"found no slackline-simulator in {program.parent}", json.dumps(found))

    def test_missing_data_is_named_before_anything_starts(self):
        for job, found in (("data: {path: nowhere}\n", f"data.path: found no folder {self.folder}/nowhere"),
                           (f"data: {{path: {self.data()}}}\nmodel: {{kind: vit_tiny, weights: nowhere}}\n",
                            f"model.weights: found no file {self.folder}/nowhere")):
            result = run("train", self.write(job), cwd=self.folder)
            self.assertEqual(result.returncode, 2)
            self.assertIn(found, result.stderr)
            self.assertFalse((self.folder / "runs").exists())

    def test_an_interpreter_that_is_not_there_is_named_before_anything_starts(self):
        script = self.folder / "script.py"
        script.touch()
        result = run("launch", script, self.write("{}\n"), "--python", "nopython", cwd=self.folder)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--python: found no program nopython in the folders of $PATH", result.stderr)
        self.assertFalse((self.folder / "runs").exists())

    def test_what_follows_two_dashes_is_not_the_settings(self):
        script = self.folder / "script.py"
        script.touch()
        job = self.write("model: {kind: external}\n")
        launched = run("launch", script, job, "--python", "nopython", "--set", "training.epochs=1", "--", "--text", "x", cwd=self.folder)
        self.assertIn("--python: found no program nopython", launched.stderr)
        submitted = run("slurm", "submit", "--dry-run", "--set", "training.epochs=1", "--", job, "--nodes=4", cwd=self.folder)
        self.assertNotIn("not expected", submitted.stderr)

    def test_settings_of_an_array_count_paths_from_the_job_file(self):
        (self.folder / "jobs").mkdir()
        job = self.write("name: several\n").rename(self.folder / "jobs/job.yaml")
        script = run("slurm", "submit", job, "--set", "seed=%a", "--set", "data.path=part-%a", "--set", "training.epochs=2",
                     "--dry-run", "--", "--array=3,5", cwd=self.folder).stdout
        self.assertIn(f"--set 'seed=%a' --set 'data.path={self.folder}/jobs/part-%a' --stop-before", script)

    def test_a_run_folder_with_files_is_refused(self):
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("slackline-scheduler", "slackline-ps", "slackline-worker"):
            (programs / name).symlink_to("/bin/false")
        shutil.copy(SLACKLINE, programs / "slackline")
        job = self.write(f"data: {{path: {self.data()}}}\n")
        result = run("train", job, "--run-folder", self.folder, program=programs / "slackline")
        self.assertEqual(result.returncode, 2)
        self.assertIn("found files in it; allowed is a new or an empty folder", result.stderr)

    def test_a_scheduler_that_dies_at_start_is_named_with_its_last_words(self):
        programs = self.folder / "bin"
        programs.mkdir()
        for name in ("slackline-ps", "slackline-worker"):
            (programs / name).symlink_to("/bin/false")
        scheduler = programs / "slackline-scheduler"
        scheduler.write_text("#!/bin/sh\necho no memory today >&2\nexit 1\n")
        scheduler.chmod(0o755)
        shutil.copy(SLACKLINE, programs / "slackline")
        job = self.write(f"data: {{path: {self.data()}}}\n")
        result = run("train", job, "--run-folder", self.folder / "run", program=programs / "slackline")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, r"scheduler \(process \d+\) died: exit code 1; its last output:\n"
                                        r"    no memory today\n")
        self.assertIn(f"the logs are in {self.folder}/run/logs", result.stderr)
        shown = run("status", self.folder / "run")
        self.assertEqual(shown.returncode, 1)
        self.assertRegex(shown.stdout, r"^job slackline: failed at .* \(scheduler \(process \d+\) died: exit code 1; its last output: no memory today\)")

    def test_the_doctor_runs_a_gpu_kit(self):
        kit = self.folder / "kit"
        missing = run("doctor", "--gpu", kit)
        self.assertEqual(missing.returncode, 2)
        self.assertIn(f"found no GPU kit in {kit}; scripts/gpu_kit", missing.stderr)
        self.assertIn("and gpu-kit; scripts/gpu_kit", run("doctor", "--gpu").stderr)
        kit.mkdir()
        (kit / "kit.py").touch()
        (kit / "run").write_text('#!/bin/sh\necho "with $@"\nexit 1\n')
        (kit / "run").chmod(0o755)
        result = run("doctor", "--gpu", kit, "--run-folder", "figures")
        self.assertEqual((result.returncode, result.stdout), (1, f"{kit}/run --out figures\nwith --out figures\n"))
        self.assertEqual([run("doctor", other, "--gpu", kit).returncode for other in ("job.yaml", "--json")], [2, 2])

    def test_the_doctor_says_what_is_missing_and_changes_nothing(self):
        job = self.write("data: {path: nowhere}\n")
        result = run("doctor", job, "--run-folder", self.folder / "run", "--json", "--disk-megabytes", "1")
        self.assertEqual((result.returncode, result.stderr), (1, ""))
        [machine] = json.loads(result.stdout)["machines"]
        data = next(finding for finding in machine["findings"] if finding["check"] == "data")
        self.assertEqual(data["level"], "problem")
        self.assertIn(f"found no folder {self.folder}/nowhere", data["found"])
        self.assertEqual(len({finding["check"] for finding in machine["findings"]} & {
            "programs", "descriptors", "threads", "memory", "processors", "clock", "gpu", "disk", "ports"}), 9)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["job.yaml"])
        shown = run("doctor", job, "--run-folder", self.folder / "run", "--disk-megabytes", "1").stdout
        self.assertRegex(shown, r"problem  data +data\.path: found no folder .*\n +needed: .*\n +to do: ")
        self.assertEqual(run("doctor", self.folder / "missing.yaml").returncode, 2)
        self.assertEqual(run("doctor", "--set", "seed=1").returncode, 2)

    def test_status_of_a_folder_that_is_no_run(self):
        for more in ((), ("--json",), ("--watch",)):
            result = run("status", self.folder, *more)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(f"found no run in {self.folder} (job.yaml); allowed is", result.stderr)

    def end_a_run(self, *events):
        """A folder as runs leave it, one event a second."""
        self.write("name: first\ntraining: {epochs: 3}\n")
        (self.folder / "scheduler.address").write_text("127.0.0.1:1\n")
        (self.folder / "events.log").write_text(
            "".join(f"2025-01-31 12:00:{second:02}.000 {event}\n" for second, event in enumerate(events)))
        (self.folder / "metrics.csv").write_text(
            "time_s,epoch,step,samples,loss,accuracy,test_accuracy\n1.5,1,10,640,0.9,0.5,\n61.5,2,20,1280,0.625,0.75,0.8\n")

    def status(self, code, *more):
        """As text, and as JSON."""
        texts = []
        for more in ((), ("--json",)):
            result = run("status", self.folder, *more)
            self.assertEqual((result.returncode, result.stderr), (code, ""))
            texts.append(result.stdout)
        watched = run("status", self.folder, "--watch")
        self.assertEqual(watched.returncode, code)
        return texts[0], json.loads(texts[1])

    def test_status_of_a_run_that_is_done(self):
        self.end_a_run("the first", *["more"] * 7, "the job will have 3 servers", "the job is done: all is trained")
        (self.folder / "summary.json").write_text('{"state": "done", "samples": 1920, "loss": 0.5, "test_accuracy": 0.9037}')
        text, shape = self.status(0)
        self.assertRegex(text, r"^job first: done at 2025-01-31 12:00:09 \(all is trained\)\n"
                               r"epoch 2/3, 1:02 trained, loss 0.500, accuracy 75.0 %\ntest accuracy 90.37 %\n"
                               r"there is no checkpoint\nenergy: not metered\nto start again: slackline train \S+job.yaml\nlast events\n"
                               r"(  2025-\S+ \S+ more\n)+")
        self.assertEqual(len(text.splitlines()), 12)
        self.assertEqual((shape["state"], shape["reason"], shape["name"]), ("done", "all is trained", "first"))
        self.assertEqual((shape["progress"]["samples_done"], shape["progress"]["test_accuracy"]), (1920, 0.9037))
        self.assertEqual((shape["curve"]["loss"], shape["events_total"]), ([0.9, 0.625], 10))

    def test_status_of_a_run_that_has_failed(self):
        self.end_a_run("the job is failed: server ps-1 died")
        # It keeps its scheduler's state.
        (self.folder / "scheduler").mkdir()
        for summary in (None, '{"los', '{"state": "failed", "loss": "high"}', '{"state": "done", "loss": 7}'):
            with self.subTest(summary):
                if summary:
                    (self.folder / "summary.json").write_text(summary)
                text, shape = self.status(1)
                self.assertIn("job first: failed at 2025-01-31 12:00:00 (server ps-1 died)\n", text)
                self.assertIn("loss 0.625, accuracy 75.0 %\ntest accuracy 80.00 %\n", text)
                self.assertEqual((shape["state"], shape["progress"]["loss"]), ("failed", 0.625))
                self.assertEqual(shape["alerts"], [{"severity": "critical", "kind": "job_failed", "text": "server ps-1 died"}])

    def test_status_of_a_run_that_was_started_by_hand_and_whose_scheduler_is_away(self):
        for last in ("epoch 1 of 3 is complete", "the scheduler goes on with 2 workers"):
            self.end_a_run("the job is failed: once before", "goes on from checkpoint 1: 5 samples", last)
            (self.folder / "scheduler").mkdir(exist_ok=True)
            result = run("status", self.folder)
            self.assertEqual(result.returncode, 1)
            self.assertIn("no scheduler answers at 127.0.0.1:1\njob first: away (the run did not end; ", result.stdout)
            self.assertIn(f"to continue: slackline-scheduler {self.folder}/job.yaml --run-folder {self.folder} --resume\n",
                          result.stdout)

    def test_status_of_a_run_that_somebody_looks_after(self):
        self.end_a_run("epoch 1 of 3 is complete")
        (self.folder / "scheduler").mkdir()
        with open(self.folder / "lock", "w") as lock:
            lock.write("process 7 on node1\n")
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            shown = run("status", self.folder)
            self.assertEqual(shown.returncode, 1)
            self.assertIn("away (process 7 on node1 supervises the run, and restarts its scheduler after a crash or after "
                          "5s of silence)\n", shown.stdout)
            self.assertNotIn("to continue", shown.stdout)
            # It goes on with a run that had failed.
            self.end_a_run("the job is failed: once before")
            self.assertIn("job first: failed", run("status", self.folder).stdout)
            (self.folder / "scheduler.address").unlink()
            self.assertIn("job first: away (process 7 on node1", run("status", self.folder).stdout)
        # Its machine is gone.
        self.end_a_run("epoch 1 of 3 is complete")
        text, shape = self.status(1)
        self.assertRegex(text, r"job first: lost, last heard of at \S+ \S+ \(the run did not end, and its "
                               r"supervisor is gone \(process 7 on node1\)\)\n")
        self.assertEqual(shape["state"], "lost")
        self.assertNotIn("restarts its scheduler", text)

    def test_runs_of_a_folder_are_listed(self):
        self.end_a_run("the job is failed: server ps-1 died")
        (self.folder / "notes").mkdir()
        with tempfile.TemporaryDirectory() as name:
            runs = pathlib.Path(name) / "runs"
            missing = run("runs", cwd=name)
            self.assertEqual((missing.returncode, missing.stdout), (2, ""))
            self.assertEqual(missing.stderr, "slackline: found no folder runs; allowed is a folder that holds run folders: name one, "
                                             "or run `slackline train JOB.yaml`, which makes runs/\n")
            runs.mkdir()
            empty = run("runs", cwd=name)
            self.assertEqual((empty.returncode, empty.stdout, empty.stderr), (0, "There are no runs in runs.\n", ""))
            shutil.copytree(self.folder, runs / "first")
            (runs / "broken").mkdir()
            (runs / "broken" / "job.yaml").write_text("name: [")
            listed = run("runs", "--json", cwd=name)
            self.assertEqual((listed.returncode, listed.stderr), (0, ""))
            found = {entry["name"]: (entry["state"], entry["epochs"], entry["best_test_accuracy"]) for entry in json.loads(listed.stdout)}
            self.assertEqual(found, {"first": ("failed", 3, 0.8), "broken": ("lost", None, None)})
            self.assertRegex(run("runs", runs).stdout, r"\nfirst +failed +ssp +2 +2 +0/3 +80\.00 % +[0-9]+ s +[0-9.]+ B\n")

    def test_a_connection_that_is_not_made_in_time_is_tried_again(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            result = run("status", f"127.0.0.1:{silent.getsockname()[1]}")
            self.assertEqual(result.returncode, 1)
            silent.setblocking(False)
            for _ in range(2):
                silent.accept()[0].close()

    def test_status_where_nobody_listens(self):
        result = run("status", "127.0.0.1:1")
        self.assertEqual((result.returncode, result.stderr),
                         (1, "slackline: no scheduler answers at 127.0.0.1:1 (the run has ended?)\n"))


if __name__ == "__main__":
    SLACKLINE, EXAMPLES = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1], verbosity=1)
