"""One changed bit in any file of a site is noticed before the file is used, or changes nothing."""

import shutil
import stat

import pytest

from facade.peers.local_network import founded
from facade.peers.node.checkpoints import LostCheckpointError
from facade.testing.flips import flip, places, try_flips
from peers.flipped_sites import use_finished_site, use_site
from peers.makers import QUICK, logged, tiny
from peers.memory import KilledError, MemoryNetwork, kill_in_round, run_aside

MAY_BE_HARMLESS = {
    "*.saved", "tls.key", "signing.key", "certificate.pem", "membership.json", "*.json", "site.json", "shortage.json",
}  # fmt: skip
"""Spare checkpoints, which nobody reads while the newest is good, white space in what is signed or a key, and what a
site writes anew when it starts."""


def stopped_and_finished_sites(base):
    """The homes of two sites of one network: one was killed in the third of four rounds, the other has finished."""
    experiment = tiny('data.clusters="2:1"', "topology.degree=2", "training.rounds=4", "evaluation.every=2")
    network = MemoryNetwork()
    with founded(
        experiment, base, "brisk", QUICK.model_copy(update={"floor": 0.3, "grace": 0.1, "linger": 0.1})
    ) as sites:
        nodes = [network.node(home) for home in sites.homes]
        victim = nodes[-1]
        kill_in_round(victim, 3)
        ends = [run_aside(node) for node in nodes]
        assert isinstance(ends[-1](), KilledError)
        victim.close()
        for end in ends[:-1]:
            end()
        for node in nodes[:-1]:
            node.close()
    return sites.homes[-1], sites.homes[0]


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    return stopped_and_finished_sites(tmp_path_factory.mktemp("sites"))


def test_a_changed_bit_in_any_file_of_a_stopped_site_is_noticed_or_harmless(sites):
    stopped, _ = sites
    flips = try_flips(stopped, use_site, places(stopped, 21, seed=1))
    assert [each for each in flips if each.outcome in ("unnoticed", "crashed")] == []
    assert {each.kind for each in flips if each.outcome == "harmless"} <= MAY_BE_HARMLESS


def test_a_changed_bit_in_any_file_of_a_finished_site_is_noticed_or_harmless(sites):
    _, finished = sites
    flips = try_flips(finished, use_finished_site, places(finished, 23, seed=2))
    assert [each for each in flips if each.outcome in ("unnoticed", "crashed")] == []
    assert {each.kind for each in flips if each.outcome == "harmless"} <= MAY_BE_HARMLESS


def test_all_files_of_a_site_are_private_whatever_the_umask_says(sites):
    for home in sites:
        for path in (home, *home.rglob("*")):
            if path.suffix != ".join":  # which is for the others
                assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_change_of_a_sites_settings_is_named_at_its_next_start(sites, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(sites[0], home)
    settings = home / "node.toml"
    settings.write_text(settings.read_text() + "# a note\n")
    with pytest.warns(UserWarning, match="node.toml is not what it was when this site's run was last written down"):
        use_site(home)
    assert "node.toml" in logged(home, "changed")[0]["says"]


def test_a_stopped_site_whose_old_rows_are_damaged_names_them_and_does_not_start(sites, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(sites[0], home)
    flip(home / "run" / "rows.jsonl", 5, 0)
    with (
        pytest.warns(UserWarning, match=r"rows.jsonl that it counts on are missing or damaged"),
        pytest.raises(LostCheckpointError, match=r"rows.jsonl is damaged within its first \d+ bytes"),
    ):
        use_site(home)
