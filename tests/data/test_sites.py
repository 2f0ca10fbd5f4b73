"""Federations of real sites, read from small files in the formats of their original distributions."""

import shutil
import warnings

import numpy as np
import pytest
import torch
from scipy.io import savemat

from data import site_makers
from data.makers import picture, save
from facade import Experiment
from facade.data.errors import DataError
from facade.data.load import load, read
from facade.data.matlab import OBJECTS
from facade.data.section import DataSection
from facade.export.model_card import input_words
from facade.runs.federation_facts import federation_facts
from surroundings import EXPERIMENTS


def section(root, source, clusters, **fields):
    fixed = {"source": source, "clusters": clusters, "root": str(root), "skew": "none", "partition": "natural"}
    return DataSection(**(fixed | {"test_fraction": 0.25} | fields))


def federation(root, source, clusters, seed=1, **fields):
    return load(section(root, source, clusters, **fields), seed)


def held(made):
    return [len(rows) for rows in made.training.rows]


def test_land_mines_are_29_named_fields_with_tests_of_their_own(tmp_path):
    site_makers.write_landmine(tmp_path)
    made = federation(tmp_path, "landmine", "15:14", validation=0.2)
    assert (made.n, made.shape, made.classes) == (29, (9,), ["clutter", "mine"])
    assert [made.sites[i] for i in (0, 14, 15)] == ["field 1 (foliated)", "field 15 (foliated)", "field 16 (bare)"]
    assert np.bincount(made.cluster).tolist() == [15, 14]
    assert held(made) == [12] * 29  # of 20: a quarter of 15 clutter and 5 mines to test on, a fifth of the rest
    assert [(len(test), int(test.y.sum())) for test in made.tests] == [(5, 1)] * 29
    assert [len(part) for part in made.validations] == [3] * 29


def test_rows_are_scaled_by_what_the_node_itself_trains_on(tmp_path):
    site_makers.write_landmine(tmp_path)
    dataset = read(section(tmp_path, "landmine", "15:14"), 3)
    for node in (0, 28):
        own = dataset.train.x[torch.from_numpy(dataset.node == node)]
        assert own.mean(0) == pytest.approx(np.zeros(9), abs=1e-5)
        assert own.std(0, unbiased=False) == pytest.approx(np.ones(9), abs=1e-5)


def test_a_card_says_that_rows_are_scaled_by_their_own_site(tmp_path):
    site_makers.write_landmine(tmp_path)
    facts = federation_facts(federation(tmp_path, "landmine", "15:14"))
    said = "numbers of a site were standardised, and gaps filled, from that site's own training rows"
    assert input_words(facts) == f"rows of 9 numbers, {said}, and so must be new ones"
    del facts["standardised"]
    assert input_words(facts) == "rows of 9 numbers, as they are", "of a run of an earlier version, which did not say"


def test_another_seed_tests_on_other_rows_and_the_same_seed_on_the_same(tmp_path):
    site_makers.write_landmine(tmp_path)
    first, again, other = (federation(tmp_path, "landmine", "15:14", seed) for seed in (1, 1, 2))
    assert all(torch.equal(a.x, b.x) for a, b in zip(first.tests, again.tests, strict=True))
    assert not any(torch.equal(a.x, b.x) for a, b in zip(first.tests, other.tests, strict=True))


@pytest.mark.parametrize("header", [True, False])
def test_hospitals_are_read_with_and_without_a_header(tmp_path, header):
    site_makers.write_hospitals(tmp_path, header)
    made = federation(tmp_path, "heart-disease", "4")
    assert (made.sites, made.classes) == (["cleveland", "hungarian", "switzerland", "va"], ["healthy", "ill"])
    assert held(made) == [9] * 4
    assert [sorted(test.y.tolist()) for test in made.tests] in ([[0, 1, 1]] * 4, [[0, 0, 1]] * 4)
    assert torch.isfinite(made.training.samples.x).all()


