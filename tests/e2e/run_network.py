"""Where the processes of a run listen: the interface and the ports that its job names.

    run_network.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs or the data are not there.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import unittest

from run_e2e import DATA, MLP, NEEDED
from slackline_run import Programs, TrainRun

OPTIONS = argparse.Namespace()

# Ended by the tests.
LONG = MLP + """
data: {train_images_max: 6000}
training: {epochs: 10000, evaluate_every_epochs: 0}
cluster: {servers: 2, workers: 2, shards_per_server: 2, server_restarts_max: 3}
durability: {snapshot_every_s: 1}
"""
# Calls and metrics of the scheduler and of both servers, metrics of both workers.
NEEDED_PORTS = 8


def free_range(count):
    """(low, high) of `count` ports that nobody listens on just now, below those that systems give out by themselves."""
    first = 10000 + os.getpid() * 37 % 18000
    for low in range(first, 32000, count):
        with contextlib.ExitStack() as held:
            try:
                for port in range(low, low + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return low, low + count - 1
    raise AssertionError(f"found no {count} free ports in a row")


def listening(pid):
    """(address, port) of each TCP socket that this process listens on."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(entry)))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].split(":")
                found.add((address, int(port, 16)))
    return found


class Network(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-network-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)
        self.job = self.root / "job.yaml"

    def start(self, network):
        self.job.write_text(LONG + f"network: {network}\n")
        run = TrainRun(self.programs, self.root, self.job)
        self.addCleanup(run.close)
        return run

    def refused(self, network, program="slackline", code=2):
        """What `program` says of this network as it ends."""
        self.job.write_text(LONG + f"network: {network}\n")
        arguments = ["train"] if program == "slackline" else []
        done = subprocess.run([self.programs.path(program), *arguments, str(self.job), "--run-folder", str(self.root / "refused")],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60 * OPTIONS.patience)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stderr

    def check_sockets(self, run, low, high):
        loopback = "%08X" % int.from_bytes(socket.inet_aton("127.0.0.1"), sys.byteorder)
        count = 0
        for name, member in run.members().items():
            sockets = listening(member["pid"])
            self.assertEqual(len(sockets), 1 if name.startswith("worker") else 2, (name, sockets))
            for address, port in sockets:
                # gRPC's sockets are of IPv6, with the address of IPv4 at its end.
                self.assertIn(address, (loopback, "0" * 16 + "FFFF0000" + loopback), name)
                self.assertTrue(low <= port <= high, f"{name} listens on {port}, outside {low}-{high}")
            count += len(sockets)
        self.assertEqual(count, NEEDED_PORTS)
        self.assertEqual(listening(run.process.pid), set())

    def test_all_sockets_are_in_the_range(self):
        for interface in ("lo", "127.0.0.0/8"):
            low, high = free_range(NEEDED_PORTS + 2)
            run = self.start(f"{{interface: {interface}, ports: {low}-{high}}}")
            run.wait_for_training()
            self.check_sockets(run, low, high)
            run.wait_for_snapshots()
            run.kill("ps-1")
            self.programs.wait_for(lambda: f"ps-1 to be started again\n{run.diagnosis()}",
                                   lambda: "ps-1 is started again" in run.stdout(), 60, run.process)
            run.wait_for_training(int(run.rows()[-1]["samples"]) + 20000)
            self.check_sockets(run, low, high)
            run.process.terminate()
            run.wait()
            run.folder.rename(self.root / interface.split("/")[0])

    def test_a_metrics_port_wins_over_the_range(self):
        low, high = free_range(NEEDED_PORTS)
        metrics = low
        run = self.start(f"{{interface: lo, ports: {low + 1}-{high}, metrics_port: {metrics}}}")
        run.wait_for_training()
        ports = {port for _, port in listening(run.members()["scheduler"]["pid"])}
        self.assertIn(metrics, ports)
        self.assertEqual(len(ports), 2)
        run.process.terminate()
        run.wait()

    def test_what_cannot_be_is_refused_before_anything_starts(self):
        self.assertRegex(self.refused("{interface: no-such-one}"),
                         r"network.interface: found no network interface no-such-one; here are .*lo \(127\.0\.0\.1\)")
        self.assertIn("found '10.0.0.0/40'; allowed is", self.refused("{interface: 10.0.0.0/40}"))
        self.assertIn("found '20-10'; allowed is LOW-HIGH", self.refused("{ports: 20-10}"))
        self.assertIn(f"found 20000-20006, which is 7 ports; allowed are at least {NEEDED_PORTS} for the processes of "
                      "this job on this machine", self.refused("{ports: 20000-20006}"))
        self.assertFalse((self.root / "refused").exists())

    def test_servers_that_would_find_no_port_are_refused_and_one_that_found_none_is_shown(self):
        low, high = free_range(NEEDED_PORTS + 2)
        # Two servers more than there are ports for, as far as shards go.
        run = self.start(f"{{ports: {low}-{high}}}")
        run.wait_for_training()
        slackline = self.programs.path("slackline")

        def say(*arguments):
            return subprocess.run([slackline, *map(str, arguments)], capture_output=True, text=True,
                                  stdin=subprocess.DEVNULL, timeout=100 * OPTIONS.patience)

        refused = say("servers", "add", run.folder, "--count", "2", "--wait", "0")
        self.assertEqual(refused.returncode, 1, refused.stdout + refused.stderr)
        self.assertIn(f"network.ports: found 2 free of {low}-{high}; allowed are at least 4 for 2 more servers on this machine",
                      refused.stderr)
        # Who asks the scheduler itself is not asked about ports of a machine that may be another one.
        address = (run.folder / "scheduler.address").read_text().strip()
        self.assertEqual(say("servers", "add", address, "--count", "2", "--wait", "0").returncode, 0)
        shown = self.programs.wait_for(
            "a server that could not be started to be shown",
            lambda: re.search(r"(ps-[34]) could not be started: exit code \d, started \d times?; \S+/logs/ps-[34].log says why",
                              say("status", run.folder).stdout), 60, run.process)
        self.assertIn("no free port", (run.folder / "logs" / f"{shown.group(1)}.log").read_text())
        # While the server is being started again, the list lacks it.
        one, *_ = self.programs.wait_for(
            "a server in not_started", lambda: json.loads(say("status", run.folder, "--json").stdout)["not_started"], 60, run.process)
        self.assertIn(one["name"], ("ps-3", "ps-4"))
        self.assertEqual(one["role"], "server")
        self.assertRegex(one["state"], r"^exit code \d$")
        self.assertGreaterEqual(one["starts"], 1)
        self.assertIn("no free port", pathlib.Path(one["log"]).read_text())
        run.process.terminate()
        run.wait()

    def test_where_none_is_free_the_range_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
            said = self.refused(f"{{ports: {port}-{port}}}", "slackline-scheduler", 1)
        self.assertIn(f"found no free port on 127.0.0.1: all 1 of network.ports ({port}-{port}) were tried", said)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--patience", type=float, default=1, help="factor on all waits")
    parser.add_argument("tests", nargs="*")
    parser.parse_args(namespace=OPTIONS)
    programs = pathlib.Path(OPTIONS.programs)
    missing = [name for name in NEEDED if not (programs / name).exists()]
    if missing or not DATA.is_dir():
        print("skipped: not there:", ", ".join(missing) or DATA)
        return 77
    unittest.main(argv=[sys.argv[0], "-v", *OPTIONS.tests])


if __name__ == "__main__":
    sys.exit(main())
