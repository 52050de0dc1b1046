#!/usr/bin/env python3
"""Writes optimizer_golden.txt, groups_golden.txt and schedule_golden.txt: what PyTorch's optimizers and schedules do.

    .cache/venv/bin/python tests/ps/make_optimizer_golden.py

optimizer_golden.txt: `case NAME key=value...`, then a line `N w0 w1 ...` with the weights after every tenth step.
groups_golden.txt: the same, with `param_groups` as GROUPS has them, and with an exponential average of the weights in their
place in cases that name `ema`.
schedule_golden.txt:  `case NAME key=value...`, then `N factor` a line: lr / base lr after N samples.
Both start from the formulas `weight` and `gradient`, which the C++ test repeats; they are exact in float32.
"""

import math
import pathlib

import torch

ELEMENTS = 37
STEPS = 100


def weight(i):
    return ((i * 7919) % 1021 - 510) / 256


def gradient(step, i):
    return ((step * 104729 + i * 7919 + step * step * i) % 2003 - 1001) / 1024


SGD, ADAM, ADAMW = "sgd", "adam", "adamw"
OPTIMIZER_CASES = {
    "sgd": dict(kind=SGD, lr=0.05),
    "sgd_decay": dict(kind=SGD, lr=0.05, weight_decay=0.01),
    "momentum": dict(kind=SGD, lr=0.01, momentum=0.9),
    "momentum_decay": dict(kind=SGD, lr=0.01, momentum=0.9, weight_decay=0.01),
    "nesterov": dict(kind=SGD, lr=0.01, momentum=0.9, nesterov=1),
    "nesterov_decay_step": dict(kind=SGD, lr=0.01, momentum=0.9, nesterov=1, weight_decay=0.01, schedule="step",
                                every_samples=30, gamma=0.5),
    "clipped": dict(kind=SGD, lr=0.05, momentum=0.5, clip_norm=3.0),
    "adam": dict(kind=ADAM, lr=0.01),
    "adam_decay": dict(kind=ADAM, lr=0.01, weight_decay=0.1, beta1=0.8, beta2=0.99, epsilon=1e-4),
    "adamw": dict(kind=ADAMW, lr=0.01, weight_decay=0.1),
    "adamw_cosine": dict(kind=ADAMW, lr=0.02, weight_decay=0.05, beta1=0.95, schedule="cosine", total_samples=100,
                         final_fraction=0.1),
}
# Elements up to the first number, from those before it on: factor of the learning rate, and weight decay (None: the case's).
GROUPS = [(10, 1.0, None), (13, 10.0, 0.0), (25, 0.1, 0.2), (37, 1.0, None)]
GROUP_CASES = {
    "sgd": dict(kind=SGD, lr=0.02, weight_decay=0.01),
    "momentum_clipped": dict(kind=SGD, lr=0.005, momentum=0.9, weight_decay=0.01, clip_norm=3.0),
    "nesterov_step": dict(kind=SGD, lr=0.005, momentum=0.9, nesterov=1, schedule="step", every_samples=30, gamma=0.5),
    "adam": dict(kind=ADAM, lr=0.005, weight_decay=0.1),
    "adamw_step": dict(kind=ADAMW, lr=0.005, weight_decay=0.1, schedule="step", every_samples=30, gamma=0.5),
    "sgd_ema": dict(kind=SGD, lr=0.02, momentum=0.5, ema=0.9),
    "adamw_ema": dict(kind=ADAMW, lr=0.005, weight_decay=0.1, ema=0.99),
}
SCHEDULE_CASES = {
    "constant": dict(schedule="constant"),
    "step": dict(schedule="step", every_samples=30, gamma=0.5),
    "cosine": dict(schedule="cosine", total_samples=100, final_fraction=0.1),
    "cosine_to_zero": dict(schedule="cosine", total_samples=80, final_fraction=0.0),
}


def make_optimizer(case, parameters):
    if case["kind"] == SGD:
        return torch.optim.SGD(parameters, lr=case["lr"], momentum=case.get("momentum", 0.0),
                               nesterov=bool(case.get("nesterov", 0)), weight_decay=case.get("weight_decay", 0.0))
    kind = torch.optim.Adam if case["kind"] == ADAM else torch.optim.AdamW
    return kind(parameters, lr=case["lr"], betas=(case.get("beta1", 0.9), case.get("beta2", 0.999)),
                eps=case.get("epsilon", 1e-8), weight_decay=case.get("weight_decay", 0.0))


