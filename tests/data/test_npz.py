import zipfile

import numpy as np
import pytest
import torch

from data import makers
from facade.data.errors import DataError
from facade.data.load import load
from facade.data.npz import npz
from facade.errors import ExperimentError


def images(count, *shape):
    return np.random.default_rng(count).integers(0, 256, (count, *shape), np.uint8)


def table(count):
    return np.random.default_rng(count).normal(size=(count, 7))


def labels(count, classes=2):
    return np.arange(count) % classes


def loaded(root, **arrays):
    np.savez(root / "mine.npz", **arrays)
    return npz(makers.data(root, "npz", path="mine.npz"))


def plain(count=12, **changes):
    arrays = {"x_train": images(count, 4, 4), "y_train": labels(count), "x_test": images(6, 4, 4), "y_test": labels(6)}
    return arrays | changes


def test_medmnist_in_colour_is_read(tmp_path):
    train = images(12, 4, 5, 3)
    dataset = loaded(
        tmp_path,
        train_images=train,
        train_labels=labels(12)[:, None].astype(np.uint8),
        val_images=images(3, 4, 5, 3),
        val_labels=labels(3)[:, None],
        test_images=images(6, 4, 5, 3),
        test_labels=labels(6)[:, None],
    )
    assert np.array_equal(dataset.train.x.numpy(), train.transpose(0, 3, 1, 2))
    assert dataset.train.x.is_contiguous()
    assert dataset.train.y.tolist() == labels(12).tolist()
    assert dataset.classes == ["0", "1"]
    assert dataset.mean == [0.5] * 3
    assert dataset.notes == ["the 3 samples of the file's validation split are not used"]


def test_plain_gray_images_are_read(tmp_path):
    dataset = loaded(tmp_path, **plain())
    assert dataset.train.x.shape == (12, 1, 4, 4)
    assert dataset.mean == [0.5]
    assert dataset.notes == []


def test_without_test_arrays_a_part_of_every_class_is_held_out(tmp_path):
    alone = {"x_train": images(20, 4, 4), "y_train": labels(20)}
    dataset = loaded(tmp_path, **alone)
    assert sorted(dataset.test.y.tolist()) == [0, 0, 1, 1]
    together = torch.cat([dataset.train.x, dataset.test.x]).flatten(1).sort(0).values
    assert torch.equal(together, torch.from_numpy(alone["x_train"]).flatten(1).sort(0).values)
    nodes = loaded(tmp_path, **alone, nodes_train=np.arange(20) // 5)
    assert sorted(nodes.test_node.tolist()) == [0, 1, 2, 3]
    assert len(nodes.node) == 16


def test_a_node_with_a_single_sample_needs_test_arrays(tmp_path):
    nodes = np.repeat([0, 1, 2], [3, 3, 1])
    np.savez(tmp_path / "mine.npz", x_train=images(7, 4, 4), y_train=labels(7), nodes_train=nodes)
    with pytest.raises(DataError, match="node 2 has too few samples for a training and a test part"):
        npz(makers.data(tmp_path, "npz", path="mine.npz", partition="natural"))


def test_tables_are_read_as_float_rows(tmp_path):
    dataset = loaded(tmp_path, **plain(x_train=table(12), x_test=table(6)))
    assert dataset.train.x.shape == (12, 7)
    assert dataset.train.x.dtype == torch.float32


def test_class_names_may_come_with_the_arrays(tmp_path):
    assert loaded(tmp_path, **plain(classes=np.array(["ill", "well"]))).classes == ["ill", "well"]
    with pytest.raises(DataError, match="training label 1 is out of range; the classes are 0 to 0"):
        loaded(tmp_path, **plain(classes=np.array(["ill"])))


def test_nodes_may_come_with_the_arrays(tmp_path):
    np.savez(tmp_path / "mine.npz", **plain(nodes_train=np.repeat([0, 1, 2], [2, 4, 6])))
    fields = {"path": "mine.npz", "partition": "natural", "clusters": "2:1"}
    with pytest.warns(UserWarning, match="data.skew = 'rotate' changes the samples of clusters that"):
        federation = load(makers.data(tmp_path, "npz", skew="rotate", **fields), seed=1)
    assert [len(rows) for rows in federation.training.rows] == [2, 4, 6]
    assert federation.test_of.tolist() == [0, 0, 1]
    with pytest.raises(DataError, match=r"the data name 3 nodes, 0 to 2, but data.clusters asks for 0 to 3"):
        load(makers.data(tmp_path, "npz", **fields | {"clusters": "4"}), seed=1)
    np.savez(tmp_path / "mine.npz", **plain(nodes_train=np.zeros(5, int)))
    with pytest.raises(DataError, match="expected one node number for each of 12 samples"):
        npz(makers.data(tmp_path, "npz", path="mine.npz"))


def test_that_natural_clusters_share_a_test_set_is_said(tmp_path):
    fields = {"path": "mine.npz", "partition": "natural", "skew": "none"}
    nodes = np.repeat([0, 1, 2], [2, 4, 6])
    np.savez(tmp_path / "mine.npz", **plain(nodes_train=nodes))
    with pytest.warns(UserWarning, match="all clusters are tested on the same samples"):
        load(makers.data(tmp_path, "npz", clusters="2:1", **fields), seed=1)
    load(makers.data(tmp_path, "npz", clusters="3", **fields), seed=1)
    own = np.arange(len(plain()["y_test"])) % 3
    np.savez(tmp_path / "mine.npz", **plain(nodes_train=nodes, nodes_test=own))
    load(makers.data(tmp_path, "npz", clusters="2:1", **fields), seed=1)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"y_train": labels(12) - 1}, "train: label -1 is out of range"),
        ({"y_test": labels(6, 3)}, "test label 2 is out of range; the classes are 0 to 1"),
        ({"y_train": labels(12, 2) * 2}, "no training sample has class 1, but one has class 2"),
        ({"y_train": labels(12) + 10**9}, "no training sample has class 0, but one has class 1000000001"),
        (
            {"y_train": labels(12, 2) * 2, "y_test": labels(6, 3), "classes": np.array(["a", "b", "c"])},
            "class 1 is in the test but not in the training data",
        ),
        ({"y_train": labels(12) / 2}, "labels of type float64; expected class numbers"),
        ({"y_train": np.zeros((12, 14), int)}, r"labels of shape \[12, 14\]; expected one class number"),
        ({"y_train": labels(11)}, "12 inputs but 11 labels"),
        (
            {"x_train": images(12, 4, 4).astype(np.float32)},
            r"uint8\) where the others have .* \(torch.float32",
        ),
        ({"x_train": images(12, 4, 4, 5)}, r"shape \[1, 4, 4\] .* where the others have \[5, 4, 4\]"),
        ({"x_test": images(6, 5, 5)}, "all inputs must be alike"),
        ({"x_train": np.full((12, 3), np.nan), "x_test": np.zeros((6, 3))}, "row 0 holds NaN or infinity"),
        ({"x_train": images(0, 4, 4), "y_train": labels(0)}, "no samples"),
        ({"y_train": np.array([object()] * 12)}, "cannot be read as a .npz file of plain arrays"),
    ],
)
def test_wrong_arrays_are_explained(tmp_path, changes, sentence):
    with pytest.raises(DataError, match=sentence):
        loaded(tmp_path, **plain(**changes))


