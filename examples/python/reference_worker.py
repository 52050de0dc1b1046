#!/usr/bin/env python3
"""Trains `model.kind: mlp` in NumPy beside the workers of a run, until the job is done: reference_client.py at work.

    slackline train job.yaml --run-folder RUN &
    examples/python/reference_worker.py RUN --fingerprint "$(slackline check --fingerprint RUN/job.yaml)"
"""
import argparse
import gzip
import pathlib
import sys
import time

import numpy as np
import safetensors.numpy
import yaml
from reference_client import Exchange, PutOut, Scheduler, Stopped, Wire


class Mlp:
    """Linear layers with ReLU between them. Its parameters are one flat float32 vector: fc1.weight, fc1.bias, ..."""

    def __init__(self, widths):
        self.tensors = [spec for i, (width, units) in enumerate(zip(widths, widths[1:]), 1)
                        for spec in ((f"fc{i}.weight", (units, width)), (f"fc{i}.bias", (units,)))]
        self.size = sum(int(np.prod(shape)) for _, shape in self.tensors)

    def views(self, flat):
        begin, views = 0, []
        for _, shape in self.tensors:
            end = begin + int(np.prod(shape))
            views.append(flat[begin:end].reshape(shape))
            begin = end
        return views

    def initial(self, seed):
        flat, random = np.zeros(self.size, np.float32), np.random.default_rng(seed)
        for view in self.views(flat):
            if view.ndim == 2:  # as PyTorch's Linear
                view[:] = random.uniform(-1, 1, view.shape) / np.sqrt(view.shape[1])
        return flat

    def forward(self, flat, images):
        layers, views = [images], self.views(flat)
        for i in range(0, len(views), 2):
            out = layers[-1] @ views[i].T + views[i + 1]
            layers.append(np.maximum(out, 0) if i + 2 < len(views) else out)
        return layers

    def gradient(self, flat, images, labels):
        """Of the mean cross-entropy. Returns it as a flat vector, the loss, and how many of the outputs were right."""
        layers, views = self.forward(flat, images), self.views(flat)
        loss, delta, correct = cross_entropy(layers[-1], labels)
        gradient = np.empty(self.size, np.float32)
        into = self.views(gradient)
        for i in reversed(range(0, len(views), 2)):
            into[i][:], into[i + 1][:] = delta.T @ layers[i // 2], delta.sum(axis=0)
            delta = (delta @ views[i]) * (layers[i // 2] > 0)
        return gradient, loss, correct


def cross_entropy(outputs, labels):
    shifted = outputs - outputs.max(axis=1, keepdims=True)
    probabilities = np.exp(shifted)
    sums = probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = float(np.mean(np.log(sums[:, 0]) - shifted[rows, labels]))
    delta = probabilities / sums
    delta[rows, labels] -= 1
    return loss, delta / len(labels), int((outputs.argmax(axis=1) == labels).sum())


def read_idx(path):
    data = gzip.decompress(pathlib.Path(f"{path}.gz").read_bytes())
    shape = np.frombuffer(data, ">u4", count=data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def epoch_order(size, seed, epoch):
    """EpochOrder() of images/dataset/dataset.h: Fisher and Yates from the back, drawn by SplitMix64."""
    mask = 2**64 - 1

    def draws(state):
        while True:
            state = state + 0x9E3779B97F4A7C15 & mask
            z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
            z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
            yield z ^ z >> 31

    random, order = draws(next(draws(seed)) + epoch & mask), list(range(size))
    for left in range(size, 1, -1):
        value = next(random)
        while value < 2**64 % left:  # the incomplete last round of values is drawn again
            value = next(random)
        order[left - 1], order[value % left] = order[value % left], order[left - 1]
    return np.array(order)


def evaluate(wire, scheduler, model, weights, images, labels, task):
    outputs = np.concatenate([model.forward(weights, images[at:at + 1000])[-1] for at in range(0, len(images), 1000)])
    guesses, classes = outputs.argmax(axis=1), outputs.shape[1]
    confusion = np.bincount(labels * classes + guesses, minlength=classes * classes).reshape(classes, classes)
    right, real, said = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    precision, recall = right / np.maximum(said, 1), right / np.maximum(real, 1)
    f1 = 2 * right / np.maximum(real + said, 1)
    files = []
    if task.final:
        safetensors.numpy.save_file({name: np.ascontiguousarray(view) for (name, _), view in
                                     zip(model.tensors, model.views(weights))}, f"{task.run_folder}/model.safetensors")
        files = ["model.safetensors"]
    accuracy = right.sum() / len(labels)
    scheduler.ask("ReportEvaluation", wire.EvaluationReport(
        job=scheduler.job, worker=scheduler.worker, incarnation=scheduler.incarnation, epoch=task.epoch,
        final=task.final, at_samples=task.at_samples,
        samples=len(labels), loss=cross_entropy(outputs, labels)[0], accuracy=accuracy, files=files,
        classes=[wire.ClassReport(name=str(i), samples=int(real[i]), precision=precision[i], recall=recall[i], f1=f1[i])
                 for i in range(classes)],
        precision_macro=precision.mean(), recall_macro=recall.mean(), f1_macro=f1.mean(), f1_micro=accuracy,
        f1_weighted=float((f1 * real).sum() / len(labels))))
    print(f"evaluated after epoch {task.epoch}: accuracy {accuracy:.4f}", flush=True)


def train_range(wire, scheduler, exchange, model, images, labels, order, task, batch_size, clock):
    for at in range(task.begin, task.end, batch_size):
        batch = order[at:min(at + batch_size, task.end)]
        gradient, loss, correct = model.gradient(exchange.weights, images(batch), labels[batch])
        data = wire.DataProgress(range=task.range, samples_done=at + len(batch) - task.begin)
        clock, discarded = clock + 1, exchange.discarded
        scheduler.waits(True)
        exchange.step(clock, gradient, {"samples": len(batch), "loss": loss, "data": data,
                                        "gradient_norm": float(np.linalg.norm(gradient))})
        scheduler.waits(False)
        scheduler.note_slack(max(0, clock - min(exchange.clock_min.values())))
        lost = exchange.discarded > discarded
        scheduler.count(clock=clock - scheduler.progress.clock, steps=1, samples=len(batch), loss_sum=loss * len(batch),
                        correct=correct, pushes_applied=not lost, pushes_discarded=lost)
    return clock


def live(wire, scheduler, job, model, read, connect=Exchange):
    """From a registration to the end of the job, or until it is put out."""
    beat = scheduler.join()
    print(f"{scheduler.name} trains as worker {scheduler.worker} from clock {beat.first_clock}", flush=True)
    exchange, clock = connect(wire, scheduler, beat.first_clock), beat.first_clock
    range_done, speed, order = 0, 0, (None, None)
    if beat.send_seed:
        exchange.seed(model.initial(job["seed"]))
    exchange.pull()
    (images, labels), (test_images, test_labels) = read("train"), read("t10k")
    while True:
        answer = scheduler.next_task(range_done, speed)
        kind = answer.WhichOneof("task")
        task, range_done = getattr(answer, kind), 0
        if kind == "range":
            if order[0] != task.epoch:
                order = task.epoch, epoch_order(len(labels), job["seed"], task.epoch)
            begin = time.monotonic()
            clock = train_range(wire, scheduler, exchange, model, images, labels, order[1], task,
                                task.batch_size or job["training"]["batch_size"], clock)
            range_done, speed = task.range, (task.end - task.begin) / (time.monotonic() - begin)
        elif kind == "evaluate":
            if task.final:
                exchange.close()
                exchange = connect(wire, scheduler, clock, reader=True)
                exchange.pull()
            evaluate(wire, scheduler, model, exchange.weights, test_images(slice(None)), test_labels, task)
        elif kind == "leave":
            exchange.close()
            scheduler.leave(task.reason)
            print(f"leaves after {scheduler.progress.steps} steps: {task.reason}", flush=True)
            return
        else:  # standby: called back by being put out
            exchange.close()
            scheduler.left.wait(task.retry_ms / 1000)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, help="the run folder")
    parser.add_argument("--fingerprint", required=True, type=lambda text: int(text, 16), help="of the job, hexadecimal")
    parser.add_argument("--name", default="reference", help="unique among the workers")
    arguments = parser.parse_args()
    job = yaml.safe_load((arguments.run / "job.yaml").read_text())
    if job["model"]["kind"] != "mlp" or job["security"]["mode"] == "tls":
        sys.exit("reference_worker.py: trains model.kind mlp, in a run whose security.mode is none or token")
    token = job["security"]["token_file"]
    metadata = [("authorization", f"Bearer {pathlib.Path(token).read_text().strip()}")] if token else []

    def read(stem):
        pixels, labels = (read_idx(f"{job['data']['path']}/{stem}-{what}-ubyte")
                          for what in ("images-idx3", "labels-idx1"))
        count = job["data"]["train_images_max"] or None if stem == "train" else None
        mean, deviation = job["data"]["mean"], job["data"]["deviation"]
        pixels = pixels[:count].reshape(-1, pixels[0].size)
        labels = labels[:count].astype(np.int64)
        return lambda which: ((pixels[which] / 255 - mean) / deviation).astype(np.float32), labels

    pixels = read_idx(f"{job['data']['path']}/t10k-images-idx3-ubyte")[0].size
    wire, model = Wire(), Mlp([pixels, *job["model"]["hidden"], job["model"]["classes"]])
    scheduler = Scheduler(wire, arguments.run, job, metadata, model, len(read("train")[1]), len(read("t10k")[1]),
                          arguments.fingerprint, arguments.name)
    while True:
        try:
            return live(wire, scheduler, job, model, read)
        except PutOut as error:
            print(error, file=sys.stderr)
        except Stopped as error:
            sys.exit(f"reference_worker.py: {error}")


if __name__ == "__main__":
    main()
