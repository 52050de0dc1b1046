"""Lightning's Trainer as a worker of a job.

    from slackline.integrations.lightning import SlacklineStrategy

    with slackline.connect() as worker:
        strategy = SlacklineStrategy(worker)
        loader = DataLoader(data, batch_size=worker.batch_size, sampler=worker.sampler(len(data)))
        lightning.Trainer(strategy=strategy, max_epochs=-1, ...).fit(module, loader)

The job decides about epochs (max_epochs=-1), optimizer and checkpoints (enable_checkpointing=False). The learning rate is the job's, too,
unless configure_optimizers returns a scheduler: then each push has the rates of its optimizer, by that scheduler. Nothing else of that
optimizer has an effect, unless the strategy is made with like=True.

In a job with local.steps, the module trains in rounds (slackline.DiLoCo): optimizer and scheduler of configure_optimizers are the inner ones.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, Mapping, Optional, Union

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities.model_helpers import is_overridden

from .. import DiLoCo, Optimizer, Worker
from .._like import without_schedule
from ._adapter import Every, Passes, Schedule, check_every, check_steps, copy_rates, step_of_job, steps_in_job

Measure = Callable[[lightning.LightningModule], Optional[Mapping[str, float]]]


class SlacklineStrategy(SingleDeviceStrategy):
    """Strategy of a Lightning Trainer whose gradients go to the servers. Training ends with the job.

    A scheduler of configure_optimizers is where the job is, however many workers there are, and after a restart or a resume: a
    step is one batch of the job (training.batch_size x training.accumulate samples, whoever trains them), an epoch the job's. In
    configure_optimizers, trainer.estimated_stepping_batches is the job's number of steps, if the worker's sampler was made
    before fit(). A module that overrides lr_scheduler_step has its schedulers where it steps them itself.

    fit() raises ValueError if accumulate_grad_batches differs from training.accumulate, if optimization is manual, for a scheduler
    that depends on a metric (ReduceLROnPlateau), and if the parameters of one group of the job's optimizer.groups have
    several learning rates in configure_optimizers.

    `every` in a job without local.steps is a ValueError, too.

    Args:
        worker: Worker from slackline.connect(). The caller lets it leave.
        measure: Function of Worker.evaluation(), called with the module. Default: no evaluations.
        test_samples: Number of samples that `measure` uses.
        like: The servers take the settings of the optimizer of configure_optimizers, as slackline.Optimizer does by `like`.
        every: End of a round in a job with local.steps, as in slackline.DiLoCo: 100 steps, or "30s". Default: local.steps.
        device: Where the module computes. Default: the first device of the Trainer's accelerator.
        **kwargs: Further arguments of lightning's SingleDeviceStrategy.
    """

    strategy_name = "slackline"

    def __init__(
        self,
        worker: Worker,
        *,
        measure: Optional[Measure] = None,
        test_samples: int = 0,
        like: bool = False,
        every: Every = None,
        device: Union[str, torch.device, None] = None,
        **kwargs: Any,
    ) -> None:
        check_every(every, worker)
        super().__init__(device=device or "cpu", **kwargs)
        self._chosen = device is not None
        self.worker = worker
        self._measure = measure
        self._test_samples = test_samples
        self._like = like
        self._every = every

    @property
    def root_device(self) -> torch.device:
        accelerator = self.accelerator
        if self._chosen or accelerator is None:
            return self._root_device
        device: torch.device = accelerator.get_parallel_devices(accelerator.parse_devices(1))[0]
        return device

    def process_dataloader(self, dataloader: object) -> object:
        worker = self.worker
        if worker._stream is not None and getattr(dataloader, "dataset", None) is worker._stream:
            return _StreamPasses(worker, dataloader)
        ours = worker._sampler is not None and getattr(dataloader, "sampler", None) is worker._sampler
        return Passes(worker, dataloader) if ours else dataloader

    def setup_optimizers(self, trainer: lightning.Trainer) -> None:
        module = self.lightning_module
        assert module is not None
        if not module.automatic_optimization:
            raise ValueError("found automatic_optimization = False; allowed is True: the servers take the steps")
        accumulate = trainer.accumulate_grad_batches
        check_steps(accumulate, self.worker)
        # Clipping here changes gradients between backward and the push, as a GradScaler does.
        scaled = getattr(self.precision_plugin, "scaler", None) is not None
        overlap = not trainer.gradient_clip_val and accumulate == 1 and not scaled
        self._configure(trainer)
        outer = None
        if self.worker.local_steps:
            outer = self._train_in_rounds(module)
        else:
            self._exchange_gradients(module, accumulate, overlap)
        measure = self._measure
        if measure is not None:
            self.worker.evaluation(lambda: measure(module), samples=self._test_samples)
        trainer.callbacks.append(_FollowTheJob(self.worker, outer))  # type: ignore[attr-defined]

    def _train_in_rounds(self, module: lightning.LightningModule) -> DiLoCo:
        if self._like:
            raise ValueError(
                "found like=True in a job with local.steps; allowed is False: the optimizer of configure_optimizers is the inner one"
            )
        if self.lr_scheduler_configs:
            self._follow_schedules(self.optimizers[0], is_overridden("lr_scheduler_step", module))
        return DiLoCo(module, self.worker, every=self._every)

    def _exchange_gradients(self, module: lightning.LightningModule, accumulate: int, overlap: bool) -> None:
        like = without_schedule(self.optimizers[0]) if self._like else None
        optimizer = Optimizer(module, self.worker, like=like, accumulate=accumulate, overlap=overlap)
        if self.lr_scheduler_configs:
            self._keep_schedule(optimizer, is_overridden("lr_scheduler_step", module))
        self.optimizers = [optimizer]

    def _configure(self, trainer: lightning.Trainer) -> None:
        """Has optimizers and schedulers of configure_optimizers, which asks the Trainer for its number of steps."""
        loop = trainer.fit_loop.epoch_loop
        steps_max = loop.max_steps
        if self.worker._data is not None:
            loop.max_steps = steps_in_job(self.worker)
        try:
            super().setup_optimizers(trainer)
        finally:
            loop.max_steps = steps_max

    def _keep_schedule(self, optimizer: Optimizer, by_module: bool) -> None:
        own = self.optimizers[0]
        self._follow_schedules(optimizer, by_module)
        copy_rates(own, optimizer)
        optimizer.register_step_pre_hook(lambda *_: copy_rates(own, optimizer))

    def _follow_schedules(self, optimizer: torch.optim.Optimizer, by_module: bool) -> None:
        """Has the schedulers where the job is, before each step of `optimizer`."""
        schedules = []
        for config in [] if by_module else self.lr_scheduler_configs:
            if config.reduce_on_plateau:
                raise ValueError(
                    f"found {type(config.scheduler).__name__}; allowed is a scheduler without a metric: one worker measures at a time"
                )
            count = self._epoch if config.interval == "epoch" else self._step
            schedules.append(Schedule(config.scheduler, _every(config.frequency, count)))
            config.scheduler = schedules[-1]  # type: ignore[assignment]

        def follow(*args: Any) -> None:
            for one in schedules:
                one.follow()

        follow()
        optimizer.register_step_pre_hook(follow)

    def _step(self) -> int:
        return step_of_job(self.worker)

    def _epoch(self) -> int:
        return self.worker.epoch


class _StreamPasses(Passes):
    """A loader over a stream, of the length of an epoch. Without a length, Lightning would draw a batch before the step of the one
    before it, and not know when to validate."""

    def __len__(self) -> int:
        return int(-(-self._worker._samples_of_epoch // (self._loader.batch_size or 1)))


def _every(frequency: int, count: Callable[[], int]) -> Callable[[], int]:
    return lambda: count() // frequency


class _FollowTheJob(Callback):
    """Steps the outer optimizer behind each step of the module's own, and ends with the job."""

    def __init__(self, worker: Worker, outer: Optional[DiLoCo]) -> None:
        self._worker = worker
        self._outer = outer

    def on_train_batch_end(self, trainer: lightning.Trainer, pl_module: Any, outputs: Any, *args: Any, **kwargs: Any) -> None:
        if self._outer is not None:
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
            if loss is not None:
                self._worker.report(loss=float(loss))
            self._outer.step()
        self._look(trainer)

    def on_train_epoch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        self._look(trainer)

    def on_train_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        if not self._worker.done:
            warnings.warn(
                f"fit() ends before the job, with max_epochs={trainer.max_epochs} and max_steps={trainer.max_steps}: this worker "
                "trains no longer. With max_epochs=-1, and no callback that stops, it trains to the job's end.",
                stacklevel=2,
            )

    def _look(self, trainer: lightning.Trainer) -> None:
        if self._worker.done:
            trainer.should_stop = True
