"""A worker's timeline as OTLP/JSON: the spans of OpenTelemetry, as its collector's otlpjsonfile receiver reads them.

A trace is what the trainer does at one time, a step in most cases, with all that begins meanwhile on the other rows. The form is
that of opentelemetry-proto's TracesData in JSON: ids are hexadecimal digits, 64-bit integers are texts, kinds are numbers,
as the specification of OTLP has it.
"""

import bisect
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Optional

INTERNAL, CLIENT = 1, 3
SCOPE = "slackline.worker.trace"
TRAINER = "trainer"


class TraceError(Exception):
    """Says what was found and what is allowed."""


@dataclass
class Happening:
    row: str
    name: str
    begin_us: float  # since the first of the file
    end_us: float
    asks: bool  # for something of another process
    parent: Optional[int] = None


@dataclass(frozen=True)
class Timeline:
    process: str
    began_ns: int  # since 1970
    not_kept: int
    happenings: list[Happening]


def read(path: Path) -> Timeline:
    """A file of `worker.trace`. Raises TraceError."""
    wrong = f"{path}: found no trace; allowed is a file that worker.trace has written"
    try:
        text = json.loads(path.read_text())
        events, other = text["traceEvents"], text["otherData"]
        names = {event["tid"]: event["args"]["name"] for event in events if event.get("name") == "thread_name"}
        process = next(event["args"]["name"] for event in events if event.get("name") == "process_name")
        happenings = [Happening(names[event["tid"]], event["name"], event["ts"], event["ts"] + event["dur"], False)
                      for event in events if event["ph"] == "X"]
        begins = {event["id"]: event for event in events if event["ph"] == "b"}
        happenings += [Happening("wire", event["name"], begins[event["id"]]["ts"], event["ts"], True)
                       for event in events if event["ph"] == "e"]
        if "began_unix_ns" not in other:
            raise TraceError(f"{path}: found no began_unix_ns in otherData; allowed is a file of this version or a later one")
        began_ns, not_kept = int(other["began_unix_ns"]), int(other["events_not_kept"])
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, StopIteration, AttributeError) as error:
        raise TraceError(wrong) from error
    happenings.sort(key=lambda one: (one.begin_us, -one.end_us))
    _find_parents(happenings)
    return Timeline(process, began_ns, not_kept, happenings)


def _find_parents(happenings: list[Happening]) -> None:
    """Those of a row are nested; what has none there belongs to what the trainer does when it begins."""
    open_of_row: dict[str, list[int]] = {}
    for index, one in enumerate(happenings):
        if one.asks:
            continue
        stack = open_of_row.setdefault(one.row, [])
        while stack and happenings[stack[-1]].end_us < one.end_us:
            stack.pop()
        if stack and happenings[stack[-1]].begin_us <= one.begin_us:
            one.parent = stack[-1]
        stack.append(index)
    tops = [index for index, one in enumerate(happenings) if one.row == TRAINER and one.parent is None]
    begins = [happenings[index].begin_us for index in tops]
    for one in happenings:
        if one.parent is not None or one.row == TRAINER:
            continue
        at = bisect.bisect_right(begins, one.begin_us) - 1
        if at >= 0 and one.begin_us < happenings[tops[at]].end_us:
            one.parent = tops[at]


def _id(timeline: Timeline, kind: str, index: int, digits: int) -> str:
    """The same for the same file, and another one for each other."""
    text = f"{kind} {timeline.process} {timeline.began_ns} {index}"
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def _spans(timeline: Timeline) -> Iterator[dict[str, Any]]:
    roots: list[int] = []
    for index, one in enumerate(timeline.happenings):
        # A parent that begins at the same time may stand behind.
        root = index
        while (parent := timeline.happenings[root].parent) is not None:
            root = parent
        roots.append(root)
        span = {"traceId": _id(timeline, "trace", root, 32), "spanId": _id(timeline, "span", index, 16)}
        if one.parent is not None:
            span["parentSpanId"] = _id(timeline, "span", one.parent, 16)
        begin_ns = timeline.began_ns + round(one.begin_us * 1000)
        yield {**span, "name": one.name, "kind": CLIENT if one.asks else INTERNAL, "startTimeUnixNano": str(begin_ns),
               "endTimeUnixNano": str(begin_ns + max(0, round((one.end_us - one.begin_us) * 1000))),
               "attributes": [_text("thread.name", one.row)]}


def to_otlp(timeline: Timeline, job: str) -> dict[str, Any]:
    """One TracesData."""
    attributes = [_text("service.name", "slackline-worker"), _text("service.instance.id", timeline.process)]
    attributes += [_text("slackline.job", job)] if job else []
    attributes += [{"key": "slackline.events_not_kept", "value": {"intValue": str(timeline.not_kept)}}]
    return {"resourceSpans": [{"resource": {"attributes": attributes},
                               "scopeSpans": [{"scope": {"name": SCOPE}, "spans": list(_spans(timeline))}]}]}
