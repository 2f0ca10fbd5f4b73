"""A further study for a site: its list is looked at before it is put into its place."""

from __future__ import annotations

from pathlib import Path

from facade.errors import ExperimentError
from facade.files import store
from facade.peers.trust.identity import Ask, cannot_ask
from facade.peers.trust.membership import Membership, read, verified
from facade.peers.trust.site import SETTINGS, Site, check_playable
from facade.peers.trust.studies import Study, check_study, lists_of, played_by, refuse_same_subject, studies_of


def add_study(home: Path, name: str, path: Path, ask: Ask = cannot_ask) -> tuple[Site, Membership]:
    """Put the list of a file in place as that of a new study; ExperimentError where it could not be played. A list that
    lies in the place of another study's goes from there, and that study gets its own back."""
    check_study(name)
    site = Site.load(home, ask, name)
    if site.study.is_there:
        raise ExperimentError(
            f"study '{name}' is there already ({site.study.directory}); take another name, or, for the next list of the"
            f" same federation, copy it to {site.study.list_path}"
        )
    content = read(path)
    membership = _checked(site, content, path)
    displaced = next((s for s in studies_of(home) if s.list_path.resolve() == path.resolve() and s.is_stray), None)
    with store.writing(site.study.directory):
        store.make_directory(site.study.directory)
    store.replace(site.study.list_path, content, store.PRIVATE)
    if displaced is not None:
        store.replace(displaced.list_path, displaced.kept_lists[-1].read_bytes(), store.PRIVATE)
    return site, membership


def _checked(site: Site, content: bytes, path: Path) -> Membership:
    """The list in the content of a file, if this site can play it as a study of its own."""
    try:
        membership = verified(content, path, site.settings.admins, site.settings.required)
    except ExperimentError as error:
        name = site.study.name
        raise ExperimentError(
            f"{error}; admins of study '{name}' alone stand in {SETTINGS} after [study.{name}], as admins = [...]"
        ) from None
    site.find_in(membership)
    membership.refuse_expired()
    refuse_same_subject(site.home, site.study, membership)
    check_playable(site, membership)
    for other in played_by(site.home, {membership.digest}):
        raise ExperimentError(f"{path} is the list of study '{other.name}' ({other.directory}) already")
    _refuse_next(site, membership, path)
    return membership


def _refuse_next(site: Site, membership: Membership, path: Path) -> None:
    """ExperimentError for what looks like a later list of a study that is there."""
    for other in studies_of(site.home):
        if membership.epoch > 1 and membership.federation in _federations(other):
            raise ExperimentError(
                f"{path} is of epoch {membership.epoch} of '{membership.federation}', which study '{other.name}' plays;"
                f" a site takes part in a federation once, so copy it to {other.list_path}"
            )


def _federations(study: Study) -> set[str]:
    """What the federation of a study's run is called; what merely lies in the place of its list is passed over."""
    return {listed.federation for listed in lists_of([study])} if not study.is_stray else set()
