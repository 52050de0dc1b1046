"""What a supervisor (`slackline slurm node`, slackline-pod) tells a script, and what signals mean to it then.

    supervised_test.py --programs FOLDER [TEST...]

Skipped (77) without PyTorch or without the package.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from unittest import mock

import package_test
from package_test import nn, slackline, torch


class Supervised(package_test.Base):
    def test_what_a_supervisor_says_counts(self):
        path = self.job("worker: {threads: 4}\n")
        told = {
            "SLACKLINE_JOB": str(path),
            "SLACKLINE_SCHEDULER": "127.0.0.1:1",
            "SLACKLINE_WORKER": "worker-n1",
            "SLACKLINE_SET": "worker.threads=1\nnetwork.listen=127.0.0.1\nnetwork.metrics_port=9090\n",
            "SLACKLINE_TOPOLOGY": "spine.leaf1.n1",
        }
        with mock.patch.dict(os.environ, told):
            worker = slackline.connect(log="nothing")
            self.assertEqual((worker.name, torch.get_num_threads()), ("worker-n1", 1))
            # What the script says comes last.
            worker = slackline.connect(overrides=["training.batch_size=5", "worker.threads=2"], log="nothing", name="mine")
            self.assertEqual((worker.name, worker.batch_size, torch.get_num_threads()), ("mine", 5, 2))
            torch.set_num_threads(1)
            os.environ["SLACKLINE_SET"] = "worker.threads=many"
            with self.assertRaisesRegex(ValueError, "worker.threads: found 'many'"):
                slackline.connect(log="nothing")

    def test_metrics_are_where_a_supervisor_says(self):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        settings = f"network.metrics=true\nnetwork.metrics_port={port}"
        with self.cluster() as cluster, mock.patch.dict(os.environ, {"SLACKLINE_SET": settings}):
            with cluster.connect(log="warning") as worker:
                slackline.Optimizer(nn.Linear(4, 1), worker)
                next(iter(worker.sampler(48)))
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30) as answer:
                    self.assertEqual(answer.status, 200)

    def ended(self, script):
        """The script's exit code. A signal that comes just before Python begins to read is handled when there is something to read."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(BrokenPipeError):
                os.write(script.stdin.fileno(), b"\n")
            with contextlib.suppress(subprocess.TimeoutExpired):
                return script.wait(0.1)
        return None

    def test_sigterm_ends_a_script_unless_a_supervisor_looks_after_it(self):
        # Its own children end in any case: DataLoader ends its workers so.
        code = (
            "import os, signal, sys, slackline\n"
            "slackline.connect('127.0.0.1:1', sys.argv[1], log='nothing')\n"
            "ends = os.pipe()\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    os.write(ends[1], b'.')\n"
            "    signal.pause()\n"
            "    os._exit(0)\n"
            "os.read(ends[0], 1)\n"
            "os.kill(child, signal.SIGTERM)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)\n"
            "while sys.stdin.readline() != 'go on\\n': pass\n"
            "print('goes on', flush=True)\n"
        )
        for supervised in ("", "1"):
            with self.subTest(supervised), subprocess.Popen(
                [sys.executable, "-c", code, str(self.job())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SLACKLINE_SUPERVISED": supervised},
            ) as script:
                self.assertEqual(script.stdout.readline(), "143\n")
                script.send_signal(signal.SIGTERM)
                if not supervised:
                    self.assertEqual(self.ended(script), 143)
                    continue
                script.stdin.write("go on\n")
                script.stdin.flush()
                self.assertEqual(script.stdout.readline(), "goes on\n")
                self.assertEqual(script.wait(30), 0)


if __name__ == "__main__":
    package_test.main()
