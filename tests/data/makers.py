"""Small data sets in the official formats, and ways of asking for them."""

import io
import pickle
import struct
import tarfile
import zlib

import numpy as np
from PIL import Image

from facade.data import cifar
from facade.data.section import DataSection

RECORDS = 20
"""Images per CIFAR file here; tests set cifar.RECORDS to it."""


def data(root, source, **fields):
    return DataSection(**({"source": source, "clusters": "2:2", "root": str(root), "skew": "none"} | fields))


def cifar_arrays(number):
    """Planes [records, 3072] and labels of one file; every class occurs."""
    random = np.random.default_rng(number)
    return random.integers(0, 256, (RECORDS, 3072), np.uint8), (np.arange(RECORDS) % 10).astype(np.uint8)


CIFAR_FILES = {name: cifar_arrays(i) for i, name in enumerate([*cifar.TRAIN, cifar.TEST])}


def cifar_binary():
    """File name -> content of the binary version."""
    return {f"{name}.bin": np.concatenate([y[:, None], x], 1).tobytes() for name, (x, y) in CIFAR_FILES.items()}


def cifar_pickles(**extra):
    """File name -> content of the Python version."""
    return {
        name: pickle.dumps({b"data": x, b"labels": y.tolist()} | extra, protocol=3)
        for name, (x, y) in CIFAR_FILES.items()
    }


def python2_pickle(x, y):
    """The official files were written by Python 2: the same opcodes, its strings, its numpy's names."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    def number(value):
        return b"J" + value.to_bytes(4, "little", signed=True)

    dtype = (
        b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|") + b"NNN" + number(-1) * 2 + b"K\x00tb"
    )
    empty = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + text(b"b") + b"tR"
    shape = number(x.shape[0]) + number(x.shape[1]) + b"\x86"
    raw = b"T" + x.size.to_bytes(4, "little") + x.tobytes()
    array = empty + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in y) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + labels + b"u."


def write_files(folder, files):
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def write_tar(path, files, folder):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}" if folder else name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def picture(seed, size=(12, 10), mode="RGB"):
    """A random image; size is (width, height)."""
    bands = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], bands), np.uint8)
    return Image.frombytes(mode, size, pixels.tobytes())


def save(path, image):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def write_deep_colours(path, values):
    """A PNG or TIFF file of 16 bits per colour from values [H, W, 3], written by hand: Pillow writes none."""
    height, width, _ = values.shape
    if path.suffix == ".png":
        lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
        parts = {b"IHDR": struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0), b"IDAT": zlib.compress(lines)}
        chunks = [
            struct.pack(">I", len(part)) + name + part + struct.pack(">I", zlib.crc32(name + part))
            for name, part in (parts | {b"IEND": b""}).items()
        ]
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
        return
    pixels, short, long = values.astype("<u2").tobytes(), 3, 4
    begin = 8 + 2 + 9 * 12 + 4  # the head, the directory, then three times the bits, then pixels
    tags = [
        (256, long, 1, width), (257, long, 1, height), (258, short, 3, begin), (259, short, 1, 1), (262, short, 1, 2),
        (273, long, 1, begin + 6), (277, short, 1, 3), (278, long, 1, height), (279, long, 1, len(pixels)),
    ]  # fmt: skip
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)
    path.write_bytes(b"II*\0" + struct.pack("<I", 8) + directory + struct.pack("<HHH", 16, 16, 16) + pixels)


def write_classes(folder, classes=("cat", "dog"), images=6, **how):
    """One folder of PNG files per class."""
    for c, name in enumerate(classes):
        for i in range(images):
            save(folder / name / f"{i}.png", picture(100 * c + i, **how))


def write_splits(folder, splits=("train", "val"), **how):
    for split in splits:
        write_classes(folder / split, **how)


SITES = ("basel", "lyon", "porto", "turin")


def patients(root, count=160):
    """A table of patients of four hospitals, people.csv, with categories and 10 % of the values missing, and the same
    rows as one file per hospital."""
    random = np.random.default_rng(11)
    lines = {site: ["age,pressure,pain,ward,sick"] for site in SITES}
    together = [f"{lines[SITES[0]][0]},hospital"]
    for i in range(count):
        site = SITES[int(random.integers(4))]
        sick = int(random.random() < 0.3 + 0.1 * SITES.index(site))
        age, pressure = random.normal(50 + 15 * sick, 8), random.normal(120 + 10 * SITES.index(site) + 12 * sick, 9)
        pain = str(random.choice(["none at all", "some", "strong"], p=[0.2, 0.3, 0.5] if sick else [0.6, 0.3, 0.1]))
        ward = "west" if site == "turin" and i % 2 else "east"  # a category that one site alone has
        cells = [f"{age:.1f}", f"{pressure:.0f}", pain, ward]
        cells = [cell if random.random() > 0.1 else random.choice(["", "?", "NA"]) for cell in cells]
        line = ",".join([*cells, "yes" if sick else "no"])
        lines[site].append(line)
        together.append(f"{line},{site}")
    root.mkdir(parents=True, exist_ok=True)
    (root / "people.csv").write_text("\n".join(together) + "\n")
    for site in SITES:
        (root / f"{site}.csv").write_text("\n".join(lines[site]) + "\n")
