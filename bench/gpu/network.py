"""One training loop on synthetic images, in plain PyTorch and as a script of a Slackline job: the two differ in their
optimizer and in who draws the samples, and in nothing else.

    python network.py --model resnet50 --batch 256 --seconds 10          # plain; prints JSON
    slackline launch network.py job.yaml -- --script --model resnet50 --batch 256 --images 8192

With --trainer the loop is that of Hugging Face's Trainer, with --graphs forward and backward are replayed as CUDA graphs.
"""

import argparse
import json
import pathlib
import sys
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset

# Batches on the host that the loop goes through in turns.
BATCHES = 8
# Exit code of a program that finds nothing to do here.
SKIPPED = 77


def make_model(kind: str) -> nn.Module:
    if kind == "small":  # many short kernels
        layers = [layer for _ in range(24) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())]
        return nn.Sequential(nn.Conv2d(3, 16, 8, stride=8), *layers, nn.Flatten(), nn.Linear(16 * 28 * 28, 16))
    if kind == "tiny":
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 16)
        )
    try:
        if kind == "vit_base":
            import timm

            return timm.create_model("vit_base_patch16_224", num_classes=16)
        import torchvision
    except ImportError as missing:
        print(f"SKIP: {missing}")
        sys.exit(SKIPPED)
    return torchvision.models.get_model(kind, weights=None, num_classes=16)


class Images(Dataset):
    """Batches of normalised images on the host; whole batches are indexed at once."""

    def __init__(self, batch: int, pinned: bool) -> None:
        torch.manual_seed(1)
        images = torch.randn(batch, 3, 224, 224).contiguous(memory_format=torch.channels_last)
        labels = torch.randint(16, (batch,))
        self._batches = [
            (images.roll(i, 0).pin_memory(), labels.roll(i).pin_memory()) if pinned else (images, labels)
            for i in range(BATCHES)
        ]
        self._given = 0

    def __getitem__(self, indexes: "list[int]") -> "tuple[torch.Tensor, torch.Tensor]":
        images, labels = self._batches[self._given % BATCHES]
        self._given += 1
        return images[: len(indexes)], labels[: len(indexes)]


class Loop:
    def __init__(self, options: argparse.Namespace) -> None:
        self.device = torch.device(options.device)
        torch.backends.cudnn.benchmark = True
        self.model = make_model(options.model).to(self.device, memory_format=torch.channels_last)
        self._loss = nn.CrossEntropyLoss()
        self._network = self.model
        if options.graphs:
            images = torch.zeros(options.batch, 3, 224, 224, device=self.device).contiguous(memory_format=torch.channels_last)
            # Its backward writes gradients where the last one did.
            self._network = torch.cuda.make_graphed_callables(self.model, (images,))
        self._autocast = options.model != "small"  # graphs are captured in float32

    def step(self, optimizer, images: torch.Tensor, labels: torch.Tensor, before_step=lambda loss: None) -> None:
        images = images.to(self.device, non_blocking=True)
        labels = labels.to(self.device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self._autocast):
            loss = self._loss(self._network(images), labels)
        loss.backward()
        before_step(loss)
        optimizer.step()

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def is_pinned(options: argparse.Namespace) -> bool:
    return options.device.startswith("cuda") and not options.pageable


def print_rate(options: argparse.Namespace, steps: int, seconds: float) -> None:
    memory = torch.cuda.max_memory_allocated() if options.device.startswith("cuda") else 0
    print(json.dumps({"samples_per_second": steps * options.batch / seconds, "steps": steps, "peak_bytes": memory}))


def train_plainly(options: argparse.Namespace) -> None:
    loop, images = Loop(options), Images(options.batch, is_pinned(options))
    optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.001, momentum=0.9)
    whole = list(range(options.batch))
    # cuDNN tries its algorithms, and memory is allocated.
    for _ in range(options.warm_up):
        loop.step(optimizer, *images[whole])
    loop.wait()
    begin, steps = time.monotonic(), 0
    while time.monotonic() - begin < options.seconds:
        for _ in range(5):
            loop.step(optimizer, *images[whole])
        loop.wait()
        steps += 5
    print_rate(options, steps, time.monotonic() - begin)


