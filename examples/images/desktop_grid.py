#!/usr/bin/env python3
"""usage: desktop_grid.py OUT [--programs FOLDER]

A desktop grid of real processes on this computer. It trains on drawn textures and ends by itself:

  files.example.org   an HTTPS server of prepared images, a thread of this script, with a certificate of its own
  the project         a scheduler and a parameter server, with certificates
  alice, bob, carol   volunteers: a worker each, with a folder, a certificate and copies of images of its own

A volunteer trains tasks of 120 images and fetches only the files that a task needs. A round needs two thirds of the volunteers. Bob leaves after
the first tasks, his certificate is revoked, and he is refused when he comes back. Carol is switched off in the middle of a task, which goes to
another volunteer when its lease is over. OUT gets the volunteers' folders, and the run in OUT/run. Needs numpy, Pillow and openssl.
"""

import argparse
import csv
import functools
import http.server
import json
import pathlib
import shutil
import ssl
import subprocess
import sys
import threading
import time

EXAMPLES = pathlib.Path(__file__).resolve().parent
VOLUNTEERS = ("alice", "bob", "carol")
FILES = 20
EPOCH = 600  # images
PATIENCE_S = 300
JOB = """name: desktop-grid
model: {{kind: cnn, filters: [8, 16], hidden: [32], classes: 3}}
data:
  format: prepared
  path: {address}/prepared
  ca_file: server.pem
  sampling: by_file
  cache: {{folder: copies}}
training: {{epochs: 16, batch_size: 10, evaluate_every_epochs: 0}}
local: {{epochs: 3, subset_samples: 120, lr: 0.02, momentum: 0.9, lease_s: 15}}
optimizer: {{kind: sgd, lr: 1, schedule: {{kind: constant}}}}
consistency: {{mode: quorum, quorum: 0.66, weighting: uniform, late: count}}
cluster: {{servers: 1, workers: 3}}
security: {{mode: tls, folder: credentials}}
network: {{metrics: false}}
worker: {{threads: 1}}
"""


