#!/usr/bin/env python3
"""PyTorch twins of Slackline's models: the judge of what model.safetensors holds.

  twin.py evaluate MODEL.safetensors --kind cnn --data DIR   accuracy and loss on the test images
  twin.py compare TWIN_MODELS_PROGRAM                         all kinds against what Slackline says of them

Exit codes: 0 they agree, 1 they differ, 77 PyTorch or safetensors is not installed.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    from safetensors.torch import load_file
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}; pip install torch numpy safetensors")
    sys.exit(77)

# Of the default job file.
MEAN, DEVIATION = 0.286, 0.353
# As twin_models.cc has it.
PUSHED_IMAGES = 8


class Mlp(nn.Module):
    """inputs - hidden... - classes, ReLU between."""

    def __init__(self, inputs, hidden, classes):
        super().__init__()
        widths = [inputs, *hidden, classes]
        for i in range(len(widths) - 1):
            self.add_module(f"fc{i + 1}", nn.Linear(widths[i], widths[i + 1]))

    def forward(self, x):
        layers = list(self.children())
        x = x.flatten(1)
        for layer in layers[:-1]:
            x = torch.relu(layer(x))
        return layers[-1](x)


class Cnn(nn.Module):
    """Two of (convolution 3x3, batch normalisation where wanted, ReLU, pooling 2x2), then an Mlp's layers."""

    def __init__(self, filters, flat, hidden, classes, batch_norm):
        super().__init__()
        self.conv1 = nn.Conv2d(1, filters[0], 3, padding=1)
        self.conv2 = nn.Conv2d(filters[0], filters[1], 3, padding=1)
        self.bn1 = nn.BatchNorm2d(filters[0]) if batch_norm else nn.Identity()
        self.bn2 = nn.BatchNorm2d(filters[1]) if batch_norm else nn.Identity()
        self.linears = len(hidden) + 1
        widths = [flat, *hidden, classes]
        for i in range(self.linears):
            self.add_module(f"fc{i + 1}", nn.Linear(widths[i], widths[i + 1]))

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = torch.max_pool2d(torch.relu(self.bn2(self.conv2(x))), 2).flatten(1)
        for i in range(1, self.linears):
            x = torch.relu(self.get_submodule(f"fc{i}")(x))
        return self.get_submodule(f"fc{self.linears}")(x)


class Block(nn.Module):
    """F(x) + x of He et al. 2016, figure 2, with two convolutions; layers are made in torchvision's order."""

    def __init__(self, inputs, outputs, stride):
        downsample = None
        if stride != 1 or inputs != outputs:
            downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = downsample

    def forward(self, x):
        residual = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(residual + (x if self.downsample is None else self.downsample(x)))


class Resnet(nn.Module):
    """He et al. 2016, table 1, with basic blocks and projections where the shape changes (option B)."""

    def __init__(self, blocks, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        inputs = 64
        for i, count in enumerate(blocks):
            outputs = 64 * 2**i
            rows = [Block(inputs if j == 0 else outputs, outputs, 2 if i > 0 and j == 0 else 1) for j in range(count)]
            self.add_module(f"layer{i + 1}", nn.Sequential(*rows))
            inputs = outputs
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))


def make_twin(kind, state):
    """Only the widths are taken from the file; load_state_dict(strict=True) judges the names and the rest."""
    if kind == "resnet18":
        return Resnet([2, 2, 2, 2], state["conv1.weight"].shape[1], state["fc.weight"].shape[0])
    linears = [state[f"fc{i}.weight"] for i in range(1, 100) if f"fc{i}.weight" in state]
    hidden, classes = [w.shape[0] for w in linears[:-1]], linears[-1].shape[0]
    if kind == "mlp":
        return Mlp(linears[0].shape[1], hidden, classes)
    filters = [state["conv1.weight"].shape[0], state["conv2.weight"].shape[0]]
    return Cnn(filters, linears[0].shape[1], hidden, classes, "bn1.weight" in state)


def load_twin(kind, path):
    state = load_file(path)
    twin = make_twin(kind, state)
    twin.load_state_dict(state, strict=True)
    return twin.eval()


def read_idx(folder, name):
    plain = os.path.join(folder, name)
    data = open(plain, "rb").read() if os.path.exists(plain) else gzip.open(plain + ".gz").read()
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(data[3])]
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * len(shape)).reshape(shape).copy())


def read_images(folder, mean, deviation, part="t10k"):
    images = read_idx(folder, f"{part}-images-idx3-ubyte").unsqueeze(1).float()
    return (images / 255 - mean) / deviation, read_idx(folder, f"{part}-labels-idx1-ubyte").long()


