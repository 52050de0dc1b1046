#!/usr/bin/env python3
"""Writes the seeds of the fuzzers whose inputs are bytes into corpus/; the others' seeds are text."""

import base64
import gzip
import io
import json
import pathlib
import struct
import tarfile
import zlib

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number])


def number(field, value):
    return varint(field << 3) + varint(value)


def bytes_field(field, value):
    return varint(field << 3 | 2) + varint(len(value)) + value


def frame(items, payload):
    """A WorkerFrame: job 7, generation 1."""
    head = varint(1 << 3 | 1) + struct.pack("<Q", 7) + number(2, 1)
    return head + b"".join(bytes_field(3, item) for item in items) + (bytes_field(15, payload) if payload else b"")


def push(elements, payload_bytes):
    commit = bytes_field(1, number(1, 1)) + number(2, 64)
    chunk = number(1, 1) + number(2, 1) + bytes_field(5, commit) + number(6, elements)
    return bytes_field(2, chunk) + number(15, payload_bytes)


def cut(sizes, data):
    return bytes([len(sizes), *sizes]) + data


def frames():
    hello = bytes_field(1, number(1, 1) + number(2, 1) + number(3, 1) + number(8, 2))
    pull = bytes_field(3, number(1, 1) + bytes_field(3, number(1, 0)))
    yield "hello", cut([], frame([hello], b""))
    yield "hello-and-pull-cut-small", cut([1] * 8, frame([hello, pull], b""))
    data = struct.pack("<4f", 1, 2, 3, 4)
    yield "push", cut([], frame([push(4, 16)], data))
    yield "push-cut-in-payload", cut([30, 5, 3], frame([push(2, 8), push(2, 8)], data))
    yield "payload-too-short", cut([], frame([push(4, 16)], data)[:-1])
    yield "payload-not-last", cut([], frame([push(4, 16)], data) + number(2, 1))
    yield "zero-tag", cut([2], frame([], b"") + b"\0")
    yield "many-shards", cut([], frame([bytes_field(3, number(1, 1) + 1000 * bytes_field(3, b""))], b""))
    yield "many-items", cut([100], frame(500 * [b""], b""))
    yield "group", cut([], frame([], b"") + varint(100 << 3 | 3) + 50 * number(1, 1) + varint(100 << 3 | 4))


def codecs():
    def case(encoding, elements, data, share=b"", step=7, block=5, repeat=1):
        numbers = struct.pack("<HHHB", elements, step, block, repeat)
        return bytes([encoding]) + share + numbers + data

    yield "name", b"topk:0.01"
    yield "fp32", case(0, 100, struct.pack("<2f", 1.5, -2))
    yield "bf16", case(1, 600, b"\x80\x3f\x00\xc0")
    yield "fp16", case(2, 600, b"\x00\x3c\x00\xc0")
    yield "int8", case(3, 4, struct.pack("<f", 0.25) + b"\x7f\x81\x01\x00", repeat=0)
    yield "int8-long", case(3, 2050, struct.pack("<f", 0.25))
    yield "topk", case(4, 10, struct.pack("<IfIf", 1, 2.5, 9, -1), share=b"\x63", repeat=0)
    yield "nan", case(0, 3, struct.pack("<f", float("nan")))


def idx_files():
    def idx(shape, data):
        return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + data

    yield "labels", b"\0\0" + idx([5], b"\1\2\3\4\5")
    yield "labels-some", b"\0\2" + idx([5], b"\1\2\3\4\5")
    yield "images", b"\2\0" + idx([2, 2, 3], bytes(range(12)))
    yield "images-gzip", b"\2\0" + gzip.compress(idx([2, 2, 3], bytes(range(12))), mtime=0)
    yield "gzip-cut", b"\0\0" + gzip.compress(idx([5], b"\1\2\3\4\5"), mtime=0)[:-5]
    yield "huge-sides", b"\2\0" + idx([2**32 - 1] * 3, b"")
    yield "long-side", b"\0\0" + idx([2**32 - 1], b"\0")
    yield "trailing", b"\0\0" + idx([1], b"\1\2")


