#!/usr/bin/env python3
"""usage: prepare_test.py SLACKLINE [TEST...]: `slackline prepare` over pictures made by Pillow and NumPy."""

import csv
import gzip
import hashlib
import io
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import unittest

try:
    import numpy
    from PIL import Image
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

SLACKLINE = ""
TIMEOUT_S = 60


def picture(number, width=20, height=16, channels=3):
    """A smooth picture with some noise, another one for each number."""
    random = numpy.random.default_rng(number)
    y, x = numpy.mgrid[0:height, 0:width]
    waves = [127 + 90 * numpy.sin(x / (2 + number % 5 + c) + y / (3 + c)) for c in range(channels)]
    pixels = numpy.stack(waves, axis=-1) + random.normal(0, 8, (height, width, channels))
    pixels = pixels.clip(0, 255).astype(numpy.uint8)
    return pixels if channels > 1 else pixels[:, :, 0]


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


class PrepareTest(unittest.TestCase):
    DTYPE = "|u1"

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="slackline-prepare-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.source = self.folder / "pictures"
        self.out = self.folder / "out"

    def run_prepare(self, *arguments):
        return subprocess.run([SLACKLINE, "prepare", *map(str, arguments)], capture_output=True, text=True,
                              timeout=TIMEOUT_S, check=False)

    def prepare(self, *flags, out=None, code=0):
        done = self.run_prepare(self.source, out or self.out, *flags)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def index(self, out=None):
        return json.loads(((out or self.out) / "index.json").read_text())

    def rows(self, split, out=None):
        """Images and labels of a split, as NumPy reads them."""
        out = out or self.out
        shards = self.index(out)["splits"][split]["shards"]
        if not shards:
            return numpy.zeros((0,)), numpy.zeros((0,))
        images = [numpy.load(out / shard["images"]["name"], mmap_mode="r") for shard in shards]
        labels = [numpy.load(out / shard["labels"]["name"]) for shard in shards]
        for image, label, shard in zip(images, labels, shards):
            self.assertEqual((image.dtype, label.dtype), (self.DTYPE, numpy.int64))
            self.assertEqual((len(image), len(label)), (shard["rows"],) * 2)
        return numpy.concatenate(images), numpy.concatenate(labels)

    def skipped(self, out=None):
        with ((out or self.out) / "skipped.csv").open(newline="") as file:
            return {row["path"]: row["reason"] for row in csv.DictReader(file)}

    def digests(self, out):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}

    def write(self, name, pixels, **options):
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, **options)
        return path

    def write_classes(self, count=10, classes=("ash", "birch", "cedar"), ending="png", **options):
        for label, name in enumerate(classes):
            for i in range(count):
                self.write(f"{name}/{i:03}.{ending}", picture(100 * label + i), **options)


