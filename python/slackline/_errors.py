"""Errors of the exchange as Python exceptions.

Each code of absl::Status has a class. Each is an Error, and the built-in exception that is nearest in meaning. Messages
are those of the C++ worker.
"""

from __future__ import annotations


class Error(Exception):
    """Base class of all errors of the exchange.

    Attributes:
        code (str): Name of the gRPC status code, for example "UNAVAILABLE".
    """

    code = "UNKNOWN"


class InvalidArgumentError(Error, ValueError):
    """An argument or the job file is wrong, or the model or the data do not fit the job."""

    code = "INVALID_ARGUMENT"


class FailedPreconditionError(Error, RuntimeError):
    """The call is not possible in the present state."""

    code = "FAILED_PRECONDITION"


class NotFoundError(Error, FileNotFoundError):
    """A file or program does not exist."""

    code = "NOT_FOUND"


class PermissionDeniedError(Error, PermissionError):
    """This worker may not make the call, or may not read the file."""

    code = "PERMISSION_DENIED"


class UnauthenticatedError(Error, PermissionError):
    """The other side does not accept this worker's credentials."""

    code = "UNAUTHENTICATED"


class DeadlineExceededError(Error, TimeoutError):
    """A process, which the message names, did not answer in time."""

    code = "DEADLINE_EXCEEDED"


class UnavailableError(Error, ConnectionError):
    """A process, which the message names, cannot be reached."""

    code = "UNAVAILABLE"


class ResourceExhaustedError(Error, RuntimeError):
    """Memory, disk space or ports ran out."""

    code = "RESOURCE_EXHAUSTED"


class CancelledError(Error, RuntimeError):
    """The call was interrupted."""

    code = "CANCELLED"


class OutOfRangeError(Error, ValueError):
    """A number is outside of its allowed range."""

    code = "OUT_OF_RANGE"


class AlreadyExistsError(Error, FileExistsError):
    """A file or object exists already."""

    code = "ALREADY_EXISTS"


class UnimplementedError(Error, NotImplementedError):
    """The other side does not know the call; it may be another version."""

    code = "UNIMPLEMENTED"


class AbortedError(Error, RuntimeError):
    """Another event ended the call, for example a process that ended."""

    code = "ABORTED"


class DataLossError(Error, RuntimeError):
    """Stored data is missing or damaged."""

    code = "DATA_LOSS"


class InternalError(Error, RuntimeError):
    """A gradient is not finite, or Slackline has a bug."""

    code = "INTERNAL"


for _class in (Error, *Error.__subclasses__()):
    _class.__module__ = "slackline"  # in tracebacks they have the names that scripts have for them
_BY_CODE: dict[str, type[Error]] = {one.code: one for one in Error.__subclasses__()}


def from_status(code: str, message: str) -> Error:
    """The exception of a status; of an unknown code an Error."""
    error = _BY_CODE.get(code, Error)(message)
    error.code = code
    return error