def tar_files():
    def tar(kind, members):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=kind) as out:
            for name, content, type_ in members:
                info = tarfile.TarInfo(name)
                info.size, info.type, info.linkname = len(content), type_, "a.png" if type_ == tarfile.SYMTYPE else ""
                out.addfile(info, io.BytesIO(content))
        # The zeros that fill the last record add nothing.
        return file.getvalue().rstrip(b"\0").ljust(512 * -(-len(file.getvalue().rstrip(b"\0")) // 512) + 512, b"\0")

    sample = [("a.png", b"picture", tarfile.REGTYPE), ("a.cls", b"3", tarfile.REGTYPE), ("b", b"", tarfile.SYMTYPE)]
    long = [("n" * 120 + ".png", b"picture", tarfile.REGTYPE)]
    for name, kind in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        yield name, b"\1" + tar(kind, sample)
        if name != "ustar":
            yield f"{name}-long", b"\1" + tar(kind, long)
    whole = tar(tarfile.USTAR_FORMAT, sample)
    yield "cut", b"\0" + whole[:-513]
    yield "wrong-sum", b"\0" + b"b" + whole[1:]
    yield "huge", b"\1" + whole[:124] + b"\x80" + b"\xff" * 11 + whole[136:]
    yield "gzip", b"\0" + gzip.compress(whole, mtime=0)


def descriptors():
    # See descriptors_fuzz.cc: who is tried, packets, and of each the header, the message, and the descriptors.
    def packet(message, kinds):
        return bytes([0, 0, 0]) + message + bytes([0, len(kinds)]) + b"".join(bytes(kind) for kind in kinds)

    request = bytes([1, 7, 0]) + struct.pack("<H", 4096)
    offer = bytes([2, 1, 0, 0, 1])
    sealed, growing, device = (4, 1), (2, 1), (0, 0)
    yield "server", b"\0" + packet(request, [sealed]) + b"\1"
    yield "server-unsealed", b"\0" + packet(request, [growing]) + b"\1"
    yield "server-too-many", b"\0" + packet(request, [sealed, device]) + b"\1"
    yield "worker", b"\1\1" + packet(offer, [sealed, sealed]) + struct.pack("<HH", 0, 64)
    yield "worker-no-segment", b"\1\1" + packet(offer, [device, sealed])
    yield "worker-two-packets", b"\1\2" + packet(offer, [sealed]) + packet(b"\0\0", [sealed])
    yield "worker-silent", b"\1\0"


def checkpoints():
    # See checkpoint_fuzz.cc: which of the two, then a manifest, or the extent, the header's length, the header and the data.
    yield "manifest", b"\0" + json.dumps({
        "format": 1, "checksum": "17", "number": "3", "elements": "4", "trained_elements": "4",
        "files": [{"file": "shard-00000.safetensors", "bytes": "300", "end": "4"}]}).encode()
    yield "no-manifest", b"\0{]"

    def shard(own, data):
        header = json.dumps({"__metadata__": {"slackline": json.dumps(own)}}).encode()
        return b"\1\0\4" + struct.pack("<H", len(header)) + header + data

    own = {"format": 1, "end": "4", "trained": "2", "block_elements": "2",
           "arrays": [{"name": "weights", "elements": "4", "checksums": ["1", "2"]},
                      {"name": "exp_avg", "elements": "2", "checksums": ["3"]}]}
    yield "shard", shard(own, struct.pack("<6f", *range(6)))
    yield "shard-too-short", shard(own, b"\0\0\0\0")
    yield "shard-endless", shard({**own, "arrays": [{"name": "weights", "elements": str(2**63), "checksums": []}]}, b"")
    yield "shard-without-blocks", shard({**own, "block_elements": "0"}, struct.pack("<6f", *range(6)))


def prepared():
    # See prepared_fuzz.cc: which of the four, then its text.
    def file(name, size):
        return {"name": name, "bytes": size, "xxh3": "0123456789abcdef"}

    shard = {"rows": 2, "images": file("train-00000.images.npy", 140), "labels": file("train-00000.labels.npy", 144)}
    index = {"format": "slackline-prepared", "version": 1, "classes": ["ash", "birch"], "channels": 1, "height": 2, "width": 3,
             "mean": [0.5], "deviation": [0.25], "skipped": 0, "settings": {"seed": 1},
             "splits": {"train": {"images": 2, "class_counts": [1, 1], "shards": [shard]}}}
    yield "index", b"\0" + json.dumps(index).encode()
    yield "index-endless", b"\0" + json.dumps({**index, "height": 65535, "width": 65535}).replace('"rows": 2', '"rows": 4294967295').encode()
    yield "index-halves", b"\0" + json.dumps({**index, "dtype": "float16"}).encode()
    yield "index-other-type", b"\0" + json.dumps({**index, "dtype": "float64"}).encode()
    yield "halves", b"\3" + struct.pack("<6e", 0, 2 ** -24, 0.25, 0.5, 0.75, 1)
    yield "halves-nan", b"\3" + struct.pack("<3e", 0.5, float("nan"), 1) + b"\0"
    yield "halves-infinite", b"\3" + struct.pack("<2e", float("-inf"), float("inf"))
    yield "halves-minus-zero", b"\3" + struct.pack("<2e", -0.0, 1)
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (12, 3), }"
    yield "header", b"\1\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header
    yield "header-cut", b"\1\x93NUMPY\1\0" + struct.pack("<H", 500) + header
    yield "labels", b'\2kind,label,path\nx, 3 ,"a, b.png"\r\nx,,c.png\n'
    yield "labels-open-quote", b'\2path,label\n"a.png,3\n'


def safetensors():
    def file(entries, data=b"", pad=b""):
        header = json.dumps(entries).encode() + pad
        return struct.pack("<Q", len(header)) + header + data

    def entry(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    whole = {"__metadata__": {"format": "pt"}, "conv.weight": entry("F16", [2], 0, 4), "fc.weight": entry("F32", [2, 2], 4, 20),
             "fc.bias": entry("BF16", [2], 20, 24)}
    data = struct.pack("<2e4f", 1.5, -2, 1, 2, 3, 4) + b"\xc0\x3f\x00\xc0"
    yield "whole", file(whole, data, b"  ")
    yield "other-classes", file({**whole, "fc.weight": entry("F32", [1, 2], 4, 12), "fc.bias": entry("F32", [1], 12, 16)}, data)
    yield "cut", file(whole, data)[:-1]
    yield "endless", file({**whole, "fc.bias": entry("F32", [2**62, 4], 0, 2**63)}, data)
    yield "not-finite", file(whole, data[:4] + struct.pack("<4f", 1, float("nan"), 3, 4) + data[20:])


def coco_files():
    images = '"images": [{"id": 1, "file_name": "a.png", "height": 4, "width": 6}]'
    names = '"categories": [{"id": 1, "name": "a"}]'

    def whole(*segmentations):
        entries = ", ".join('{"image_id": 1, "category_id": 1, "bbox": [1, 1, 3, 2], "segmentation": %s}' % one
                            for one in segmentations)
        return ('{%s, %s, "annotations": [%s]}' % (images, names, entries)).encode()

    yield "polygons", whole("[[1, 1, 4, 1, 4, 3, 1, 3], [-2, 0, 9, 1.5, 3, 9]]")
    yield "runs", whole('{"size": [4, 6], "counts": [5, 2, 17]}', '{"size": [4, 6], "counts": "52a0"}')
    yield "cut", whole("[[1, 1, 4, 1, 4, 3]]")[:-9]
    yield "lists-in-lists", b'{"annotations": [[{"images": []}]], "images": 3}'


# 9 x 5, grey, as Pillow writes it with quality 20 and optimize.
GREY_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L2u71////m8H////6/+b9//j/"
    "wAALCAAFAAkBAREA/8QAFQABAQAAAAAAAAAAAAAAAAAAAgP/xAAaEAACAgMAAAAAAAAAAAAAAAAAAQPwAgUV/9oACAEBAAA/AHhr4ainPhqP/9k=")


def png(kind, bits, rows, *chunks, width=3, height=2, interlaced=0):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, interlaced)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunk(name, content) for name, content in chunks)
            + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def images():
    """Channels (0: grey), how it fits, and into how many pixels less one; then the file."""
    into, colours = bytes([1, 1, 4, 6]), bytes(range(0, 180, 10))
    yield "grey-jpeg", into + GREY_JPEG
    yield "jpeg-cut", into + GREY_JPEG[:-9]
    yield "colours", bytes([0, 0, 0, 0]) + png(2, 8, [colours[:9], colours[9:]])
    yield "palette", into + png(3, 2, [b"\x18", b"\x60"], (b"PLTE", bytes(range(12))), (b"tRNS", b"\0\x80"))
    yield "grey-16-bits-alpha", into + png(4, 16, [colours[:12], colours[4:16]])
    yield "interlaced", into + png(0, 8, [b"\1", b"\2", b"\3", b"\4\5\6"], interlaced=1)
    yield "png-cut", into + png(2, 8, [colours[:9], colours[9:]])[:-20]
    yield "row-missing", into + png(2, 8, [colours[:9]])
    yield "huge", into + png(0, 8, [b"\1"], width=2**31 - 1, height=2**31 - 1)
    yield "neither", into + b"GIF89a"


