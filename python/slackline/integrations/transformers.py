"""Hugging Face's Trainer as a worker of a job.

    from slackline.integrations.transformers import SlacklineTrainer

    with slackline.connect() as worker:
        trainer = SlacklineTrainer(worker=worker, model=model, args=TrainingArguments(...),
                                   train_dataset=train, eval_dataset=test, compute_metrics=accuracy)
        trainer.train()

The job decides, whatever the arguments say, about epochs (num_train_epochs, max_steps), batch size (per_device_train_batch_size),
checkpoints (save_strategy), and the evaluations whose results the run shows. Learning rate and schedule are the job's, too, unless the
arguments name any. Optimizer and weight decay are the job's, whatever `optim` says, unless the script passes an optimizer of torch.

In a job with local.steps, the trainer trains in rounds (slackline.DiLoCo): its optimizer, learning rate and schedule are the inner ones.
"""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from typing import Any, Iterable, Mapping, Optional, Sized, cast

import torch
from torch.utils.data import DataLoader
from transformers import PrinterCallback, SchedulerType, Trainer, TrainerCallback
from transformers.trainer_callback import ProgressCallback

from .. import DiLoCo, Optimizer, Stream, Worker, _core
from ._adapter import Every, Passes, Schedule, check_every, check_steps, step_of_job, steps_in_job

# The job says when it is over.
_STEPS_MAX = 2**31 - 1
# Figures that the trainer adds to those of an evaluation.
_SPEED = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "eval_model_preparation_time")
# Arguments that make a schedule, of which one that differs from the library's default makes the schedule the script's.
_SCHEDULE = ("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio")
# Schedules that depend on evaluations of the trainer's own.
_BY_METRIC = ("reduce_lr_on_plateau", "greedy")
# Arguments that say what the job says, and how.
_THE_JOBS = {
    "num_train_epochs": "training.epochs",
    "max_steps": "training.epochs",
    "per_device_train_batch_size": "training.batch_size",
    "weight_decay": "optimizer.weight_decay",
    "adam_beta1": "optimizer.beta1",
    "adam_beta2": "optimizer.beta2",
    "adam_epsilon": "optimizer.epsilon",
    "optim": "optimizer.kind",
    "optim_args": "optimizer",
}


def _named(args: Any, names: Iterable[str]) -> list[str]:
    """Those of the arguments that differ from the library's defaults."""
    named = []
    for field in dataclasses.fields(args):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if field.name in names and (getattr(args, field.name) or None) != (default or None):
            named.append(field.name)
    return named


