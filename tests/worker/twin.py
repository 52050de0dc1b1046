#!/usr/bin/env python3
"""PyTorch twins of Slackline's models: the judge of what model.safetensors holds.

  twin.py evaluate MODEL.safetensors --kind cnn --data DIR   accuracy and loss on the test images
  twin.py compare TWIN_MODELS_PROGRAM [--set zoo]             a set of models against what Slackline says of them

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
    from twin_networks import KINDS, make_twin
except ImportError as error:
    print(f"skipped: {error}; pip install torch numpy safetensors")
    sys.exit(77)

# Of the default job file.
MEAN, DEVIATION = 0.286, 0.353
# As twin_models.cc has it.
PUSHED_IMAGES = 8
# Differences of a model that are said.
SAID = 8


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


def cross_entropy(logits, labels, loss):
    """What Slackline trains on: the mean over images, also where classes have weights."""
    weights = torch.tensor(loss["class_weights"]) if loss["class_weights"] else None
    total = nn.functional.cross_entropy(logits, labels, weights, reduction="sum", label_smoothing=loss["label_smoothing"])
    return total / len(labels)


def push_differences(folder, name, expected):
    """Gradients and new buffers, of one step on the training images."""
    twin = load_twin(expected["kind"], f"{folder}/{name}.safetensors").train()
    images, labels = read_images(folder, MEAN, DEVIATION, "train")
    images, labels = images[:PUSHED_IMAGES], labels[:PUSHED_IMAGES]
    # Slackline's order in memory, and so the order of its sums. A value that is rounded to the other side of ReLU's corner
    # moves the gradient by far more than rounding; hence also the few images.
    count, channels, height, width = images.shape
    images = images.as_strided(images.shape, (channels * height * width, 1, channels * width, channels))
    cross_entropy(twin(images), labels, expected).backward()
    pushed = load_file(f"{folder}/{name}-push.safetensors")
    whole = torch.cat([parameter.grad.flatten() for parameter in twin.parameters()]).norm().item()
    for key, value in [*((k, p.grad) for k, p in twin.named_parameters()), *twin.named_buffers()]:
        if key.endswith("num_batches_tracked"):
            continue
        error = (pushed[key] - value).norm().item()
        # A bias before batch normalisation has no gradient but rounding.
        if error > expected["rounding"] * value.norm().item() + 1e-6 * max(1, whole):
            yield f"what is pushed of {key}, by {error:.2g} of {value.norm().item():.2g}"


def initialise(twin, init):
    """model.init, as torch.nn.init has it; on top of the draws that the reference makes."""
    draw = {
        "kaiming_normal": lambda weight: nn.init.kaiming_normal_(weight, nonlinearity="relu"),
        "kaiming_uniform": lambda weight: nn.init.kaiming_uniform_(weight, nonlinearity="relu"),
        "xavier_uniform": nn.init.xavier_uniform_,
        "truncated_normal": lambda weight: nn.init.trunc_normal_(weight, std=0.02, a=-0.04, b=0.04),
    }
    if init == "default":
        return
    for key, value in twin.named_parameters():
        if key.endswith(".bias"):
            nn.init.zeros_(value)
        elif key.endswith(".weight") and value.dim() > 1:
            draw[init](value)


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
    yield from push_differences(folder, name, expected)
    if abs(result["loss"] - expected["loss"]) > 1e-5 * max(1, result["loss"]):
        yield f"loss {result['loss']:.7f}, Slackline's {expected['loss']:.7f}"
    seeded = load_file(f"{folder}/{name}-seed.safetensors")
    torch.manual_seed(expected["seed"])
    twin = make_twin(expected["kind"], seeded)
    initialise(twin, expected["init"])
    for key, value in twin.state_dict().items():
        if not torch.allclose(seeded[key], value, rtol=0, atol=1e-7):
            yield f"{key} as made from seed {expected['seed']}"


def run_compare(options):
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([options.program, folder, options.set], check=True)
        with open(f"{folder}/expected.json") as file:
            expected = json.load(file)
        for name, values in expected.items():
            found = list(differences(folder, name, values))
            more = f"; and {len(found) - SAID} more" if len(found) > SAID else ""
            print(f"{name}: " + ("agrees" if not found else "differs in " + "; ".join(found[:SAID]) + more), flush=True)
            code = 1 if found else code
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("evaluate", help="accuracy of one file's weights")
    one.add_argument("model")
    one.add_argument("--kind", choices=KINDS, required=True)
    one.add_argument("--data", required=True, help="folder with the t10k files")
    one.add_argument("--mean", type=float, default=MEAN)
    one.add_argument("--deviation", type=float, default=DEVIATION)
    one.add_argument("--expect-accuracy", type=float, help="fails unless equal to 4 digits")
    one.set_defaults(run=run_evaluate)
    compare = commands.add_parser("compare", help="models against the C++ side")
    compare.add_argument("program", help="the built twin_models")
    compare.add_argument("--set", choices=["basic", "zoo"], default="basic")
    compare.set_defaults(run=run_compare)
    options = parser.parse_args()
    torch.set_num_threads(1)
    return options.run(options)


if __name__ == "__main__":
    sys.exit(main())