def test_hospitals_are_read_from_the_archive_of_the_repository(tmp_path):
    site_makers.write_hospitals(tmp_path)
    site_makers.zip_hospitals(tmp_path)
    from_folder = federation(tmp_path, "heart-disease", "4")
    shutil.rmtree(tmp_path / "heart-disease")
    from_archive = federation(tmp_path, "heart-disease", "4")
    assert torch.equal(from_folder.training.samples.x, from_archive.training.samples.x)


def test_what_was_not_measured_is_said_to_be_missing(tmp_path):
    site_makers.write_hospitals(tmp_path)
    dataset = read(section(tmp_path, "heart-disease", "4"), 1)
    whole = torch.cat([dataset.train.x, dataset.test.x])
    # Of the four patients, one has cholesterol 0, one no blood sugar, two no count of vessels, one no thallium test.
    gaps = [int(column.sum()) for column in whole.T if set(column.tolist()) == {0.0, 1.0}]
    assert [gaps.count(12), gaps.count(24)] >= [3, 1]
    assert len(dataset.train) + len(dataset.test) == 48


def test_pacs_is_divided_as_the_clusters_say(tmp_path):
    site_makers.write_pacs(tmp_path)
    made = federation(tmp_path, "pacs", "1:2:1:1", size=8)
    assert made.sites == ["art_painting", "cartoon 1", "cartoon 2", "photo", "sketch"]
    assert (made.shape, made.classes[0], made.mean) == ((3, 8, 8), "dog", [0.5] * 3)
    assert held(made) == [26, 13, 13, 26, 26]
    assert np.bincount(made.cluster).tolist() == [1, 2, 1, 1]
    assert [sorted(set(test.y.tolist())) for test in (made.tests[0], made.tests[3])] == [list(range(7))] * 2


def test_a_zip_file_gives_the_same_images_as_the_folder(tmp_path):
    site_makers.write_pacs(tmp_path)
    from_folder = federation(tmp_path, "pacs", "1:1:1:1", size=8)
    site_makers.zip_folder(tmp_path / "PACS", tmp_path / "pacs64.zip")
    shutil.rmtree(tmp_path / "PACS")
    from_zip = federation(tmp_path, "pacs", "1:1:1:1", size=8)
    assert torch.equal(from_folder.training.samples.x, from_zip.training.samples.x)
    assert from_zip.training.samples.x.float().std() > 0


def test_office_knows_the_other_names_of_its_folders(tmp_path):
    renamed = {"backpack": "back_pack", "laptop": "laptop_computer"}
    classes, domains = [renamed.get(name, name) for name in OBJECTS], ["amazon", "caltech10", "dslr", "webcam"]
    site_makers.write_pacs(tmp_path, domains, classes, folder="office_caltech_10")
    made = federation(tmp_path, "office-caltech10", "2:2:1:1", size=8)
    assert made.sites[3:5] == ["caltech 2", "dslr"]
    assert (made.classes[0], made.classes[5]) == ("backpack", "laptop")
    assert sum(held(made)) + sum(map(len, made.tests)) == 4 * 10 * 5


def test_histograms_are_read_under_both_names_of_their_files(tmp_path):
    site_makers.write_surf(tmp_path)
    made = federation(tmp_path, "office-caltech10-surf", "1:2:1:1")
    assert (made.shape, made.sites[1]) == ((800,), "caltech 1")
    assert held(made) == [30, 15, 15, 30, 30]
    assert made.training.samples.y.unique().tolist() == list(range(10))


def test_a_partition_of_another_kind_leaves_sites_aside(tmp_path):
    site_makers.write_landmine(tmp_path)
    made = federation(tmp_path, "landmine", "3:2", partition="stratified")
    assert made.sites is None
    assert made.n == 5


def test_domains_can_be_mixed_and_divided_by_another_partition(tmp_path):
    site_makers.write_surf(tmp_path)
    made = federation(tmp_path, "office-caltech10-surf", "3:1", partition="stratified")
    assert (made.n, made.sites, set(held(made))) == (4, None, {30})