class _JobSchedule:
    """What the trainer has in the place of a scheduler where learning rates are the job's."""

    def step(self) -> None: ...

    def get_last_lr(self) -> list[float]:
        return [math.nan]  # log() leaves it out

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class _FollowTheJob(TrainerCallback):
    """Steps the outer optimizer behind each step of the trainer's own, and ends with the job."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.outer: Optional[DiLoCo] = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self.outer is not None:
            self.outer.step()
        return self._look(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        self._worker._look_ahead()
        return self._look(control)

    def _look(self, control: Any) -> Any:
        if self._worker.done:
            control.should_training_stop = True
        return control


class SlacklineTrainer(Trainer):
    """transformers.Trainer whose samples come from the scheduler and whose gradients go to the servers.

    It computes on the device that TrainingArguments finds, and on one GPU where there are several: start a script for each
    (`slackline launch --per-node`).

    train_dataset is a data set with a length, whose samples are handed out by number, or a Worker.stream().

    With optimizers=(optimizer, None), the servers take the settings of that optimizer, as slackline.Optimizer does by `like`. Its learning
    rates then count in place of the arguments' learning_rate.

    In a job with local.steps, optimizer, learning rate and schedule are the trainer's own, as its arguments say. The outer optimizer is
    that of slackline.DiLoCo. The schedule goes by the job's progress, as above.

    The learning rate is the job's, by its schedule, unless learning_rate, lr_scheduler_type, lr_scheduler_kwargs or warmup_steps of the
    arguments differ from the library's defaults. Then all pushes have the rates of the arguments' schedule, and a log line says
    so. It begins at learning_rate, times the lr_factor of a group of the job's, or without a learning_rate at the job's. A step
    of that schedule is one batch of the job (training.batch_size x training.accumulate samples, whoever trains them): it is where the job
    is, however many workers there are, and after a restart or a resume. warmup_steps below 1 is a part of all.

    The trainer measures its eval_dataset when the scheduler asks for an evaluation. `loss` is eval_loss. The numbers that
    compute_metrics returns come under their names, as Worker.evaluation() takes them, in lower case and with _ for other signs.
    Numbers that are not finite, and those beyond 32, are left out with a warning. Without an `accuracy` among them, the job has
    none.

    Args:
        *args: Arguments of transformers.Trainer.
        worker: Worker from slackline.connect(). The caller lets it leave.
        every: End of a round in a job with local.steps, as in slackline.DiLoCo: 100 steps, or "30s". Default: local.steps.
        **kwargs: Arguments of transformers.Trainer.

    Raises:
        ValueError: gradient_accumulation_steps differs from training.accumulate, train_dataset has no length and is no stream of the
            worker, eval_dataset has no length, lr_scheduler_type depends on a metric, a scheduler or optimizer_cls_and_kwargs was
            given, or `every` in a job without local.steps.
    """

    def __init__(self, *args: Any, worker: Worker, every: Every = None, **kwargs: Any) -> None:
        check_every(every, worker)
        self.worker = worker
        self._every = every
        self._warned_of_figures = False
        arguments = kwargs.get("args", args[1] if len(args) > 1 else None)
        if arguments is not None and arguments.n_gpu > 1:
            arguments._n_gpu = 1  # else the trainer copies the model to all of them (torch.nn.DataParallel)
        if arguments is not None and arguments.max_steps <= 0:
            arguments.max_steps = _STEPS_MAX  # the library wants to know where a stream ends
        super().__init__(*args, **kwargs)
        check_steps(self.args.gradient_accumulation_steps, worker)
        data = self.train_dataset
        if not hasattr(data, "__len__") and (data is None or data is not worker._stream):
            found = "no train_dataset" if data is None else f"a train_dataset of type {type(data).__name__}, without a length"
            raise ValueError(
                f"found {found}; allowed is one with a length, whose samples the scheduler hands out by number, or worker.stream(...)"
            )
        if self.eval_dataset is not None and not hasattr(self.eval_dataset, "__len__"):
            raise ValueError(
                f"found an eval_dataset of type {type(self.eval_dataset).__name__}, without a length; allowed is one with a length"
            )
        self._in_rounds = worker.local_steps > 0
        if kwargs.get("optimizer_cls_and_kwargs") is not None and not self._in_rounds:
            raise ValueError(
                "found optimizer_cls_and_kwargs; allowed is optimizers=(optimizer, None): the servers take its kind and settings"
            )
        if self.lr_scheduler is not None:
            raise ValueError("found optimizers=(..., scheduler); allowed is none: TrainingArguments names the schedule")
        # The servers take its settings, and its steps.
        like: Any = self.optimizer
        self._like: Optional[torch.optim.Optimizer] = like
        self.optimizer = None  # type: ignore[assignment,unused-ignore]
        self._schedule_of = _named(self.args, _SCHEDULE)
        if self._like is not None and "learning_rate" in self._schedule_of:
            self._schedule_of.remove("learning_rate")
            warnings.warn(f"learning_rate={self.args.learning_rate} changes nothing: the rates are those of optimizers=...", stacklevel=2)
        kind = SchedulerType(self.args.lr_scheduler_type).value
        if kind in _BY_METRIC:
            raise ValueError(f"found lr_scheduler_type={kind}; allowed is one without a metric: one worker measures at a time")
        self._warn_of_the_jobs()
        self.args.max_steps = _STEPS_MAX
        self.args.save_strategy = "no"  # type: ignore[assignment,unused-ignore]
        self._follower = _FollowTheJob(worker)
        self.add_callback(self._follower)
        # Of how many steps there will be nothing is known: no bar.
        if self.pop_callback(ProgressCallback) is not None:
            self.add_callback(PrinterCallback)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        if self.optimizer is None:
            assert isinstance(self.model, torch.nn.Module)
            if self._in_rounds:
                self._make_inner(self.model, *args, **kwargs)
            else:
                self._make_exchange(self.model)
            if self.eval_dataset is not None:
                self.worker.evaluation(self._measure, samples=len(cast(Sized, self.eval_dataset)))
        return cast(torch.optim.Optimizer, self.optimizer)

    def _make_exchange(self, model: torch.nn.Module) -> None:
        accumulate = self.args.gradient_accumulation_steps
        # Clipping here changes gradients between backward and the push, as a GradScaler does.
        overlap = not self.args.max_grad_norm and accumulate == 1 and not self.args.fp16
        self.optimizer = self._exchange = Optimizer(
            model, self.worker, like=self._like, accumulate=accumulate, overlap=overlap
        )

    def _make_inner(self, model: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        self.optimizer = self._like  # type: ignore[assignment,unused-ignore]
        # Makes one where there is none. The library wraps it later.
        self._inner: torch.optim.Optimizer = super().create_optimizer(*args, **kwargs)
        self._follower.outer = DiLoCo(model, self.worker, every=self._every)

    def create_scheduler(self, *args: Any, **kwargs: Any) -> Any:
        if self.lr_scheduler is None:
            if self._in_rounds:
                self.lr_scheduler = self._by_job(self._inner)
            else:
                self.lr_scheduler = self._script_schedule() if self._schedule_of else cast(Any, _JobSchedule())
        return self.lr_scheduler

    def _by_job(self, optimizer: torch.optim.Optimizer) -> Any:
        """The schedule of the arguments over the steps of the job, whoever takes them."""
        schedule = Schedule(super().create_scheduler(steps_in_job(self.worker), optimizer), lambda: step_of_job(self.worker))
        schedule.follow()
        optimizer.register_step_pre_hook(lambda *_: schedule.follow())
        return schedule

    def _script_schedule(self) -> Any:
        exchange = self._exchange
        job_lr = exchange.defaults["lr"]
        if "learning_rate" in self._schedule_of:
            for group in exchange.param_groups:
                group["lr"] = self.args.learning_rate * (group["lr"] / job_lr if job_lr > 0 else 1)
        schedule = self._by_job(exchange)
        print(
            f"{self.worker.name}: the learning rate is that of TrainingArguments ({', '.join(self._schedule_of)}), over the "
            f"{steps_in_job(self.worker)} steps of the job; optimizer.lr and optimizer.schedule of the job do not count",
            flush=True,
        )
        return schedule

    def _warn_of_the_jobs(self) -> None:
        known = {
            "num_train_epochs": self.worker.epochs, "max_steps": _STEPS_MAX, "per_device_train_batch_size": self.worker.batch_size
        }  # fmt: skip
        # In rounds, the optimizer is the trainer's.
        jobs = [name for name, key in _THE_JOBS.items() if not self._in_rounds or not key.startswith("optimizer")]
        named = [name for name in _named(self.args, jobs) if getattr(self.args, name) != known.get(name)]
        if named:
            own = "optimizers=..." if self._like is not None else ""
            said = ", ".join(f"{name} ({own if own and 'optimizer' in _THE_JOBS[name] else _THE_JOBS[name]})" for name in named)
            who = "the job and optimizers=... decide" if own else "the job decides"
            warnings.warn(f"{who}, and these arguments change nothing: {said}", stacklevel=3)

    def get_train_dataloader(self) -> DataLoader[Any]:
        data = self.train_dataset
        assert data is not None
        collate = self.data_collator
        if hasattr(self, "_get_collator_with_removed_columns"):
            collate = self._get_collator_with_removed_columns(collate, description="training")
        workers = self.args.dataloader_num_workers
        # Without accelerate's wrapping, which draws a batch ahead of the step.
        streams = isinstance(data, Stream)
        loader = DataLoader(
            data,
            batch_size=self.worker.batch_size,
            sampler=None if streams else self.worker.sampler(len(cast(Sized, data))),
            collate_fn=collate,
            num_workers=workers,
            pin_memory=self.args.dataloader_pin_memory and self.args.device.type == "cuda",
            persistent_workers=workers > 0 and self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor if workers > 0 else None,
        )
        return cast("DataLoader[Any]", Passes(self.worker, loader, self._stop))

    def _stop(self) -> None:
        # Behind the last batch of a stream, the library would look for its max_steps.
        self.control.should_training_stop = True

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = super().training_step(*args, **kwargs)
        self.worker.report(loss=float(loss) * self.args.gradient_accumulation_steps)
        return loss

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if not self._schedule_of and not self._in_rounds:
            logs.pop("learning_rate", None)  # the job's
        super().log(logs, *args, **kwargs)

    def _measure(self) -> Optional[Mapping[str, float]]:
        figures = self.evaluate()
        measured: dict[str, float] = {}
        left_out = []
        for name, value in figures.items():
            if not name.startswith("eval_") or name in _SPEED or not isinstance(value, (int, float)):
                continue
            own = re.sub("[^a-z0-9_]", "_", name[len("eval_") :].lower())
            try:
                if own not in ("loss", "accuracy"):
                    _core.check_names([*(other for other in measured if other not in ("loss", "accuracy")), own])
                    if not math.isfinite(value):
                        raise ValueError(f"found {value}; allowed is a finite number")
                measured[own] = value
            except ValueError as error:
                left_out.append(f"{name} ({error})")
        if left_out and not self._warned_of_figures:
            self._warned_of_figures = True
            warnings.warn(f"compute_metrics: left out {', '.join(left_out)}", stacklevel=2)
        return measured
