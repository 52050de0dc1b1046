"""Runs in allocations of a real SLURM of four nodes, which this starts on this machine.

    run_slurm.py --programs BIN_FOLDER [--patience FACTOR] [--package FOLDER] [TEST...]

--package: the Python package, built for this interpreter, which then has torch; for tests of scripts.
Exits with 77 (skipped) where SLURM, the programs or the data are not there.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from run_e2e import DATA, MLP, NEEDED  # noqa: E402
from run_network import free_range, listening  # noqa: E402
from slackline_run import Programs, processes_with  # noqa: E402
from slurm_cluster import SlurmCluster, missing  # noqa: E402

OPTIONS = argparse.Namespace()
CLUSTER = None

SMALL = MLP + """
data: {train_images_max: 6000}
training: {epochs: 4, evaluate_every_epochs: 0}
cluster: {servers: 2, shards_per_server: 2}
durability: {snapshot_every_s: 1}
"""


def setUpModule():
    global CLUSTER
    folder = tempfile.TemporaryDirectory(prefix="slackline-slurm-")
    CLUSTER = SlurmCluster(folder.name)

    def stop():
        CLUSTER.stop()
        folder.cleanup()

    unittest.addModuleCleanup(stop)
    CLUSTER.start()
    programs = Programs(OPTIONS.programs, OPTIONS.patience)
    try:
        programs.wait_for("four idle nodes", lambda: len(CLUSTER.idle()) == 4, 60)
    except AssertionError as error:
        raise AssertionError(CLUSTER.log()) from error


class Submitted:
    """A job of SLURM and its run."""

    def __init__(self, number, folder):
        self.number = number
        self.folder = folder

    def said(self):
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("submit/slurm-*.out")))

    def events(self):
        path = self.folder / "events.log"
        return path.read_text() if path.exists() else ""

    def rows(self):
        path = self.folder / "metrics.csv"
        text = path.read_text() if path.exists() else ""
        return [int(row.split(",")[3]) for row in text[:text.rfind("\n") + 1].splitlines()[1:]]

    def plan(self, attempt=0):
        path = self.folder / f"nodes/{self.number}-{attempt}/plan.json"
        return {node["node"]: node for node in json.loads(path.read_text())["nodes"]} if path.exists() else {}

    def plan_script(self, attempt=0):
        return json.loads((self.folder / f"nodes/{self.number}-{attempt}/plan.json").read_text())["script"]

    def processes(self, node):
        path = self.folder / f"processes-{node}.json"
        return {entry["name"]: entry for entry in json.loads(path.read_text())} if path.exists() else {}

    def diagnosis(self):
        parts = [self.said()[-4000:], self.events()[-3000:]]
        for log in (*sorted(self.folder.glob("nodes/*/*.log")), *sorted(self.folder.glob("logs/*.log"))):
            parts.append(f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}")
        return "\n".join(parts)


class Slurm(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-slurm-run-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)
        self.wait_for("idle nodes", lambda: len(CLUSTER.idle()) == 4, 90)

    def tearDown(self):
        CLUSTER.run("scancel", "--user=root", check=False)
        self.wait_for("an empty queue", lambda: not CLUSTER.run("squeue", "-h").strip(), 90)
        self.wait_for("the end of all processes", lambda: not processes_with(str(self.root)), 30)

    def wait_for(self, what, condition, seconds, job=None):
        try:
            return self.programs.wait_for(what, condition, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{job.diagnosis() if job else CLUSTER.log()}") from error

    def slackline(self, *arguments, code=0):
        done = subprocess.run([self.programs.path("slackline"), *map(str, arguments)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=120 * OPTIONS.patience, env=CLUSTER.environment, cwd=self.root)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def submit(self, *arguments, yaml=SMALL, sbatch=("--nodes=4", "--time=10")):
        (self.root / "job.yaml").write_text(yaml)
        job = () if "--resume" in arguments else (self.root / "job.yaml",)
        out = self.slackline("slurm", "submit", *job, "--run-folder", self.root / "run", *arguments, "--", *sbatch)
        return Submitted(int(re.search(r"Submitted job (\d+)", out).group(1)), self.root / "run")

    def write(self, yaml):
        (self.root / "job.yaml").write_text(yaml)
        return self.root / "job.yaml"

    def finish(self, job, state="COMPLETED", seconds=240):
        done = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "")
        self.wait_for("the end of the job", lambda: CLUSTER.state(job.number) in done, seconds, job)
        self.assertEqual(CLUSTER.state(job.number), state, job.diagnosis())

    def trains(self, job, samples=1):
        self.wait_for("training", lambda: max(job.rows(), default=0) >= samples, 120, job)

    def of_node(self, node):
        """Processes of this test on the node: the daemons of their steps first."""
        tasks, daemons = [], []
        for pid in processes_with(str(self.root)):
            try:
                if f"SLURMD_NODENAME={node}\0" not in pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace"):
                    continue
                parent = int(re.search(r"PPid:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1))
                if pathlib.Path(f"/proc/{parent}/comm").read_text().startswith("slurmstepd"):
                    daemons.append(parent)
                tasks.append(pid)
            except OSError:
                pass
        return [*dict.fromkeys(daemons), *tasks]

    def epochs(self, count):
        return SMALL.replace("epochs: 4", f"epochs: {count}")

    def replace_program(self, name, script):
        """From now on the programs are those of a folder of this test, with this shell script in the place of one of them; REAL
        stands for the folder of the real ones."""
        real, own = self.programs.folder, self.root / "bin"
        own.mkdir()
        # It looks for the others beside itself; they find their libraries from where they were built.
        shutil.copy2(real / "slackline", own)
        for program in set(NEEDED) - {"slackline"}:
            path = own / program
            path.write_text("#!/bin/sh\n" + (script if program == name else f'exec REAL/{program} "$@"\n').replace("REAL", str(real)))
            path.chmod(0o755)
        self.programs = Programs(own, OPTIONS.patience)

    def slow_checkpoints(self):
        """A function that makes each file of a checkpoint take so many milliseconds more from now on."""
        control, library = self.root / "slow_sync.txt", self.root / "slow_sync.so"
        done = subprocess.run(["cc", "-shared", "-fPIC", f'-DCONTROL="{control}"', ROOT / "tests/slurm/slow_sync.c", "-o", library, "-ldl"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.replace_program("slackline-ps", f'LD_PRELOAD={library} exec REAL/slackline-ps "$@"\n')
        return lambda delay_ms: control.write_text(f"/checkpoints/ {delay_ms}\n")

    def lose(self, node):
        """A node that is gone takes its processes along at once, and says nothing: what is still there when srun is gone
        would end the step."""
        gone = (CLUSTER.pid(node), *self.of_node(node))
        self.addCleanup(CLUSTER.run, "slurmd", "-N", node)
        # Children before their parents: stopped processes whose parents are gone are told to hang up, and go on.
        for number, pids in ((signal.SIGSTOP, gone), (signal.SIGKILL, reversed(gone))):
            for pid in pids:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass  # it went with another

    def test_four_nodes_train_together(self):
        job = self.submit()
        self.finish(job)
        plan = job.plan()
        self.assertEqual([node["workers"] for node in plan.values()], [[f"worker-n{n}"] for n in range(1, 5)], plan)
        # One on each leaf switch.
        self.assertEqual((plan["n1"]["servers"], plan["n3"]["servers"]), (["ps-1"], ["ps-2"]))
        self.assertTrue(plan["n1"]["scheduler"])
        self.assertTrue((job.folder / "model.safetensors").exists())
        self.assertIn("Test accuracy", job.said())
        self.assertEqual(json.loads((job.folder / "summary.json").read_text())["state"], "done")

    def test_each_node_has_a_worker_of_each_group(self):
        yaml = SMALL.replace("worker: {", "worker: {groups: [{devices: [cpu, cpu], batch: 48}, {devices: cpu, batch: 16}], ")
        self.assertIn("worker-node2-group1", self.slackline("placement", self.write(yaml), "--count=2"))
        job = self.submit(yaml=yaml, sbatch=("--nodes=2", "--time=10"))
        self.finish(job)
        summary = json.loads((job.folder / "summary.json").read_text())
        self.assertEqual((summary["workers"], summary["samples"], summary["deaths"]), (4, 4 * 6000, 0))
        steps = {one["name"]: one["samples"] / one["steps"] for one in summary["worker_list"]}
        self.assertEqual(sorted(steps), [f"worker-{node}-group{group}" for node in ("n1", "n2") for group in (0, 1)])
        for name, batch in steps.items():
            self.assertLessEqual(batch, 48 if name.endswith("group0") else 16)
            self.assertGreater(batch, 32 if name.endswith("group0") else 8)

    def test_the_network_and_the_log_format_of_the_job_hold(self):
        # The nodes are one machine: calls and metrics of the scheduler and two servers, metrics of four workers.
        low, high = free_range(12)
        prolog = self.root / "prolog"
        prolog.write_text(f"#!/bin/sh\ntouch {self.root}/step\n")
        prolog.chmod(0o755)
        job = self.submit(f"--srun-option=--prolog={prolog}", "--set", "output.log_format=json", "--set", "network.interface=127.0.0.0/8", "--set",
                          f"network.ports={low}-{high}", yaml=self.epochs(10000))
        self.trains(job)
        self.assertTrue((self.root / "step").exists(), "srun has run no prolog")
        sockets = {}
        for path in job.folder.glob("processes*.json"):
            for entry in json.loads(path.read_text()):
                sockets[entry["name"]] = listening(entry["pid"])
        self.assertEqual(sorted(map(len, sockets.values())), [1, 1, 1, 1, 2, 2, 2], sockets)
        for name, found in sockets.items():
            self.assertTrue(all(low <= port <= high for _, port in found), (name, found, low, high))
        for log in job.folder.glob("logs/*.log"):
            self.assertTrue(all(json.loads(line)["process"] == log.stem for line in log.read_text().splitlines()), log)
        self.assertIn('"message":"Training e2e: 2 servers, 4 workers', job.said())
        CLUSTER.run("scancel", str(job.number))
        self.finish(job, "CANCELLED")

    def test_a_script_as_the_workers_is_requeued_and_resumed(self):
        if not OPTIONS.package:
            self.skipTest("without --package")
        examples = ROOT / "examples/python"
        # As sbatch gives it on; and from another folder than the script's.
        CLUSTER.environment["PYTHONPATH"] = str(OPTIONS.package)
        self.addCleanup(CLUSTER.environment.pop, "PYTHONPATH")
        yaml = (examples / "patterns.yaml").read_text().replace("epochs: 4", "epochs: 100000") + "checkpoint: {every_s: 1}\n"
        job = self.submit("--script", os.path.relpath(examples / "patterns.py", self.root), "--python", sys.executable,
                          "--script-argument=--pictures", "--script-argument", "2000", yaml=yaml,
                          sbatch=("--nodes=2", "--cpus-per-task=4", "--time=10"))
        self.trains(job)
        command = job.plan_script()
        self.assertEqual([os.path.normpath(command[1]), *command[2:]], [str(examples / "patterns.py"), "--pictures", "2000"])
        # A node's share of its CPUs, and what SLURM calls its place.
        worker = job.processes("n1")["worker-n1"]["pid"]
        environment = pathlib.Path(f"/proc/{worker}/environ").read_text().split("\0")
        self.assertIn("SLACKLINE_SUPERVISED=1", environment)
        self.assertIn("SLACKLINE_TOPOLOGY=spine.leaf1.n1", environment)
        self.assertTrue(any(one.startswith("SLACKLINE_SET=") and "worker.threads=3" in one for one in environment), environment)
        # As its time is nearly over.
        CLUSTER.run("scancel", "--batch", "--signal=USR1", str(job.number))
        self.wait_for("the second attempt", lambda: "Going on from " in job.said() and job.plan(1), 120, job)
        self.assertIn("requeued", job.said())
        self.assertEqual(job.plan_script(1), command)
        begun = job.rows()[-1]
        self.wait_for("more training", lambda: job.rows()[-1] > begun, 120, job)
        # SIGTERM goes to all, and the scripts leave it to the supervisors.
        CLUSTER.run("scancel", str(job.number))
        self.finish(job, "CANCELLED")
        self.assertNotIn("SystemExit", job.diagnosis())
        last = int((job.folder / "metrics.csv").read_text().splitlines()[-1].split(",")[1])
        again = self.submit("--resume", "--set", f"training.epochs={last + 3}", sbatch=("--nodes=1", "--time=10"))
        self.finish(again)
        self.assertEqual(again.plan_script(), command)
        self.assertRegex((job.folder / "logs/worker-n1.log").read_text(), r"worker-n1 took \d+ steps: training is complete")
        self.assertEqual(json.loads((job.folder / "summary.json").read_text())["state"], "done")

    def test_too_few_ports_are_refused_before_training(self):
        job = self.submit("--set", "network.ports=20000-20006")
        self.finish(job, "FAILED")
        self.assertIn("found 20000-20006, which is 7 ports; allowed are at least ", job.said())
        self.assertEqual(job.rows(), [])

    def test_the_script_of_the_tree(self):
        (self.root / "job.yaml").write_text(SMALL)
        environment = dict(CLUSTER.environment, PATH=f"{self.programs.folder}:{CLUSTER.environment['PATH']}")
        done = subprocess.run(["sbatch", "--parsable", "--nodes=2", "--time=10", "--output=out.log", ROOT / "slurm/slackline.sbatch",
                               "job.yaml", "--set", "training.epochs=1"], env=environment, capture_output=True, text=True,
                              cwd=self.root, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        number = int(done.stdout)
        job = Submitted(number, self.root / f"runs/e2e-slurm-{number}")
        self.finish(job)
        self.assertTrue((job.folder / "model.safetensors").exists(), (self.root / "out.log").read_text())

    def test_before_the_wall_limit_it_is_requeued_and_goes_on(self):
        """The limit is 4 minutes, and 2 of that are for saving; SLURM's signal may come a minute too early."""
        job = self.submit("--stop-before", "120", yaml=self.epochs(100000), sbatch=("--nodes=4", "--time=4"))
        self.wait_for("the second attempt", lambda: "Going on from " in job.said(), 400, job)
        said = job.said()
        self.assertRegex(said, r"Saving the run, and stopping: (the time of the job will be over in|SIGUSR1 says)")
        self.assertIn("requeued", said)
        before = int(re.search(r"goes on from checkpoint \d+: (\d+) samples", self.wait_for(
            "the second attempt's events", lambda: "goes on from checkpoint" in job.events() and job.events(), 60, job)).group(1))
        self.assertGreater(before, 0)
        self.wait_for("more training", lambda: job.rows()[-1] > before, 120, job)
        self.assertEqual(sorted(job.plan(1)), ["n1", "n2", "n3", "n4"])

    def test_another_number_of_nodes_goes_on(self):
        job = self.submit("--no-requeue", yaml=self.epochs(100000))
        self.trains(job, 6000)
        CLUSTER.run("scancel", "--batch", "--signal=USR1", str(job.number))
        self.finish(job, "FAILED")
        self.assertIn("to continue: submit the run again with --resume", job.said())
        last = int((job.folder / "metrics.csv").read_text().splitlines()[-1].split(",")[1])
        again = self.submit("--resume", "--set", f"training.epochs={last + 8}", sbatch=("--nodes=2", "--time=10"))
        self.finish(again)
        self.assertIn("Going on from", again.said())
        self.assertEqual(len(again.plan()), 2)

    def test_cancelled_it_saves_itself_and_stays_away(self):
        job = self.submit(yaml=self.epochs(100000))
        self.trains(job)
        CLUSTER.run("scancel", str(job.number))
        self.finish(job, "CANCELLED")
        self.assertTrue(list(job.folder.glob("checkpoints/checkpoint-000001")), job.diagnosis())
        self.assertNotIn("requeued", job.said())

    def test_a_lost_node_costs_its_processes(self):
        job = self.submit(yaml=self.epochs(100000))
        self.wait_for("snapshots", lambda: "all shards are on disk" in job.events(), 120, job)
        # The supervisor of the node with ps-2, and with it all that it looks after.
        victim = next(node for node, roles in job.plan().items() if "ps-2" in roles["servers"])
        self.assertNotEqual(victim, "n1")
        child = job.processes(victim)["ps-2"]["pid"]
        supervisor = int(re.search(r"PPid:\s+(\d+)", pathlib.Path(f"/proc/{child}/status").read_text()).group(1))
        os.kill(supervisor, signal.SIGKILL)
        self.wait_for("another node for ps-2", lambda: f"ps-2 does not come back on {victim}: it is started on" in job.said(), 120, job)
        trained = self.wait_for("its return", lambda: "goes on from its snapshots" in job.events() and job.rows()[-1], 120, job)
        self.trains(job, trained + 6000)
        plan = job.plan()
        self.assertEqual(plan[victim]["servers"], [])

    def test_a_lost_batch_node_requeues_the_job(self):
        job = self.submit("--set", "checkpoint.every_s=1", yaml=self.epochs(100000), sbatch=("--nodes=3", "--time=10"))
        self.wait_for("a checkpoint", lambda: "checkpoint 1 is on disk" in job.events(), 120, job)
        self.lose("n1")
        self.wait_for("the second attempt", lambda: "Going on from " in job.said(), 240, job)
        self.assertNotIn("n1", job.plan(1))

    def test_a_batch_node_that_is_lost_while_the_run_starts_requeues_the_job(self):
        go = self.root / "go"
        self.replace_program("slackline-scheduler", f'while [ ! -e {go} ]; do sleep 0.2; done\nexec REAL/slackline-scheduler "$@"\n')
        job = self.submit(yaml=self.epochs(100000), sbatch=("--nodes=3", "--time=20"))
        # All nodes are there, and wait for a plan that there is once the scheduler has said where it is.
        self.wait_for("the scheduler to be started", lambda: any("slackline-scheduler" in " ".join(arguments) for arguments in (
            pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0") for pid in self.of_node("n1"))), 120, job)
        self.assertEqual(job.plan(), {})
        self.lose("n1")
        go.touch()
        self.wait_for("the second attempt", lambda: job.plan(1), 240, job)
        self.trains(job)
        self.assertNotIn("n1", job.plan(1))
        self.assertRegex(job.diagnosis(), r"nothing was heard of the launcher, nor of the scheduler, in 45 looks: the job is requeued")

    def test_a_task_of_an_array_saves_for_longer_than_45_s_before_its_wall_limit(self):
        """The limit is 4 minutes, and 2 of that are for saving, which takes one: longer than a launcher may be silent."""
        slow_down = self.slow_checkpoints()
        array = self.submit("--stop-before", "120", yaml=self.epochs(100000), sbatch=("--nodes=2", "--time=4", "--array=4"))
        job = Submitted(array.number, array.folder / "4")
        self.trains(job)
        slow_down(14000)  # two shards of a server, and their folder after each
        self.wait_for("the end of the time", lambda: "Saving the run, and stopping: " in array.said(), 300, array)
        begun = time.monotonic()
        self.wait_for("the last checkpoint", lambda: "requeued: it goes on" in array.said(), 120, array)
        self.assertGreater(time.monotonic() - begun, 45, array.diagnosis())
        slow_down(0)
        self.wait_for("the second attempt", lambda: "Going on from " in array.said(), 240, array)
        self.assertIn(f"Going on from {job.folder}/checkpoints/checkpoint-", array.said())
        before = int(re.search(r"goes on from checkpoint \d+: (\d+) samples", self.wait_for(
            "the second attempt's events", lambda: "goes on from checkpoint" in job.events() and job.events(), 60, job)).group(1))
        self.assertGreater(before, 0)
        self.wait_for("more training", lambda: job.rows()[-1] > before, 120, job)
        self.assertNotIn("nothing was heard of the launcher", job.diagnosis())

    def test_cancelled_while_it_saves_it_goes_on_from_a_checkpoint_that_is_whole(self):
        slow_down = self.slow_checkpoints()
        job = self.submit(yaml=self.epochs(100000))
        self.trains(job)
        self.assertIn("checkpoint-000001", self.slackline("checkpoint", job.folder))
        slow_down(20000)
        with subprocess.Popen([self.programs.path("slackline"), "checkpoint", job.folder], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as asked:
            self.wait_for("a checkpoint that is being written", lambda: [
                path for path in job.folder.glob("checkpoints/*") if path.name != "checkpoint-000001" and list(path.iterdir())], 60, job)
            CLUSTER.run("scancel", str(job.number))
            # KillWait is 10 s: it cannot be whole by then.
            self.finish(job, "CANCELLED")
            asked.wait(60 * OPTIONS.patience)
        self.assertNotEqual(asked.returncode, 0)
        slow_down(0)
        self.assertEqual([path.name for path in job.folder.glob("checkpoints/checkpoint-??????")], ["checkpoint-000001"], job.diagnosis())
        self.slackline("checkpoints", job.folder, "--verify")
        self.wait_for("the end of all processes", lambda: not processes_with(str(job.folder)), 60, job)
        again = self.submit("--resume")
        self.wait_for("its return", lambda: "Going on from " in again.said(), 120, again)
        self.assertIn("checkpoints/checkpoint-000001", again.said())
        before = int(re.search(r"goes on from checkpoint 1: (\d+) samples", self.wait_for(
            "its events", lambda: "goes on from checkpoint" in again.events() and again.events(), 60, again)).group(1))
        self.wait_for("more training", lambda: again.rows() and again.rows()[-1] > before, 120, again)

    def test_a_heterogeneous_job_has_its_servers_in_the_first_component(self):
        job = self.submit(sbatch=("--nodes=1", "--time=10", ":", "--nodes=2", "--time=10", "--ntasks-per-node=1"))
        self.finish(job)
        plan = job.plan()
        first, *others = plan.values()
        self.assertEqual((first["servers"], first["workers"]), (["ps-1", "ps-2"], []), plan)
        self.assertEqual([len(node["workers"]) for node in others], [1, 1])

    def test_tasks_of_an_array_have_folders_of_their_own(self):
        job = self.submit("--set", "training.epochs=1", "--set", "seed=%a", sbatch=("--nodes=2", "--time=10", "--array=3,5"))
        self.wait_for("both", lambda: all((job.folder / task / "model.safetensors").exists() for task in "35"), 240, job)
        for task in "35":
            self.assertIn(f"\nseed: {task}\n", (job.folder / task / "job.yaml").read_text())

    def test_an_experiment_submits_its_runs_and_collects_their_results(self):
        self.write(SMALL.replace("epochs: 4", "epochs: 1"))
        (self.root / "trial.yaml").write_text("job: job.yaml\nrun: train\ngrid: {consistency.mode: [bsp, ssp]}\nplots: [accuracy-epochs]\n")
        command = ("experiment", "trial.yaml", "--slurm")
        said = self.slackline(*command, "--", "--nodes=2", "--time=10", "--hold")
        first, second = re.findall(r"mode-\w+/1: submitted as SLURM job (\d+)", said)
        said = self.slackline(*command, "--", "--nodes=2", "--time=10")
        self.assertEqual(re.findall(r"SLURM job (\d+) is PENDING \(JobHeldUser\)", said), [first, second])
        CLUSTER.run("scancel", first)
        CLUSTER.run("scontrol", "release", second)
        # The cancelled run is submitted again. Waiting and running ones are not.
        said = self.slackline(*command, "--wait", "--", "--nodes=2", "--time=10")
        self.assertIn(f"mode-bsp/1: FAILED (SLURM job {first} ended without a result)", said)
        self.assertRegex(said, r"mode-bsp/1: submitted as SLURM job \d+\n")
        self.assertNotIn("mode-ssp/1: submitted", said)
        results = (self.root / "experiments/trial/results.csv").read_text().splitlines()
        rows = [dict(zip(results[0].split(","), line.split(","))) for line in results[1:]]
        self.assertEqual([(row["consistency.mode"], row["state"], row["workers"]) for row in rows], [("bsp", "done", "2"), ("ssp", "done", "2")])
        self.assertTrue(all(float(row["test_accuracy"]) > 0.5 for row in rows), rows)
        self.assertIn("2 of 2 runs are complete.", self.slackline(*command))

    def test_a_preempted_task_of_an_array_goes_on_with_its_backups(self):
        array = self.submit("--set", "durability.mode=replicated", yaml=self.epochs(100000), sbatch=("--nodes=4", "--time=10", "--array=7"))
        job = Submitted(array.number, array.folder / "7")
        self.trains(job)
        self.wait_for("backups", lambda: job.events().count(" is in step with ") >= 2, 60, job)
        urgent = CLUSTER.run("sbatch", "--parsable", "--partition=urgent", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap",
                             "true").strip()
        self.wait_for("the urgent job", lambda: CLUSTER.state(urgent) == "COMPLETED", 120, array)
        self.assertIn("SLURM tells it to stop", array.said())
        self.wait_for("the second attempt", lambda: "Going on from " in array.said(), 240, array)
        before = int(re.search(r"goes on from checkpoint \d+: (\d+) samples", self.wait_for(
            "the second attempt's events", lambda: "goes on from checkpoint" in job.events() and job.events(), 60, job)).group(1))
        self.wait_for("more training", lambda: job.rows()[-1] > before, 120, job)

    def test_servers_are_added_and_drained(self):
        job = self.submit(yaml=self.epochs(100000))
        self.trains(job)
        self.assertIn("the run will have 3 servers", self.slackline("servers", "add", job.folder))
        self.assertIn("ps-3 was added: it is started on", job.said())
        self.slackline("servers", "drain", job.folder, "ps-1")
        self.trains(job, job.rows()[-1] + 1000)

    def status(self, run, code=0):
        return json.loads(self.slackline("status", run, "--json", code=code))

    def test_one_that_waits_in_the_queue_is_pending(self):
        job = self.submit(sbatch=("--nodes=4", "--time=10", "--hold"))
        status = self.status(job.folder)
        self.assertEqual((status["state"], status["name"], status["go_on"]), ("pending", "e2e", ""))
        self.assertEqual(status["reason"], f"SLURM job {job.number} is PENDING (JobHeldUser)")
        self.assertIn(f"job e2e: pending (SLURM job {job.number} is PENDING (JobHeldUser))", self.slackline("status", job.folder))
        CLUSTER.run("scancel", str(job.number))
        self.wait_for("an empty queue", lambda: not CLUSTER.run("squeue", "-h").strip(), 60)
        self.assertIn("found no run in", self.slackline("status", job.folder, code=2))

    def test_one_that_is_not_over_is_not_gone_on_with(self):
        job = self.submit("--set", "training.epochs=400")
        self.wait_for("training", lambda: any(job.rows()), 120, job)
        files = sorted(path.name for path in (job.folder / "submit").iterdir())
        refused = self.slackline("slurm", "submit", "--resume", "--run-folder", job.folder, "--", "--nodes=2", code=2)
        self.assertRegex(refused, rf"the run in \S+ is not over: SLURM job {job.number} is RUNNING on n\[1-4\]; allowed is")
        self.assertEqual(files, sorted(path.name for path in (job.folder / "submit").iterdir()), "nothing was touched")

    def test_the_placement_is_shown(self):
        (self.root / "job.yaml").write_text(SMALL)
        out = self.slackline("placement", "job.yaml", "--nodes", "n[1-4]")
        self.assertRegex(out, r"(?m)^n1 +leaf1 +4 +0  scheduler, ps-1, worker-n1$")
        self.assertRegex(out, r"(?m)^n3 +leaf2 +4 +0  ps-2, worker-n3$")
        self.assertIn("4 shards, 2 a server", out)
        self.assertIn("node2", self.slackline("placement", "job.yaml", "--count", "2"))
        self.assertIn("found no nodes", self.slackline("placement", "job.yaml", code=2))
        self.assertIn("--nodes: found n8, n9, which this cluster of SLURM does not have",
                      self.slackline("placement", "job.yaml", "--nodes", "n[1-2,8-9]", code=2))

    def test_the_plan_measures_a_node_of_each_kind(self):
        (self.root / "job.yaml").write_text(SMALL)
        done = subprocess.run(["salloc", "--nodes=4", "--time=10", self.programs.path("slackline"), "plan", self.root / "job.yaml", "--batch",
                               "64", "--nodes", "1+0,2+2", "--measure", "4s", "--json"], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=240 * OPTIONS.patience, env=CLUSTER.environment, cwd=self.root)
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        self.assertEqual([(kind["name"], kind["nodes"]) for kind in plan["kinds"]],
                         [("4 CPUs, first", ["n1", "n2"]), ("4 CPUs, second", ["n3", "n4"])])
        for kind in plan["kinds"]:
            self.assertGreaterEqual(kind["measured"][0]["steps"], 5)
        self.assertEqual([(cell["nodes"], cell["nodes_by_kind"]) for cell in plan["plan"]], [(1, [1, 0]), (4, [2, 2])])
        self.assertGreater(plan["plan"][1]["samples_per_second"], plan["plan"][0]["samples_per_second"])

    def test_the_doctor_looks_at_all_nodes(self):
        (self.root / "job.yaml").write_text(SMALL)
        done = subprocess.run(["salloc", "--nodes=4", "--time=5", self.programs.path("slackline"), "doctor", self.root / "job.yaml",
                               "--run-folder", self.root / "run", "--disk-megabytes", "1", "--json"], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=240 * OPTIONS.patience, env=CLUSTER.environment, cwd=self.root)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        machines = {machine["host"]: {finding["check"]: finding for finding in machine["findings"]}
                    for machine in json.loads(done.stdout)["machines"]}
        self.assertEqual(sorted(machines), ["all nodes", "n1", "n2", "n3", "n4"], done.stdout)
        for node in ("n1", "n2", "n3", "n4"):
            self.assertLessEqual({"programs", "data", "memory", "disk", "ports", "clock beside the first node"}, set(machines[node]))
            self.assertEqual(machines[node]["clock beside the first node"]["level"], "ok", machines[node])
        whole = machines["all nodes"]
        self.assertEqual(whole["nodes"]["found"], "all 4 have answered")
        links = whole["links"]
        self.assertEqual(links["level"], "ok", links)
        self.assertRegex(links["found"], r"^6 pairs of 4 nodes \(all, one after the other\): median [0-9]+ MB/s, [0-9.]+ .?s there and "
                                         r"back; slowest n[1-3] - n[2-4] with [0-9]+ MB/s, .*; longest round trip n[1-3] - n[2-4] with ")
        # As the cluster of these tests has them.
        self.assertEqual((whole["slurm KillWait"]["level"], whole["slurm KillWait"]["found"]), ("warning", "KillWait=10 s"))
        self.assertEqual(whole["slurm process tracking"]["found"], "proctrack/linuxproc")
        self.assertEqual(whole["slurm preemption"]["level"], "ok")

    def test_wrong_use_is_named(self):
        (self.root / "job.yaml").write_text(SMALL)
        self.assertIn("--nodes: found n8, n9, which this cluster of SLURM does not have",
                      self.slackline("placement", "job.yaml", "--nodes", "n[1-2,8-9]", code=2))
        self.assertIn("SLURM_JOB_ID is not set: not inside a SLURM allocation; allowed is",
                      self.slackline("slurm", "run", "job.yaml", code=2))
        self.assertIn("found no file none.py; allowed is a script in Python", self.slackline(
            "slurm", "submit", "job.yaml", "--script", "none.py", code=2))
        self.assertIn("model.kind: found external; allowed is", self.slackline(
            "slurm", "submit", "job.yaml", "--set", "model.kind=external", code=2))
        self.assertIn("found no job file; allowed is one", self.slackline("slurm", "submit", code=2))
        self.assertIn("found --resume without --run-folder", self.slackline("slurm", "submit", "--resume", code=2))
        self.assertIn("lr: found 'x'", self.slackline("slurm", "submit", "job.yaml", "--set", "optimizer.lr=x", code=2))
        self.assertIn("sbatch: ", self.slackline("slurm", "submit", "job.yaml", "--run-folder", "r", "--", "--partition=none", code=1))
        self.assertFalse((self.root / "r").exists(), "nothing is left of what was not submitted")
        self.assertIn("#SBATCH --signal=B:USR1@60", self.slackline("slurm", "submit", "job.yaml", "--stop-before", "60", "--dry-run"))


def main(case="Slurm", every=()):
    """Runs the tests of `case` in the program's module that are asked for; `every`: those of a run that asks for none."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", required=True, type=pathlib.Path)
    parser.add_argument("--patience", type=float, default=1.0)
    parser.add_argument("--package", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    absent = [name for name in NEEDED if not (OPTIONS.programs / name).exists()]
    why = missing() or (f"found no {', '.join(absent)}" if absent else "") or ("" if DATA.exists() else f"found no {DATA}")
    if why:
        print("SKIP:", why)
        return 77
    tests = [f"{case}.{name}" for name in OPTIONS.tests or every]
    program = unittest.main(argv=[sys.argv[0], "-v", *tests], exit=False)
    return 0 if program.result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
