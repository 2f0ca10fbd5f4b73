import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter

from facade.data import load, skews
from facade.data.errors import DataError
from facade.data.federation import Federation
from facade.data.samples import Dataset, Labelled
from facade.data.section import DataSection
from facade.errors import ExperimentError

PICTURES = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (6, 3, 16, 16), np.uint8))
ROWS = np.arange(len(PICTURES))


def view(cluster, clusters=2, severity=1.0, split="train", rows=ROWS):
    return skews.View(cluster, clusters, severity, rows, split)


def pillow(x):
    return Image.fromarray(x.numpy().transpose(1, 2, 0).copy())


def tensor(image):
    return torch.from_numpy(np.asarray(image).copy()).movedim(-1, 0)


def federation(skew, clusters="2:2", images=PICTURES, **settings):
    x = images.repeat(8, 1, 1, 1)
    y = torch.arange(len(x)) % 4
    return Federation.from_arrays(x, y, images, torch.arange(len(images)) % 4, clusters=clusters, skew=skew, **settings)


def test_rotations_are_quarter_turns():
    for clusters, quarters in [(2, (0, 2)), (3, (0, 1, 2)), (4, (0, 1, 2, 3))]:
        for cluster, turns in enumerate(quarters):
            turned = skews.rotate(PICTURES, view(cluster, clusters))
            assert torch.equal(turned, torch.rot90(PICTURES, turns, (-2, -1)))


def test_rotations_that_are_impossible_are_explained():
    with pytest.raises(ExperimentError, match="a quarter turn of 16x12 images changes their shape; make them square"):
        federation("rotate", "1:1:1", PICTURES[..., :12])
    federation("rotate", "1:1", PICTURES[..., :12])
    with pytest.raises(ExperimentError, match=r"knows 4 directions but data.clusters names 5 clusters"):
        federation("rotate", "1:1:1:1:1")


def test_saturation_is_what_pillow_does():
    expected = [tensor(ImageEnhance.Color(pillow(x)).enhance(2.0)) for x in PICTURES]
    assert torch.equal(skews.colour(PICTURES, view(1, 4)), torch.stack(expected))


def test_gray_is_what_pillow_does():
    expected = [tensor(pillow(x).convert("L").convert("RGB")) for x in PICTURES]
    assert torch.equal(skews.colour(PICTURES, view(3, 4)), torch.stack(expected))


def test_sepia_mixes_channels_and_is_clamped():
    red, green, blue = PICTURES[:, 0].double(), PICTURES[:, 1].double(), PICTURES[:, 2].double()
    expected = torch.stack(
        [
            0.393 * red + 0.769 * green + 0.189 * blue,
            0.349 * red + 0.686 * green + 0.168 * blue,
            0.272 * red + 0.534 * green + 0.131 * blue,
        ],
        1,
    ).clamp(0, 255)
    assert (skews.colour(PICTURES, view(2, 4)).double() - expected).abs().max() <= 0.501
    assert skews.sepia(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8)).flatten().tolist() == [255, 255, 239]
    tied = torch.tensor([100, 0, 200], dtype=torch.uint8).view(1, 3, 1, 1)  # 77.1, 68.5, 53.4
    assert skews.sepia(tied).flatten().tolist() == [77, 69, 53]


def test_colour_refuses_gray_images_and_a_fifth_cluster():
    with pytest.raises(ExperimentError, match="needs images with 3 channels but these have 1"):
        federation("colour", "1:1", PICTURES[:, :1])
    with pytest.raises(ExperimentError, match=r"knows 4 looks but data.clusters names 5"):
        federation("colour", "1:1:1:1:1")


@pytest.mark.parametrize("name", [name for name in skews.CHANGES if name != "none"])
def test_cluster_0_is_unchanged_and_the_others_differ(name):
    change = skews.CHANGES[name]
    assert torch.equal(change(PICTURES, view(0)), PICTURES)
    changed = change(PICTURES, view(1))
    assert changed.shape == PICTURES.shape
    assert changed.dtype == torch.uint8
    assert not torch.equal(changed, PICTURES)


@pytest.mark.parametrize("name", ["blur", "contrast", "brightness", "noise"])
def test_more_severity_and_later_clusters_change_more(name):
    def distance(**how):
        return (skews.CHANGES[name](PICTURES, view(**how)).float() - PICTURES.float()).abs().mean()

    assert distance(cluster=1, severity=0.5) < distance(cluster=1) < distance(cluster=1, severity=2.0)
    assert torch.isclose(distance(cluster=2, clusters=3), distance(cluster=1, severity=2.0), rtol=0.05)


