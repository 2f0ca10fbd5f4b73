"""The studies of a site, and where each of them lies. One is directly in the home; it is called `main`. Others are
below `studies`, each in a directory of its name, which holds the same: the list, and what the run leaves. Those that
were put away are below `archive`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from facade.errors import ExperimentError, unknown
from facade.peers.trust import identity
from facade.peers.trust.membership import Epochs, Membership, OtherRunError, read, signed_list

MAIN = "main"
LIST, RUN, EPOCHS = "membership.json", "run", "epochs"
OUTCOME = "outcome.json"
"""In the run's directory: what it came to."""
STUDIES, ARCHIVE = "studies", "archive"


@dataclass(frozen=True)
class Study:
    """One federation that a site takes part in."""

    name: str
    directory: Path

    @property
    def list_path(self) -> Path:
        """The list that the operator puts there."""
        return self.directory / LIST

    @property
    def run(self) -> Path:
        """Where the run's files are."""
        return self.directory / RUN

    @property
    def is_finished(self) -> bool:
        """Whether its run is over."""
        return (self.run / OUTCOME).exists()

    @property
    def kept_lists(self) -> list[Path]:
        """The lists that its run was played by, by ascending epoch."""
        return sorted((self.run / EPOCHS).glob("*.json"), key=lambda path: int(path.stem))

    @property
    def is_stray(self) -> bool:
        """Whether the list that lies there is another run's than the one that has begun there."""
        epochs = Epochs()
        try:
            for path in (*self.kept_lists, self.list_path):
                epochs.add(signed_list(read(path), path).membership)
        except OtherRunError:
            return True
        except ExperimentError:
            return False
        return False

    @property
    def is_there(self) -> bool:
        """Whether anything of it is."""
        return self.list_path.exists() or self.run.exists()


def check_study(name: str) -> None:
    """Names of studies are short and plain, for they become names of directories."""
    if not re.fullmatch("[a-z0-9][a-z0-9-]{0,31}", name):
        raise ExperimentError(
            f"study '{name}' is not possible; use up to 32 letters a-z, digits and hyphens, such as lungs-2027"
        )
    if name == MAIN:
        raise ExperimentError(
            f"'{MAIN}' is the study directly in the site's directory: its list lies beside node.toml, and its settings"
            " stand at the top of that; take another name for another one"
        )


def study_of(home: Path, name: str) -> Study:
    """The study of a name, whether it is there or not."""
    if name == MAIN:
        return Study(name, home)
    check_study(name)
    return Study(name, home / STUDIES / name)


def studies_of(home: Path) -> list[Study]:
    """All studies of a site that are not put away; `main` also where there is none at all, for its list may be to
    come."""
    others = [_named(home, path) for path in _directories(home / STUDIES)]
    main = study_of(home, MAIN)
    return [main, *others] if main.is_there or not others else others


def _directories(path: Path) -> list[Path]:
    """Those in a directory, if there is one; hidden ones are left out."""
    inside = sorted(path.iterdir()) if path.is_dir() else []
    return [one for one in inside if one.is_dir() and not one.name.startswith(".")]


def _named(home: Path, directory: Path) -> Study:
    try:
        check_study(directory.name)
        return study_of(home, directory.name)
    except ExperimentError as error:
        raise ExperimentError(f"{directory} cannot be a study, move or rename it: {error}") from None


def chosen_studies(home: Path, names: Sequence[str]) -> list[Study]:
    """Those of the names, each once, or all."""
    studies = {study.name: study for study in studies_of(home)}
    for name in names:
        if name not in studies:
            raise unknown("study", name, studies)
    return [studies[name] for name in dict.fromkeys(names)] if names else list(studies.values())


def the_study(home: Path, name: str | None) -> Study:
    """The study of a name, or the only one; ExperimentError where a name is needed to tell which."""
    studies = chosen_studies(home, [name] if name else [])
    if len(studies) > 1:
        names = ", ".join(study.name for study in studies)
        raise ExperimentError(
            f"{home} holds several studies ({names}); say which one, such as:"
            f" facade node export --study {studies[0].name}"
        )
    return studies[0]


def archived_studies(home: Path) -> list[Study]:
    """Those that were put away."""
    return [Study(path.name, path) for path in _directories(home / ARCHIVE)]


def lists_of(studies: Iterable[Study]) -> Iterator[Membership]:
    """The lists of studies, whoever signed them; what cannot be read is left out."""
    for study in studies:
        yield from _readable([study.list_path, *study.kept_lists])


def _readable(lists: Iterable[Path]) -> Iterator[Membership]:
    for path in lists:
        with contextlib.suppress(ExperimentError):
            yield signed_list(read(path), path).membership


def newest_list(study: Study) -> Membership | None:
    """The list of a study with the highest epoch, if any can be read."""
    return max(lists_of([study]), key=lambda listed: listed.epoch, default=None)


def stray_list(study: Study) -> str:
    """What is to be said where the list that lies there is another run's."""
    played, there = (signed_list(read(path), path).membership for path in (study.kept_lists[-1], study.list_path))
    return (
        f"{study.run} holds a run of '{played.federation}' (epoch {played.epoch}), and the list in {study.list_path},"
        f" of '{there.federation}' (epoch {there.epoch}), does not go on from it and is not played; to play it, put"
        f" that run away with: facade node archive --study {study.name}, or give the list a study of its own with:"
        f" facade node add-study NAME {study.list_path}"
    )


def not_played(home: Path, played: Iterable[Study]) -> Iterator[Membership]:
    """The lists of a site's studies that are not among those played."""
    names = {study.name for study in played}
    others = [study for study in studies_of(home) if study.name not in names]
    return lists_of([*others, *archived_studies(home)])


def played_by(home: Path, digests: Set[bytes]) -> list[Study]:
    """The studies of a site, and those put away, that are or were played by one of these lists; those first whose run
    has begun."""
    found = [
        study
        for study in (*studies_of(home), *archived_studies(home))
        # Another federation's list, put into the place of one that a run has begun by, is not that run's.
        if any(listed.digest in digests for listed in _readable(study.kept_lists or [study.list_path]))
    ]
    return sorted(found, key=lambda study: not study.kept_lists)


def refuse_same_subject(home: Path, study: Study, membership: Membership) -> None:
    """ExperimentError for a list with a certificate that has the subject of another one in another study's list: TLS
    looks trusted ones up by it, so a member of one study could shut out one of the other."""
    others = [other for other in studies_of(home) if other != study]
    taken = {
        identity.parsed(pem).subject: (identity.fingerprint(pem), other.name)
        for other in others
        for listed in lists_of([other])
        for member in listed.members
        for pem in member.certificates
    }
    for member in membership.members:
        for pem in member.certificates:
            fingerprint, name = taken.get(identity.parsed(pem).subject, ("", ""))
            if fingerprint and fingerprint != identity.fingerprint(pem):
                raise ExperimentError(
                    f"the list of epoch {membership.epoch} has a certificate of '{member.id}' with the same subject as"
                    f" another one that study '{name}' lists, and TLS would take the one for the other; have that site"
                    " make a new one: facade node rotate"
                )


def refuse_twin(home: Path, study: Study) -> None:
    """ExperimentError for a study by a list that another one of the site is played by, or was: a member that begins
    again would take back messages that others have used."""
    twins = played_by(home, {listed.digest for listed in lists_of([study])})
    if twins and study not in twins[:1] and study in twins:
        raise ExperimentError(
            f"the list of study '{study.name}' is that of '{twins[0].name}' ({twins[0].directory}), and a site takes"
            " part in a federation once; remove one of the two, or ask the federation's admin for another list"
        )
