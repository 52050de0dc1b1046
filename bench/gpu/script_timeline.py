"""A script of a Slackline job that says when forward, backward, copies and the exchange of its steps begin and end, and how
much of the copies backward hides.

CUDA's events give the times of the device, and the host's clock those of the exchange. Milliseconds count from the begin of
the step, before which the device is idle.
"""

import argparse
import json
import pathlib
import time
from typing import Union

import network
import torch
from torch.utils.data import BatchSampler, DataLoader

import slackline
from slackline import _staging

Mark = Union[float, "torch.cuda.Event"]
# Steps before the ones that are measured.
WARM_UP = 8


class Recorder:
    """Spans of the present step."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self.begin()

    def begin(self) -> None:
        self._spans: "list[tuple[str, Mark, Mark, int]]" = []
        if self._on_gpu:
            torch.cuda.synchronize()
        self._began = time.perf_counter()
        self._zero = self.device_mark()

    def host_mark(self) -> float:
        return 1e3 * (time.perf_counter() - self._began)

    def device_mark(self) -> Mark:
        """A time of the current stream."""
        if not self._on_gpu:
            return self.host_mark()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def add(self, what: str, begin: Mark, end: Mark, size: int = 0) -> None:
        self._spans.append((what, begin, end, size))

    def spans(self) -> "list[dict[str, object]]":
        """Waits for the device."""
        if self._on_gpu:
            torch.cuda.synchronize()
        return [{"what": what, "begin": self._milliseconds(begin), "end": self._milliseconds(end), "bytes": size}
                for what, begin, end, size in self._spans]

    def _milliseconds(self, mark: Mark) -> float:
        return mark if isinstance(mark, float) else self._zero.elapsed_time(mark)


def record_copies(recorder: Recorder) -> None:
    copy = _staging.CudaLane._copy

    def recorded(lane, target: torch.Tensor, source: torch.Tensor) -> None:
        begin = recorder.device_mark()
        copy(lane, target, source)
        what = "gradient to host" if target.device.type == "cpu" else "weights to device"
        recorder.add(what, begin, recorder.device_mark(), source.numel() * source.element_size())

    _staging.CudaLane._copy = recorded


def record_calls(recorder: Recorder, owner: object, method: str, what: str) -> None:
    call = getattr(owner, method)

    def recorded(*arguments):
        begin = recorder.host_mark()
        try:
            return call(*arguments)
        finally:
            recorder.add(what, begin, recorder.host_mark())

    setattr(owner, method, recorded)


def covered(spans: "list[tuple[float, float]]", begin: float, end: float) -> float:
    """Length of the part of [begin, end] that is in one of the spans."""
    total = 0.0
    for first, last in sorted(spans):
        first = max(first, begin)
        total += max(0.0, min(last, end) - first)
        begin = max(begin, min(last, end))
    return total


def summarise(spans: "list[dict]") -> "dict[str, float]":
    def of(what: str) -> "list[tuple[float, float]]":
        return [(span["begin"], span["end"]) for span in spans if span["what"] == what]

    (begin, end), = of("backward")
    copies = of("gradient to host")
    last = max((span["end"] for span in spans), default=0.0)
    busy = covered(copies, 0, last)
    left = [first for first, _ in of("gradients leave")]
    return {
        "forward_ms": sum(b - a for a, b in of("forward")), "backward_ms": end - begin, "copies_ms": busy,
        "copies_within_backward": covered(copies, begin, end) / busy if busy else 0.0,
        "left_before_backward_ended": sum(first < end for first in left) / len(left) if left else 0.0,
        "exchange_ms": sum(b - a for a, b in of("exchange")), "step_ms": last,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--images", type=int, default=8192)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.graphs = False
    with slackline.connect() as worker:
        torch.manual_seed(worker.seed)
        loop = network.Loop(options)
        images = network.Images(options.batch, options.device.startswith("cuda"))
        optimizer = slackline.Optimizer(loop.model, worker)
        recorder = Recorder(loop.device)
        record_copies(recorder)
        record_calls(recorder, worker, "_ready", "gradients leave")
        record_calls(recorder, worker, "_step", "exchange")
        sampler = BatchSampler(worker.sampler(options.images), options.batch, drop_last=False)
        steps: "list[dict[str, float]]" = []
        for number, (batch, labels) in enumerate(worker.batches(DataLoader(images, batch_size=None, sampler=sampler))):
            recorder.begin()
            batch, labels = batch.to(loop.device, non_blocking=True), labels.to(loop.device, non_blocking=True)
            optimizer.zero_grad()
            begin = recorder.device_mark()
            with torch.autocast(loop.device.type, torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(loop.model(batch), labels)
            middle = recorder.device_mark()
            loss.backward()
            end = recorder.device_mark()
            optimizer.step()
            recorder.add("forward", begin, middle)
            recorder.add("backward", middle, end)
            spans = recorder.spans()
            if number >= WARM_UP or not steps:
                steps.append(summarise(spans))
                options.out.write_text(json.dumps({"steps": steps[1:] or steps, "last": spans}))


if __name__ == "__main__":
    main()
