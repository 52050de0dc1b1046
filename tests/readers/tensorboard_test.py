#!/usr/bin/env python3
"""usage: tensorboard_test.py WRITER: TensorBoard itself reads the event file that WRITER writes, every point of it."""

import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("SKIP: TensorBoard is not installed; ./test --all installs it")
    sys.exit(77)


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True, timeout=60)
        curves = EventAccumulator(folder).Reload()
        for tag, sign in (("train/loss", 1), ("test/accuracy", -1)):
            points = [(point.wall_time, point.step, point.value) for point in curves.Scalars(tag)]
            wanted = [(1700000000 + step, step, sign * step / 4) for step in range(100)]
            assert points == wanted, f"{tag}: found {points[:3]} ... {len(points)} points"


if __name__ == "__main__":
    main()