class TarFiles(PrepareTest):
    """Samples as WebDataset has them, written by Python's tarfile."""

    def write_tar(self, name, members, kind=tarfile.PAX_FORMAT):
        self.source.mkdir(exist_ok=True)
        with tarfile.open(self.source / name, "w", format=kind) as tar:
            for member, content in members:
                info = tarfile.TarInfo(member)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        return self.source / name

    @staticmethod
    def png(number):
        file = io.BytesIO()
        Image.fromarray(picture(number)).save(file, "png")
        return file.getvalue()

    def sample(self, key, number):
        return [(f"{key}.png", self.png(number)), (f"{key}.cls", str(number % 3).encode()), (f"{key}.json", b"{}")]

    def samples(self, keys):
        return [member for number, key in enumerate(keys) for member in self.sample(key, number)]

    def assert_has(self, split, count):
        images, labels = self.rows(split)
        found = sorted((label, image.tobytes()) for image, label in zip(images, labels.tolist()))
        self.assertEqual(found, sorted((i % 3, picture(i).transpose(2, 0, 1).tobytes()) for i in range(count)))

    def test_all_that_tarfile_writes_is_read(self):
        long = "a" * 90 + "/" + "b" * 90 + "/" + "ü" * 60
        kinds = (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT))
        for number, (name, kind) in enumerate(kinds):
            keys = ["0", "cells/1", "a" * 80 + "/" + "b" * 80 if name == "ustar" else long]
            path = self.write_tar(f"{name}-train-{number:06}.tar", self.samples(keys), kind)
            with tarfile.open(path, "a", format=kind) as tar:
                for extra in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE):
                    info = tarfile.TarInfo(f"more-{extra.decode()}.png")
                    info.type, info.linkname = extra, "0.png"
                    tar.addfile(info)
            self.prepare("--overwrite")
            self.assert_has("train", 3)
            self.assertEqual(self.skipped(), {})
            path.unlink()

    def test_names_say_the_split_and_without_them_it_is_drawn(self):
        for split in ("train", "validation", "test"):
            self.write_tar(f"{split}-00000.tar", self.samples([f"{split}{i}" for i in range(6)]))
        (self.source / "class-names.txt").write_text("ash\nbirch\ncedar\n")
        self.prepare()
        self.assertEqual(self.index()["classes"], ["ash", "birch", "cedar"])
        for split in ("train", "validation", "test"):
            self.assert_has(split, 6)
        for number, split in enumerate(("train", "validation", "test")):
            (self.source / f"{split}-00000.tar").rename(self.source / f"{number:03}.tar")
        self.prepare("--overwrite", "--split", "train=0.5,test=0.5")
        self.assertEqual([len(self.rows(split)[0]) for split in ("train", "test")], [9, 9])
        (self.source / "000.tar").rename(self.source / "train-000.tar")
        self.assertIn("beside files that say their split", self.prepare("--overwrite", code=2).stderr)

    def test_samples_that_are_not_whole_are_skipped_and_said(self):
        good = self.samples(["0", "1", "2"])
        broken = [("a.png", self.png(1)), ("b.cls", b"1"), ("c.jpg", b"no picture"), ("c.cls", b"1"),
                  ("d.png", self.png(1)), ("d.cls", b"oak"), ("e.png", self.png(1)), ("e.jpg", b""), ("e.cls", b"0"),
                  (".hidden.png", b""), ("f.txt", b"of nobody"), ("g.cls", b"0" * 100), ("g.png", self.png(1))]
        self.write_tar("train-0.tar", good + broken)
        self.prepare()
        self.assert_has("train", 3)
        reasons = {"a.png": "it has no file .cls", "b": "it has no file .jpg", "c.jpg": "first bytes", "d.png": "its .cls is 'oak'",
                   "e.jpg": "it has two files", "g.png": "its .cls is ''"}
        found = self.skipped()
        self.assertEqual(sorted(found), sorted(f"train-0.tar/{name}" for name in reasons))
        for name, reason in reasons.items():
            self.assertIn(reason, found[f"train-0.tar/{name}"])

    def test_a_broken_tar_file_is_an_error_that_says_where(self):
        path = self.write_tar("train-0.tar", self.samples(["0", "1", "2"]))
        whole = path.read_bytes()
        end = len(whole.rstrip(b"\0")) // 512 * 512 + 512
        for content, message in ((whole[:end], "was cut short: it has"), (whole[:700], "it was cut short"), (whole[:100], "cut short"),
                                 (b"", "cut short"), (gzip.compress(whole) + bytes(512), "byte 0: it is compressed"),
                                 (b"x" * 10240, "byte 0: no header of a tar file"),
                                 (whole[:110] + b"7" + whole[111:], "no header of a tar file, or a damaged one")):
            path.write_bytes(content)
            self.assertIn(message, self.prepare(code=2).stderr)
        random = numpy.random.default_rng(1)
        for _ in range(25):
            damaged = bytearray(whole)
            damaged[int(random.integers(0, 1024 + 512))] ^= 1 << int(random.integers(0, 8))
            path.write_bytes(damaged)
            self.assertIn(self.run_prepare(self.source, self.out, "--overwrite").returncode, (0, 2))


