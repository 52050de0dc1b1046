"""Lightning's Trainer as a worker of a job.

    from slackline.integrations.lightning import SlacklineStrategy

    with slackline.connect() as worker:
        strategy = SlacklineStrategy(worker)
        loader = DataLoader(data, batch_size=worker.batch_size, sampler=worker.sampler(len(data)))
        lightning.Trainer(strategy=strategy, max_epochs=-1, ...).fit(module, loader)

The job decides about epochs (max_epochs=-1), optimizer, schedule and checkpoints (enable_checkpointing=False). Optimizers and
schedules of configure_optimizers have no effect.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping, Optional, Union

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import SingleDeviceStrategy

from .. import Worker
from ._adapter import Passes, TorchOptimizer, check_steps

Measure = Callable[[lightning.LightningModule], Optional[Mapping[str, float]]]


class SlacklineStrategy(SingleDeviceStrategy):
    """Strategy of a Lightning Trainer whose gradients go to the servers. Training ends with the job.

    fit() raises ValueError if accumulate_grad_batches differs from training.accumulate, or if optimization is manual.

    Args:
        worker: Worker from slackline.connect(). The caller lets it leave.
        measure: Function of Worker.evaluation(), called with the module. Default: no evaluations.
        test_samples: Number of samples that `measure` uses.
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
        device: Union[str, torch.device, None] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(device=device or "cpu", **kwargs)
        self._chosen = device is not None
        self.worker = worker
        self._measure = measure
        self._test_samples = test_samples

    @property
    def root_device(self) -> torch.device:
        accelerator = self.accelerator
        if self._chosen or accelerator is None:
            return self._root_device
        device: torch.device = accelerator.get_parallel_devices(accelerator.parse_devices(1))[0]
        return device

    def process_dataloader(self, dataloader: object) -> object:
        sampler = getattr(dataloader, "sampler", None)
        ours = sampler is not None and sampler is self.worker._sampler
        return Passes(self.worker, dataloader) if ours else dataloader

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
        self.optimizers = [TorchOptimizer(module, self.worker, accumulate=accumulate, overlap=overlap)]
        self.lr_scheduler_configs = []
        measure = self._measure
        if measure is not None:
            self.worker.evaluation(lambda: measure(module), samples=self._test_samples)
        trainer.callbacks.append(_EndWithTheJob(self.worker))  # type: ignore[attr-defined]


class _EndWithTheJob(Callback):
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def on_train_batch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        self._look(trainer)

    def on_train_epoch_end(self, trainer: lightning.Trainer, *args: Any, **kwargs: Any) -> None:
        self._look(trainer)

    def _look(self, trainer: lightning.Trainer) -> None:
        if self._worker.done:
            trainer.should_stop = True
