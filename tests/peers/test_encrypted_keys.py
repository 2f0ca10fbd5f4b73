"""Keys that are encrypted at rest, and homes that others can read."""

import os
import pty
import stat
import subprocess
import sys

import pytest

from facade.errors import ExperimentError
from facade.peers.trust import identity
from facade.peers.trust.founding import NewSite, finish_rotation, found_site, rotate_site
from facade.peers.trust.membership import load
from facade.peers.trust.site import Site

ADMIN = "ab" * 32
SITE = NewSite("a", "127.0.0.1:7000", [ADMIN], passphrase=b"open sesame")


def asked(passphrase):
    """Gives a passphrase, and counts how often it was asked for."""
    calls = []

    def ask():
        calls.append(passphrase)
        return passphrase

    return ask, calls


def test_a_site_with_encrypted_keys_starts_with_its_passphrase_which_is_asked_for_once(tmp_path):
    found_site(tmp_path / "a", SITE)
    for name in (identity.TLS_KEY, identity.SIGNING_KEY):
        assert (tmp_path / "a" / name).read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
        assert stat.S_IMODE((tmp_path / "a" / name).stat().st_mode) == 0o600
    ask, calls = asked(b"open sesame")
    site = Site.load(tmp_path / "a", ask)
    assert len(calls) == 1
    assert site.tls_key.startswith(b"-----BEGIN PRIVATE KEY-----"), "for TLS, in memory alone"
    assert "sesame" not in repr(SITE)
    assert "PRIVATE" not in repr(site)


def test_a_wrong_passphrase_and_none_cost_one_sentence(tmp_path):
    found_site(tmp_path / "a", SITE)
    with pytest.raises(ExperimentError, match=r"^the passphrase does not open .*tls.key; give the one"):
        Site.load(tmp_path / "a", asked(b"open barley")[0])
    with pytest.raises(ExperimentError, match="a key is encrypted, and nobody can be asked"):
        Site.load(tmp_path / "a")


def test_a_rotated_key_is_encrypted_like_the_one_before(tmp_path):
    found_site(tmp_path / "a", SITE)
    ask, calls = asked(b"open sesame")
    rotate_site(tmp_path / "a", "a", ask=ask)
    assert len(calls) == 1
    finish_rotation(tmp_path / "a", "a")
    assert identity.is_encrypted(tmp_path / "a" / identity.TLS_KEY)
    Site.load(tmp_path / "a", ask)


def init(command, home, *more):
    return command("node", "init", "--id", "a", "--address", "127.0.0.1:7000", "--admin", ADMIN, "--home", home, *more)


def test_the_commands_take_the_passphrase_from_a_file_or_from_systemd(tmp_path, command, monkeypatch):
    secret = tmp_path / "facade-passphrase"
    secret.write_text("open sesame\n")
    secret.chmod(0o600)
    assert init(command, tmp_path / "a", "--encrypt-key", "--passphrase-file", secret).code == 0
    found = command("node", "doctor", "--home", tmp_path / "a", "--passphrase-file", secret).out
    assert "keys and node.toml are there" in found
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert "keys and node.toml are there" in command("node", "doctor", "--home", tmp_path / "a").out
    secret.write_text("open barley\n")
    wrong = command("node", "up", "--home", tmp_path / "a")
    assert wrong.code == 2
    assert "the passphrase does not open" in wrong.err
    secret.chmod(0o644)
    assert "chmod 600" in command("node", "up", "--home", tmp_path / "a").err
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    nobody = command("node", "up", "--home", tmp_path / "a")
    assert nobody.code == 2
    assert "there is no terminal to ask for it; give --passphrase-file FILE, or have systemd" in nobody.err


def test_a_passphrase_comes_through_a_file_descriptor_too(tmp_path, command):
    reader, writer = os.pipe()
    os.write(writer, b"open sesame\n")
    os.close(writer)
    assert init(command, tmp_path / "a", "--encrypt-key", "--passphrase-file", f"/dev/fd/{reader}").code == 0
    os.close(reader)
    Site.load(tmp_path / "a", asked(b"open sesame")[0])