class Pictures(PrepareTest):
    def test_png_comes_out_as_numpy_has_it(self):
        self.write_classes(count=4)
        self.prepare("--split", "train=1", "--shard-images", "5")
        index = self.index()
        self.assertEqual(index["classes"], ["ash", "birch", "cedar"])
        self.assertEqual((index["channels"], index["height"], index["width"]), (3, 16, 20))
        self.assertEqual([shard["rows"] for shard in index["splits"]["train"]["shards"]], [5, 5, 2])
        self.assertEqual(index["splits"]["train"]["class_counts"], [4, 4, 4])
        images, labels = self.rows("train")
        found = sorted((label, image.tobytes()) for image, label in zip(images, labels.tolist()))
        made = sorted((label, picture(100 * label + i).transpose(2, 0, 1).tobytes())
                      for label in range(3) for i in range(4))
        self.assertEqual(found, made)
        for channel in range(3):
            values = images[:, channel] / 255
            self.assertAlmostEqual(index["mean"][channel], values.mean(), places=9)
            self.assertAlmostEqual(index["deviation"][channel], values.std(), places=9)

    def test_each_kind_of_png_reads_as_pillow_reads_it(self):
        pixels = picture(1)
        grey16 = (picture(2, channels=1).astype(numpy.uint16) * 257)
        self.source.mkdir()
        kinds = {"grey": Image.fromarray(picture(3, channels=1)), "palette": Image.fromarray(pixels).quantize(16),
                 "alpha": Image.fromarray(numpy.dstack([pixels, picture(4, channels=1)])),
                 "bits": Image.fromarray(picture(5, channels=1) > 127)}
        expected = {}
        for name, image in kinds.items():
            (self.source / name).mkdir()
            image.save(self.source / name / "0.png")
            expected[name] = numpy.asarray(Image.open(self.source / name / "0.png").convert("RGB"))
        (self.source / "sixteen").mkdir()
        Image.fromarray(grey16).save(self.source / "sixteen" / "0.png")
        expected["sixteen"] = numpy.dstack([picture(2, channels=1)] * 3)
        self.prepare("--split", "train=1")
        images, labels = self.rows("train")
        classes = self.index()["classes"]
        self.assertEqual(len(labels), len(expected))
        for image, label in zip(images, labels):
            numpy.testing.assert_array_equal(image.transpose(1, 2, 0), expected[classes[label]], classes[label])

    def test_each_kind_of_jpeg_reads_as_pillow_reads_it(self):
        for i, options in enumerate([{"subsampling": 0}, {"subsampling": 2}, {"progressive": True}, {"quality": 30}]):
            self.write(f"k{i}/a.jpg", picture(i), **options)
        self.write("k4/a.JPEG", picture(9, channels=1))
        self.prepare("--split", "train=1")
        images, labels = self.rows("train")
        self.assertEqual(sorted(labels), [0, 1, 2, 3, 4])
        for image, label in zip(images, labels):
            path = next((self.source / f"k{label}").iterdir())
            expected = numpy.asarray(Image.open(path).convert("RGB")).astype(int)
            # Another release of the library may round otherwise.
            self.assertLessEqual(abs(image.transpose(1, 2, 0) - expected).max(), 3, path.name)

    def test_grey_is_pillows(self):
        self.write_classes(count=2)
        self.prepare("--grey", "--split", "train=1")
        images, labels = self.rows("train")
        self.assertEqual(images.shape, (6, 1, 16, 20))
        made = {numpy.asarray(Image.fromarray(picture(100 * label + i)).convert("L")).tobytes()
                for label in range(3) for i in range(2)}
        self.assertEqual({image.tobytes() for image in images}, made)
        self.assertEqual(len(labels), 6)

    def test_scaling_is_close_to_pillows(self):
        self.write("a/0.png", picture(1, 64, 48))
        self.write("b/0.png", picture(2, 12, 10))
        self.write("c/0.png", picture(3, 40, 90))
        self.prepare("--size", "24x16", "--split", "train=1")
        images, labels = self.rows("train")
        for image, label in zip(images, labels):
            original = Image.open(self.source / "abc"[label] / "0.png")
            expected = numpy.asarray(original.resize((24, 16), Image.BILINEAR)).astype(int)
            apart = abs(image.transpose(1, 2, 0) - expected)
            # Beyond the edge Pillow has nothing, and here the edge goes on.
            self.assertLessEqual(apart[2:-2, 2:-2].max(), 2)
            self.assertLess(apart.mean(), 4)

    def test_any_size_becomes_any_other(self):
        # 50 to 31 is where stb's weights are far from 1 before they are made to.
        self.write("a/0.png", picture(1, 50, 40))
        for size in ("31x29", "30x39", "49x21", "33x27", "26x25", "64x31"):
            self.prepare("--size", size, "--split", "train=1", "--overwrite")
            images, _ = self.rows("train")
            width, height = map(int, size.split("x"))
            original = Image.open(self.source / "a/0.png")
            expected = numpy.asarray(original.resize((width, height), Image.BILINEAR)).astype(int)
            apart = abs(images[0].transpose(1, 2, 0) - expected)
            self.assertLess(apart[2:-2, 2:-2].mean(), 2, size)

    def test_crop_takes_the_middle(self):
        pixels = numpy.zeros((20, 60, 3), numpy.uint8)
        pixels[:, 20:40] = 200
        self.write("a/0.png", pixels)
        self.prepare("--size", "10", "--fit", "crop", "--split", "train=1")
        images, _ = self.rows("train")
        self.assertEqual((images.min(), images.max()), (200, 200))

    def test_of_another_size_is_skipped_without_size(self):
        self.write_classes(count=2)
        self.write("cedar/large.png", picture(7, 30, 30))
        self.prepare("--split", "train=1")
        self.assertIn("30x30", self.skipped()["cedar/large.png"])
        self.assertEqual(len(self.rows("train")[1]), 6)


