"""The command line."""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Sequence

from slackline_trace import otlp


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="slackline trace", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Writes what workers did when (worker.trace) as spans of OpenTelemetry, for collectors and viewers of such.\n"
                    "Reads files that are there; the run itself knows nothing of it.",
        epilog="Examples\n  slackline trace trace-worker-1.json trace-worker-2.json --otlp-json spans.jsonl --job first")
    parser.add_argument("traces", nargs="+", metavar="TRACE.json", help="a worker's, as worker.trace names it")
    parser.add_argument("--slackline", help=argparse.SUPPRESS)
    parser.add_argument("--otlp-json", required=True, metavar="FILE",
                        help="to write: a line a worker, as the collector's otlpjsonfile receiver reads them")
    parser.add_argument("--job", default="", metavar="NAME", help="goes with each worker as slackline.job")
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