def test_on_a_terminal_the_passphrase_is_asked_for_twice_and_not_shown(tmp_path):
    program = "from facade.cli import main; main()"
    options = ["--id", "a", "--address", "127.0.0.1:7000", "--admin", ADMIN, "--home", str(tmp_path / "a")]
    command = [sys.executable, "-c", program, "node", "init", *options, "--encrypt-key"]
    terminal, end = pty.openpty()
    with subprocess.Popen(command, stdin=end, stderr=end, stdout=subprocess.PIPE, start_new_session=True) as process:
        os.close(end)
        shown = b""
        for answers in (b"open sesame\n", b"open sesame\n"):
            while not shown.endswith(b": "):
                shown += os.read(terminal, 1024)
            os.write(terminal, answers)
            shown += b"|"
        assert b"Written" in process.communicate(timeout=60)[0]
    os.close(terminal)
    assert shown.count(b"Passphrase") == 1, shown
    assert shown.count(b": ") == 2, shown
    assert b"sesame" not in shown
    Site.load(tmp_path / "a", asked(b"open sesame")[0])


def test_a_passphrase_without_encryption_is_refused(tmp_path, command):
    refused = init(command, tmp_path / "a", "--passphrase-file", tmp_path / "none")
    assert refused.code == 2
    assert "add --encrypt-key" in refused.err
    assert not (tmp_path / "a").exists()


def test_an_admins_key_is_encrypted_and_used_as_a_sites_is(tmp_path, command):
    secret, wrong = tmp_path / "passphrase", tmp_path / "wrong"
    for file, text in ((secret, "open sesame\n"), (wrong, "open barley\n")):
        file.write_text(text)
        file.chmod(0o600)
    key, given = tmp_path / "admin.key", ("--passphrase-file", secret)
    made = command("network", "admin", "-o", key, "--encrypt-key", *given)
    assert key.read_bytes().startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    public = made.out.split()[-1]
    assert command("network", "public", key, *given).out.strip() == public
    joins = [
        found_site(tmp_path / id, NewSite(id, f"127.0.0.1:{7000 + i}", [public], passphrase=b"another"))
        for i, id in enumerate("abc")
    ]
    (tmp_path / "e.toml").write_text(
        'data = {source = "digits", clusters = "2:1"}\nalgorithm = {heads = "auto"}\ntopology = {degree = 2}\n'
    )
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    build = ("network", "build", *joins, "--experiment", tmp_path / "e.toml", "--key", key, "-o", first)
    update = ("network", "update", first, "--expires", "2031-01-31", "--from-round", 9, "--key", key, "-o", second)
    for asking in (build, update, ("network", "sign", second, "--key", key)):
        refused = command(*asking, "--passphrase-file", wrong)
        assert (refused.code, f"the passphrase does not open {key}; give the one" in refused.err) == (2, True)
        assert "there is no terminal to ask for it" in command(*asking).err
        ended = command(*asking, *given)
        assert ended.code == 0, ended.err
    assert load(second, [public]).epoch == 2


def test_a_passphrase_for_an_admins_key_that_is_not_encrypted_is_refused(tmp_path, command):
    refused = command("network", "admin", "-o", tmp_path / "admin.key", "--passphrase-file", tmp_path / "none")
    assert (refused.code, "add --encrypt-key" in refused.err) == (2, True)
    assert not (tmp_path / "admin.key").exists()


@pytest.mark.parametrize("mode", [0o750, 0o755, 0o770, 0o702])
def test_a_home_that_others_can_read_or_write_is_refused_with_what_to_type(tmp_path, command, mode):
    home = tmp_path / "a"
    home.mkdir()
    home.chmod(mode)
    refused = init(command, home)
    assert refused.code == 2
    assert f"(mode {mode:o}), and is to hold a site's keys; run: chmod 700 {home}, or name a new" in refused.err
    assert list(home.iterdir()) == []
    home.chmod(0o700)
    assert init(command, home).code == 0


@pytest.mark.parametrize("name", [identity.TLS_KEY, identity.CERTIFICATE])
def test_a_changed_bit_of_a_key_or_a_certificate_is_a_sentence_or_leaves_the_key_as_it_was(tmp_path, name):
    home = tmp_path / "a"
    found_site(home, NewSite("a", "127.0.0.1:7000", [ADMIN]))
    whole, before, refused = (home / name).read_bytes(), Site.load(home).tls_key, 0
    for place in range(len(whole)):
        (home / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert Site.load(home).tls_key == before, f"byte {place}"
        except ExperimentError:
            refused += 1
    assert refused > len(whole) // 4
