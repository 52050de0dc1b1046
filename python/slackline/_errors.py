"""What the servers, the scheduler and the exchange refuse, as Python exceptions.

Each code of absl::Status has its class, with the same message as the C++ worker's. All are an Error, and the built-in
exception that is nearest in meaning.
"""

from __future__ import annotations


class Error(Exception):
    """Whatever the exchange reports. `code`: as gRPC names it, such as "UNAVAILABLE"."""

    code = "UNKNOWN"


class InvalidArgumentError(Error, ValueError):
    """The job file, the model or the data do not fit the job; or a call got what it must not."""

    code = "INVALID_ARGUMENT"


class FailedPreconditionError(Error, RuntimeError):
    """The call came at a time when it cannot be done."""

    code = "FAILED_PRECONDITION"


class NotFoundError(Error, FileNotFoundError):
    """A file is not there."""

    code = "NOT_FOUND"


class PermissionDeniedError(Error, PermissionError):
    """This worker may not do that, or not read that file."""

    code = "PERMISSION_DENIED"


class UnauthenticatedError(Error, PermissionError):
    """The other side would not believe who this worker is."""

    code = "UNAUTHENTICATED"


class DeadlineExceededError(Error, TimeoutError):
    """Somebody who is named was waited for in vain."""

    code = "DEADLINE_EXCEEDED"


class UnavailableError(Error, ConnectionError):
    """Somebody who is named cannot be reached."""

    code = "UNAVAILABLE"


class ResourceExhaustedError(Error, RuntimeError):
    """There is no room: memory, disk, ports."""

    code = "RESOURCE_EXHAUSTED"


class CancelledError(Error, RuntimeError):
    """The call was interrupted."""

    code = "CANCELLED"


class OutOfRangeError(Error, ValueError):
    """A number is beyond what is allowed."""

    code = "OUT_OF_RANGE"


class AlreadyExistsError(Error, FileExistsError):
    """Something is there already."""

    code = "ALREADY_EXISTS"


class UnimplementedError(Error, NotImplementedError):
    """The other side does not know the call: another version?"""

    code = "UNIMPLEMENTED"


class AbortedError(Error, RuntimeError):
    """Something else came in between."""

    code = "ABORTED"


class DataLossError(Error, RuntimeError):
    """Something that was kept is gone or broken."""

    code = "DATA_LOSS"


class InternalError(Error, RuntimeError):
    """A gradient or a loss is not finite, or there is a bug."""

    code = "INTERNAL"


_BY_CODE: dict[str, type[Error]] = {one.code: one for one in Error.__subclasses__()}


def from_status(code: str, message: str) -> Error:
    """The exception of a status; of an unknown code an Error."""
    error = _BY_CODE.get(code, Error)(message)
    error.code = code
    return error
