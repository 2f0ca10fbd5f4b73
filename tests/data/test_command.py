import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from data import makers
from facade import Experiment, Federation
from facade.cli.data import app, summary
from facade.data import download
from facade.data.errors import DataError
from facade.data.picture import draw

EXPERIMENT = '[data]\nsource = "digits"\nclusters = "30:2"\n'


@pytest.fixture
def toml(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(EXPERIMENT)
    return path


def invoke(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_show_prints_nodes_by_classes(toml):
    output = invoke("show", toml)
    assert "digits: 32 nodes in clusters of 30:2, skew rotate, partition stratified, seed 1" in output
    assert "training 1,280 held, 162 left over; test 355 and 355" in output
    assert "classes: 0 to 9" in output
    lines = [line.split() for line in output.splitlines()]
    assert ["0-29", "0", "40", *["4"] * 10] in lines
    assert ["30-31", "1", "40", *["4"] * 10] in lines


def test_show_names_sites_and_inputs_and_claims_no_clusters(tmp_path):
    makers.patients(tmp_path)
    (tmp_path / "trial.toml").write_text(
        f'[data]\nsource = "csv"\nroot = "{tmp_path}"\npath = "people.csv"\nlabel = "sick"\nsite = "hospital"\n'
        'clusters = "unknown"\n'
    )
    output = invoke("show", tmp_path / "trial.toml")
    assert output.startswith("csv: 4 sites; which of them are alike is not known, seed 1\n")
    assert "\ninputs: age, age is missing, pressure, pressure is missing, pain = none at all, pain = some" in output
    table = [line.split()[0] for line in output.split("\n\n")[1].splitlines()]
    assert table == ["site", "basel", "lyon", "porto", "turin"]
    assert "cluster" not in output.replace("clusters", "")


def test_settings_reach_the_data(toml):
    output = invoke("show", toml, "--set", "data.partition=sampled", "--set", "data.validation=0.1")
    assert "nodes overlap" in output
    assert "; validation 140 and 140" in output


def test_many_unequal_nodes_get_one_line_per_cluster(toml):
    output = invoke("show", toml, "--set", "data.partition=dirichlet", "--set", "data.clusters=60:20")
    table = output.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in table] == ["node", "0-59", "60-79"]


def test_many_classes_are_summed_up():
    x, y = np.zeros((90, 4, 4), np.uint8), np.arange(90) % 30
    made = Federation.from_arrays(x, y, x, y, clusters="1:1")
    lines = list(summary(Experiment.of({"data": made.section}), made))
    assert lines[-2].split() == ["0", "0", "30", "30", "1"]


def test_show_draws_a_row_of_images_per_cluster(toml, tmp_path):
    path = tmp_path / "pictures" / "samples.png"
    assert f"Written to {path}" in invoke("show", toml, "--out", path)
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("L"))
    assert pixels.shape[1] == 10 * (64 + 4) + 4
    assert (pixels < 250).any(1).sum() > 2 * 64
    assert [p.name for p in path.parent.iterdir()] == ["samples.png"]


def test_pictures_show_each_cluster_its_own_view(tmp_path):
    half = np.zeros((8, 8, 8, 3), np.uint8)
    half[:, :4] = 255
    y = np.arange(8) // 4
    made = Federation.from_arrays(half, y, half, y, clusters="1:1", skew="rotate")
    draw(made, tmp_path / "out.png")
    with Image.open(tmp_path / "out.png") as picture:
        pixels = np.asarray(picture.convert("L"))
    first, second = 14 + 4 + 14, 14 + 4 + 14 + (14 + 64 + 8)
    assert pixels[first + 5, 36] == 255
    assert pixels[first + 60, 36] == 0
    assert pixels[second + 5, 36] == 0
    assert pixels[second + 60, 36] == 255


def test_tables_are_not_drawn_and_impossible_places_are_named(toml, tmp_path):
    table = Federation.from_arrays(np.zeros((10, 3)), np.arange(10) % 2, np.zeros((2, 3)), np.arange(2))
    with pytest.raises(DataError, match="rows of 3 values cannot be drawn, only images can; do without `out`"):
        draw(table, tmp_path / "out.png")
    with pytest.raises(DataError, match=r"below-a-file.png could not be written: File exists"):
        invoke("show", toml, "--out", toml / "below-a-file.png")


def test_show_says_what_to_do_where_data_are_missing(toml, tmp_path):
    with pytest.raises(DataError, match="facade data get cifar10 --root"):
        invoke("show", toml, "--set", "data.source=cifar10", "--set", f"data.root={tmp_path}")


def test_show_repeats_what_was_noticed_while_reading(toml, tmp_path):
    makers.write_splits(tmp_path / "mine", splits=["train", "val", "test"])
    words = ["data.source=folder", "data.path=mine", f"data.root={tmp_path}", "data.clusters=2:1", "data.size=8"]
    output = invoke("show", toml, *(part for word in words for part in ("--set", word)))
    assert "note: the images in val are not used" in output
    assert "classes: 0 cat, 1 dog" in output


def test_get_says_where_the_data_are(tmp_path, monkeypatch):
    (tmp_path / "set.bin").write_bytes(b"")
    empty = "d41d8cd98f00b204e9800998ecf8427e"
    monkeypatch.setattr(download, "REMOTES", {"set": download.Remote("https://nowhere", "set.bin", empty)})
    assert f"set is in {tmp_path / 'set.bin'}" in invoke("get", "set", "--root", tmp_path)