def test_blur_is_close_to_pillows_gaussian():
    smooth = torch.nn.functional.interpolate(PICTURES.float(), (64, 64), mode="bilinear").to(torch.uint8)
    expected = torch.stack([tensor(pillow(x).filter(ImageFilter.GaussianBlur(2))) for x in smooth])
    ours = skews.blur(smooth, view(1))
    inner = (slice(None), slice(None), slice(8, -8), slice(8, -8))
    assert (ours[inner].float() - expected[inner].float()).abs().mean() < 2


def test_brightness_halves_and_contrast_halves():
    assert (skews.brightness(PICTURES, view(1)).float() - PICTURES.float() / 2).abs().max() <= 0.5
    mean = PICTURES.float().mean((1, 2, 3))
    assert torch.allclose(skews.contrast(PICTURES, view(1)).float().mean((1, 2, 3)), mean, atol=0.5)
    assert torch.isclose(skews.contrast(PICTURES, view(1)).float().std(), PICTURES.float().std() / 2, rtol=0.02)


def test_noise_is_addressed_by_the_row():
    whole = skews.noise(PICTURES, view(1))
    assert torch.equal(whole, skews.noise(PICTURES, view(1)))
    some = np.array([4, 1])
    assert torch.equal(skews.noise(PICTURES[some], view(1, rows=some)), whole[some])
    assert not torch.equal(skews.noise(PICTURES, view(1, split="test")), whole)
    flat = torch.full((40, 1, 32, 32), 128, dtype=torch.uint8)
    spread = skews.noise(flat, view(1, rows=np.arange(40))).float()
    assert abs(spread.std() - 26) < 0.5
    assert abs(spread.mean() - 128) < 0.5


def test_names_combine_from_left_to_right():
    both = federation("brightness+rotate").tests[1].x
    assert torch.equal(both, skews.rotate(skews.brightness(PICTURES, view(1)), view(1)))


def test_training_and_test_images_are_changed_alike():
    made = federation("rotate", "2:2")
    plain = federation("none", "2:2")
    turned = made.training.samples.x[made.training.rows[3]]
    assert torch.equal(torch.rot90(turned, 2, (-2, -1)), plain.training.samples.x[plain.training.rows[3]])
    assert torch.equal(made.training.samples.x[made.training.rows[0]], plain.training.samples.x[plain.training.rows[0]])
    assert torch.equal(torch.rot90(made.tests[1].x, 2, (-2, -1)), plain.tests[0].x)


def test_overlapping_nodes_see_an_image_as_their_cluster_does():
    made = federation("rotate", "2:2", partition="sampled", per_class=9)
    originals = {image.numpy().tobytes() for image in PICTURES}
    assert made.overlapping
    for node in range(4):
        for image in made.training.samples.x[made.training.rows[node]]:
            upright = torch.rot90(image, 2 if node > 1 else 0, (-2, -1))
            assert upright.contiguous().numpy().tobytes() in originals


def everything_to_everybody(pool):
    return [np.arange(len(pool.labels))] * pool.nodes


def test_an_own_partition_may_give_an_image_to_several_clusters():
    made = federation("rotate", "1:1:1", partition="data.test_skews:everything_to_everybody")
    assert made.overlapping
    held = [made.training.samples.x[rows] for rows in made.training.rows]
    for cluster, image in enumerate(held):
        assert torch.equal(image, torch.rot90(held[0], cluster, (-2, -1)))


def one_part_too_few(pool):
    return everything_to_everybody(pool)[1:]


def rows_of_another_pool(pool):
    return [np.arange(len(pool.labels)) + 1] * pool.nodes


@pytest.mark.parametrize(
    ("partition", "wrong"),
    [
        (one_part_too_few, "returned 3 parts; expected one for each of 4 nodes"),
        (rows_of_another_pool, "gave a node the rows 1 to 48; expected row numbers of the pool, from 0 to 47"),
    ],
)
def test_an_own_partition_is_told_what_it_got_wrong(partition, wrong):
    with pytest.raises(ExperimentError, match=f"partition 'data.test_skews:{partition.__name__}' {wrong}"):
        federation("none", partition=f"data.test_skews:{partition.__name__}")


def test_an_unknown_skew_suggests_the_nearest():
    with pytest.raises(ExperimentError, match="unknown skew 'rotat'; did you mean 'rotate'"):
        federation("rotat")


