"""The samples of a data set of known size that this worker trains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

import torch.utils.data

if TYPE_CHECKING:
    from ._worker import Worker


class Sampler(torch.utils.data.Sampler[int]):
    """Indices of the samples that this worker trains, made by Worker.sampler().

    len() is the size of the data set: the samples of an epoch, over all workers. An iteration follows the ranges that the
    scheduler hands out, epoch after epoch. Job seed and epoch fix the order of an epoch.

    An iteration ends when the job is over. It also ends at the end of a range if drawn samples were in no step yet: then
    iterate again. Worker.batches() does so.
    """

    def __init__(self, worker: Worker, samples: int) -> None:
        self._worker = worker
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __iter__(self) -> Iterator[int]:
        worker = self._worker
        # Samples that an earlier iteration drew, and no step used, are drawn again.
        worker._drawn = worker._taken
        while not worker.done:
            if worker._stepped >= len(worker._samples) and not worker._next_range():
                return
            samples = worker._samples
            for count, index in enumerate(samples[worker._stepped :]):
                # Somebody may stop the job while it is drawn from; asking at each sample would be felt.
                if worker._samples is not samples or worker._over or (count % 32 == 0 and worker.done):
                    return
                worker._drawn += 1
                yield index
            if worker._samples is not samples or worker._stepped < len(samples):
                return
