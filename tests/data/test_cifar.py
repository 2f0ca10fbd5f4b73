import hashlib
import os
import pickle

import numpy as np
import pytest

from data import makers
from facade.data import cifar
from facade.data.errors import DataError
from facade.data.load import load


@pytest.fixture(autouse=True)
def _small_files(monkeypatch):
    monkeypatch.setattr(cifar, "RECORDS", makers.RECORDS)


@pytest.fixture
def _our_pickles_are_official(monkeypatch):
    published = {name: hashlib.md5(content).hexdigest() for name, content in makers.cifar_pickles().items()}
    monkeypatch.setattr(cifar, "PICKLE_MD5", published)


def loaded(root):
    return cifar.cifar10(makers.data(root, "cifar10"))


def check(dataset):
    train, labels = (np.concatenate([makers.CIFAR_FILES[name][i] for name in cifar.TRAIN]) for i in (0, 1))
    assert np.array_equal(dataset.train.x.numpy(), train.reshape(-1, 3, 32, 32))
    assert np.array_equal(dataset.train.y.numpy(), labels)
    assert np.array_equal(dataset.test.x.numpy(), makers.CIFAR_FILES["test_batch"][0].reshape(-1, 3, 32, 32))
    assert dataset.classes[8] == "ship"
    assert dataset.mean == dataset.std == [0.5, 0.5, 0.5]


def test_the_binary_folder_is_read(tmp_path):
    makers.write_files(tmp_path / "cifar-10-batches-bin", makers.cifar_binary())
    check(loaded(tmp_path))


def test_the_binary_archive_is_read_without_unpacking(tmp_path):
    makers.write_tar(tmp_path / "cifar-10-binary.tar.gz", makers.cifar_binary(), "cifar-10-batches-bin")
    check(loaded(tmp_path))
    assert os.listdir(tmp_path) == ["cifar-10-binary.tar.gz"]


@pytest.mark.usefixtures("_our_pickles_are_official")
def test_official_pickles_are_read_from_folder_and_archive(tmp_path):
    makers.write_files(tmp_path / "a" / "cifar-10-batches-py", makers.cifar_pickles())
    check(loaded(tmp_path / "a"))
    (tmp_path / "b").mkdir()
    makers.write_tar(tmp_path / "b" / "cifar-10-python.tar.gz", makers.cifar_pickles(), "cifar-10-batches-py")
    check(loaded(tmp_path / "b"))


def test_pickles_written_by_python_2_are_read(tmp_path, monkeypatch):
    files = {name: makers.python2_pickle(*batch) for name, batch in makers.CIFAR_FILES.items()}
    monkeypatch.setattr(cifar, "PICKLE_MD5", {n: hashlib.md5(c).hexdigest() for n, c in files.items()})
    makers.write_files(tmp_path / "cifar-10-batches-py", files)
    check(loaded(tmp_path))


def test_the_binary_version_is_preferred_to_pickles(tmp_path):
    makers.write_files(tmp_path / "cifar-10-batches-py", {"data_batch_1": b"never looked at"})
    makers.write_files(tmp_path / "cifar-10-batches-bin", makers.cifar_binary())
    check(loaded(tmp_path))


def test_pickles_that_are_not_the_official_bytes_are_refused(tmp_path):
    makers.write_files(tmp_path / "cifar-10-batches-py", makers.cifar_pickles())
    with pytest.raises(DataError, match=r"data_batch_1 is not the official file.*facade data get cifar10"):
        loaded(tmp_path)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_a_pickle_with_a_foreign_global_is_refused_even_with_the_right_checksum(tmp_path, monkeypatch):
    files = makers.cifar_pickles()
    files["data_batch_1"] = pickle.dumps({b"data": Bomb(), b"labels": []}, protocol=3)
    makers.write_files(tmp_path / "cifar-10-batches-py", files)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cifar, "PICKLE_MD5", {n: hashlib.md5(c).hexdigest() for n, c in files.items()})
    with pytest.raises(DataError, match=r"asks for (posix|nt).mkdir, which no array needs"):
        loaded(tmp_path)
    assert not (tmp_path / "exploded").exists()


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    files = makers.cifar_binary()
    files["data_batch_3.bin"] = files["data_batch_3.bin"][:-3073]
    makers.write_files(tmp_path / "cifar-10-batches-bin", files)
    with pytest.raises(DataError, match=r"data_batch_3.bin has 58,387 bytes where 61,460 are expected"):
        loaded(tmp_path)


def test_an_archive_that_is_cut_short_is_refused(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    makers.write_tar(path, makers.cifar_binary(), "cifar-10-batches-bin")
    whole = path.read_bytes()
    for kept in (len(whole) // 2, 10, 0):
        path.write_bytes(whole[:kept])
        with pytest.raises(DataError, match=r"cifar-10-binary.tar.gz (is damaged|has no)"):
            loaded(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    files = makers.cifar_binary()
    del files["test_batch.bin"]
    makers.write_files(tmp_path / "cifar-10-batches-bin", files)
    with pytest.raises(DataError, match=r"cifar-10-batches-bin has no test_batch.bin"):
        loaded(tmp_path)


def test_labels_out_of_range_are_refused(tmp_path):
    files = makers.cifar_binary()
    files["data_batch_2.bin"] = b"\x0b" + files["data_batch_2.bin"][1:]
    makers.write_files(tmp_path / "cifar-10-batches-bin", files)
    with pytest.raises(DataError, match=r"data_batch_2.bin holds label 11; CIFAR-10 has classes 0 to 9"):
        loaded(tmp_path)


def test_without_any_data_it_says_what_to_put_where(tmp_path):
    with pytest.raises(DataError) as refused:
        loaded(tmp_path)
    assert f"facade data get cifar10 --root {tmp_path}" in str(refused.value)
    assert "cifar-10-binary.tar.gz" in str(refused.value)
    assert refused.value.exit_code == 2


def test_label_groups_are_vehicles_and_animals(tmp_path):
    makers.write_files(tmp_path / "cifar-10-batches-bin", makers.cifar_binary())
    federation = load(makers.data(tmp_path, "cifar10", skew="labels", clusters="3:1"), seed=1)
    held = [set(federation.training.samples.y[rows].tolist()) for rows in federation.training.rows]
    assert held == [{0, 1, 8, 9}] * 3 + [{2, 3, 4, 5, 6, 7}]
    assert [set(test.y.tolist()) for test in federation.tests] == [{0, 1, 8, 9}, {2, 3, 4, 5, 6, 7}]
    assert len(federation.classes) == 10