def test_missing_arrays_are_named(tmp_path):
    with pytest.raises(DataError, match=r"holds pictures; expected train_images, train_labels"):
        loaded(tmp_path, pictures=images(3, 4, 4))
    with pytest.raises(DataError, match="has no y_test; expected x_train, y_train, x_test, y_test, or the first two"):
        loaded(tmp_path, **{k: v for k, v in plain().items() if k != "y_test"})


def test_files_that_are_no_archives_are_refused(tmp_path):
    path = tmp_path / "mine.npz"
    np.savez(path, **plain())
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(DataError, match=r"cannot be read as a .npz file"):
        npz(makers.data(tmp_path, "npz", path="mine.npz"))
    with path.open("wb") as file:
        np.save(file, images(3, 4, 4))
    with pytest.raises(DataError, match=r"not a zip file\); make it with numpy.savez"):
        npz(makers.data(tmp_path, "npz", path="mine.npz"))
    path.write_text("no archive at all")
    with pytest.raises(DataError, match=r"not a zip file\); make it with numpy.savez"):
        npz(makers.data(tmp_path, "npz", path="mine.npz"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../escape.npy", b"x")
    with pytest.raises(DataError, match="expected train_images"):
        npz(makers.data(tmp_path, "npz", path="mine.npz"))
    assert not (tmp_path.parent / "escape.npy").exists()


def test_a_missing_file_says_how_to_get_it(tmp_path):
    with pytest.raises(DataError, match=r"run 'facade data get retinamnist --root"):
        npz(makers.data(tmp_path, "npz", path="retinamnist.npz"))
    with pytest.raises(DataError, match=r"own.npz does not exist; put your arrays there"):
        npz(makers.data(tmp_path, "npz", path="own.npz"))
    with pytest.raises(DataError, match=r"needs data.path"):
        npz(makers.data(tmp_path, "npz"))


def test_skews_of_images_refuse_tables(tmp_path):
    np.savez(tmp_path / "mine.npz", **plain(x_train=table(12), x_test=table(6)))
    for skew in ("rotate", "labels+blur"):
        fields = {"path": "mine.npz", "skew": skew, "groups": [[0], [1]]}
        with pytest.raises(ExperimentError, match=r"changes images, but 'npz' gives rows of 7 values"):
            load(makers.data(tmp_path, "npz", **fields), seed=1)
    federation = load(makers.data(tmp_path, "npz", path="mine.npz", skew="labels", groups=[[0], [1]]), seed=1)
    assert [set(test.y.tolist()) for test in federation.tests] == [{0}, {1}]
