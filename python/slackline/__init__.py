"""Makes a PyTorch training script an asynchronous worker of a Slackline job.

    import slackline

    with slackline.connect() as worker:                    # address from `slackline launch`, or given
        optimizer = slackline.Optimizer(model, worker)     # the servers own the update rule
        loader = DataLoader(data, batch_size=worker.batch_size, sampler=worker.sampler(len(data)))
        for batch, target in worker.batches(loader):       # until the job's epochs are over
            optimizer.zero_grad()
            loss(model(batch), target).backward()          # gradients leave while backward runs
            optimizer.step()                               # pushes; pulls as the consistency mode says

docs/python.md is the guide, docs/python-api.md the reference.
"""

from ._cluster import LocalCluster, local_cluster
from ._connect import connect
from ._core import version
from ._diloco import DiLoCo
from ._errors import (
    AbortedError,
    AlreadyExistsError,
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    Error,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from ._optimizer import Optimizer
from ._sampler import Sampler
from ._service import Service, ServiceJob
from ._stream import Stream
from ._worker import Worker

__all__ = [
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "DataLossError",
    "DeadlineExceededError",
    "DiLoCo",
    "Error",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "LocalCluster",
    "NotFoundError",
    "Optimizer",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "Sampler",
    "Service",
    "ServiceJob",
    "Stream",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "Worker",
    "connect",
    "local_cluster",
    "version",
]