class Grid:
    """All processes, which end with this."""

    def __init__(self, out, programs):
        self.out = out
        self.programs = programs
        self.processes = {}

    def program(self, name):
        return str(self.programs / name) if self.programs else name

    def call(self, *command):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr}")

    def start(self, name, folder, program, *options):
        """Starts a program on the job file of `folder`; its log is OUT/NAME.log."""
        with open(self.out / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen([self.program(program), folder / "job.yaml", *options], stdin=subprocess.DEVNULL,
                                                    stdout=log, stderr=log)
        return self.processes[name]

    def volunteer(self, name):
        return self.start(name, self.out / name, "slackline-worker", "--scheduler", self.out / "address", "--name", name)

    def log(self, name):
        return (self.out / f"{name}.log").read_text(errors="replace")

    def wait_for(self, what, condition):
        deadline = time.monotonic() + PATIENCE_S
        while not (answer := condition()):
            if time.monotonic() > deadline or self.processes["scheduler"].poll() not in (None, 0):
                logs = "\n".join(f"--- {name}\n{self.log(name)[-1500:]}" for name in self.processes)
                raise SystemExit(f"waited in vain for {what}\n{logs}")
            threading.Event().wait(0.05)
        return answer

    def samples(self):
        """Images trained so far."""
        path = self.out / "run" / "metrics.csv"
        rows = list(csv.DictReader(path.read_text().rpartition("\n")[0].splitlines())) if path.exists() else []
        return int(rows[-1]["samples"]) if rows else 0

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def make_images(grid):
    grid.call(sys.executable, EXAMPLES / "draw_textures.py", grid.out / "textures", 2 * EPOCH // 3)
    grid.call(grid.program("slackline"), "prepare", grid.out / "textures", grid.out / "files" / "prepared", "--size", "24", "--grey", "--split",
              "train=0.5,test=0.5", "--seed", "1", "--shard-images", EPOCH // FILES)


def serve(grid):
    """Starts the server of files, and returns its address."""
    grid.call("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-days", "30", "-subj",
              "/CN=files.example.org", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", grid.out / "server.key", "-out",
              grid.out / "server.pem")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=grid.out / "files"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(grid.out / "server.pem", grid.out / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"https://127.0.0.1:{server.server_address[1]}"


def make_folders(grid, address):
    """The project's job file, and a folder for each volunteer as it would be sent to one."""
    credentials = [grid.program("slackline"), "credentials", grid.out / "credentials", "--job", "desktop-grid"]
    grid.call(*credentials, "--days", "30")
    (grid.out / "job.yaml").write_text(JOB.format(address=address))
    for name in VOLUNTEERS:
        grid.call(*credentials, "--worker", name, "--days", "30")
        (grid.out / name).mkdir()
        shutil.copytree(grid.out / "credentials/workers" / name, grid.out / name / "credentials")
        for file in ("job.yaml", "server.pem"):
            shutil.copy(grid.out / file, grid.out / name)


def run(grid):
    start = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - start:5.1f} s  {text}", flush=True)

    scheduler = grid.start("scheduler", grid.out, "slackline-scheduler", "--run-folder", grid.out / "run", "--address-file", grid.out / "address")
    grid.wait_for("the scheduler", (grid.out / "address").exists)
    grid.start("server", grid.out, "slackline-ps", "--scheduler", grid.out / "address", "--name", "server")
    for name in VOLUNTEERS:
        grid.volunteer(name)
    grid.wait_for("an epoch", lambda: grid.samples() >= EPOCH)
    say(f"{', '.join(VOLUNTEERS)} have trained {grid.samples()} images")
    grid.processes["bob"].terminate()
    grid.wait_for("bob to leave", lambda: grid.processes["bob"].poll() is not None)
    say(f"bob left, with exit code {grid.processes['bob'].returncode}")
    grid.call(grid.program("slackline"), "credentials", grid.out / "credentials", "--job", "desktop-grid", "--revoke", "bob")
    grid.wait_for("the revocation", lambda: "revokes the certificates of bob" in grid.log("scheduler"))
    grid.volunteer("bob")
    grid.wait_for("bob to be refused", lambda: grid.processes["bob"].poll() is not None)
    refusal = [line for line in grid.log("bob").splitlines() if "revoked" in line]
    say(f"bob came back and ended with exit code {grid.processes['bob'].returncode}: {refusal[-1] if refusal else 'nobody refused him'}")
    seen = grid.samples()
    grid.wait_for("another epoch", lambda: grid.samples() >= seen + EPOCH)
    grid.processes["carol"].kill()
    say(f"carol is switched off, after {grid.samples()} images")
    grid.wait_for("the end", lambda: scheduler.poll() is not None)
    say(f"alice ended the job, with exit code {grid.processes['alice'].wait(PATIENCE_S)}")


def report(grid):
    summary = json.loads((grid.out / "run/summary.json").read_text())
    print(f"test accuracy {100 * summary['test_accuracy']:.1f} %, {summary['samples']} images trained, each three times, in tasks of 120")
    for one in json.loads((grid.out / "run/report.json").read_text())["classes"]:
        print(f"  {one['name']}: precision {one['precision']:.3f}, recall {one['recall']:.3f}, F1 {one['f1']:.3f}")
    for name in VOLUNTEERS:
        copies = list((grid.out / name / "copies").glob("*-train-*.images.npy"))
        print(f"{name} has fetched {len(copies)} of {FILES} files of training images")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="folder for everything, which must not be there yet")
    parser.add_argument("--programs", type=pathlib.Path, help="folder of the programs; default: those on the PATH")
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"found {options.out}; allowed is a folder that is not there yet")
    options.out.mkdir(parents=True)
    grid = Grid(options.out.resolve(), options.programs.resolve() if options.programs else None)
    try:
        make_images(grid)
        make_folders(grid, serve(grid))
        run(grid)
        report(grid)
    finally:
        grid.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