@torch.no_grad()
def evaluate(twin, images, labels):
    logits = torch.cat([twin(part) for part in images.split(1000)])
    predictions = logits.argmax(1)
    return {
        "log_probabilities": logits.log_softmax(1),
        "predictions": predictions,
        "accuracy": (predictions == labels).double().mean().item(),
        "loss": nn.functional.cross_entropy(logits.double(), labels).item(),
        "margin": (logits.topk(2, 1).values @ torch.tensor([1.0, -1.0])),
    }


def run_evaluate(options):
    images, labels = read_images(options.data, options.mean, options.deviation)
    result = evaluate(load_twin(options.kind, options.model), images, labels)
    print(f"accuracy {result['accuracy']:.6f} loss {result['loss']:.6f} images {len(labels)}")
    if options.expect_accuracy is None or abs(options.expect_accuracy - result["accuracy"]) < 5e-5:
        return 0
    print(f"differs: the accuracy was to be {options.expect_accuracy:.6f}")
    return 1


def close(found, expected):
    return torch.allclose(found, expected, rtol=1e-5, atol=1e-5)


def push_differences(folder, name, kind):
    """Gradients and new buffers, of one step on the training images."""
    twin = load_twin(kind, f"{folder}/{name}.safetensors").train()
    images, labels = read_images(folder, MEAN, DEVIATION, "train")
    images, labels = images[:PUSHED_IMAGES], labels[:PUSHED_IMAGES]
    # Slackline's order in memory, and so the order of its sums. A value that is rounded to the other side of ReLU's corner
    # moves the gradient by far more than rounding; hence also the few images.
    count, channels, height, width = images.shape
    images = images.as_strided(images.shape, (channels * height * width, 1, channels * width, channels))
    nn.functional.cross_entropy(twin(images), labels).backward()
    pushed = load_file(f"{folder}/{name}-push.safetensors")
    for key, value in [*((k, p.grad) for k, p in twin.named_parameters()), *twin.named_buffers()]:
        if key.endswith("num_batches_tracked"):
            continue
        error = (pushed[key] - value).abs().max().item()
        # A bias before batch normalisation has no gradient but rounding.
        if error > 1e-5 * value.abs().max().item() + 1e-6:
            yield f"what is pushed of {key}, by {error:.2g}"


def differences(folder, name, expected):
    """What the twin sees differently from Slackline."""
    images, labels = read_images(folder, MEAN, DEVIATION)
    result = evaluate(load_twin(expected["kind"], f"{folder}/{name}.safetensors"), images, labels)
    wrong = result["predictions"] != torch.tensor(expected["predictions"])
    # Two classes within rounding of each other may come out either way.
    if (wrong & (result["margin"] > 1e-4)).any():
        yield f"{int(wrong.sum())} predictions"
    outputs = torch.tensor(expected["log_probabilities"])
    if not close(result["log_probabilities"][: len(outputs)], outputs):
        yield f"outputs, by {(result['log_probabilities'][: len(outputs)] - outputs).abs().max():.2g}"
    yield from push_differences(folder, name, expected["kind"])
    if abs(result["loss"] - expected["loss"]) > 1e-5:
        yield f"loss {result['loss']:.7f}, Slackline's {expected['loss']:.7f}"
    seeded = load_file(f"{folder}/{name}-seed.safetensors")
    torch.manual_seed(expected["seed"])
    for key, value in make_twin(expected["kind"], seeded).state_dict().items():
        if not torch.allclose(seeded[key], value, rtol=0, atol=1e-7):
            yield f"{key} as made from seed {expected['seed']}"


def run_compare(options):
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.program, folder], check=True)
        with open(f"{folder}/expected.json") as file:
            expected = json.load(file)
        for name, values in expected.items():
            found = list(differences(folder, name, values))
            print(f"{name}: " + ("agrees" if not found else "differs in " + "; ".join(found)))
            code = 1 if found else code
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("evaluate", help="accuracy of one file's weights")
    one.add_argument("model")
    one.add_argument("--kind", choices=["mlp", "cnn", "resnet18"], required=True)
    one.add_argument("--data", required=True, help="folder with the t10k files")
    one.add_argument("--mean", type=float, default=MEAN)
    one.add_argument("--deviation", type=float, default=DEVIATION)
    one.add_argument("--expect-accuracy", type=float, help="fails unless equal to 4 digits")
    one.set_defaults(run=run_evaluate)
    compare = commands.add_parser("compare", help="all kinds of models against the C++ side")
    compare.add_argument("program", help="the built twin_models")
    compare.set_defaults(run=run_compare)
    options = parser.parse_args()
    torch.set_num_threads(1)
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
