import numpy as np
import pytest
import torch

from facade import Experiment, Federation, run
from facade.data.errors import DataError
from facade.data.load import load
from facade.data.section import DataSection
from facade.errors import ExperimentError


def images(count, side=4, channels=()):
    return np.random.default_rng(count).integers(0, 256, (count, side, side, *channels), np.uint8)


def labels(count, classes=2):
    return np.arange(count) % classes


def node(rows, test=3):
    """Rows whose first value tells the class."""
    random = np.random.default_rng([rows, test])

    def drawn(count):
        x = random.normal(size=(count, 5))
        x[:, 0] += 6 * labels(count) - 3
        return x, labels(count)

    return *drawn(rows), *drawn(test)


def experiment(federation, *settings):
    return Experiment.of(
        {
            "data": federation.section,
            "algorithm": {"name": "facade", "warmup": 1, "seeding": "none"},
            "topology": {"degree": 2},
            "training": {"rounds": 3, "steps": 4, "batch": 2},
            "evaluation": {"every": 3},
        },
        settings,
    )


def test_arrays_become_a_federation():
    x, y = images(40), labels(40)
    before = x.copy()
    made = Federation.from_arrays(
        x, y, images(8), labels(8), clusters="3:1", skew="rotate", partition="shuffled", seed=5
    )
    assert made.n == 4
    assert made.cluster.tolist() == [0, 0, 0, 1]
    assert made.shape == (1, 4, 4)
    assert made.mean == [0.5]
    assert made.section == {"source": "given", "clusters": "3:1", "skew": "none", "partition": "shuffled"}
    assert torch.equal(made.tests[1].x, torch.rot90(made.tests[0].x, 2, (-2, -1)))
    assert np.array_equal(x, before)


def test_arrays_may_have_channels_first_or_last_and_be_tensors():
    last = images(20, channels=(3,))
    first = torch.from_numpy(last).permute(0, 3, 1, 2)
    made = [Federation.from_arrays(x, torch.from_numpy(labels(20))) for x in (last, first)]
    assert torch.equal(made[0].training.samples.x, made[1].training.samples.x)


def test_without_test_arrays_a_fraction_is_held_out():
    made = Federation.from_arrays(images(40), labels(40), test_fraction=0.25, classes=["left", "right"])
    assert len(made.tests[0]) == 10
    assert sum(len(rows) for rows in made.training.rows) == 30
    assert made.classes == ["left", "right"]
    with pytest.raises(DataError, match="leaves no test sample"):
        Federation.from_arrays(images(4), labels(4))
    with pytest.raises(DataError, match="belong together"):
        Federation.from_arrays(images(4), labels(4), images(4))


def test_validation_is_cut_from_training_and_seen_by_every_cluster():
    made = Federation.from_arrays(images(40), labels(40), clusters="2:2", skew="rotate", validation=0.2)
    assert [len(part) for part in made.validations] == [6, 6]
    assert torch.equal(made.validations[1].x, torch.rot90(made.validations[0].x, 2, (-2, -1)))
    held = np.concatenate(made.training.rows)
    assert len(held) + made.leftover == 40 - 8 - 6  # 8 are for testing
    kept_back = {bytes(image.numpy()) for image in made.validations[0].x}
    assert not kept_back & {bytes(image.numpy()) for image in made.training.samples.x[torch.from_numpy(held)]}


def test_a_part_of_a_test_set_is_evenly_spaced():
    x, y = images(20), np.repeat([0, 1], 10)
    made = Federation.from_arrays(x, y, x, y, clusters="1:1", validation=0.5).tested_on(4)
    assert made.tests[1].y.tolist() == [0, 0, 1, 1]
    assert [len(part) for part in made.validations] == [4, 4]


def test_images_are_held_once():
    data = DataSection(source="digits", clusters="3:1")
    made, plain = load(data, seed=1), load(data.model_copy(update={"skew": "none"}), seed=1)
    assert len(made.training.samples) == len(plain.training.samples)
    assert made.training.only(np.array([3])).samples.x.data_ptr() == made.training.samples.x.data_ptr()


def test_nodes_of_any_size_become_a_natural_federation():
    made = Federation.from_nodes([node(4), node(9), node(2)])
    assert [len(rows) for rows in made.training.rows] == [4, 9, 2]
    assert made.test_of.tolist() == [0, 1, 2]
    assert made.cluster is None
    assert made.leftover == 0
    assert made.section["clusters"] == "3"


def test_a_node_that_holds_a_whole_stretch_lends_it_without_a_copy():
    held = Federation.from_nodes([node(4), node(9)]).training
    for which, rows in ((slice(0, 1), slice(0, 4)), (slice(1, 2), slice(4, 13))):
        lent = held.everything(which)
        assert lent.x.data_ptr() == held.samples.x[rows].data_ptr()
        assert torch.equal(lent.x[0], held.samples.x[rows])
        assert torch.equal(lent.y[0], held.samples.y[rows])


def test_nodes_may_share_a_test_set_and_have_clusters_in_any_order():
    nodes = [(images(6), labels(6)) for _ in range(3)]
    made = Federation.from_nodes(nodes, test=(images(4), labels(4)), clusters=[1, 0, 1])
    assert made.cluster.tolist() == made.test_of.tolist() == [1, 0, 1]
    assert made.section["clusters"] == "1:2"


