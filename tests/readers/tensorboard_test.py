#!/usr/bin/env python3
"""usage: tensorboard_test.py WRITER: TensorBoard itself reads the event file that WRITER writes, every point of it."""

import io
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    print("SKIP: TensorBoard is not installed; ./test --all installs it")
    sys.exit(77)


def check_picture(png):
    """Two classes: all of the first are right, half of the second. Pillow decodes it, where it is there."""
    try:
        from PIL import Image
    except ImportError:
        return
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.load()
    white, dark = (255, 255, 255), (8, 48, 107)
    corners = [picture.getpixel(place) for place in ((0, 0), (47, 0), (0, 47), (24, 24))]
    assert picture.size == (48, 48) and corners[:2] == [dark, white], corners
    assert corners[2] == corners[3] and all(abs(value - (255 + low) / 2) <= 1 for value, low in zip(corners[2], dark)), corners


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True, timeout=60)
        curves = EventAccumulator(folder).Reload()
        for tag, sign in (("train/loss", 1), ("test/accuracy", -1)):
            points = [(point.wall_time, point.step, point.value) for point in curves.Scalars(tag)]
            wanted = [(1700000000 + step, step, sign * step / 4) for step in range(100)]
            assert points == wanted, f"{tag}: found {points[:3]} ... {len(points)} points"
        (histogram,) = curves.Histograms("asynchrony/staleness")
        values = histogram.histogram_value
        assert (histogram.wall_time, histogram.step) == (1700000200, 7), histogram
        assert (values.min, values.max, values.num, values.sum, values.sum_squares) == (0, 2, 4, 2, 4), values
        assert (list(values.bucket_limit), list(values.bucket)) == ([0.5, 1.5, 2.5], [3, 0, 1]), values
        (image,) = curves.Images("test/confusion")
        assert (image.step, image.width, image.height) == (8, 48, 48), image
        check_picture(image.encoded_image_string)


if __name__ == "__main__":
    main()