def make_schedule(case, optimizer):
    base = optimizer.param_groups[0]["lr"]
    kind = case.get("schedule", "constant")
    if kind == "step":
        return torch.optim.lr_scheduler.StepLR(optimizer, case["every_samples"], case["gamma"])
    if kind == "cosine":
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, case["total_samples"],
                                                          base * case["final_fraction"])
    return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)


def head(name, case):
    return " ".join(["case", name] + [f"{key}={value}" for key, value in case.items()])


def optimizer_lines(name, case):
    yield head(name, case)
    weights = torch.nn.Parameter(torch.tensor([weight(i) for i in range(ELEMENTS)], dtype=torch.float32))
    optimizer = make_optimizer(case, [weights])
    schedule = make_schedule(case, optimizer)
    for step in range(1, STEPS + 1):
        values = [gradient(step, i) for i in range(ELEMENTS)]
        norm = math.sqrt(sum(value * value for value in values))
        # By hand: torch's clip_grad_norm_ adds 1e-6 to the norm.
        factor = min(1.0, case["clip_norm"] / norm) if "clip_norm" in case else 1.0
        weights.grad = torch.tensor(values, dtype=torch.float32) * factor
        optimizer.step()
        schedule.step()
        if step % 10 == 0:
            yield " ".join([str(step)] + [f"{value:.9g}" for value in weights.detach().tolist()])


def group_lines(name, case):
    yield head(name, case)
    values = torch.tensor([weight(i) for i in range(ELEMENTS)], dtype=torch.float32)
    begins = [0] + [end for end, _, _ in GROUPS[:-1]]
    parts = torch.nn.ParameterList(torch.nn.Parameter(values[begin:end].clone())
                                   for begin, (end, _, _) in zip(begins, GROUPS))
    optimizer = make_optimizer(case, [
        dict(params=[part], lr=case["lr"] * factor, weight_decay=case.get("weight_decay", 0.0) if decay is None else decay)
        for part, (_, factor, decay) in zip(parts, GROUPS)])
    schedule = make_schedule(case, optimizer)
    average = torch.optim.swa_utils.get_ema_multi_avg_fn(case["ema"]) if "ema" in case else None
    averaged = torch.optim.swa_utils.AveragedModel(parts, multi_avg_fn=average) if average else None
    if averaged:
        averaged.update_parameters(parts)  # the first call copies: the average begins as the weights do
    for step in range(1, STEPS + 1):
        values = [gradient(step, i) for i in range(ELEMENTS)]
        norm = math.sqrt(sum(value * value for value in values))
        factor = min(1.0, case["clip_norm"] / norm) if "clip_norm" in case else 1.0
        for begin, (end, _, _), part in zip(begins, GROUPS, parts):
            part.grad = torch.tensor(values[begin:end], dtype=torch.float32) * factor
        optimizer.step()
        schedule.step()
        if averaged:
            averaged.update_parameters(parts)
        if step % 10 == 0:
            shown = averaged.module if averaged else parts
            yield " ".join([str(step)] + [f"{value:.9g}" for part in shown for value in part.detach().tolist()])


def schedule_lines(name, case):
    yield head(name, case)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = make_schedule(case, optimizer)
    for samples in range(case.get("total_samples", STEPS) + 1):
        yield f"{samples} {optimizer.param_groups[0]['lr']:.17g}"
        optimizer.step()
        schedule.step()


def warmup_lines():
    """torch's LinearLR may not start from 0: it starts at 1/20 here, which is where ours is after one sample."""
    yield head("warmup", dict(warmup_samples=20))
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / 20, total_iters=19)
    for samples in range(1, 41):
        yield f"{samples} {optimizer.param_groups[0]['lr']:.17g}"
        optimizer.step()
        schedule.step()


def write(name, groups):
    lines = [f"# made by make_optimizer_golden.py with torch {torch.__version__}"]
    for group in groups:
        lines.extend(group)
    pathlib.Path(__file__).with_name(name).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    write("optimizer_golden.txt", [optimizer_lines(*item) for item in OPTIMIZER_CASES.items()])
    write("groups_golden.txt", [group_lines(*item) for item in GROUP_CASES.items()])
    write("schedule_golden.txt", [schedule_lines(*item) for item in SCHEDULE_CASES.items()] + [warmup_lines()])
