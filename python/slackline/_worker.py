"""A script's place in the job: joining, samples, steps, evaluations, leaving."""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, TypeVar, Union

import torch
import torch.utils.data

from . import _core
from ._ending import describe, leave_at_exit
from ._errors import FailedPreconditionError
from ._figures import checked, measured
from ._sampler import Sampler
from ._stream import Places, Stream, loop_over

if TYPE_CHECKING:
    from ._node_job import NodeJob
    from ._optimizer import Optimizer

Item = TypeVar("Item")
Evaluate = Callable[[], Optional[Mapping[str, float]]]


class Worker:
    """A worker of a job, made by connect(). The end of its `with` calls leave(), and reports an exception as the reason.

    One thread trains, in the process that called connect(). Other threads and signal handlers may read the properties, and
    may call alive() and leave(). If they call anything else while a call waits, they get FailedPreconditionError.

    A wait ends with an error if a server or the scheduler is silent for too long. After Ctrl-C in a wait, the worker can
    only leave().

    Attributes:
        name (str): Name of the worker in logs, metrics and the status page.
        local_rank (int): Number of this script among those that one command has started on this machine, from 0. With several
            (worker.per_node), each sees GPUs of its own, the first as "cuda:0".
        local_world_size (int): How many these are.
    """

    def __init__(self, job: _core.Job, name: str) -> None:
        self._job: Union[_core.Job, NodeJob] = job
        # `_job` if several processes are one worker; else None.
        self._node: Optional[NodeJob] = None
        self.name = name
        self.local_rank = 0
        self.local_world_size = 1
        self._pid = os.getpid()
        self._optimizer: Optional[Optimizer] = None
        self._sampler: Optional[Sampler] = None
        self._stream: Optional[Stream[Any]] = None
        self._places = Places()
        self._evaluate: Optional[Evaluate] = None
        self._test_samples = 0
        self._left = False
        # Whether each step of this range had, in its order, just the samples that were drawn since the last one; and whether
        # those of a step that comes now are known to.
        self._range_in_order = False
        self._in_order = False
        self._over = False  # as `done`, known by this thread already
        self._epoch = 0
        # The range that is being trained: which samples, and how many of them were in a step.
        self._samples: Sequence[int] = ()
        self._stepped = 0
        # Place of its first sample in the epoch; and of the next step's first sample in the job, in samples.
        self._begin = 0
        self._place = 0
        # Over all ranges: samples that the sampler has given, that batches() has passed on, and that were in a step.
        self._drawn = 0
        self._delivered: Optional[int] = None
        self._taken = 0
        self._loss: Optional[float] = None
        self._accuracy: float | None = None
        # Figures of training under names of the script's, and whether the next step has news of them.
        self._values: dict[str, float] = {}
        self._values_news = False
        self._since = time.monotonic()
        leave_at_exit(self)

    # --- what is known ---

    @property
    def clock(self) -> int:
        """Number of steps that every shard has answered. Steps in flight do not count."""
        return self._job.view()[3]

    @property
    def staleness(self) -> int:
        """Staleness of the last step, in versions: updates that a shard applied between the pull and the push. The largest over
        all shards."""
        return self._job.view()[4]

    @property
    def slack(self) -> int:
        """Clock of this worker minus the slowest worker's, in steps, at the last step. `ssp` bounds it (Ho et al. 2013)."""
        return self._job.view()[5]

    @property
    def rank(self) -> int:
        """Number of this worker, from 0; -1 before it joins. A restarted worker gets a new number."""
        return self._job.view()[0] - 1

    @property
    def done(self) -> bool:
        """True once the job, or this worker's part in it, is over."""
        return self._left or self._job.view()[6] is not None

    @property
    def reason(self) -> Optional[str]:
        """Why the job, or this worker's part in it, is over; None before."""
        return self._job.view()[6]

    @property
    def epoch(self) -> int:
        """Epoch of the newest range of samples, from 0."""
        return self._epoch

    @property
    def epochs(self) -> int:
        """Number of epochs of the job: training.epochs."""
        return self._job.epochs

    @property
    def progress(self) -> float:
        """Share of the job's samples that lie before this worker's next step, from 0 to 1: the job's, whoever trains them, also
        after a restart or a resume. Never decreases. 0 before the first sample is drawn."""
        return min(1.0, self._place / (self.epochs * self._samples_of_epoch)) if self._samples_of_epoch else 0.0

    @property
    def batch_size(self) -> int:
        """Number of samples in a batch: training.batch_size. In a node group, the part of this process."""
        return self._job.batch_size

    @property
    def accumulate(self) -> int:
        """Number of batches in a step: training.accumulate."""
        return self._job.accumulate

    @property
    def local_steps(self) -> int:
        """Number of the script's own steps in a round of slackline.DiLoCo: local.steps. 0: the job has no local training."""
        return self._job.local_steps

    @property
    def seed(self) -> int:
        """Seed of the job. Call torch.manual_seed(worker.seed) before you make the model, and all workers begin alike."""
        return self._job.seed

    # --- data ---

    def sampler(self, samples: int) -> Sampler:
        """Makes the `sampler` of a DataLoader over the training data. Every call returns the same object.

        Args:
            samples: Number of samples in the data set, equal in all workers.

        Raises:
            ValueError: `samples` is below 1, or differs from an earlier call.
        """
        if samples < 1:
            raise ValueError(f"found a data set of {samples} samples; allowed is 1 and more")
        if self._stream is not None:
            raise FailedPreconditionError("this worker has a stream(): it cannot have a sampler(), too")
        if self._sampler is not None and len(self._sampler) != samples:
            raise ValueError(f"found a data set of {samples} samples; the job's has {len(self._sampler)}")
        if self._sampler is None:
            self._sampler = Sampler(self, samples)
        return self._sampler

    def stream(
        self, parts: Sequence[Any], read: Callable[..., Iterable[Item]], *, samples: int, passes: Optional[int] = None,
        seeks: bool = False,
    ) -> Stream[Item]:  # fmt: skip
        """Makes the data set of a DataLoader out of parts whose numbers of records nobody knows, such as files.

        The scheduler leases the parts, one to each process of each worker's DataLoader, in their order. If a worker dies or
        leaves, another one goes on with its part behind the last record whose gradient every server has answered.

        Args:
            parts: What `read` takes, such as names of files. All workers and a resumed run need the same list, by `repr`.
            read: Called with a part. Returns or yields its records, each time the same in the same order.
            samples: Number of records in an epoch, equal in all workers. An estimate will do: epochs, schedules, evaluations and
                progress go by it, and the job ends after training.epochs times as many.
            passes: Number of times that each part is read, after which the job ends. Default: as often as the epochs need.
            seeks: `read` is called with a part and a position, and gives the records from there on, counted from 0. Otherwise a
                worker that goes on with a part reads and drops the records before the position.

        Raises:
            TypeError: `parts` is not a sequence.
            ValueError: There are no parts or too many, or `samples` or `passes` is below 1.
            FailedPreconditionError: The worker has a sampler or a stream already, or is a node group.
        """
        stream = Stream(parts, read, samples, passes, seeks)
        if self._sampler is not None or self._stream is not None:
            has = "sampler()" if self._stream is None else "stream()"
            raise FailedPreconditionError(f"this worker has a {has} already; allowed is one for its training data")
        if self._node is not None:
            raise FailedPreconditionError("a node group has no streams: start the scripts without --node-group")
        self._job.set_stream(len(parts), stream.fingerprint(), passes or 0)
        self._stream = stream
        return stream

    def batches(self, loader: Iterable[Item], *, progress: bool = False) -> Iterator[Item]:
        """Iterates over a DataLoader, pass after pass, until the job is over.

        A pass ends if a batch would cross the end of a range that is not trained yet. A plain loop over the loader ends there,
        and miscounts samples if DataLoader's own processes draw ahead.

        Args:
            loader: DataLoader over sampler() or stream(), with drop_last=False.
            progress: Draw a bar of this worker's samples, with epoch, loss and staleness. Needs tqdm.

        Yields:
            The batches of `loader`, unchanged.

        Raises:
            FailedPreconditionError: The worker has no optimizer, a pass gives no batch, or the job ended before the worker joined.
            TypeError: The loader is over an IterableDataset that stream() has not made.
            ValueError: A loader over a stream() has a setting that loses records.
            Error: The exchange failed.
        """
        if progress:
            yield from self._with_bar(loader)
            return
        if isinstance(loader, torch.utils.data.DataLoader) and isinstance(loader.dataset, torch.utils.data.IterableDataset):
            yield from loop_over(loader, self, self._stream)
            return
        in_vain = lost = 0  # passes in a row without a step, and their batches
        while not self.done:
            before = (self._taken, self._job.view()[1])
            given = 0
            for batch in self._pass(loader):
                given += 1
                yield batch
            stepped = self.done or before != (self._taken, self._job.view()[1])
            in_vain, lost = (0, 0) if stepped else (in_vain + 1, lost + given)
            left = len(self._samples) - self._stepped
            if in_vain and given == 0:
                raise FailedPreconditionError(
                    f"the loader gave no batch, and {left} samples are left: drop_last must be False, and its sampler this worker's"
                )
            # A step of several batches may need some short passes at the end of an epoch.
            if in_vain > 2 and lost >= 64:
                raise FailedPreconditionError(
                    f"the loop has had the same {left} samples {in_vain} times, and no step came: call step() of the "
                    "slackline.Optimizer after each backward pass, or of slackline.DiLoCo after each step of the inner optimizer"
                )

    def _pass(self, loader: Iterable[Item]) -> Iterator[Item]:
        """Iterates once over `loader`, and counts the samples of the batches that the script has, where the loader's processes draw ahead.
        """
        size = getattr(loader, "batch_size", None)
        ahead = getattr(loader, "num_workers", 0) > 0 and size is not None
        in_order = self._gives_in_order(loader)
        self._delivered = self._taken if ahead else None
        for batch in loader:
            if ahead:
                assert self._delivered is not None and size is not None
                self._delivered = min(self._delivered + size, self._drawn)
            self._in_order = in_order
            try:
                yield batch
            finally:
                self._in_order = False
        self._delivered = None

    def _gives_in_order(self, loader: object) -> bool:
        """Its batches are of the sampler's order and none is drawn ahead unseen: what inherits from a DataLoader may do so."""
        return (
            type(loader) is torch.utils.data.DataLoader
            and loader.batch_size is not None
            and loader.sampler is self._sampler
            and getattr(loader, "in_order", True)
        )

    def _with_bar(self, loader: Iterable[Item]) -> Iterator[Item]:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]

        # How many samples will be this worker's nobody knows: no end of the bar.
        with tqdm(unit="samples", desc=self.name) as bar:
            for batch in self.batches(loader):
                yield batch
                bar.update(self._taken - bar.n)
                loss = "-" if self._loss is None else f"{self._loss:.3f}"
                epoch = f"{self.epoch + 1}/{self.epochs}"
                bar.set_postfix(epoch=epoch, loss=loss, staleness=self.staleness, refresh=False)

    # --- figures ---

    def evaluation(self, evaluate: Evaluate, samples: int) -> None:
        """Registers the function that measures the model when the scheduler asks for an evaluation.

        The job's metric (training.metric) is one of its figures: early stopping, the best checkpoints, the status page and plots
        compare evaluations by it.

        The function runs between steps, with the newest weights, in evaluation mode and without gradients. Register it in all
        workers. A wrong result raises TypeError or ValueError where the samples are drawn.

        Args:
            evaluate: Returns a mapping of names to finite numbers, or None for no result. "loss" is the mean over the samples,
                and "accuracy" a share from 0 to 1; both may be left out. Any others, such as "perplexity", "f1" or "bleu", need
                names of a to z, 0 to 9 and _: at most 32, each of at most 64 characters.
            samples: Number of test samples, equal in all workers.

        Raises:
            FailedPreconditionError: The worker has joined.
            ValueError: `samples` is below 1.
        """
        if self._job.is_open:
            raise FailedPreconditionError("the worker has joined: evaluation() comes before the first sample is drawn")
        if samples < 1:
            raise ValueError(f"found {samples} test samples; allowed is 1 and more")
        self._evaluate = evaluate
        self._test_samples = samples

    def report(self, **figures: float) -> None:
        """Sets figures of the next step() and later ones, for the job's progress. They hold until the next report.

        Args:
            **figures: `loss`, the mean over the samples; `accuracy`, a share from 0 to 1; others, such as `perplexity`, under
                names as evaluation() takes them. The job has none that is not reported. Its loss and accuracy are means over
                the samples; other figures are the mean of what each live worker reported last.

        Raises:
            TypeError: A figure is not a number.
            ValueError: The accuracy is not from 0 to 1, another figure is not finite, or a name is not allowed. A loss that is
                not finite is refused by step().
        """
        loss, accuracy, values = checked(figures)
        names = {**self._values, **values}
        if values:
            _core.check_names(list(names))
            self._values, self._values_news = names, True
        if accuracy is not None:
            self._accuracy = accuracy
        if loss is not None:
            self._loss = loss

    def alive(self) -> None:
        """Tells the scheduler that the script works on something other than a step.

        A script that does neither for timeouts.stall_ms, or for 20 of its median steps if that is longer, counts as hanging.
        The scheduler expels it.
        """
        if self._job.is_open and not self.done:
            self._job.alive()

    # --- the end ---

    def leave(self, reason: str = "the script is done") -> None:
        """Leaves the job, so that no process waits for this worker. A second call changes nothing.

        leave() first waits for pushes in flight, for at most 2 s. A signal handler may call it during step(): step() then gets
        2 s to end, is cut short, and returns as if the job were over.

        Args:
            reason: Text for the scheduler's events.
        """
        if self._left or os.getpid() != self._pid:
            return
        optimizer = self._optimizer if self._job.is_open else None
        try:
            if optimizer is not None:
                optimizer._settle()
        finally:  # also from a device that has failed
            left = self._job.leave(self.reason or reason, self._range_in_order)
        # Not before: a signal's handler that raises in here leaves it to the next call.
        self._left = left
        if left and optimizer is not None:
            optimizer._take_weights()

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a slackline.Worker is of the process that has connected, and cannot be copied or pickled: what goes to "
            "DataLoader's processes (dataset, collate_fn) must not hold it"
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        del trace
        if kind is None:
            self.leave()
        else:  # the script's own error must not be hidden
            self._leave_quietly(f"failed: {describe(kind, error)}")

    def _leave_quietly(self, reason: str) -> None:
        """As leave(), but only prints what goes wrong."""
        try:
            self.leave(reason)
        except Exception as problem:  # pylint: disable=broad-except
            print(f"slackline: could not leave in good order: {problem}", file=sys.stderr)

    def _join_node(self, devices: Optional[torch.distributed.ProcessGroup], folder: Optional[str]) -> None:
        """Makes this process one of several that are one worker."""
        from ._node_group import NodeGroup
        from ._node_job import NodeJob

        assert isinstance(self._job, _core.Job)
        if devices is not None:
            group = NodeGroup.of(devices)
            self.local_rank, self.local_world_size = group.rank, group.size
        else:
            group = NodeGroup(Path(folder or ""), self.local_rank, self.local_world_size)
        self._job = self._node = NodeJob(self, self._job, group)

    # --- what the optimizer calls ---

    def _attach(self, optimizer: Optimizer) -> None:
        if self._optimizer is not None:
            raise FailedPreconditionError("this worker has an optimizer already; allowed is one a worker")
        self._optimizer = optimizer

    def _check_rounds(self, in_rounds: bool) -> None:
        """Raises FailedPreconditionError unless the optimizer and the job agree on rounds of local training."""
        if in_rounds and self.local_steps == 0:
            raise FailedPreconditionError(
                "found local.steps: 0 in the job; allowed with slackline.DiLoCo is the number of the script's steps in a round: "
                "local: {steps: 500} in the job file, or --set local.steps=500"
            )
        if self.local_steps > 0 and not in_rounds:
            raise FailedPreconditionError(
                f"found local.steps: {self.local_steps} in the job; allowed with slackline.Optimizer is 0, which pushes every step. "
                "slackline.DiLoCo trains in rounds"
            )

    def _note_place(self) -> None:
        # Samples that are handed out again, after a worker has died, lie before others.
        stepped = self._stepped if self._node is None else self._node.taken
        if self.local_steps:
            stepped += self._given - self._taken  # in the round that is under way
        self._place = max(self._place, self._epoch * self._samples_of_epoch + self._begin + stepped)

    @property
    def _data(self) -> Sampler | Stream[Any] | None:
        return self._sampler or self._stream

    @property
    def _samples_of_epoch(self) -> int:
        """0 as long as the worker has no data."""
        return 0 if self._data is None else self._data.samples

    @property
    def _given(self) -> int:
        """Over all ranges: samples that the script has."""
        return self._drawn if self._delivered is None else self._delivered

    @property
    def _window(self) -> int:
        return self._job.window

    def _parts(self) -> tuple[int, int]:
        """Of the vectors that are pushed, that of the next step; of those with weights, the newest."""
        return self._job.parts()

    def _has_all_samples(self) -> bool:
        """Whether the script has all samples of its range; also where it has none."""
        return self._given - self._taken >= len(self._samples) - self._stepped

    def _may_leave_early(self) -> bool:
        return self._job.is_open and self._job.leaves_early and not self.done and len(self._samples) > 0

    def _ready(self, from_element: int) -> None:
        self._job.ready(from_element)

    def _check_idle(self, name: str) -> None:
        """Raises FailedPreconditionError for a call of this name while another one waits, which may be sending gradients."""
        self._job.check_idle(name)

    def _before_step(self) -> None:
        """Joins, where no sample was drawn yet."""
        self._check_idle("optimizer.step()")
        if not self._job.is_open and not self.done:
            self._open()

    def _skip_step(self, samples: Optional[int]) -> None:
        """Leaves out what the step would have had: its gradients are of no use."""
        if self.done:
            return
        count = self._given - self._taken if samples is None else int(samples)
        self._places.take(count)
        self._taken += count
        self._stepped += count
        self._note_place()
        self._range_in_order = False
        self._job.skip(count)

    def _step(
        self, samples: Optional[int], norm: Optional[float], rates: Sequence[float], local_steps: int = 0
    ) -> None:
        if self.done:
            return
        drawn = self._given - self._taken
        count = drawn if samples is None else int(samples)
        # Before the step: after one that fails nobody knows better.
        self._range_in_order = self._range_in_order and self._in_order and count == drawn
        self._check_step(count)
        seconds = time.monotonic() - self._since
        try:
            if self._stream is not None:
                self._job.set_parts(self._places.take(count))
            if self._values_news:
                self._job.set_values(self._values)
                self._values_news = False
            correct = None if self._accuracy is None else round(self._accuracy * count)
            outcome = self._job.step(count, self._loss, correct, norm, seconds, rates, local_steps)
        finally:
            self._since = time.monotonic()
        self._taken += count
        self._stepped += count
        self._note_place()
        self._over = outcome == "ended"
        if outcome == "rejoined":
            self._samples = ()
            self._stepped = 0

    def _check_step(self, count: int) -> None:
        if count < 1:
            raise FailedPreconditionError(
                f"a step needs samples, and {count} were drawn from worker.{'stream' if self._stream else 'sampler'}() since "
                "the last one"
            )
        if self._loss is not None and not math.isfinite(self._loss):
            raise FailedPreconditionError(f"found loss={self._loss} in a report; allowed is a finite number. Nothing was pushed")

    # --- what the sampler calls ---

    def _open(self) -> None:
        data = self._data
        if self._optimizer is None or data is None:
            missing = "slackline.Optimizer(model, worker)" if self._optimizer is None else "worker.sampler(len(data))"
            raise FailedPreconditionError(f"a worker joins with a model and data: make a {missing} first")
        self._job.open(self._optimizer.tensors, data.samples, self._test_samples, self._optimizer._gather())
        self._optimizer._bind(self._job.push_buffers())

    def _next_range(self) -> bool:
        """Has samples to draw; False once the job is over."""
        if self.done:
            return False
        if not self._job.is_open:
            self._open()
        assert self._optimizer is not None
        done = len(self._samples) > 0
        while True:
            self._optimizer._settle()
            task = self._job.next(done)
            done = False
            self._optimizer._work_changed()
            self._optimizer._take_weights()
            self._since = time.monotonic()
            self._samples = ()
            self._stepped = 0
            self._range_in_order = task[0] == "range"
            if task[0] == "range":
                _, self._epoch, _, samples, self._begin = task
                # The records of a stream are in its parts: the range is only their number.
                self._samples = range(samples) if isinstance(samples, int) else samples
                self._note_place()
                return True
            if task[0] == "end":
                return False
            self._measure()

    def _look_ahead(self) -> None:
        """Has the next range, or knows that the job is over, before a library begins a pass in which it would find no batch."""
        if self._samples and self._stepped >= len(self._samples):
            self._next_range()

    def _measure(self) -> None:
        began = time.monotonic()
        result = None
        if self._evaluate is not None:
            assert self._optimizer is not None
            model = self._optimizer._model
            training = model.training
            self._job.set_busy_elsewhere(True)
            try:
                model.eval()
                with torch.no_grad():
                    result = self._evaluate()
            finally:
                model.train(training)
                self._job.set_busy_elsewhere(False)
        loss, accuracy, values = measured(result)
        count = self._test_samples if result is not None else 0
        self._job.evaluated(count, loss, accuracy, values, time.monotonic() - began)
