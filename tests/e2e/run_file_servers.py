"""Prepared images from file servers: HTTPS and FTP, what breaks off, what is refused, and what a task fetches.

    run_file_servers.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs, numpy or Pillow are not there.
"""
import argparse
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

from run_e2e import NEEDED
from slackline_run import Programs, TrainRun
from tiny_servers import make_certificate, serve

try:
    import numpy
    from PIL import Image
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

OPTIONS = argparse.Namespace()
JOB = """
name: pictures
model: {kind: mlp, classes: 2, hidden: [16]}
data: {format: prepared, cache: {folder: cache}, http_timeout_s: 5}
training: {epochs: 1, batch_size: 20}
optimizer: {lr: 0.05}
consistency: {mode: bsp}
cluster: {servers: 1, workers: 1}
worker: {threads: 1}
timeouts: {startup_ms: 90000}
"""
TASKS = """
local: {epochs: 2, subset_samples: 600, lr: 0.05}
optimizer: {kind: sgd, lr: 1}
"""
IMAGES = 2000


class FileServers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Two classes of grey in 20 files of 100 training images each."""
        root = tempfile.TemporaryDirectory(prefix="slackline-pictures-")
        cls.addClassCleanup(root.cleanup)
        cls.prepared = pathlib.Path(root.name) / "prepared"
        draw = numpy.random.default_rng(1)
        for split, count in (("train", IMAGES), ("test", 200)):
            for name, grey in {"dark": 80, "light": 170}.items():
                folder = pathlib.Path(root.name) / "pictures" / split / name
                folder.mkdir(parents=True)
                for i in range(count // 2):
                    pixels = (grey + draw.normal(0, 30, (28, 28))).clip(0, 255).astype(numpy.uint8)
                    Image.fromarray(pixels).save(folder / f"{i:04}.png")
        subprocess.run([f"{OPTIONS.programs}/slackline", "prepare", folder.parent.parent, cls.prepared, "--grey", "--shard-images", "100"],
                       check=True, capture_output=True, timeout=120 * OPTIONS.patience)

    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-file-servers-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)
        self.job = self.root / "job.yaml"
        self.job.write_text(JOB)
        self.files = self.root / "files"
        shutil.copytree(self.prepared, self.files / "set")

    def https(self, name="server"):
        certificate = make_certificate(self.root, name)
        address, behaviour = serve(self, self.files, certificate)
        return f"{address}/set", behaviour, certificate

    def ftp(self):
        address, behaviour = serve(self, self.files)
        return f"{address}/set", behaviour

    def doctor(self, *settings):
        """What it says of the job."""
        flags = [part for setting in settings for part in ("--set", setting)]
        done = subprocess.run([self.programs.path("slackline"), "doctor", self.job, *flags], capture_output=True, text=True,
                              timeout=120 * OPTIONS.patience, check=False)
        return done.stdout + done.stderr

    def trains(self, *settings):
        run = TrainRun(self.programs, self.root, self.job, settings)
        self.addCleanup(run.close)
        self.assertEqual(run.wait(), 0, run.diagnosis())
        summary = json.loads((run.folder / "summary.json").read_text())
        self.assertGreater(summary["test_accuracy"], 0.9, run.diagnosis())
        return run, summary

    def test_https_with_a_certificate_and_what_broke_off_goes_on(self):
        address, behaviour, certificate = self.https()
        behaviour.breaks["/set/train-00007.images.npy"] = 1000
        self.trains(f"data.path={address}", f"data.ca_file={certificate}")
        asked = [begin for path, begin in behaviour.asked if path == "/set/train-00007.images.npy"]
        self.assertEqual(asked, [0, 1000])
        self.assertEqual(len(set(behaviour.files())), len(behaviour.files()) - 1, "every other file came once")

    def test_ftp_and_what_broke_off_goes_on(self):
        address, behaviour = self.ftp()
        behaviour.breaks["/set/train-00007.images.npy"] = 1000
        self.trains(f"data.path={address}")
        asked = [begin for path, begin in behaviour.asked if path == "/set/train-00007.images.npy"]
        self.assertEqual(asked, [0, 1000])

    def test_an_ftp_server_that_cannot_resume_sends_the_file_again(self):
        address, behaviour = self.ftp()
        behaviour.resumes = False
        behaviour.breaks["/set/train-00007.images.npy"] = 1000
        self.trains(f"data.path={address}")
        asked = [begin for path, begin in behaviour.asked if path == "/set/train-00007.images.npy"]
        self.assertEqual(asked, [0, 0])

    def test_certificates_that_nobody_vouches_for_are_refused(self):
        address, behaviour, certificate = self.https()
        other = make_certificate(self.root, "other")
        path = f"data.path={address}"
        refused = self.doctor(path)
        self.assertIn(f"{address}/index.json: found a certificate that is refused", refused)
        self.assertIn("or of a file that data.ca_file names", refused)
        refused = self.doctor(path, f"data.ca_file={other}")
        self.assertIn(f"signed by an authority of data.ca_file: {other}", refused)
        # The certificate says 127.0.0.1, and nothing else.
        refused = self.doctor(path.replace("127.0.0.1", "localhost"), f"data.ca_file={certificate}")
        self.assertIn("found a certificate that is refused", refused)
        self.assertEqual(behaviour.asked, [], "nothing was asked of a server that was not trusted")
        missing = self.root / "none.pem"
        self.assertIn(f"data.ca_file: found {missing}", self.doctor(path, f"data.ca_file={missing}"))

    def test_redirects_are_bounded_and_leave_no_tls(self):
        address, behaviour, certificate = self.https()
        settings = (f"data.path={address}", f"data.ca_file={certificate}")
        behaviour.redirects["/set/index.json"] = "/set/index.json"
        self.assertIn("5 redirects", self.doctor(*settings))
        plain, asked = serve(self, self.files)
        behaviour.redirects["/set/index.json"] = plain.replace("ftp://", "http://") + "/set/index.json"
        self.assertIn("not to a server without TLS from one with TLS", self.doctor(*settings))
        self.assertEqual(asked.asked, [])
        shutil.move(self.files / "set", self.files / "moved")
        for file in (self.files / "moved").iterdir():
            behaviour.redirects[f"/set/{file.name}"] = f"/moved/{file.name}"
        self.trains(*settings)

    def test_what_a_server_does_not_have_is_named(self):
        https, _, certificate = self.https()
        ftp, _ = self.ftp()
        for settings in ((f"data.path={https}", f"data.ca_file={certificate}"), (f"data.path={ftp}",)):
            address = settings[0][len("data.path="):]
            file = self.files / "set/train-00003.images.npy"
            whole = file.read_bytes()
            self.assertRegex(self.doctor(f"{settings[0]}/none", *settings[1:]), f"{address}/none/index.json: the server says [45][05][04]")
            for content, message in ((whole[:-1] + bytes([whole[-1] ^ 1]), "is not what index.json says, 3 times: its XXH3 is"),
                                     (whole[:-5], f"the server's file has {len(whole) - 5} bytes, index.json says {len(whole)}"),
                                     (whole + b"more", f"more than the {len(whole)} bytes of index.json"), (None, "the server says")):
                if content is None:
                    file.unlink()
                else:
                    file.write_bytes(content)
                said = self.doctor(*settings)
                self.assertIn(message, said)
                self.assertIn(address, said)
            file.write_bytes(whole)
        nobody = f"data.path={ftp.rsplit(':', 1)[0]}:1/set"
        self.assertIn("ftp://127.0.0.1:1/set/index.json", self.doctor(nobody, "timeouts.startup_ms=1000"))

    def test_a_task_of_600_images_fetches_the_files_that_it_needs(self):
        address, behaviour, certificate = self.https()
        self.job.write_text(JOB.replace("optimizer: {lr: 0.05}\n", TASKS))
        run, _ = self.trains(f"data.path={address}", f"data.ca_file={certificate}", "data.sampling=by_file")
        log = "".join(path.read_text() for path in (run.folder / "logs").glob("worker*"))
        needs = [int(count) for count in re.findall(r"the next images are in (\d+) of 20 files", log)]
        fetched = [name for name in behaviour.files() if re.fullmatch(r"train-\d+.images.npy", name)]
        print(f"{self.id()}: tasks of at most 600 images needed {needs} of 20 files; {len(fetched)} were fetched")
        self.assertEqual(needs[0], 6, log)
        self.assertLessEqual(max(needs), 6, log)
        self.assertLessEqual(len(fetched), sum(needs))
        self.assertEqual(len(fetched), len(set(fetched)), "a host keeps what it has")
        # A cache of 1 MB has no room for 1.7 MB of files, and lets go of those of earlier tasks.
        shutil.rmtree(run.folder)
        shutil.rmtree(self.root / "cache")
        self.trains(f"data.path={address}", f"data.ca_file={certificate}", "data.sampling=by_file", "training.epochs=3",
                    "data.cache.gigabytes_max=0.001")
        self.assertLessEqual(sum(path.stat().st_size for path in (self.root / "cache").glob("*.npy")), 1e6)

    def test_a_worker_that_waits_for_files_of_its_task_can_be_stopped(self):
        address, behaviour, certificate = self.https()
        release = threading.Event()
        self.addCleanup(release.set)
        images = [f"/set/train-{number:05}.images.npy" for number in range(20)]
        behaviour.held = dict.fromkeys(images, release)
        run = TrainRun(self.programs, self.root, self.job,
                       [f"data.path={address}", f"data.ca_file={certificate}", "data.sampling=by_file", "data.http_timeout_s=600"])
        self.addCleanup(run.close)
        self.programs.wait_for(lambda: f"a file of a task\n{run.diagnosis()}", lambda: any(path in images for path, _ in behaviour.asked), 60,
                               run.process)
        run.process.send_signal(signal.SIGINT)
        run.wait(60)
        self.assertEqual(json.loads((run.folder / "summary.json").read_text())["state"], "stopped", run.diagnosis())
        self.assertNotIn("kill", run.events(), "the worker left by itself")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", required=True, help="folder of the built programs")
    parser.add_argument("--patience", type=float, default=1, help="factor on all waits")
    _, names = parser.parse_known_args(namespace=OPTIONS)
    needed = [pathlib.Path(OPTIONS.programs) / name for name in NEEDED]
    if missing := [str(path) for path in needed if not path.exists()]:
        print(f"skipped: {', '.join(missing)} missing")
        return 77
    return 0 if unittest.main(argv=[sys.argv[0], *names], exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