def image_questions():
    """Of image_directory_fuzz.cc: time, address, flags, what is held, addresses that failed."""
    def ask(address, held, *failed, flags=1, ms=8):
        return bytes([ms // 8, address, flags]) + held + bytes([len(failed), *failed])

    nothing, first, both = b"\0\0", b"\1\0", b"\xff\x07"
    yield "two-nodes", ask(2, nothing) + ask(3, nothing) + ask(2, first) + ask(3, nothing) + ask(3, both, flags=0) + ask(2, first)
    yield "one-dies", ask(2, both) + ask(3, nothing) + ask(3, nothing, 2) + ask(3, first, ms=2000) + ask(2, both, flags=0)
    yield "too-many", b"".join(ask(address, nothing) for address in range(9))
    yield "other-files", ask(2, nothing) + ask(3, b"\x0c\0\0\0", flags=3) + ask(3, struct.pack("<Q", 8) + nothing, flags=5)
    yield "held-too-short", ask(2, b"\1\0", flags=9)


def http_heads():
    yield "plain", b"GET /metrics HTTP/1.1\r\nHost: localhost:8080\r\nAccept: */*\r\n\r\n"
    yield "encoded", b"HEAD /a%20b?x=%20 HTTP/1.0\r\nRange: bytes=7-\r\n\r\nmore"
    yield "no-colon", b"GET / HTTP/1.1\r\nHost\r\n\r\n"
    yield "cut-in-percent", b"GET /%4 HTTP/1.1\r\n\r\n"
    yield "no-end", b"GET / HTTP/1.1\r\nHost: x\r\n"
    yield "tls", b"\x16\x03\x01\x02\x00\x01\r\n\r\n"


def main():
    for folder, cases in (("checkpoint", checkpoints), ("frame", frames), ("codec", codecs), ("idx_file", idx_files), ("tar_index", tar_files), ("descriptors", descriptors),
                         ("prepared", prepared), ("safetensors", safetensors), ("coco", coco_files), ("image", images), ("image_directory", image_questions), ("http_head", http_heads)):
        for name, data in cases():
            path = CORPUS / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


if __name__ == "__main__":
    main()
