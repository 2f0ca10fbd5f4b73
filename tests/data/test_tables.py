"""Tables as sources: files, columns, sites, splits, and what is refused."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from data.makers import data, patients
from facade import Experiment, run
from facade.data.errors import DataError
from facade.data.load import load, read
from facade.runs.result import Result
from facade.runs.run_directory import RunDirectory

HEAD = "age,sex,hospital,sick"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def table(root, lines, head=HEAD, name="people.csv"):
    write(root / name, "\n".join([head, *lines]) + "\n")


def people(count=40, sites="abcd"):
    """Rows of every site, older people sick, with gaps in both columns."""
    lines = []
    for i in range(count):
        age = "" if i % 10 == 3 else str(30 + 7 * i % 50)
        sex = "?" if i % 10 == 7 else ("f", "m")[i // 3 % 2]
        lines.append(f"{age},{sex},{sites[i % len(sites)]},{'yes' if 7 * i % 50 > 25 else 'no'}")
    return lines


def section(root, **fields):
    known = {"path": "people.csv", "label": "sick", "site": "hospital", "clusters": "unknown"}
    return data(root, "csv", **(known | fields))


def test_a_file_of_sites_becomes_a_natural_federation_with_names(tmp_path):
    table(tmp_path, people())
    made = load(section(tmp_path), seed=1)
    assert made.sites == ["a", "b", "c", "d"]
    assert made.cluster is None
    assert made.n == len(made.tests) == 4
    assert made.classes == ["no", "yes"]
    assert [column.name for column in made.columns] == ["age", "sex"]
    assert made.shape == (5,)  # age, age is missing, f, m, sex is missing
    own = [made.training.samples.x[rows] for rows in made.training.rows]
    for x in own:
        assert x[:, 0][x[:, 1] == 0].mean().abs() < 1e-6
    assert sum(len(rows) for rows in made.training.rows) + sum(len(test) for test in made.tests) == 40


def test_a_folder_has_a_file_per_site_and_passes_over_what_is_no_table(tmp_path):
    for site in "ba":
        table(tmp_path, people(20, site), name=f"sites/{site}.csv")
    write(tmp_path / "sites" / "readme.txt", "hello")
    write(tmp_path / "sites" / ".DS_Store", "")
    made = load(section(tmp_path, path="sites", site="", ignore=["hospital"]), seed=1)
    assert made.sites == ["a", "b"]
    assert made.notes == ["readme.txt: no table, not used"]


def test_a_file_is_read_with_other_separators_and_a_byte_order_mark(tmp_path):
    table(tmp_path, people())
    plain = read(section(tmp_path))
    for mark, separator in (("\ufeff", ";"), ("", "\t")):
        text = (tmp_path / "people.csv").read_text().replace(",", separator)
        write(tmp_path / "other.csv", mark + text)
        assert read(section(tmp_path, path="other.csv")).train.x.equal(plain.train.x)


def test_a_split_column_says_who_is_trained_tested_and_kept_for_validation(tmp_path):
    parts = ["train"] * 6 + ["test"] * 2 + ["Validation"] * 2
    table(tmp_path, [f"{line},{parts[i // 4]}" for i, line in enumerate(people())], head=f"{HEAD},part")
    made = load(section(tmp_path, split="part"), seed=1)
    assert [len(rows) for rows in made.training.rows] == [6] * 4
    assert [len(test) for test in made.tests] == [2] * 4
    assert made.validations is not None
    assert [len(kept) for kept in made.validations] == [2] * 4
    own = made.training.samples.x[made.training.rows[0]]
    assert own[:, 0][own[:, 1] == 0].mean().abs() < 1e-6  # rows kept for validation are not counted


@pytest.mark.parametrize("partition", ["natural", "stratified"])
def test_rows_of_a_group_are_never_on_both_sides(tmp_path, partition):
    lines = [f"{line},p{i // 8}" for i, line in enumerate(people(160))]
    table(tmp_path, lines, head=f"{HEAD},patient")
    clusters = "4" if partition == "natural" else "2"
    fields = {"group": "patient", "partition": partition, "clusters": clusters, "validation": 0.3, "scale": "none"}
    # The patient is an input here too, so that samples tell whose they are.
    table(tmp_path, [f"{line},{i // 8}" for i, line in enumerate(lines)], head=f"{HEAD},patient,mark")
    made = load(section(tmp_path, **fields), seed=1)
    marks = [{int(v) for v in part.x[:, -1]} for part in (*made.tests, *made.validations)]
    for site, rows in enumerate(made.training.rows):
        trained = {int(v) for v in made.training.samples.x[rows][:, -1]}
        test = made.test_of[site]
        assert not trained & marks[test]
        assert not trained & marks[len(made.tests) + test]
        assert not marks[test] & marks[len(made.tests) + test]


def test_columns_can_be_named_and_left_out(tmp_path):
    table(tmp_path, [f"{line},{i % 3}" for i, line in enumerate(people())], head=f"{HEAD},ward")
    names = [column.name for column in load(section(tmp_path, ignore=["sex"]), 1).columns]
    assert names == ["age", "ward"]
    (ward,) = load(section(tmp_path, columns=["ward"], categorical=["ward"]), 1).columns
    assert ward.categories == ["0", "1", "2"]


def test_without_a_natural_partition_all_rows_are_one_table(tmp_path):
    table(tmp_path, people())
    made = load(section(tmp_path, clusters="2:2", partition="stratified"), seed=1)
    assert made.sites is None
    assert len(made.tests) == 2
    assert any("whose a row is does not count" in note for note in made.notes)


@pytest.mark.parametrize(
    ("lines", "head", "fields", "said"),
    [
        (None, HEAD, {"label": "sik"}, "data.label: unknown column 'sik'; did you mean 'sick'"),
        (None, HEAD, {"label": ""}, "needs data.path, .* and data.label"),
        (["50,f,a,"], HEAD, {}, r"people.csv, row 41 has no label \(column 'sick'\)"),
        (["50,f,,yes"], HEAD, {}, "row 41 has no site"),
        (["50,f,a"], HEAD, {}, "row 41 has 3 cells for 4 columns"),
        (["50,f,e,yes"], HEAD, {}, "site 'e' has no row to train with"),
        (None, "age,age,hospital,sick", {}, "column 2 is named 'age' like another"),
        (["inf,f,a,yes"], HEAD, {}, "column 'age' holds 'inf'"),
        (None, HEAD, {"split": "sick"}, "says 'no' in column 'sick'; expected train, test or validation"),
        (None, HEAD, {"columns": ["agee"]}, "unknown column 'agee'"),
        (None, HEAD, {"path": "nobody.csv"}, "nobody.csv does not exist"),
        (None, HEAD, {"columns": [{"name": "sex", "categories": ["m"]}]}, "the category 'f', which nobody agreed on"),
        (None, HEAD, {"label": "one", "ignore": ["sick"]}, "all samples are of class '1'"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(tmp_path, lines, head, fields, said):
    rows = [*people(), *(lines or [])]
    if fields.get("label") == "one":
        rows, head = [f"{row},1" for row in rows], f"{head},one"
    table(tmp_path, rows, head=head)
    with pytest.raises(DataError, match=said):
        load(section(tmp_path, **fields), seed=1)


def test_a_group_in_two_parts_of_a_written_split_is_refused(tmp_path):
    lines = [f"{line},{('train', 'test')[i % 2]},p{i // 4}" for i, line in enumerate(people())]
    table(tmp_path, lines, head=f"{HEAD},part,patient")
    with pytest.raises(DataError, match="group 'p0' has rows in train and test"):
        load(section(tmp_path, split="part", group="patient", clusters="1", partition="stratified"), seed=1)


def test_files_of_a_folder_need_the_same_columns(tmp_path):
    table(tmp_path, people(8), name="sites/a.csv")
    table(tmp_path, [line.rpartition(",")[0] for line in people(8)], "age,sex,hospital", "sites/b.csv")
    with pytest.raises(DataError, match=r"column 'sick' is in .*a.csv but not in .*b.csv"):
        load(section(tmp_path, path="sites", site=""), seed=1)


def test_clusters_that_are_unknown_are_left_to_the_source(tmp_path):
    table(tmp_path, people())
    described = {"source": "csv", "root": str(tmp_path), "path": "people.csv", "label": "sick", "site": "hospital"}
    experiment = Experiment.of(
        {"data": described | {"clusters": "unknown"}, "model": {"name": "softmax"}, "topology": {"degree": 2}},
        ["training.rounds=2", "algorithm.name=el"],
    )
    assert experiment.data.partition == "natural"
    assert experiment.data.skew == "none"
    result = run(experiment)
    assert result.n == 4
    assert "clusters" not in result.summary
    assert np.isfinite(result.summary["all"])


def test_a_table_goes_from_file_to_report_by_the_three_commands_of_the_page_on_data(command, tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text().partition("### Tables")[2]
    shown = {kind: page.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("csv", "toml", "sh")}
    monkeypatch.chdir(tmp_path)
    patients(tmp_path / "data")
    text = (tmp_path / "data" / "people.csv").read_text().replace("sick", "ill", 1)
    assert text.splitlines()[0] == shown["csv"].splitlines()[0]
    write(tmp_path / "data" / "patients.csv", text)
    assert shown["toml"].startswith("# trial.toml\n")
    write(tmp_path / "trial.toml", shown["toml"])
    commands = [shlex.split(line) for line in shown["sh"].splitlines()]
    assert [words[1] for words in commands] == ["data", "sweep", "report"]
    for words in commands:
        ended = command(*words[1:])
        assert ended.code == 0, ended.err
    for path in (tmp_path / "runs" / "trial").glob("*-seed1"):
        facts = RunDirectory(path).read("federation.json")
        assert (facts["cluster"], facts["sites"]) == (None, ["basel", "lyon", "porto", "turin"])
        assert facts["inputs"][:3] == ["age", "age is missing", "pressure"]
        assert Result.load(path).n == 4
    report = (tmp_path / "report.html").read_text()
    assert "Over training alone, sites gain" in report
