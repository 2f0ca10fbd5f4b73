"""A network of real sites, as far as their directories are here, or one site of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from facade.analysis.measures import recorded, values
from facade.core.names import short
from facade.errors import FacadeError
from facade.watch.head_strip import HeadStrip
from facade.watch.node_groups import MOST_LINES
from facade.watch.subject import Looked, Section, Subject, described, measure_of, number, signature
from facade.watch.watched_site import WatchedSite

_MOST_SAID = 30


class WatchedNetwork(Subject):
    """Sites of one federation, side by side."""

    def __init__(self, path: Path, title: str, homes: Sequence[Path], others: Sequence[Path] = ()) -> None:
        self.path = path
        self.title = title
        self._sites = [WatchedSite(home) for home in homes]
        self._others = list(others)
        """The site.json files that others have sent."""
        self._told: dict[Path, tuple[Any, Section]] = {}
        """What each of them says, and what the file looked like then."""
        self._seen_others: list[Any] = []
        self._strip = HeadStrip(len(self._sites))

    @property
    def quiet(self) -> bool:
        return all(site.finished for site in self._sites)

    def look(self) -> Looked:
        now = [signature(path) for path in self._others]
        changed, self._seen_others = now != self._seen_others, now
        more = False
        for row, site in enumerate(self._sites):
            looked = site.look()
            changed, more = changed or looked.changed, more or looked.more
            if site.anew:  # what it chose before is overwritten as it plays on
                self._strip = self._strip if len(self._sites) > 1 else HeadStrip(1)
            for round, head in site.rows.choices:
                self._strip.set(row, round, head)
            site.rows.choices.clear()
        return Looked(changed, more)

    @property
    def _first(self) -> WatchedSite:
        return next((site for site in self._sites if site.experiment), self._sites[0])

    @property
    def _members(self) -> list[str]:
        """Everybody's id, as the lists say; of the sites here where there is no list."""
        named = [id for site in self._sites for id in site.members] or [site.id for site in self._sites]
        return sorted(set(named))

    def sections(self) -> dict[str, Section]:
        sections: dict[str, Section | None] = {
            "about": self._about(),
            "progress": self._progress(),
            "quality": self._quality(),
            "losses": {"lines": [self._line(site, site.rows.losses.plain()) for site in self._shown]},
            "traffic": {"total": sum(site.rows.bytes for site in self._sites) / len(self._sites)},
            "heads": self._heads(),
            "graph": self._graph(),
            "guard": self._guard(),
            "sites": {"rows": [self._row(site) for site in self._sites] + self._rows_of_others()},
            "events": self._events(),
        }
        return {name: section for name, section in sections.items() if section is not None}

    @property
    def _shown(self) -> list[WatchedSite]:
        """Sites that have a line of their own."""
        return self._sites[:MOST_LINES]

    def _about(self) -> Section:
        first = self._first
        facts = [("federation", first.federation)] if first.federation else []
        if first.experiment:
            facts.append(("algorithm", short(first.experiment["algorithm"]["name"])))
            facts.append(("members", str(len(self._members))))
            facts.append(("policy", first.policy))
        facts.append(("directory", str(self.path)))
        notes = []
        if len(self._sites) > MOST_LINES:
            notes.append(f"Lines are of the first {MOST_LINES} of {len(self._sites)} sites; the table has all.")
        names = [site.id for site in self._shown]
        return {"title": self.title, "kind": "network", "facts": facts, "notes": notes, "groups": names}

    def _progress(self) -> Section:
        done = min(site.rows.done for site in self._sites)
        rounds = max(site.rounds for site in self._sites)
        slow = max((site.events.pace.seconds or 0.0 for site in self._sites), default=0.0)
        begun = any(site.events.last for site in self._sites)
        phase = "finished" if self.quiet else "running" if begun else "waiting"
        one = self._sites[0].state() if len(self._sites) == 1 else ""
        says = {"finished": "finished", "running": one, "waiting": "no site has begun"}[phase]
        left = slow * (rounds - done) if slow and phase == "running" else None
        last = max(site.events.last for site in self._sites)
        return {
            "phase": phase, "says": says, "done": done, "rounds": rounds, "seconds": slow or None, "left": left,
            "written": last or None,
        }  # fmt: skip

    def _line(self, site: WatchedSite, plain: Section) -> Section:
        return {"name": site.id, "rounds": plain["rounds"], "values": (plain["values"] or [[]])[0]}

    def _quality(self) -> Section:
        measure = measure_of(self._first.experiment)
        lines = [self._line(site, site.rows.quality.plain()) | {"final": site.rows.final} for site in self._shown]
        known = [site.rows.value for site in self._sites if site.rows.value is not None]
        section: Section = {"measure": described(measure), "lines": lines, "of_sites": True}
        if known:
            section |= {"worst": measure.worst(known), "mean": sum(known) / len(known)}
            section["final"] = all(site.rows.final is not None for site in self._sites)
        return section

    def _heads(self) -> Section | None:
        strip = self._strip.plain()
        if strip is None:
            return None
        names = [site.id for site in self._sites]
        rows = [{"name": name, "group": i, "place": i} for i, name in enumerate(names)]
        return strip | {"rows": rows, "groups": names, "done": max(site.rows.done for site in self._sites)}

    def _graph(self) -> Section:
        """Whom every site here has heard in the exchange that it is in: arrived, dropped by the guard, missed, or
        still waited for."""
        members = self._members
        place = {id: i for i, id in enumerate(members)}
        here = {site.id: i for i, site in enumerate(self._sites)}
        edges, rounds = [], set()
        for site in self._sites:
            round, exchange = site.exchange()
            rounds.add(min(round + 1, max(1, site.rounds)))
            wanted = set(site.expected(round)) | exchange.heard | exchange.missed
            for id in sorted(wanted & place.keys()):
                state = (
                    1 if id in exchange.dropped else 0 if id in exchange.heard else 2 if id in exchange.missed else 3
                )
                edges.append([place[site.id], place[id], state])
        heads = {site.id: site.rows.choice for site in self._sites}
        nodes = [{"name": id, "group": here.get(id, len(here)), "head": heads.get(id)} for id in members]
        shown = sorted(rounds)
        return {
            "round": shown[-1] if shown else 0, "first": shown[0] if shown else 0, "nodes": nodes, "edges": edges,
            "messages": len(edges), "groups": [*here, "not here"],
        }  # fmt: skip

    def _guard(self) -> Section | None:
        rule = self._first.experiment.get("guard", {}).get("rule", "none")
        if rule == "none":
            return None
        counts: dict[str, int] = {}
        for site in self._sites:
            for id, entry in site.ledger.items():
                counts[id] = counts.get(id, 0) + int(entry.get("unused", 0))
        most = sorted(((count, id) for id, count in counts.items() if count), reverse=True)[:5]
        closed = sum(site.rows.closed for site in self._sites)
        return {"rule": rule, "closed": closed, "most": [{"name": id, "count": count} for count, id in most]}

    def _row(self, site: WatchedSite) -> Section:
        """One line of the table of sites."""

        def total(*names: str) -> int:
            return sum(int(entry.get(name, 0)) for entry in site.ledger.values() for name in names)

        missed = {id: e["late"] + e["missed"] for id, e in site.ledger.items() if e.get("late", 0) + e.get("missed", 0)}
        refused = {id: sum(e["refused"].values()) for id, e in site.ledger.items() if e.get("refused")}
        left = site.events.pace.seconds
        return {
            "id": site.id, "here": True, "state": site.state(), "done": site.rows.done, "rounds": site.rounds,
            "value": site.rows.value, "final": site.rows.final is not None, "head": site.rows.choice,
            "heard": total("heard"), "late": total("late"), "missed": total("missed"), "gone": total("gone"),
            "dropped": total("unused"), "bytes": site.rows.bytes, "refused": sum(refused.values()),
            "refused_of": refused, "missed_of": missed, "closed": site.rows.closed, "written": site.events.last or None,
            "left": None if left is None or site.finished else left * max(0, site.rounds - site.rows.done),
            "peers": {id: {key: entry.get(key) for key in ("heard", "late", "missed", "unused")}
                      for id, entry in site.ledger.items()} if len(self._sites) == 1 else {},
        }  # fmt: skip

    def _rows_of_others(self) -> list[Section]:
        """What other sites have signed."""
        rows = []
        for path in self._others:
            looks = signature(path)
            if path not in self._told or self._told[path][0] != looks:
                self._told[path] = looks, self._signed(path)
            rows.append(self._told[path][1])
        return rows

    def _signed(self, path: Path) -> Section:
        """A site.json as a line of the table; its signature is checked with the list of the federation."""
        from facade.peers.after.outcome import read_site  # loads much, and most watch no such files
        from facade.peers.trust.membership import vouched

        home = self._first.home
        try:
            facts = read_site(path, vouched(home / "membership.json"))
        except FacadeError as error:
            return {"id": path.name, "here": False, "state": str(error), "refusal": True}
        met = facts.ledger.values()
        final = {} if facts.final.measures is None else {"measures": facts.final.measures.model_dump()}
        confusion = np.array([facts.final.confusion], dtype=np.int64)
        value = values(measure_of(self._first.experiment), confusion, recorded([final]))
        return {
            "id": facts.id, "here": False, "state": f"finished, as it has signed in {path.name}", "final": True,
            "value": number(float(value[0])), "head": facts.final.choice, "heard": sum(entry.heard for entry in met),
            "late": sum(entry.late for entry in met), "missed": sum(entry.missed for entry in met),
            "dropped": sum(entry.unused for entry in met), "closed": facts.gate_closed, "gain": facts.gain,
            "refused": sum(sum(entry.refused.values()) for entry in met),
        }  # fmt: skip

    def _events(self) -> Section:
        """What the sites' logs have said of late, newest first."""
        several = len(self._sites) > 1
        said = [(at, site.id if several else "", words) for site in self._sites for at, words in site.events.said]
        newest = sorted(said, reverse=True)[:_MOST_SAID]
        return {"rows": [{"at": at, "site": id, "says": words} for at, id, words in newest]}