class Times:
    """Seconds that methods take, by their names; each call of the first one is a step."""

    def __init__(self, methods: "list[tuple[object, str]]") -> None:
        self._lists: "dict[str, list[float]]" = {}
        for owner, name in methods:
            self._measure(owner, name, self._lists.setdefault(name, []))

    def _measure(self, owner: object, name: str, seconds: "list[float]") -> None:
        method = getattr(owner, name)

        def measured(*arguments, **named):
            begin = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                seconds.append(time.perf_counter() - begin)

        setattr(owner, name, measured)

    def milliseconds_per_step(self) -> "dict[str, float]":
        steps = len(next(iter(self._lists.values())))
        return {name: 1e3 * sum(seconds) / max(steps, 1) for name, seconds in self._lists.items()}


def be_a_worker(options: argparse.Namespace) -> None:
    import slackline

    with slackline.connect() as worker:
        torch.manual_seed(worker.seed)
        loop, images = Loop(options), Images(options.batch, is_pinned(options))
        optimizer = slackline.Optimizer(loop.model, worker)
        sampler = BatchSampler(worker.sampler(options.images), options.batch, drop_last=False)
        times = None
        if options.times is not None:
            times = Times([(optimizer, "step"), (optimizer, "_accumulated"), (optimizer._copies, "settle"),
                           (worker, "_step"), (optimizer, "_take_weights"), (optimizer, "_write_averages")])
        for batch in worker.batches(DataLoader(images, batch_size=None, sampler=sampler)):
            loop.step(optimizer, *batch)
            if times is not None:
                options.times.write_text(json.dumps(times.milliseconds_per_step()))


class Losing(nn.Module):
    """A model whose forward gives the loss, as Hugging Face's Trainer wants it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self._loss = nn.CrossEntropyLoss()

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> "dict[str, torch.Tensor]":
        return {"loss": self._loss(self.model(images), labels)}


def train_by_trainer(options: argparse.Namespace, worker=None) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Clock(TrainerCallback):
        """Ends plain training, and says how fast it was."""

        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == options.warm_up:
                loop.wait()
                self._begin = time.monotonic()
            elif state.global_step > options.warm_up and time.monotonic() - self._begin > options.seconds:
                loop.wait()
                print_rate(options, state.global_step - options.warm_up, time.monotonic() - self._begin)
                control.should_training_stop = True
            return control

    class Numbers(Dataset):
        def __len__(self) -> int:
            return options.images

        def __getitem__(self, index: int) -> int:
            return index

    if worker is not None:
        torch.manual_seed(worker.seed)
    loop, images = Loop(options), Images(options.batch, pinned=False)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, report_to="none", max_steps=10**6, per_device_train_batch_size=options.batch, optim="sgd", learning_rate=0.001,
            bf16=True, max_grad_norm=0, save_strategy="no", logging_steps=10**6, remove_unused_columns=False,
            use_cpu=loop.device.type == "cpu")  # fmt: skip
        common = {
            "model": Losing(loop.model), "args": arguments, "train_dataset": Numbers(),
            "data_collator": lambda numbers: dict(zip(("images", "labels"), images[numbers])),
        }
        if worker is None:
            Trainer(**common, callbacks=[Clock()]).train()
            return
        from slackline.integrations.transformers import SlacklineTrainer

        SlacklineTrainer(**common, worker=worker).train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="tiny, small, vit_base (timm) or a name of torchvision's")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--warm-up", type=int, default=10, help="steps before the measurement")
    parser.add_argument("--script", action="store_true", help="be a worker of a Slackline job")
    parser.add_argument("--images", type=int, default=8192, help="images of an epoch; for --script")
    parser.add_argument("--pageable", action="store_true", help="batches in ordinary memory of the host")
    parser.add_argument("--graphs", action="store_true", help="with --model small")
    parser.add_argument("--trainer", action="store_true", help="Hugging Face's Trainer")
    parser.add_argument("--times", type=pathlib.Path, help="file for the parts of a step of Slackline's; for --script")
    options = parser.parse_args()
    if options.trainer and options.script:
        import slackline

        with slackline.connect() as worker:
            train_by_trainer(options, worker)
    elif options.trainer:
        train_by_trainer(options)
    elif options.script:
        be_a_worker(options)
    else:
        train_plainly(options)


if __name__ == "__main__":
    main()
