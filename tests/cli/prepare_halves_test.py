#!/usr/bin/env python3
"""usage: prepare_halves_test.py SLACKLINE [TEST...]: `slackline prepare --dtype float16`, as NumPy reads it."""

import json
import signal
import struct
import subprocess
import sys
import unittest
import zlib

import prepare_test
from prepare_test import PrepareTest, picture

import numpy
from PIL import Image


def png16(pixels, kind, interlaced=False):
    """A PNG of 16 bits; kind: 0 grey, 2 colours, 4 and 6 these with transparency. Pillow writes grey alone."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    height, width = pixels.shape[:2]
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [pixels[y::down, x::across] for y, x, down, across in passes] if interlaced else [pixels]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for part in parts if part.size for row in part)
    header = struct.pack(">IIBBBBB", width, height, 16, kind, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Halves(PrepareTest):
    """--dtype float16."""

    DTYPE = "<f2"
    FLAGS = ("--dtype", "float16")

    def test_of_8_bits_it_is_what_numpy_makes_of_them(self):
        self.write_classes(count=4)
        bytes_ = self.folder / "bytes"
        self.prepare("--split", "train=0.75,test=0.25", *self.FLAGS)
        done = self.run_prepare("--verify", self.out)
        self.assertIn("3 x 16 x 20 float16: train 9", done.stdout)
        images, labels = self.rows("train")
        index = self.index()
        self.DTYPE = "|u1"
        self.prepare("--split", "train=0.75,test=0.25", out=bytes_)
        of_bytes, same_labels = self.rows("train", bytes_)
        numpy.testing.assert_array_equal(labels, same_labels)
        numpy.testing.assert_array_equal(images, (of_bytes.astype("f4") / numpy.float32(255)).astype("f2"))
        for channel in range(3):
            values = images[:, channel].astype(float)
            self.assertAlmostEqual(index["mean"][channel], values.mean(), places=9)
            self.assertAlmostEqual(index["deviation"][channel], values.std(), places=9)
            self.assertAlmostEqual(index["mean"][channel], self.index(bytes_)["mean"][channel], places=4)
        self.assertNotIn("dtype", self.index(bytes_))

    def test_16_bits_keep_their_depth(self):
        random = numpy.random.default_rng(3)
        kinds = {"colour": 2, "colour-clear": 6, "grey": 0, "grey-clear": 4}
        expected = {}
        for name, kind in kinds.items():
            channels = {0: 1, 2: 3, 4: 2, 6: 4}[kind]
            for interlaced in (False, True):
                label = f"{name}-{int(interlaced)}"
                pixels = random.integers(0, 65536, (7, 9, channels), dtype=numpy.uint16)
                (self.source / label).mkdir(parents=True)
                (self.source / label / "0.png").write_bytes(png16(pixels, kind, interlaced))
                opaque = pixels[:, :, :3 if kind in (2, 6) else 1]
                expected[label] = numpy.broadcast_to(opaque, (7, 9, 3)).transpose(2, 0, 1)
        self.prepare("--split", "train=1", *self.FLAGS)
        images, labels = self.rows("train")
        self.assertEqual(len(images), len(expected))
        for image, label in zip(images, labels):
            name = self.index()["classes"][label]
            wanted = (expected[name].astype("f4") / numpy.float32(65535)).astype("f2")
            numpy.testing.assert_array_equal(image, wanted, name)
        self.assertGreater(len(numpy.unique(images)), 512)

    def test_damaged_16_bits_are_skipped_and_said(self):
        whole = png16(numpy.arange(700, dtype=numpy.uint16).reshape(20, 35) * 90, 0)
        flipped = bytearray(whole)
        flipped[len(whole) // 2] ^= 16
        for number, data in enumerate((whole, whole[:80], bytes(flipped), whole[:40] + whole[60:])):
            (self.source / "a").mkdir(parents=True, exist_ok=True)
            (self.source / "a" / f"{number}.png").write_bytes(data)
        self.prepare("--split", "train=1", *self.FLAGS)
        self.assertEqual(sorted(self.skipped()), ["a/1.png", "a/2.png", "a/3.png"])
        for reason in self.skipped().values():
            self.assertIn("damaged PNG: ", reason)

    def test_scaling_and_grey_are_not_rounded_to_256_steps(self):
        self.write_classes(count=2)
        self.prepare("--size", "13x11", "--grey", "--split", "train=1", *self.FLAGS)
        images, labels = self.rows("train")
        found = sorted(zip(labels.tolist(), (image.tobytes() for image in images)))
        expected = []
        for label in range(3):
            for i in range(2):
                pixels = picture(100 * label + i).astype(float) @ [19595 / 65536, 38470 / 65536, 7471 / 65536]
                scaled = Image.fromarray(pixels.astype("f4"), "F").resize((13, 11), Image.BILINEAR)
                expected.append((label, numpy.asarray(scaled) / 255))
        for label, data in found:
            image = numpy.frombuffer(data, "<f2").reshape(11, 13).astype(float)
            nearest = min(numpy.abs(image - one).max() for other, one in expected if other == label)
            # As near as those of 8 bits are.
            self.assertLess(nearest, 3 / 255)
        self.assertGreater(numpy.abs(images.astype(float) * 255 - numpy.round(images.astype(float) * 255)).max(), 0.4)

    def test_what_is_the_same_everywhere_has_no_deviation(self):
        for i in range(7):
            (self.source / "a").mkdir(parents=True, exist_ok=True)
            (self.source / "a" / f"{i}.png").write_bytes(png16(numpy.full((33, 35), 12345, numpy.uint16), 0))
        self.prepare("--grey", "--split", "train=1", *self.FLAGS)
        self.assertEqual(self.index()["deviation"], [0])
        self.assertAlmostEqual(self.index()["mean"][0], 12345 / 65535, places=4)

    def test_another_type_into_the_same_folder_is_refused(self):
        self.write_classes(count=3)
        self.assertIn("found --dtype float32; allowed are uint8, float16", self.prepare("--dtype", "float32", code=2).stderr)
        for first, second in ((("--dtype", "uint8"), self.FLAGS), (self.FLAGS, ())):
            self.prepare("--overwrite", *first)
            before = self.digests(self.out)
            self.assertIn("--dtype was ", self.prepare(*second, code=2).stderr)
            # Nor while it is made.
            (self.out / "index.json").rename(self.folder / "index.json")
            settings = json.loads((self.folder / "index.json").read_text())["settings"]
            (self.out / "partial").mkdir()
            (self.out / "partial/settings.json").write_text(json.dumps(settings))
            self.assertIn("--dtype was ", self.prepare(*second, code=2).stderr)
            # The same again makes what is missing.
            self.prepare(*first)
            self.assertEqual(self.digests(self.out), before)
        self.assertIn("is there already", self.prepare(*self.FLAGS).stdout)
        self.assertIn("type <f2", self.refused_as_bytes())

    def refused_as_bytes(self):
        index = self.out / "index.json"
        index.write_text(index.read_text().replace('"dtype": "float16"', '"dtype": "uint8"', 1))
        done = self.run_prepare("--verify", self.out)
        self.assertEqual(done.returncode, 1)
        return done.stderr

    def test_killed_it_goes_on_and_jobs_do_not_change_the_result(self):
        self.write_classes(count=30)
        flags = ("--size", "8", "--shard-images", "2", *self.FLAGS)
        whole = self.folder / "whole"
        self.prepare(*flags, "--jobs", "3", out=whole)
        command = [prepare_test.SLACKLINE, "prepare", str(self.source), str(self.out), *flags, "--jobs", "1"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and not (self.out / "partial/train-00003.json").exists():
                pass
            process.send_signal(signal.SIGKILL)
        self.assertFalse((self.out / "index.json").exists(), "it was done before it could be killed")
        (self.out / "train-00001.images.npy").write_bytes(b"damaged")
        self.assertIn("shards of an earlier attempt were whole", self.prepare(*flags).stdout)
        self.assertEqual(self.digests(self.out), self.digests(whole))


if __name__ == "__main__":
    prepare_test.SLACKLINE = sys.argv.pop(1)
    unittest.main()
