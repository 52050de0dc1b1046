"""Pictures, prepared and trained on from outside: colours, and what is broken.

    run_data.py --programs BIN_FOLDER [--patience FACTOR] [TEST...]

Exits with 77 (skipped) where the programs, numpy or Pillow are not there.
"""
import argparse
import functools
import http.server
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest

from run_e2e import NEEDED
from slackline_run import Programs, TrainRun

try:
    import numpy
    from PIL import Image
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

OPTIONS = argparse.Namespace()
JOB = """
name: pictures
model: {kind: mlp, classes: 3, hidden: [32]}
data: {format: prepared, path: prepared, augment: {flip: both, crop_padding: 1, brightness: 0.1}}
training: {epochs: 2, batch_size: 16}
optimizer: {lr: 0.05, momentum: 0.9}
consistency: {mode: bsp}
cluster: {servers: 1, workers: 2}
worker: {threads: 1}
"""


class Data(unittest.TestCase):
    def setUp(self):
        root = tempfile.TemporaryDirectory(prefix="slackline-data-")
        self.addCleanup(root.cleanup)
        self.root = pathlib.Path(root.name)
        self.programs = Programs(OPTIONS.programs, OPTIONS.patience)
        self.job = self.root / "job.yaml"
        self.job.write_text(JOB)

    def prepare(self, *flags, size=16, images=120, split="train=0.7,validation=0.1,test=0.2"):
        """Three classes of colours with texture, of which one file is broken."""
        draw = numpy.random.default_rng(1)
        for name, colour in {"blue": (40, 60, 200), "green": (40, 200, 60), "red": (200, 60, 40)}.items():
            folder = self.root / "pictures" / name
            folder.mkdir(parents=True)
            for i in range(images):
                pixels = numpy.array(colour) + draw.normal(0, 40, (20, 20, 3))
                Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(folder / f"{i:04}.jpg", quality=95)
        (self.root / "pictures/red/broken.jpg").write_bytes(b"\xff\xd8\xff and no more")
        subprocess.run([self.programs.path("slackline"), "prepare", self.root / "pictures", self.root / "prepared",
                        "--size", str(size), "--split", split, *flags], check=True,
                       capture_output=True, timeout=60 * OPTIONS.patience)

    def train(self, *settings):
        run = TrainRun(self.programs, self.root, self.job, settings)
        self.addCleanup(run.close)
        return run

    def doctor(self, *settings):
        """What it says of the job, and of a job that it refuses."""
        flags = [part for setting in settings for part in ("--set", setting)]
        done = subprocess.run([self.programs.path("slackline"), "doctor", self.job, *flags], capture_output=True, text=True,
                              timeout=60 * OPTIONS.patience, check=False)
        return done.stdout + done.stderr

    def accuracy(self, run):
        self.assertEqual(run.wait(), 0, run.diagnosis())
        accuracy = json.loads((run.folder / "summary.json").read_text())["test_accuracy"]
        print(f"{self.id()}: test accuracy {100 * accuracy:.1f} %")
        return accuracy

    def test_colours_are_learned_in_shards_and_on_the_validation_split(self):
        self.prepare("--shard-images", "50")
        run = self.train("data.evaluation_split=validation", "data.verify=true", "data.threads=3")
        self.assertGreater(self.accuracy(run), 0.9)
        report = json.loads((run.folder / "report.json").read_text())
        names = [one["name"] for one in report["classes"]]
        self.assertEqual((report["samples"], names), (36, ["blue", "green", "red"]))
        self.assertIn("blue,green,red", (run.folder / "confusion.csv").read_text().splitlines()[0])

    def test_a_worker_that_copies_images_ends_when_it_is_told_to(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.settimeout(60 * OPTIONS.patience)
            # It takes the question for images, and never answers.
            images = f"data={{format: prepared, path: 'http://127.0.0.1:{server.getsockname()[1]}', cache: {{folder: copies}}}}"
            for flags, sent in (((), signal.SIGTERM), ((), signal.SIGINT), (("--supervised",), signal.SIGINT)):
                worker = subprocess.Popen(
                    [self.programs.path("slackline-worker"), self.job, "--scheduler", "127.0.0.1:1", "--set", images, *flags],
                    cwd=self.root, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                self.addCleanup(worker.stderr.close)
                self.addCleanup(worker.kill)
                connection, _ = server.accept()
                with connection:
                    worker.send_signal(sent)
                    said = worker.communicate(timeout=10 * OPTIONS.patience)[1]
                self.assertEqual(worker.returncode, 0, said)
                self.assertIn(f"this worker got {sent.name} before it joined", said)

    def test_what_is_broken_is_named_before_or_by_the_worker(self):
        self.prepare()
        for settings, message in ((("model.classes=10",), "model.classes: found 10; allowed is 3"),
                                  (("data.path=pictures",), "there is no .*pictures/index.json"),
                                  (("data.mean=0.5",), "data.mean"), (("data.format=idx",), "found no train-images")):
            wrong = self.train(*settings)
            self.assertNotEqual(wrong.wait(), 0)
            self.assertRegex(wrong.diagnosis(), message)
        images = self.root / "prepared/train-00000.images.npy"
        whole = images.read_bytes()
        for data, setting, message in ((whole[:-7], "data.verify=false", "it was cut short"),
                                       (whole[:-1] + bytes([whole[-1] ^ 1]), "data.verify=true", "is damaged: its"),
                                       (None, "data.verify=false", "cannot open .*train-00000.images.npy")):
            images.unlink()
            if data is not None:
                images.write_bytes(data)
            doctor = subprocess.run([self.programs.path("slackline"), "doctor", self.job, "--set", setting],
                                    capture_output=True, text=True, timeout=60 * OPTIONS.patience, check=False)
            self.assertRegex(doctor.stdout, message)
            if data is None:
                images.write_bytes(whole)
        images.write_bytes(whole[:-7])
        run = self.train()
        self.assertEqual(run.wait(), 1, run.diagnosis())
        self.assertIn("it was cut short", run.diagnosis())

    def test_halves_are_trained_on_from_a_server(self):
        self.prepare("--dtype", "float16")
        refused = self.train("data.augment.rand_augment=2")
        self.assertNotEqual(refused.wait(), 0)
        self.assertIn("data.augment.rand_augment: found 2 with images of float16", refused.diagnosis())
        address, counts, _ = self.serve()
        settings = [f"data.path={address}", f"data.cache.folder={self.root / 'cache'}", "data.verify=true", "data.threads=2",
                    "data.augment.mixup_alpha=0.1", "data.augment.crop_area_min=0.8"]
        run = self.train(*settings)
        self.assertGreater(self.accuracy(run), 0.9)
        self.assertEqual(counts["/prepared/train-00000.images.npy"], 1)
        shutil.rmtree(run.folder)
        # The worker says it, too, where nobody else has seen the index.
        refused = self.train(*settings, "data.augment.rand_augment=2")
        self.assertNotEqual(refused.wait(), 0)
        self.assertIn("data.augment.rand_augment: found 2 with images of float16", refused.diagnosis())

    def test_pictures_are_the_same_prepared_or_in_folders_or_in_tar_files(self):
        self.prepare()
        colours = list((self.root / "pictures").iterdir())
        for split, count in (("train", 20), ("test", 8)):
            for colour in colours:
                folder = self.root / "split" / split / colour.name
                folder.mkdir(parents=True)
                begin = 0 if split == "train" else 20
                for path in sorted(colour.glob("0[01]*.jpg"))[begin:begin + count]:
                    (folder / path.name).write_bytes(path.read_bytes())
            with tarfile.open(self.root / f"{split}-00000.tar", "w") as tar:
                # In the order of names, as the folders have them.
                paths = sorted(path for path in (self.root / "split" / split).glob("*/*.jpg"))
                for path in paths:
                    label = sorted(colour.name for colour in colours).index(path.parent.name)
                    for ending, content in (("jpg", path.read_bytes()), ("cls", str(label).encode())):
                        info = tarfile.TarInfo(f"{path.parent.name}/{path.stem}.{ending}")
                        info.size = len(content)
                        tar.addfile(info, io.BytesIO(content))
        (self.root / "tars").mkdir()
        for path in self.root.glob("*.tar"):
            path.rename(self.root / "tars" / path.name)
        subprocess.run([self.programs.path("slackline"), "prepare", self.root / "split", self.root / "grey", "--size", "12x10", "--grey"],
                       check=True, capture_output=True, timeout=60 * OPTIONS.patience)
        index = json.loads((self.root / "grey/index.json").read_text())
        same = [f"data.mean={index['mean'][0]!r}", f"data.deviation={index['deviation'][0]!r}", "data.decode.size=12x10",
                "data.decode.grey=true"]
        weights = []
        for settings in (["data.path=grey"], ["data.format=folder", "data.path=split", *same],
                         ["data.format=webdataset", "data.path=tars", *same]):
            folder = self.root / f"run-{len(weights)}"
            flags = [part for setting in [*settings, "data.sampling=balanced", "data.augment.rand_augment=1", "data.augment.mixup_alpha=0.2"]
                     for part in ("--set", setting)]
            done = subprocess.run([self.programs.path("slackline"), "simulate", self.job, "--run-folder", folder, *flags],
                                  capture_output=True, text=True, timeout=200 * OPTIONS.patience, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            weights.append((folder / "model.safetensors").read_bytes())
        self.assertEqual(weights[0], weights[1])
        self.assertEqual(weights[0], weights[2])

    def test_a_picture_that_breaks_is_named_and_another_takes_its_place(self):
        self.prepare()
        for split in ("train", "test"):
            (self.root / "split" / split).mkdir(parents=True)
            for colour in (self.root / "pictures").iterdir():
                (self.root / "split" / split / colour.name).symlink_to(colour)
        run = self.train("data.format=folder", "data.path=split", "data.decode.size=16", "data.mean=0.5", "data.deviation=0.25",
                         "data.threads=2")
        self.assertGreater(self.accuracy(run), 0.9)
        self.assertRegex(run.diagnosis(), "red/broken.jpg cannot be read; another image of its class replaces it: damaged JPEG")
        (self.root / "none/train/red").mkdir(parents=True)
        for settings, message in ((["data.path=none"], "has no images"), (["data.path=pictures"], "which has no folders of splits"),
                                  (["model.classes=4"], "has 3 classes; model.classes is 4"),
                                  (["data.decode.size=0"], "found data.decode.size 0; allowed are N or WIDTHxHEIGHT"),
                                  (["data.format=webdataset"], "which has no tar files that say their split")):
            self.assertIn(message, self.doctor("data.format=folder", "data.path=split", *settings))

    def serve(self, on_file=lambda path: None):
        """A server of the prepared images; how often each file was asked for, and a list of the sizes that went out. `on_file` is
        called before each."""
        counts, sizes = {}, []

        class Counting(http.server.SimpleHTTPRequestHandler):
            def do_GET(self):
                counts[self.path] = counts.get(self.path, 0) + 1
                on_file(self.path)
                super().do_GET()

            def copyfile(self, source, outputfile):
                sizes.append(os.fstat(source.fileno()).st_size)
                super().copyfile(source, outputfile)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Counting, directory=self.root))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_address[1]}/prepared", counts, sizes

    def start(self, name, *arguments):
        """One program by hand; its log is NAME.log."""
        with open(self.root / f"{name}.log", "wb") as log:
            process = subprocess.Popen([self.programs.path(arguments[0]), *map(str, arguments[1:])], stdout=log, stderr=log,
                                       stdin=subprocess.DEVNULL)

        def end():
            if process.poll() is None:
                process.kill()
            process.wait()

        self.addCleanup(end)
        return process

    def logs(self):
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in sorted(self.root.glob("*.log")))

    def four_nodes(self, *settings):
        """The scheduler and a server of a job with four workers whose nodes serve each other; and what starts worker `i` on the node with
        cache `cache`."""
        job = self.root / "peers.yaml"
        job.write_text(JOB.replace("epochs: 2", "epochs: 3").replace("workers: 2", "workers: 4"))
        flags = [part for setting in ("data.cache.folder=cache", "data.cache.peers=true", *settings) for part in ("--set", setting)]
        scheduler_file = self.root / "address"
        scheduler = self.start("scheduler", "slackline-scheduler", job, "--run-folder", self.root / "run", "--address-file",
                               scheduler_file, *flags)
        self.programs.wait_for(lambda: f"the scheduler's address\n{self.logs()}", scheduler_file.exists, 30, scheduler)
        self.start("ps", "slackline-ps", job, "--scheduler", scheduler_file, "--name", "ps", *flags)

        def worker(i, cache):
            return self.start(f"worker-{i}", "slackline-worker", job, "--scheduler", scheduler_file, "--name", f"worker-{i}",
                              *flags, "--set", f"data.cache.folder={self.root}/cache-{cache}")

        return scheduler, worker

    def test_nodes_serve_each_other_and_the_server_is_read_once(self):
        """Four nodes, by their caches; one is killed while it gets files, and another takes its place."""
        # So many files that one, which is read once more for the dead, is not much.
        self.prepare("--shard-images", "8", size=96)
        workers, indexes, all_here = {}, [], threading.Event()

        def on_file(path):
            if path.endswith("index.json"):
                indexes.append(path)
                if len(indexes) == 4:
                    all_here.set()
                return
            all_here.wait(60 * OPTIONS.patience)
            if sum(one.endswith(".npy") for one in counts) >= 9 and (victim := workers.pop("worker-3", None)):
                victim.kill()

        address, counts, sizes = self.serve(on_file)
        scheduler, worker = self.four_nodes(f"data.path={address}")
        for i in range(4):
            workers[f"worker-{i}"] = worker(i, i)
        self.programs.wait_for(lambda: f"the death of a worker\n{self.logs()}", lambda: "worker-3" not in workers, 60)
        worker(4, 3)
        self.programs.wait_for(lambda: f"the end\n{self.logs()}", lambda: scheduler.poll() is not None, 120)
        self.assertEqual(scheduler.returncode, 0, self.logs())
        data = sum(path.stat().st_size for path in (self.root / "prepared").glob("*.npy")
                   if not path.name.startswith("validation"))
        print(f"{self.id()}: the server was read {sum(sizes) / data:.3f} times, index.json included")
        self.assertLessEqual(sum(sizes), 1.1 * data, self.logs())
        files = {path.name for path in (self.root / "prepared").glob("t*.npy")}
        for i in range(4):
            self.assertLessEqual(files, {path.name.split("-", 2)[2] for path in (self.root / f"cache-{i}").iterdir()
                                         if path.name.endswith(".npy")}, "each node has all")
        self.assertGreater(json.loads((self.root / "run/summary.json").read_text())["test_accuracy"], 0.9)

    def cached(self, i):
        """Bytes of files in a node's cache, begun copies included."""
        total = 0
        for path in (self.root / f"cache-{i}").glob("*-*.npy*"):
            try:
                total += 0 if path.name.endswith("lock") else path.stat().st_size
            except FileNotFoundError:
                pass  # a copy that has got its name meanwhile
        return total

    def spread(self):
        """Trains on some 2,820 images in 95 files. Each of four nodes has room for a quarter of them, beside the labels and the test images,
        which every node gets. Returns the scheduler, the workers, the number of training images, what the server has sent, the bytes of
        all files, and a function that awaits the end and checks all caches meanwhile."""
        self.prepare("--shard-images", "30", size=32, images=1000, split="train=0.94,validation=0.03,test=0.03")
        files = {path.name: path.stat().st_size for path in (self.root / "prepared").glob("t*.npy")}
        shards = [size for name, size in files.items() if name.startswith("train-") and name.endswith("images.npy")]
        limit = -(-len(shards) // 4) * max(shards) + sum(files.values()) - sum(shards)
        address, _, sizes = self.serve()
        scheduler, worker = self.four_nodes(f"data.path={address}", "data.cache.spread=true", f"data.cache.gigabytes_max={limit / 1e9!r}")
        workers = [worker(i, i) for i in range(4)]
        largest = [0]

        def ended():
            largest[0] = max(largest[0], *(self.cached(i) for i in range(4)))
            return scheduler.poll() is not None

        def await_end():
            self.programs.wait_for(lambda: f"the end\n{self.logs()}", ended, 200)
            self.assertEqual(scheduler.returncode, 0, self.logs())
            self.assertLessEqual(largest[0], limit)
            self.assertGreater(largest[0], limit - 2 * max(shards), "the caches are used")

        images = json.loads((self.root / "prepared/index.json").read_text())["splits"]["train"]["images"]
        return workers, images, sizes, sum(files.values()), await_end

    def test_nodes_that_keep_a_quarter_each_read_the_server_once_in_three_epochs(self):
        _, images, sizes, data, await_end = self.spread()
        await_end()
        print(f"{self.id()}: the server was read {sum(sizes) / data:.3f} times in 3 epochs, index.json included")
        self.assertLessEqual(sum(sizes), 1.1 * data, self.logs())
        summary = json.loads((self.root / "run/summary.json").read_text())
        self.assertEqual(summary["samples"], 3 * images, "each image once in each epoch")
        self.assertGreater(summary["test_accuracy"], 0.9)

    def test_a_node_that_dies_costs_the_files_that_it_kept(self):
        """Nobody comes in its place: the others read its quarter from the server, and have no room to keep it."""
        workers, images, sizes, data, await_end = self.spread()
        log = self.root / "scheduler.log"
        self.programs.wait_for(lambda: f"training\n{self.logs()}", lambda: "worker-3 is live from clock 0" in log.read_text(), 60)
        workers[3].kill()
        await_end()
        print(f"{self.id()}: the server was read {sum(sizes) / data:.3f} times in 3 epochs")
        self.assertLessEqual(sum(sizes), 3 * data, self.logs())
        self.assertGreaterEqual(json.loads((self.root / "run/summary.json").read_text())["samples"], 3 * images)

    def test_images_come_from_a_server_once_for_a_node(self):
        self.prepare()
        address, counts, _ = self.serve()
        settings = (f"data.path={address}", "data.cache.folder=cache", "data.verify=true")
        for _ in range(2):
            run = self.train(*settings)
            self.assertGreater(self.accuracy(run), 0.9)
            shutil.rmtree(run.folder)
        files = {path: count for path, count in counts.items() if path.endswith(".npy")}
        self.assertEqual(set(files.values()), {1}, "two workers, two runs, and each file went over once")
        self.assertIn("/prepared/none/index.json: the server says 404",
                      self.doctor(f"data.path={address}/none", "data.cache.folder=cache"))

    def test_a_simulation_sees_the_same_images(self):
        self.prepare()
        weights = []
        for name, threads in (("one", 1), ("two", 2)):
            subprocess.run([self.programs.path("slackline"), "simulate", self.job, "--run-folder", self.root / name,
                            "--threads", str(threads)], check=True, capture_output=True, timeout=200 * OPTIONS.patience)
            weights.append((self.root / name / "model.safetensors").read_bytes())
        self.assertEqual(weights[0], weights[1])
        plain = self.root / "plain"
        subprocess.run([self.programs.path("slackline"), "simulate", self.job, "--run-folder", plain, "--set",
                        "data.augment.flip=none"], check=True, capture_output=True, timeout=200 * OPTIONS.patience)
        self.assertNotEqual((plain / "model.safetensors").read_bytes(), weights[0])


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