def test_natural_nodes_may_keep_back_their_own_validation_rows():
    made = Federation.from_nodes([node(10), node(2)], validation=0.3)
    assert [len(rows) for rows in made.training.rows] == [7, 1]
    assert [len(part) for part in made.validations] == [3, 1]
    with pytest.raises(DataError, match="node 1 has no training sample"):
        Federation.from_nodes([node(10), node(1)], validation=0.3)


def test_federations_made_in_python_run():
    nodes = [node(rows, test=7) for rows in (6, 9, 5, 3)]
    made = Federation.from_nodes(nodes, clusters=[0, 0, 1, 1])
    result = run(experiment(made), federation=made)
    tested = np.array([row["confusion"] for row in result.rows if row["kind"] == "final"])
    assert tested.sum(2).tolist() == [[4, 3]] * 4, "every node on its own seven rows"
    right = tested.trace(axis1=1, axis2=2) / 7
    assert result.summary["clusters"] == pytest.approx([right[:2].mean(), right[2:].mean()])
    assert right.min() > 0.8
    unknown = Federation.from_nodes(nodes, validation=0.2)
    result = run(experiment(unknown), federation=unknown)
    assert "clusters" not in result.summary
    kept_back = [np.sum(row["validation_confusion"]) for row in result.rows if row["kind"] == "final"]
    assert kept_back == [len(part) for part in unknown.validations]
    assert result.summary["all"] > 0.8


def test_a_federation_does_not_stand_in_for_other_data():
    made = Federation.from_nodes([node(6, test=3), node(9, test=3)])
    described = Experiment.of({"data": {"source": "digits", "clusters": "2"}, "topology": {"name": "complete"}})
    with pytest.raises(ExperimentError, match=r"data.source = 'digits' names others; use federation.section"):
        run(described, federation=made)


def test_results_and_federations_are_shown_in_a_line():
    made = Federation.from_nodes([node(rows, test=7) for rows in (6, 9, 5, 3)], clusters=[0, 0, 1, 1])
    assert repr(made) == "<Federation of 4 nodes: 2 classes, inputs of 5>"
    shown = repr(run(experiment(made), federation=made))
    assert shown.startswith("<Result of facade: 4 nodes, ")
    assert len(shown) < 120


def test_clusters_of_nodes_are_numbers():
    with pytest.raises(DataError, match=r"clusters \['a', 'b'\] are no numbers; give 0, 1, 2"):
        Federation.from_nodes([node(6), node(9)], clusters=["a", "b"])


def test_a_given_federation_must_be_given():
    made = Federation.from_arrays(images(40), labels(40), clusters="2:2")
    with pytest.raises(ExperimentError, match=r"pass it: run\(experiment, federation=...\)"):
        run(experiment(made))


@pytest.mark.parametrize(
    ("nodes", "more", "sentence"),
    [
        ([], {}, "needs at least one node"),
        ([node(3), node(3)[:2]], {}, "every node needs a test set"),
        ([node(3)[:2]], {}, "every node needs a test set"),
        ([node(3), (images(3), labels(3), images(3), labels(3))], {}, "node 1: inputs of shape .* must be alike"),
        ([node(3), node(0)], {}, "node 1: no samples"),
        ([node(3), node(3, test=0)], {}, "node 1, test: no samples"),
        ([node(3), node(3)], {"clusters": [0]}, "clusters names 1 nodes but there are 2"),
        ([node(3), node(3)], {"clusters": [0, 2]}, r"clusters \[0, 2\] leave a gap"),
        ([node(3), node(3)], {"classes": ["only"]}, "out of range; the classes are 0 to 0"),
    ],
)
def test_impossible_nodes_are_explained(nodes, more, sentence):
    with pytest.raises(DataError, match=sentence):
        Federation.from_nodes(nodes, **more)


def test_settings_are_checked_like_those_of_a_file():
    with pytest.raises(ExperimentError, match=r"unknown key 'data.skews'; did you mean 'data.skew'"):
        Federation.from_arrays(images(40), labels(40), skews="rotate")
    with pytest.raises(ExperimentError, match="clusters = '2:x' makes no sense"):
        Federation.from_arrays(images(40), labels(40), clusters="2:x")


def test_a_cluster_without_training_images_is_refused():
    with pytest.raises(DataError, match="no training sample has a class of nodes 1 to 2"):
        Federation.from_arrays(
            images(40), np.zeros(40, int), images(2), np.zeros(2, int),
            clusters="1:2", skew="labels", groups=[[0], [1]], classes=["a", "b"],
        )  # fmt: skip


def test_nodes_that_bring_their_own_data_have_the_classes_of_their_clusters():
    nodes = [(images(8), np.arange(8) % 4, images(4), np.arange(4))] * 4
    made = Federation.from_nodes(nodes, clusters=[0, 0, 1, 1], skew="labels", groups=[[0, 1], [2, 3]])
    assert [sorted(set(part.y.tolist())) for part in made.tests] == [[0, 1]] * 2 + [[2, 3]] * 2
    with pytest.raises(ExperimentError, match="has 1 groups of classes but there are 2 clusters"):
        Federation.from_nodes(nodes, clusters=[0, 0, 1, 1], skew="labels", groups=[[0, 1, 2, 3]])


def test_a_cluster_without_test_images_is_refused():
    with pytest.raises(DataError, match="test set 1 is empty"):
        Federation.from_arrays(
            images(40), labels(40), images(2), np.zeros(2, int), clusters="1:1", skew="labels", groups=[[0], [1]]
        )
