"""The page of the study of real federations, drawn from the lines that are kept of its runs and from nothing else."""

from __future__ import annotations

from facade.paper.reproduction_tables import table
from facade.studies.federations import FEDERATIONS
from facade.studies.federations_bars import bars, harms
from facade.studies.federations_numbers import FederationRuns, gains, who_found_whom, worst_gain
from facade.studies.kept_lines import KeptLines
from facade.studies.methods import METHODS
from facade.studies.numbers import interval

_RIVALS = ("alone", "EL")
_WITH_HEADS = tuple(name for name, settings in METHODS.items() if settings["algorithm.name"] == "facade")


def drawn(kept: KeptLines) -> str:
    """The whole page."""
    study = FederationRuns(kept)
    parts = [_HEAD, _harms(study), _NO_GROUPS, _no_groups(study), _BARS, bars(study)]
    for name, says in _SECTIONS.items():
        parts += [says, *_federation(study, name)]
    return "\n\n".join(part.strip() for part in [*parts, _END]) + "\n"


def _harms(study: FederationRuns) -> str:
    lines = harms(study)
    return table(["federation", "sites", "against", "points"], lines) if lines else "Nowhere, in the mean over splits."


def _no_groups(study: FederationRuns) -> str:
    """In how many splits all sites share one head."""
    lines = []
    for name, known in FEDERATIONS.items():
        cells = []
        for method in _WITH_HEADS:
            chosen = study.chosen(name, method) if method in known.methods else []
            cells.append(f"{sum(each.run.heads == 1 for each in chosen)} of {len(chosen)}" if chosen else "-")
        if set(cells) != {"-"}:
            lines.append([name, *cells])
    return table(["splits in which all sites share one head", *_WITH_HEADS], lines)


def _federation(study: FederationRuns, name: str) -> list[str]:
    known = FEDERATIONS[name]
    runs = {method: chosen for method in known.methods if (chosen := study.chosen(name, method))}
    if known.judged not in runs:
        return ["Not computed yet."]
    measures = [
        [
            method,
            *(interval(each.groups[g] for each in chosen) for g in range(len(known.groups))),
            interval(each.all for each in chosen),
            interval(each.worst_site for each in chosen),
            f"{chosen[0].choice.rate:g}" + (f", {chosen[0].choice.loss}" if len(known.losses) > 1 else ""),
        ]
        for method, chosen in runs.items()
    ]
    above = []
    for method in (method for method in runs if method not in _RIVALS):
        for rival in (rival for rival in _RIVALS if rival in runs):
            each = [*gains(runs[method], runs[rival]), worst_gain(runs[method], runs[rival])]
            above.append([f"{method} above {rival}", *map(str, each)])
    chosen_by = "rate, loss" if len(known.losses) > 1 else "rate"
    return [
        table(["", *known.groups, "all sites", "worst site", chosen_by], measures),
        table(["points, split by split", *known.groups, f"worst {_KIND.get(name, 'domain')}"], above),
        _found(study, name),
    ]


def _found(study: FederationRuns, name: str) -> str:
    """Who shares a head with whom, by method."""
    lines = [
        [method, words, f"{count} of {len(chosen)}", f"{strays:.1f}"]
        for method in FEDERATIONS[name].methods
        if (chosen := study.chosen(name, method))
        for words, count, strays in who_found_whom(chosen, FEDERATIONS[name].groups)
    ]
    heading = ["", "who shares a head (· between heads)", "splits", "sites with another head than most of their kind"]
    return table(heading, lines)


_KIND = {"landmine": "ground", "landmine, no weight decay": "ground", "heart-disease": "hospital"}

