"""Small federations in the formats of their original distributions; the values are random."""

import zipfile

import numpy as np
from scipy.io import savemat

from data.makers import picture, save
from facade.data.heart_disease import COLUMNS, HOSPITALS
from facade.data.matlab import FIELDS, OBJECTS

PACS_DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def write_landmine(root, fields=FIELDS, rows=20):
    """Cells `feature` and `label`; every fourth row of a field is a mine."""
    feature, label = np.empty((1, fields), object), np.empty((1, fields), object)
    for i in range(fields):
        random = np.random.default_rng(i)
        feature[0, i] = random.normal(i, 1 + i, (rows, 9))
        label[0, i] = (np.arange(rows) % 4 == 0).astype(np.uint8)[:, None]
    savemat(root / "LandmineData.mat", {"feature": feature, "label": label})


def write_surf(root, names=("amazon", "Caltech10_SURF_L10", "dslr", "webcam"), each=4):
    folder = root / "office-caltech10-surf"
    folder.mkdir()
    for i, name in enumerate(names):
        x = np.random.default_rng(i).integers(1, 9, (each * len(OBJECTS), 800), np.uint8)
        y = np.repeat(np.arange(1, len(OBJECTS) + 1, dtype=np.uint8), each)
        savemat(folder / f"{name}.mat", {"fts": x, "labels": y[:, None]})


PATIENTS = [
    "63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0",
    "67,1,4,160,0,0,2,108,1,1.5,2,3,3,2",
    "41,0,2,130,204,0,0,172,0,1.4,1,?,?,0",
    "56,1,3,120,236,,0,178,0,.8,1,,3,4",
]
"""Of one hospital: two healthy and two ill, with the gaps and the numbers that the files have."""


def hospital_files(header=False):
    """File name -> content."""
    first = [",".join([*COLUMNS, "target"])] if header else []
    return {f"processed.{name}.data": "\n".join([*first, *PATIENTS * 3, ""]) for name in HOSPITALS}


def write_hospitals(root, header=False):
    folder = root / "heart-disease"
    folder.mkdir()
    for name, content in hospital_files(header).items():
        (folder / name).write_text(content)


def zip_hospitals(root):
    with zipfile.ZipFile(root / "heart+disease.zip", "w") as archive:
        for name, content in hospital_files().items():
            archive.writestr(name, content)


def write_pacs(root, domains=PACS_DOMAINS, classes=PACS_CLASSES, images=5, folder="PACS"):
    for d, domain in enumerate(domains):
        for c, name in enumerate(classes):
            for i in range(images):
                save(root / folder / domain / name / f"pic_{i:03}.jpg", picture(1000 * d + 10 * c + i, (12, 10)))


def zip_folder(folder, path):
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(folder.rglob("*.jpg")):
            archive.write(file, file.relative_to(folder.parent).as_posix())
