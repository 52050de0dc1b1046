#!/usr/bin/env python3
"""What a step costs a script in Python beside the C++ worker: the CNN on Fashion-MNIST, one server, async, in turns;
samples a second by each run's summary.json, and the processor time of a whole run.

    bench/script_step.py --programs build/release/bin [--rounds 5] [--images 12800] [--workers 1] [--peers]

Run it with a Python that has torch and the package slackline (docs/python.md), on a machine with nothing else to do, or as
root with `chrt -r 1` before it. The network is written as the C++ worker computes it: that is most of what a step costs.
"""

import argparse
import gzip
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

BATCH = 64
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")


def training_data(images: int):
    """The first `images` of Fashion-MNIST, normalised as the C++ worker has them."""
    import torch
    from torch.utils.data import TensorDataset

    def read(what: str, header: int) -> torch.Tensor:
        with gzip.open(FASHION / f"train-{what}-ubyte.gz") as file:
            return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)

    pixels = read("images-idx3", 16)[: images * 784].float().view(images, 1, 28, 28)
    return TensorDataset((pixels / 255 - 0.286) / 0.353, read("labels-idx1", 8)[:images].long())


def network():
    """As the C++ worker computes it: what follows pooling is a quarter of work."""
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(inplace=True)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.MaxPool2d(2), nn.ReLU(inplace=True)),
        *(nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(inplace=True), nn.Linear(128, 10)),
    )


def as_the_worker_sees(images):
    """Channels-last. Of one channel that is the same bytes, and to(memory_format=) would leave the strides as they are."""
    return images.as_strided((len(images), 1, 28, 28), (784, 1, 28, 1))


def be_the_script(images: int) -> None:
    import torch
    from torch import nn
    from torch.utils.data import BatchSampler, DataLoader

    import slackline

    data = training_data(images)
    with slackline.connect() as worker:
        torch.manual_seed(worker.seed)
        model = network()
        loss, optimizer = nn.CrossEntropyLoss(), slackline.Optimizer(model, worker)
        # Whole batches are indexed at once, as the C++ worker does.
        sampler = BatchSampler(worker.sampler(images), BATCH, drop_last=False)
        for inputs, labels in worker.batches(DataLoader(data, batch_size=None, sampler=sampler)):
            optimizer.zero_grad()
            error = loss(model(as_the_worker_sees(inputs)), labels)
            error.backward()
            worker.report(loss=error.item())
            optimizer.step()


def run_of(options: argparse.Namespace, script: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        job = pathlib.Path(folder) / "job.yaml"
        kind = "external" if script else "cnn"
        job.write_text(
            f"model: {{kind: {kind}}}\ndata: {{train_images_max: {options.images}}}\nworker: {{threads: 1}}\n"
            f"training: {{epochs: 2, batch_size: {BATCH}, evaluate_every_epochs: 0}}\nconsistency: {{mode: async}}\n"
            f"cluster: {{servers: 1, workers: {options.workers}}}\ndurability: {{mode: none}}\n"
        )
        command = [str(options.programs / "slackline"), *(("launch", __file__) if script else ("train",)), str(job)]
        command += ["--run-folder", str(run), "--quiet"]
        if script:
            command += ["--python", sys.executable, "--", "--script", "--images", str(options.images)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return float(json.loads((run / "summary.json").read_text())["samples_per_second"])


def peer(options: argparse.Namespace, how: str) -> float:
    program = pathlib.Path(__file__).resolve().parent / "peers/torch_cnn.py"
    command = [sys.executable, str(program), "--how", how, "--workers", str(options.workers), "--images", str(options.images)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(json.loads(said.splitlines()[-1])["samples_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=12800)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--peers", action="store_true", help="also DDP over Gloo and torch.distributed.rpc")
    parser.add_argument("--script", action="store_true", help="be the worker; for this program itself")
    options = parser.parse_args()
    if options.script:
        return be_the_script(options.images)
    if options.programs is None:
        parser.error("--programs is missing: the folder of the programs")
    what = {"C++ worker": lambda: run_of(options, False), "script": lambda: run_of(options, True)}
    if options.peers:
        what["DDP over Gloo"] = lambda: peer(options, "ddp")
        what["torch.distributed.rpc"] = lambda: peer(options, "rpc")
    rates: dict[str, list[float]] = {name: [] for name in what}
    cpu: dict[str, list[float]] = {name: [] for name in what}
    for _ in range(options.rounds):
        for name, measure in what.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            rates[name].append(measure())
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu[name].append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    first = statistics.median(rates["C++ worker"])
    for name, found in rates.items():
        rate = statistics.median(found)
        print(f"{name}: {rate:.0f} samples/s, {1e3 * BATCH * options.workers / rate:.2f} ms a step, {100 * rate / first:.1f} % of the "
              f"C++ worker's; {statistics.median(cpu[name]):.1f} s of processor time for all processes of a run, start included")
    return None


if __name__ == "__main__":
    main()
