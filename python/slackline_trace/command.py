"""The command line."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Sequence

from slackline_options import CommandParser
from slackline_trace import otlp


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser(
        "slackline trace", about="Convert traces of workers (worker.trace) to spans of OpenTelemetry.",
        example="slackline trace trace-worker-1.json --otlp-json spans.jsonl", usage="TRACE... --otlp-json FILE [OPTIONS]",
        text="The output has one line for each worker, in the form that the collector's otlpjsonfile receiver reads. The command reads "
             "files only; the run may be over. More: slackline help operations.",
        examples=["slackline trace trace-worker-1.json trace-worker-2.json --otlp-json spans.jsonl --job first"])
    parser.argument("traces", nargs="+", metavar="TRACE", help="Trace file of a worker, as worker.trace names it.")
    most_used = parser.add_argument_group("Most used options")
    most_used.add_argument("--otlp-json", required=True, metavar="FILE", help="File to write. Required.")
    most_used.add_argument("--job", default="", metavar="NAME", help="Value of slackline.job in each span's resource.")
    parser.finish()
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        lines = []
        for path in options.traces:
            timeline = otlp.read(Path(path))
            lines.append(json.dumps(otlp.to_otlp(timeline, options.job), separators=(",", ":")) + "\n")
            print(f"{timeline.process}: {len(timeline.happenings)} spans", file=sys.stderr)
    except otlp.TraceError as error:
        print(f"slackline trace: {error}", file=sys.stderr)
        return 1
    # Whole or not at all: a collector may watch for it.
    target = Path(options.otlp_json)
    draft = target.with_name(target.name + ".new")
    try:
        draft.write_text("".join(lines))
        os.replace(draft, target)
    except OSError as error:
        print(f"slackline trace: cannot write {target}: {error.strerror}", file=sys.stderr)
        return 1
    return 0