def refused(root, source, clusters, words):
    with pytest.raises(DataError, match=words):
        federation(root, source, clusters)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("landmine", "put LandmineData.mat"),
        ("heart-disease", r"get heart\+disease.zip from https://archive.ics.uci.edu"),
        ("pacs", r"so that .*PACS/art_painting/dog exists"),
        ("office-caltech10", r"so that .*office-caltech10/amazon/backpack exists"),
        ("office-caltech10-surf", r"has no file of the domain amazon; put amazon.mat"),
    ],
)
def test_what_is_not_there_is_said_with_its_place(tmp_path, source, words):
    refused(tmp_path, source, "2:2:2:2", words)


def test_damaged_and_foreign_files_are_refused_in_words(tmp_path):
    (tmp_path / "LandmineData.mat").write_bytes(b"MATLAB 5.0 MAT-file, cut short")
    refused(tmp_path, "landmine", "15:14", "cannot be read as a MATLAB file")
    savemat(tmp_path / "LandmineData.mat", {"feature": np.zeros((1, 2))})
    refused(tmp_path, "landmine", "15:14", "has no variable label")
    site_makers.write_landmine(tmp_path, fields=3)
    refused(tmp_path, "landmine", "15:14", "has 3 fields; expected 29")
    (tmp_path / "pacs64.zip").write_bytes(b"no archive")
    refused(tmp_path, "pacs", "1:1:1:1", "pacs64.zip is damaged or no zip file")
    site_makers.write_hospitals(tmp_path)
    (tmp_path / "heart-disease" / "processed.va.data").write_text("63,1,4\n")
    refused(tmp_path, "heart-disease", "4", "patient 1 has 3 values; expected 13 and the diagnosis")
    (tmp_path / "heart-disease" / "processed.va.data").write_text(",".join(["1"] * 13) + ",7\n")
    refused(tmp_path, "heart-disease", "4", "patient 1 has the diagnosis '7'; expected 0 to 4")


def test_images_that_do_not_belong_are_named(tmp_path):
    site_makers.write_pacs(tmp_path)
    save(tmp_path / "PACS" / "photo" / "cat" / "pic_001.jpg", picture(1))
    refused(tmp_path, "pacs", "1:1:1:1", "has images in photo/cat, which PACS does not have; remove them")
    (tmp_path / "PACS" / "photo" / "dog" / "away.jpg").symlink_to(tmp_path / "nowhere.jpg")
    refused(
        tmp_path, "pacs", "1:1:1:1", r"away.jpg cannot be read \(No such file or directory\); fetch it or remove it"
    )
    shutil.rmtree(tmp_path / "PACS" / "photo")
    refused(tmp_path, "pacs", "1:1:1:1", "has no images in photo/dog; complete it")


def test_clusters_that_do_not_fit_the_domains_are_refused(tmp_path):
    site_makers.write_surf(tmp_path)
    refused(tmp_path, "office-caltech10-surf", "4", r"names 1 clusters but .* amazon, caltech, dslr, webcam; give the")
    refused(tmp_path, "office-caltech10-surf", "1:41:1:1", "divides the 40 samples of caltech among 41 nodes; give it")
    refused(tmp_path, "office-caltech10-surf", "1:40:1:1", "caltech 1 has 1 samples, .* none to be tested on; raise")
    site_makers.write_landmine(tmp_path)
    refused(tmp_path, "landmine", "15:13", "the data name 29 nodes, 0 to 28, but data.clusters asks for 0 to 27")


MAKERS = {
    "landmine": site_makers.write_landmine,
    "heart-disease": site_makers.write_hospitals,
    "pacs": lambda root: site_makers.write_pacs(root, images=24),
    "office-caltech10": lambda root: site_makers.write_pacs(
        root, ("amazon", "caltech", "dslr", "webcam"), OBJECTS, images=24, folder="office-caltech10"
    ),
    "office-caltech10-surf": lambda root: site_makers.write_surf(root, each=24),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_experiment_of_a_federation_fits_its_data(tmp_path, name):
    MAKERS[name](tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        experiment = Experiment.load(EXPERIMENTS / f"{name}.toml", [f"data.root={tmp_path}", "data.size=8"])
        made = load(experiment.data, experiment.seed)
    assert made.n == experiment.n == len(made.sites)
    assert made.own_tests
