#!/usr/bin/env python3
"""Writes local_golden.txt: weights after rounds of local training, as PyTorch's optimizers have them.

    .cache/venv/bin/python tests/worker/make_local_golden.py

`case NAME`, then a line `ROUND w0 w1 ...` a round. Three workers take four steps each from the common weights; the mean of
what they began with minus what they ended with is the gradient of the outer optimizer (Douillard et al. 2023, algorithm 1).
The formulas `weight`, `slope` and `target` are repeated by the C++ test; they are exact in float32.
"""

import pathlib

import torch

ELEMENTS, WORKERS, STEPS, ROUNDS = 37, 3, 4, 8


def weight(i):
    return ((i * 7919) % 1021 - 510) / 256


def slope(i):
    return ((i * 37) % 11 + 1) / 8


def target(worker, step, i):
    return ((step * 7919 + worker * 104729 + i * 31) % 2003 - 1001) / 1024


def tensor(formula):
    return torch.tensor([formula(i) for i in range(ELEMENTS)], dtype=torch.float32)


CASES = {
    # Inner Adam keeps its state from round to round.
    "diloco": (lambda weights: torch.optim.AdamW(weights, lr=0.01, weight_decay=0.1), True,
               lambda weights: torch.optim.SGD(weights, lr=0.7, momentum=0.9, nesterov=True)),
    # Inner momentum begins anew; the outer step is the mean of the weights.
    "local_sgd": (lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.5), False,
                  lambda weights: torch.optim.SGD(weights, lr=1.0)),
}


def rounds(make_inner, keep, make_outer):
    common = torch.nn.Parameter(tensor(weight))
    outer = make_outer([common])
    own = [torch.nn.Parameter(common.detach().clone()) for _ in range(WORKERS)]
    inner = [make_inner([weights]) for weights in own]
    for number in range(ROUNDS):
        if not keep:
            inner = [make_inner([weights]) for weights in own]
        difference = torch.zeros(ELEMENTS)
        for worker in range(WORKERS):
            own[worker].data.copy_(common.data)
            for step in range(STEPS):
                goal = tensor(lambda i, w=worker, s=number * STEPS + step: target(w, s, i))
                own[worker].grad = tensor(slope) * (own[worker].data - goal)
                inner[worker].step()
            difference += common.data - own[worker].data
        common.grad = difference / WORKERS
        outer.step()
        yield " ".join([str(number + 1)] + [f"{value:.9g}" for value in common.detach().tolist()])


if __name__ == "__main__":
    lines = [f"# made by make_local_golden.py with torch {torch.__version__}"]
    for name, case in CASES.items():
        lines += [f"case {name}", *rounds(*case)]
    pathlib.Path(__file__).with_name("local_golden.txt").write_text("\n".join(lines) + "\n")
