"""The first gradient of each kind of model: that of the C++ worker beside those of plain PyTorch.

    gradients.py make FOLDER --kinds cnn resnet18          # images, initial weights, and jobs.json with each kind's settings
    gradients.py compare FOLDER --device cuda:0            # once a worker has trained a step at a rate of 1 for each kind

A worker's gradient is the difference of its first and last weights. The truth is plain PyTorch's gradient in float64.
"""

import argparse
import ctypes
import json
import math
import pathlib
import struct

import torch
from torch import nn
from twin_networks import RESNETS, Cnn, EfficientnetB0, Mlp, Resnet, TextureCnn2, Vit

IMAGES, SIDE, CLASSES = 32, 64, 10
MEAN, DEVIATION = 0.5, 0.25
# Settings of a kind's job beside those of all.
SETTINGS = {
    "mlp": {"model.hidden": "[64]"},
    "cnn": {"model.hidden": "[32]", "model.filters": "[8, 16]"},
    "texture_cnn_2": {"model.hidden": "[64]", "model.dropout": 0},
    "efficientnet_b0": {"model.dropout": 0, "model.stochastic_depth": 0},
}
KINDS = ("cnn", "resnet50", "vit_small", "efficientnet_b0", "resnet18", "resnet34", "vit_tiny", "texture_cnn_2", "mlp")


def settings_of(kind: str, folder: pathlib.Path) -> "dict[str, object]":
    """Settings of a job that takes one step, and whose weights differ after it by the gradient."""
    return {
        "model.kind": kind, "model.classes": CLASSES, "model.weights": str(folder / f"{kind}.safetensors"),
        "data.path": str(folder), "data.mean": MEAN, "data.deviation": DEVIATION, "training.batch_size": IMAGES,
        "training.epochs": 1, "consistency.mode": "bsp", "optimizer.lr": 1, "optimizer.momentum": 0,
        "optimizer.schedule.kind": "constant", **SETTINGS.get(kind, {}),
    }


def make_network(kind: str) -> nn.Module:
    if kind in RESNETS:
        return Resnet(*RESNETS[kind], 1, CLASSES)
    if kind.startswith("vit_"):
        return Vit(1, 16, (SIDE // 16) ** 2 + 1, {"vit_tiny": 192, "vit_small": 384}[kind], CLASSES)
    return {
        "mlp": lambda: Mlp(SIDE**2, [64], CLASSES),
        "cnn": lambda: Cnn([8, 16], 16 * (SIDE // 4) ** 2, [32], CLASSES, False),
        "texture_cnn_2": lambda: TextureCnn2(1, [64], CLASSES),
        "efficientnet_b0": lambda: EfficientnetB0(1, CLASSES),
    }[kind]()


def raw(tensor: torch.Tensor) -> bytes:
    """Without NumPy, which the machine may lack."""
    tensor = tensor.contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def write_idx(folder: pathlib.Path, images: torch.Tensor, labels: torch.Tensor, tests: int) -> None:
    """Images (n, height, width) and labels (n) of bytes; the first `tests` of them are the test images, too."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", len(images)), ("t10k", tests)):
        head = struct.pack(">IIII", 0x803, count, *images.shape[1:])
        (folder / f"{part}-images-idx3-ubyte").write_bytes(head + raw(images[:count]))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + raw(labels[:count]))


def draw() -> "tuple[torch.Tensor, torch.Tensor]":
    random = torch.Generator().manual_seed(3)
    images = torch.randint(256, (IMAGES, SIDE, SIDE), dtype=torch.uint8, generator=random)
    return images, torch.randint(CLASSES, (IMAGES,), dtype=torch.uint8, generator=random)


def save(path: pathlib.Path, state: "dict[str, torch.Tensor]") -> None:
    """In the form of safetensors, whose package the machine may lack."""
    head, values, begin = {}, [], 0
    for name, tensor in state.items():
        if tensor.is_floating_point():
            values.append(raw(tensor))
            head[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [begin, begin + len(values[-1])]}
            begin += len(values[-1])
    text = json.dumps(head).encode()
    path.write_bytes(b"".join([struct.pack("<Q", len(text)), text, *values]))


def load(path: pathlib.Path) -> "dict[str, torch.Tensor]":
    data = bytearray(path.read_bytes())
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            values = torch.frombuffer(data, dtype=torch.float32, count=math.prod(entry["shape"]),
                                      offset=begin + entry["data_offsets"][0])
            tensors[name] = values.reshape(entry["shape"])
    return tensors


def gradient(kind: str, weights: pathlib.Path, device: str, dtype: torch.dtype) -> "dict[str, torch.Tensor]":
    network = make_network(kind)
    network.load_state_dict(load(weights), strict=False)
    network.to(device, dtype)
    images, labels = draw()
    images = ((images / 255 - MEAN) / DEVIATION).unsqueeze(1)
    nn.functional.cross_entropy(network(images.to(device, dtype)), labels.long().to(device)).backward()
    return {name: one.grad.to("cpu", torch.float64) for name, one in network.named_parameters()}


def distance(found: "dict[str, torch.Tensor]", want: "dict[str, torch.Tensor]") -> "dict[str, object]":
    """Norm of the difference over the norm of `want`, and the tensor with the largest part in it."""
    parts = {name: (found[name] - want[name]).square().sum().item() for name in want}
    whole = sum(one.square().sum().item() for one in want.values())
    return {"relative": math.sqrt(sum(parts.values()) / whole), "worst": max(parts, key=lambda name: parts[name])}


def compare(kind: str, folder: pathlib.Path, run: pathlib.Path, device: str) -> "dict[str, object]":
    first = folder / f"{kind}.safetensors"
    before, after = load(first), load(run / "model.safetensors")
    truth = gradient(kind, first, "cpu", torch.float64)
    worker = {name: before[name].double() - after[name].double() for name in truth}
    plain, cpu = gradient(kind, first, device, torch.float32), gradient(kind, first, "cpu", torch.float32)
    figures = {
        "worker": distance(worker, truth), "plain": distance(plain, truth), "cpu": distance(cpu, truth),
        "worker_to_plain": distance(worker, plain), "worker_to_cpu": distance(worker, cpu),
    }
    rounding = max(figures["plain"]["relative"], figures["cpu"]["relative"])
    return {**figures, "close": figures["worker"]["relative"] <= 3 * rounding + 1e-4}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "compare"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--runs", type=pathlib.Path, help="folder of the run folders, gradient-KIND; for compare")
    parser.add_argument("--device", default="cuda:0")
    options = parser.parse_args()
    if options.what == "make":
        write_idx(options.folder, *draw(), tests=IMAGES)
        for kind in options.kinds:
            torch.manual_seed(7)
            save(options.folder / f"{kind}.safetensors", make_network(kind).state_dict())
        jobs = {kind: settings_of(kind, options.folder) for kind in options.kinds}
        (options.folder / "jobs.json").write_text(json.dumps(jobs))
        return
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for kind in options.kinds:
        print(json.dumps({kind: compare(kind, options.folder, options.runs / f"gradient-{kind}", options.device)}), flush=True)


if __name__ == "__main__":
    main()