class Sources(PrepareTest):
    def test_idx_keeps_its_split_and_its_bytes(self):
        self.source.mkdir()
        random = numpy.random.default_rng(1)
        made = {}
        for stem, count in (("train", 30), ("t10k", 7)):
            images = random.integers(0, 256, (count, 5, 4), dtype=numpy.uint8)
            labels = numpy.arange(count, dtype=numpy.uint8) % 4
            (self.source / f"{stem}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
            (self.source / f"{stem}-labels-idx1-ubyte").write_bytes(idx(labels))
            made[stem] = sorted((int(label), image.tobytes()) for image, label in zip(images, labels))
        (self.source / "class-names.txt").write_text("one\ntwo\nthree\nfour\n")
        self.prepare()
        self.assertEqual(self.index()["classes"], ["one", "two", "three", "four"])
        for stem, split in (("train", "train"), ("t10k", "test")):
            images, labels = self.rows(split)
            self.assertEqual(images.shape[1:], (1, 5, 4))
            self.assertEqual(sorted((int(label), image.tobytes()) for image, label in zip(images, labels)), made[stem])
        # A split that is asked for goes over all of them.
        other = self.folder / "other"
        self.prepare("--split", "train=0.5,test=0.5", out=other)
        self.assertEqual([len(self.rows(split, other)[1]) for split in ("train", "validation", "test")], [19, 0, 18])

    def test_table_of_labels(self):
        for i in range(6):
            self.write(f"all/{i}.png", picture(i))
        rows = ["kind,label , path", *(f'x,{(12, 3)[i % 2]},"all/{i}.png"' for i in range(6)), "x,,all/9.png",
                "x,3,all/none.png"]
        (self.source / "labels.csv").write_text("\r\n".join(rows) + "\r\n")
        self.prepare("--labels", self.source / "labels.csv", "--split", "train=1")
        self.assertEqual(self.index()["classes"], ["3", "12"])  # numbers by their value
        self.assertEqual(self.index()["splits"]["train"]["class_counts"], [3, 3])
        self.assertEqual(set(self.skipped()), {"all/9.png", "all/none.png"})

    def test_table_may_say_the_split(self):
        for i in range(4):
            self.write(f"{i}.png", picture(i))
        (self.source / "labels.csv").write_text(
            "path,label,split\n0.png,a,train\n1.png,b,train\n2.png,a,val\n3.png,b,test\n")
        self.prepare("--labels", self.source / "labels.csv")
        self.assertEqual([len(self.rows(split)[1]) for split in ("train", "validation", "test")], [2, 1, 1])

    def test_folders_may_say_the_split(self):
        for split, count in (("train", 3), ("val", 2), ("test", 1)):
            for i in range(count):
                self.write(f"{split}/ash/{i}.png", picture(i))
        self.write("train/birch/0.png", picture(7))
        self.prepare()
        self.assertEqual(self.index()["classes"], ["ash", "birch"])
        self.assertEqual([self.index()["splits"][split]["class_counts"] for split in ("train", "validation", "test")],
                         [[3, 1], [2, 0], [1, 0]])

    def test_split_is_stratified_and_follows_the_seed(self):
        self.write_classes(count=20)
        outs = [self.folder / name for name in ("a", "b", "c")]
        for out, seed in zip(outs, (1, 1, 2)):
            self.prepare("--split", "train=0.85,validation=0.02,test=0.13", "--seed", seed, "--size", "4", out=out)
        splits = self.index(outs[0])["splits"]
        self.assertEqual([splits[name]["images"] for name in ("train", "validation", "test")], [51, 1, 8])
        self.assertEqual(splits["train"]["class_counts"], [17, 17, 17])
        self.assertEqual(self.digests(outs[0]), self.digests(outs[1]))
        self.assertNotEqual(self.rows("test", outs[0])[0].tobytes(), self.rows("test", outs[2])[0].tobytes())
        # No image is in two splits.
        images = [image.tobytes() for split in splits for image in self.rows(split, outs[0])[0]]
        self.assertEqual(len(set(images)), 60)
        # The first images are of all classes.
        self.assertEqual(set(self.rows("train", outs[0])[1][:12]), {0, 1, 2})


    def test_pictures_are_cut_into_tiles_that_stay_in_one_split(self):
        for label, name in enumerate(("ash", "birch")):
            for i in range(5):
                self.write(f"{name}/{i}.png", picture(100 * label + i, width=21, height=17))
        self.write("ash/small.png", picture(7, width=9, height=4))
        (self.source / "ash/broken.png").write_bytes(b"no picture")
        self.prepare("--tile", "8x5", "--split", "train=0.6,test=0.4")
        self.assertEqual([self.index()[key] for key in ("channels", "height", "width")], [3, 5, 8])
        self.assertEqual(self.index()["settings"]["tile"], "8x5")
        # Two tiles in a row, three rows; what is left over at the right and below goes.
        self.assertEqual([self.index()["splits"][split]["class_counts"] for split in ("train", "test")], [[18, 18], [12, 12]])
        self.assertIn("has 9x4 pixels, and a tile 8x5", self.skipped()["ash/small.png"])
        self.assertEqual(set(self.skipped()), {"ash/small.png", "ash/broken.png"})
        places = {image.tobytes(): split for split in ("train", "test") for image in self.rows(split)[0]}
        for label, name in enumerate(("ash", "birch")):
            for i in range(5):
                whole = picture(100 * label + i, width=21, height=17).transpose(2, 0, 1)
                tiles = [whole[:, y : y + 5, x : x + 8].tobytes() for y in (0, 5, 10) for x in (0, 8)]
                self.assertEqual(len({places.pop(tile) for tile in tiles}), 1, f"{name}/{i} is in several splits")
        self.assertEqual(places, {})

    def test_tiles_that_no_picture_has_are_refused(self):
        self.write_classes(count=2)
        done = self.prepare("--tile", "21", code=2)
        self.assertIn("none of the 6 images can be cut into tiles; the first is ash/000.png: has 20x16 pixels", done.stderr)
        self.assertIn("found --tile 0; allowed are N or WIDTHxHEIGHT", self.prepare("--tile", "0", code=2).stderr)

    def test_images_of_one_source_stay_in_one_split(self):
        rows = ["path,label,source"]
        for i in range(24):
            self.write(f"{i:02}.png", picture(i))
            rows.append(f"{i:02}.png,{'ab'[i % 2]},photograph-{i // 4}")
        (self.source / "labels.csv").write_text("\n".join(rows) + "\n")
        self.prepare("--labels", self.source / "labels.csv", "--split", "train=0.5,test=0.5", "--seed", 3)
        splits = {image.tobytes(): split for split in ("train", "test") for image in self.rows(split)[0]}
        for source in range(6):
            of_source = {splits[picture(i).transpose(2, 0, 1).tobytes()] for i in range(4 * source, 4 * source + 4)}
            self.assertEqual(len(of_source), 1, f"photograph-{source} is in several splits")
        self.assertEqual([len(self.rows(split)[1]) for split in ("train", "test")], [12, 12])

    def test_each_image_is_test_in_one_of_the_folds(self):
        self.write_classes(count=11)
        seen = []
        for fold in (1, 2, 3, 4):
            out = self.folder / f"fold-{fold}"
            self.prepare("--folds", 4, "--fold", fold, "--seed", 5, out=out)
            splits = self.index(out)["splits"]
            self.assertEqual(splits["validation"]["images"], 0)
            self.assertTrue(all(2 <= count <= 3 for count in splits["test"]["class_counts"]), splits["test"])
            test, train = ([image.tobytes() for image in self.rows(split, out)[0]] for split in ("test", "train"))
            self.assertEqual(len(set(test) | set(train)), 33)
            seen += test
        self.assertEqual((len(seen), len(set(seen))), (33, 33))
        for flags in (("--fold", 5), ("--fold", 0), ("--split", "train=1")):
            self.assertIn("--folds 4", self.prepare("--folds", 4, *flags, out=self.folder / "x", code=2).stderr)


class Damage(PrepareTest):
    def test_broken_pictures_are_skipped_and_said(self):
        self.write_classes(count=3)
        jpeg = self.write("ash/whole.jpg", picture(1))
        png = (self.source / "ash/000.png").read_bytes()
        bad = {"cut.jpg": jpeg.read_bytes()[:-40], "header.jpg": jpeg.read_bytes()[:30], "cut.png": png[:-60],
               "crc.png": png[:60] + bytes([png[60] ^ 255]) + png[61:], "empty.png": b"", "text.jpeg": b"no picture",
               "bomb.png": png[:16] + struct.pack(">II", 60000, 60000) + png[24:], "notes.txt": b"notes"}
        for name, data in bad.items():
            (self.source / "birch" / name).write_bytes(data)
        Image.fromarray(picture(3)).convert("CMYK").save(self.source / "birch/print.jpg")
        (self.source / "birch/gone.png").symlink_to("nowhere.png")
        (self.source / "birch/folder.png").mkdir()
        (self.source / "birch/.hidden.png").write_bytes(b"")
        done = self.prepare("--split", "train=1")
        self.assertEqual(set(self.skipped()), {f"birch/{name}" for name in [*bad, "print.jpg", "gone.png"]})
        for name, reason in self.skipped().items():
            self.assertGreater(len(reason), 8, name)
        self.assertIn("CMYK", self.skipped()["birch/print.jpg"])
        self.assertIn(f"{len(bad) + 2} files were skipped", done.stdout)
        self.assertEqual(self.index()["splits"]["train"]["class_counts"], [4, 3, 3])

    def test_a_class_without_pictures_is_said(self):
        self.write_classes(count=4)
        (self.source / "nothing").mkdir()
        (self.source / "nothing" / "0.png").write_bytes(b"no picture")
        done = self.prepare("--split", "train=1")
        self.assertIn("warning: class nothing has no image that can be read", done.stderr)

    def test_all_broken_is_an_error_that_leaves_no_index(self):
        for name in ("a/0.png", "b/0.jpg"):
            (self.source / name).parent.mkdir(parents=True)
            (self.source / name).write_bytes(b"\xff\xd8\xff but no more")
        for flags in ((), ("--size", "8")):
            done = self.prepare(*flags, code=2)
            self.assertIn("none of the 2 images", done.stderr)
            self.assertFalse((self.out / "index.json").exists())
        # Mended, it is made.
        self.write("a/0.png", picture(1))
        self.prepare("--size", "8", "--split", "train=1")

    def test_a_class_whose_name_is_not_utf8_is_an_error(self):
        # Class names become text in JSON.
        self.write_classes(count=2, classes=("ash", os.fsdecode(b"b\xefrch")))
        self.assertIn("the name of class b\ufffdrch is no UTF-8; allowed are names in UTF-8", self.prepare(code=2).stderr)
        self.assertFalse(self.out.exists())

    def test_broken_idx_is_an_error(self):
        self.source.mkdir()
        images = idx(numpy.zeros((3, 4, 4), numpy.uint8))
        labels = idx(numpy.zeros(3, numpy.uint8))
        two = idx(numpy.zeros(2, numpy.uint8))
        for bad_images, bad_labels, message in (
                (images[:-1], labels, "cut short"), (images, two, "3 images but 2"),
                (b"\1" + images[1:], labels, "begins with bytes"), (images + b"x", labels, "trailing")):
            (self.source / "train-images-idx3-ubyte").write_bytes(bad_images)
            (self.source / "train-labels-idx1-ubyte").write_bytes(bad_labels)
            self.assertIn(message, self.prepare(code=2).stderr)
        self.assertFalse(self.out.exists())

    def test_broken_table_is_an_error(self):
        self.write("0.png", picture(0))
        table = self.folder / "labels.csv"
        for text, message in (("", "is empty"), ("file,label\n0.png,a\n", "file,label"),
                              ("path,label\n0.png\n", "row 2 has 1"), ("path,label\n\"0.png,a\n", "is no CSV"),
                              ("path,label\n0.png,a\n0.png,b\n", "row 3 names 0.png"),
                              ("path,label,path\n0.png,a,1.png\n", "names the column path twice"),
                              ("path,label,split\n0.png,a,rest\n", "'rest'")):
            table.write_text(text)
            self.assertIn(message, self.prepare("--labels", table, code=2).stderr)
        self.assertIn("labels.csv", self.prepare("--labels", self.folder / "no" / "labels.csv", code=2).stderr)

    def test_wrong_use(self):
        self.write_classes(count=1)
        for flags, message in ((("--split", "train=0.5,test=0.4"), "0.9"), (("--split", "test=1"), "train"),
                               (("--split", "rest=1"), "rest"), (("--size", "0"), "--size 0"),
                               (("--size", "3x"), "--size 3x"),
                               (("--fit", "pad"), "stretch, crop"), (("--jobs", "0"), "--jobs")):
            self.assertIn(message, self.prepare(*flags, code=2).stderr)
        inside = self.source / "prepared"
        self.assertIn("allowed is a folder outside of it", self.prepare(out=inside, code=2).stderr)
        self.assertFalse(inside.exists())
        self.out.mkdir()
        (self.out / "thesis.txt").write_text("mine")
        self.assertIn("thesis.txt", self.prepare("--overwrite", code=2).stderr)
        self.assertIn("SOURCE", self.run_prepare("--verify", self.out, "more").stderr)
        empty = self.folder / "empty"
        empty.mkdir()
        self.assertEqual(self.run_prepare(empty, self.folder / "x").returncode, 2)

    def test_verify_finds_each_kind_of_damage(self):
        self.write_classes(count=4)
        self.prepare("--split", "train=1")
        self.assertIn("is whole: 2 files", self.run_prepare("--verify", self.out).stdout)
        images, labels = self.out / "train-00000.images.npy", self.out / "train-00000.labels.npy"

        def broken(path, data, message):
            before = path.read_bytes()
            if data is None:
                path.unlink()
            else:
                path.write_bytes(data)
            done = self.run_prepare("--verify", self.out)
            self.assertEqual(done.returncode, 1)
            self.assertIn(message, done.stderr)
            path.write_bytes(before)

        whole = images.read_bytes()
        broken(images, whole[:-1], "cut short")
        broken(images, whole[:-1] + bytes([whole[-1] ^ 1]), "XXH3")
        broken(images, whole.replace(b"(12, 3, 16, 20)", b"(12, 3, 20, 16)"), "shape (12, 3, 20, 16)")
        broken(images, whole.replace(b"|u1", b"|i1"), "type |i1")
        broken(images, None, "train-00000.images.npy")
        broken(labels, labels.read_bytes()[:-8] + struct.pack("<q", 3), "XXH3")
        index = self.out / "index.json"
        broken(index, index.read_bytes()[:-40], "index.json")
        broken(index, index.read_bytes().replace(b'"version": 1', b'"version": 2'), "'version' is 2")
        self.assertEqual(self.run_prepare("--verify", self.out).returncode, 0)


class Again(PrepareTest):
    def test_jobs_do_not_change_the_result(self):
        self.write_classes(count=30)
        (self.source / "birch/bad.png").write_bytes(b"no picture")
        outs = [self.folder / "one", self.folder / "four"]
        for out, jobs in zip(outs, (1, 4)):
            self.prepare("--size", "12x9", "--shard-images", "17", "--jobs", jobs, out=out)
        self.assertGreater(len(self.digests(outs[0])), 10)
        self.assertEqual(self.digests(outs[0]), self.digests(outs[1]))

    def test_the_same_again_changes_nothing_and_other_settings_are_refused(self):
        self.write_classes(count=5)
        self.prepare("--size", "8")
        before = self.digests(self.out)
        self.assertIn("is there already", self.prepare("--size", "8").stdout)
        done = self.prepare("--size", "9", code=2)
        self.assertIn('size was "8x8" and is now "9x9"', done.stderr)
        self.assertIn("--overwrite", done.stderr)
        self.write("ash/new.png", picture(77))
        self.assertIn("source", self.prepare("--size", "8", code=2).stderr)
        self.assertEqual(self.digests(self.out), before)
        self.prepare("--size", "9", "--overwrite")
        self.assertEqual((self.index()["height"], self.index()["splits"]["train"]["images"]), (9, 13))

    def test_killed_it_goes_on_and_comes_to_the_same(self):
        self.write_classes(count=120)
        flags = ("--size", "8", "--shard-images", "2", "--jobs", "1")
        whole = self.folder / "whole"
        self.prepare(*flags, out=whole)
        command = [SLACKLINE, "prepare", str(self.source), str(self.out), *flags]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            # Killed when some shards are there; each takes several syncs of the disk, and there are 180.
            while process.poll() is None and not (self.out / "partial/train-00005.json").exists():
                pass
            process.send_signal(signal.SIGKILL)
        self.assertFalse((self.out / "index.json").exists(), "it was done before it could be killed")
        self.assertEqual(self.run_prepare("--verify", self.out).returncode, 2)
        # One of the finished shards is damaged meanwhile: it is made again.
        (self.out / "train-00001.images.npy").write_bytes(b"damaged")
        first = (self.out / "train-00000.images.npy").stat().st_mtime_ns
        done = self.prepare(*flags)
        self.assertIn("shards of an earlier attempt were whole", done.stdout)
        self.assertEqual((self.out / "train-00000.images.npy").stat().st_mtime_ns, first)
        self.assertEqual(self.digests(self.out), self.digests(whole))

    def test_only_one_writes_to_a_folder(self):
        import fcntl
        self.write_classes(count=2)
        (self.out / "partial").mkdir(parents=True)
        with (self.out / "partial/lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertIn("another `slackline prepare`", self.prepare("--overwrite", code=1).stderr)
        self.prepare("--overwrite")


if __name__ == "__main__":
    SLACKLINE = sys.argv.pop(1)
    unittest.main()