def test_labels_divide_a_groups_images_among_its_clusters_nodes():
    made = federation("labels", "1:3", groups=[[0, 2], [1]], validation=0.25)
    held = [made.training.samples.y[rows] for rows in made.training.rows]
    assert [set(y.tolist()) for y in held] == [{0, 2}, {1}, {1}, {1}]
    assert [len(y) for y in held] == [18, 3, 3, 3]
    assert made.leftover == 9  # class 3 belongs to nobody
    assert [set(test.y.tolist()) for test in made.tests] == [{0, 2}, {1}]
    assert [set(part.y.tolist()) for part in made.validations] == [{0, 2}, {1}]
    assert len(made.classes) == 4


@pytest.mark.parametrize(
    ("groups", "sentence"),
    [
        ([], "needs data.groups, the classes of each cluster"),
        ([[0], [1], [2]], "has 3 groups of classes but there are 2 clusters"),
        ([[0], [4]], "names class 4; 'given' has classes 0 to 3"),
        ([[0, 1], [1]], "names class 1 twice"),
        ([[0, 1], []], "leaves a cluster without a class"),
    ],
)
def test_wrong_groups_are_explained(groups, sentence):
    with pytest.raises(ExperimentError, match=sentence):
        federation("labels", groups=groups)


def upside_down(images, view):
    return images.flip(-2) if view.cluster else images


def shrunk(images, view):
    return images[..., ::2]


def inverted(images, view):
    return images.sub_(255).neg_() if view.cluster else images


def test_a_users_own_skew_may_work_in_place():
    x = PICTURES.repeat(8, 1, 1, 1)
    made = federation("data.test_skews:inverted")
    for node, rows in enumerate(made.training.rows):
        expected = x[rows] if node < 2 else 255 - x[rows]
        assert torch.equal(made.training.samples.x[rows], expected)


def test_a_users_own_skew_is_found_by_its_path():
    made = federation("data.test_skews:upside_down+brightness")
    assert torch.equal(made.tests[1].x, skews.brightness(PICTURES.flip(-2), view(1)))
    with pytest.raises(ExperimentError, match="type and shape must stay"):
        federation("data.test_skews:shrunk")


def own_source(data):
    return KEPT


KEPT = Dataset(
    Labelled(PICTURES.repeat(2, 1, 1, 1), torch.arange(12) % 2), Labelled(PICTURES, torch.arange(6) % 2), ["a", "b"]
)


def sources_of(train, test=None):
    test = test or Labelled(PICTURES, torch.arange(6) % 2)
    return lambda data: Dataset(train, test, ["a", "b"])


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (sources_of(Labelled(PICTURES, torch.arange(6) % 2 + 1)), "labels are 1 to 2, but there are 2 classes"),
        (sources_of(Labelled(PICTURES, torch.zeros(6))), "training labels of type torch.float32"),
        (sources_of(Labelled(PICTURES.numpy(), np.zeros(6))), r"are ndarray and ndarray; expected torch tensors"),
        (sources_of(Labelled(PICTURES, torch.zeros(5, dtype=torch.int64))), "one per input"),
        (sources_of(Labelled(PICTURES[..., :8], torch.arange(6) % 2)), "all inputs must be alike"),
    ],
)
def test_what_a_users_own_source_returns_is_looked_at(source, sentence, monkeypatch):
    monkeypatch.setattr("data.test_skews.own_source", source)
    with pytest.raises(DataError, match=sentence):
        load.load(DataSection(source="data.test_skews:own_source", clusters="2:2"), seed=1)


def test_images_that_are_not_bytes_cannot_be_changed(monkeypatch):
    floats = [Labelled(PICTURES.float(), torch.arange(6) % 2)] * 2
    monkeypatch.setattr("data.test_skews.own_source", sources_of(*floats))
    with pytest.raises(ExperimentError, match=r"skew 'blur' changes images of bytes, but .* gives torch.float32"):
        load.load(DataSection(source="data.test_skews:own_source", clusters="2:2", skew="blur"), seed=1)
    assert load.load(DataSection(source="data.test_skews:own_source", clusters="3", skew="none"), seed=1).n == 3


def test_a_users_own_source_keeps_its_images():
    before = KEPT.train.x.clone()
    made = load.load(DataSection(source="data.test_skews:own_source", clusters="2:2", skew="rotate"), seed=1)
    assert made.n == 4
    assert torch.equal(KEPT.train.x, before)
    with pytest.raises(ExperimentError, match="returned View; expected a facade Dataset"):
        load.load(DataSection(source="data.test_skews:not_a_source", clusters="2:2"), seed=1)
    with pytest.raises(ExperimentError, match="is not a function"):
        load.load(DataSection(source="data.test_skews:PICTURES_SHAPE", clusters="2:2"), seed=1)


PICTURES_SHAPE = tuple(PICTURES.shape)


def not_a_source(data):
    return view(0)