_HEAD = """
# Real federations

Sites that differ by nature, not by a filter: fields with land mines, hospitals, and pictures of several domains.
Everything on this page comes from `results/federations.jsonl.gz`, one line a run; `facade study federations` computes
what is missing and draws the page, `--long` the runs on images, too, which take hours ([where the data
go](data.md#real-federations)).

Each split divides every site's samples anew in training, validation and test; a site is tested on its own samples.
All methods train alike and choose among the same three learning rates, for land mines also between two losses, by the
mean over sites and splits on validation samples of other splits: 101 to 110, for images 101 alone. What they get is
read on splits 1 to 10 (images: 1 to 3). Numbers are per cent: the area under the ROC curve (AUC) where there are two
classes, else accuracy, with 95 % intervals over splits (Student's t); differences are taken split by split.

Designs (model, rounds, weight decay, grid, heads, how heads start) were chosen by hand on splits 101 to 110, test
numbers in sight, for land mines among some forty. Splits 1 to 10 had been read for land mines before, with the last
layer alone as head: foliated fields missed what was asked for (the line "farthest"). Other seeds divide the same rows,
so splits overlap: intervals tell how much splits differ, not other fields or hospitals, and are narrower than those of
independent data would be.

"farthest" is FACADE whose heads start as far apart as nodes can make them (`seeding = "farthest"`), "whole models" the
same with all of the model as head (`split = "all"`), "as published" starts heads by chance (`"none"`). "class-means" is
the default, which groups nodes by looks, told how many heads there may be, and "auto" finds that number itself; both
ask whether heads are worth it and share one head, as EL does, where they find they are not. Grids, rounds and heads are
those of the experiments of the same names. On land mines FACADE is judged by "whole models", elsewhere by "farthest".

## Where FACADE does not help

Groups of sites that get less from FACADE, in the mean over splits, than from training alone or from EL:
"""
_NO_GROUPS = """
The default, class-means, finds groups by looks, and gives heads up that it finds not to be worth it. Where all sites
share one head, FACADE is EL:
"""
_BARS = """
## What it had to show
"""
_SECTIONS = {
    "landmine": """
## Land mines

29 fields, 9 values of a radar echo, 6 % mines. 15 fields are foliated, 14 bare earth or desert; metrics alone know
which.
""",
    "landmine, no weight decay": """
### Land mines without weight decay

The same without weight decay, which suits EL better: a shared model that may grow large tells the two kinds of ground
apart by itself. Splits 1 to 5.
""",
    "heart-disease": """
## Heart disease

Four hospitals, 13 columns, healthy or ill; gaps are filled from a hospital's own training rows.
""",
    "office-caltech10-surf": """
## Office-Caltech, SURF histograms

Ten classes; 6 nodes hold pictures of amazon, 7 of caltech, 1 of dslr, 2 of webcam, about 160 each. Chance is 10 %.
""",
    "office-caltech10": """
## Office-Caltech, images

The same pictures, scaled to 32x32, GN-LeNet.
""",
    "pacs": """
## PACS

Seven classes, 64x64, GN-LeNet; 5 nodes hold paintings, 6 cartoons, 2 photographs, 9 sketches.
""",
}
_END = """
## What to take from it

* Land mines: heads part foliated from bare ground in every split, and both gain, as they do however heads start. Nine
  values and 64 units are little: where the whole small model is head, foliated fields gain half a point more. The
  margin over EL depends on the design: without weight decay EL gains on both kinds of ground, and on bare ground
  FACADE's lead is no longer clear. DePRL, with a head for every field, is as good on foliated ground.
* Heart disease: four hospitals are too few for groups. In most splits switzerland has a head of its own, and
  learns from 63 patients. EL serves all four about as well or better. switzerland has eight healthy patients, three of
  them to test on: nothing can be said of it.
* SURF histograms: the worst domain is caltech, the largest, which wants every picture there is; heads take some away.
  dslr and webcam gain a little, within the noise. Groups differ from split to split.
* Photographs of Office-Caltech (32x32, three splits): heads part dslr and webcam from amazon and caltech in every
  split, with nobody told. The two small domains gain some twelve points over EL, webcam clearly, the two large ones
  nothing, so the worst domain, caltech, stays where it is: it is the largest, and no head teaches it more than EL
  does. Training alone, DePRL and FACADE chose the lowest rate of the grid.
* The default seeding did not find groups in land mines or hospitals, though on land mines they are worth having. Its
  survey comes close: in split 102 it parts foliated from bare with one field of 29 on the wrong side, but bare fields
  are sure of it by 1.1 standard errors in the mean, where 2.5 are asked for. Where sites are real, compare
  `seeding = "farthest"` on validation samples.
"""
