import hashlib
import http.server
import io
import os
import stat
import tarfile
import threading
import zipfile

import numpy as np
import pytest

from data import makers
from facade.data import download
from facade.data.download import Remote, get, unpack
from facade.data.errors import DataError
from facade.data.sources import SOURCES
from facade.errors import ExperimentError

CONTENT = bytes(range(256)) * 5000


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.files`; knows ranges unless told otherwise; may hang up early."""

    def do_GET(self):
        server = self.server
        content = server.files.get(self.path)
        asked = self.headers.get("Range")
        server.asked.append(asked)
        if content is None:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.ranges else 0
        if start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if asked and server.ranges else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : server.hang_up_at])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.asked, server.ranges, server.hang_up_at = {"/set": CONTENT}, [], True, None
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def offer(server, monkeypatch):
    """A function that puts a data set `set` into the table, as served at /set."""

    def put(content=CONTENT, file="set.bin", folder=None, md5=None):
        server.files["/set"] = content
        url = f"http://127.0.0.1:{server.server_port}/set"
        known = {"set": Remote(url, file, md5 or hashlib.md5(content).hexdigest(), folder)}
        monkeypatch.setattr(download, "REMOTES", known)

    return put


def test_a_file_is_fetched_checked_and_named(tmp_path, offer):
    offer()
    reports = []
    assert (
        get("set", tmp_path / "new", lambda done, total: reports.append((done, total))) == tmp_path / "new" / "set.bin"
    )
    assert (tmp_path / "new" / "set.bin").read_bytes() == CONTENT
    assert os.listdir(tmp_path / "new") == ["set.bin"]
    assert reports[-1] == (len(CONTENT), len(CONTENT))


def test_what_is_there_is_not_fetched_again(tmp_path, offer, server):
    offer()
    (tmp_path / "set.bin").write_bytes(CONTENT)
    get("set", tmp_path)
    assert server.asked == []


def test_a_wrong_file_that_is_there_is_kept_and_refused(tmp_path, offer):
    offer()
    (tmp_path / "set.bin").write_bytes(b"something else")
    with pytest.raises(DataError, match=r"set.bin has MD5 .* was published: damaged or another file; remove it"):
        get("set", tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == b"something else"


def test_an_interrupted_transfer_goes_on_where_it_stopped(tmp_path, offer, server):
    offer()
    server.hang_up_at = 700_000
    with pytest.raises(DataError, match=r"700,000 of 1,280,000 bytes\); try again to go on .* put it at .*set.bin"):
        get("set", tmp_path)
    assert os.listdir(tmp_path) == ["set.bin.part"]
    server.hang_up_at = None
    get("set", tmp_path)
    assert server.asked == [None, "bytes=700000-"]
    assert (tmp_path / "set.bin").read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["set.bin"]


def test_a_server_without_ranges_starts_over(tmp_path, offer, server):
    offer()
    server.ranges = False
    (tmp_path / "set.bin.part").write_bytes(b"old beginning")
    get("set", tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == CONTENT


def test_a_complete_part_needs_no_more_bytes(tmp_path, offer):
    offer()
    (tmp_path / "set.bin.part").write_bytes(CONTENT)
    get("set", tmp_path)
    assert os.listdir(tmp_path) == ["set.bin"]


def test_a_wrong_checksum_leaves_nothing(tmp_path, offer):
    offer(md5="0" * 32)
    with pytest.raises(DataError, match=r"where 00000000000000000000000000000000 was published"):
        get("set", tmp_path)
    assert os.listdir(tmp_path) == []


def test_without_a_network_it_says_which_file_to_put_where(tmp_path, offer, server):
    offer()
    server.files.clear()
    with pytest.raises(DataError, match=r"Not Found\).* fetch it elsewhere and put it at .*/new/set.bin"):
        get("set", tmp_path / "new")
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match=r"could not be downloaded \(.*refused.*\)"):
        get("set", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_of_two_who_fetch_the_same_the_second_is_refused_and_the_first_has_it_whole(tmp_path, offer):
    offer()
    refusals = []

    def fetch_too(*_):
        with pytest.raises(DataError, match=r"another process is downloading .*set.bin.part; wait") as refused:
            get("set", tmp_path)
        refusals.append(refused)

    get("set", tmp_path, fetch_too)
    assert refusals
    assert (tmp_path / "set.bin").read_bytes() == CONTENT
    assert os.listdir(tmp_path) == ["set.bin"]


def test_an_unknown_name_suggests_the_nearest(tmp_path):
    with pytest.raises(ExperimentError, match="unknown data set to download 'cifar'; did you mean 'cifar10'"):
        get("cifar", tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path, offer):
    offer()
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"file cannot be written"):
        get("set", tmp_path / "file")


def test_every_remote_has_a_published_md5_and_an_official_address():
    for remote in download.REMOTES.values():
        assert remote.url.startswith("https://")
        assert len(bytes.fromhex(remote.md5)) == 16
        assert remote.file in remote.url


def archived(files, folder="set"):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(f"{folder}/{name}")
            if isinstance(content, bytes):
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
            else:
                archive.addfile(member)
    return buffer.getvalue()


def test_an_archive_is_unpacked_in_one_go(tmp_path, offer, server):
    offer(archived({"train/cat/0.png": b"a cat", "readme": b"hello"}), "set.tgz", "set")
    assert get("set", tmp_path) == tmp_path / "set"
    assert (tmp_path / "set" / "train" / "cat" / "0.png").read_bytes() == b"a cat"
    assert sorted(os.listdir(tmp_path)) == ["set", "set.tgz"]
    get("set", tmp_path)
    assert len(server.asked) == 1


def test_archives_that_begin_with_a_dot_are_fine(tmp_path):
    path = tmp_path / "set.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name in (".", "./set", "./set/train"):
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
    assert (unpack(path, "set") / "train").is_dir()


def link(kind, target):
    member = tarfile.TarInfo("set/link")
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "bad",
    [
        {"../../escape": b"x"},
        {"a": link(tarfile.SYMTYPE, "/etc/passwd")},
        {"a": link(tarfile.SYMTYPE, "inside")},
        {"a": link(tarfile.LNKTYPE, "set/good")},
        {"a": tarfile.TarInfo("/absolute")},
        {"a": link(tarfile.FIFOTYPE, "")},
    ],
)
def test_archives_that_reach_out_are_refused_before_anything_is_unpacked(tmp_path, bad):
    path = tmp_path / "set.tgz"
    path.write_bytes(archived({"good": b"x"} | bad))
    with pytest.raises(DataError, match="a link or leads out of the archive: nothing was unpacked"):
        unpack(path, "set")
    assert os.listdir(tmp_path) == ["set.tgz"]
    assert not (tmp_path.parent / "escape").exists()


def test_zip_archives_are_unpacked_and_checked_too(tmp_path):
    path = tmp_path / "set.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("set/train/cat/0.png", b"a cat")
    assert (unpack(path, "set") / "train" / "cat" / "0.png").read_bytes() == b"a cat"
    pointer = zipfile.ZipInfo("set/link")
    pointer.external_attr = (stat.S_IFLNK | 0o777) << 16
    for member in ("../escape", "/absolute", "set/../../escape", "..\\escape", "C:/escape", pointer):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, b"x")
        with pytest.raises(DataError, match="leads out of the archive"):
            unpack(path, "other")
    assert sorted(os.listdir(tmp_path)) == ["set", "set.zip"]


@pytest.mark.parametrize("kept", [0, 20, 400])
def test_archives_that_are_cut_short_leave_no_folder(tmp_path, kept):
    path = tmp_path / "set.tgz"
    incompressible = np.random.default_rng(1)
    path.write_bytes(archived({f"{i}.bin": incompressible.bytes(500) for i in range(9)})[:kept])
    with pytest.raises(DataError, match="is damaged or cut short"):
        unpack(path, "set")
    assert os.listdir(tmp_path) == ["set.tgz"]


def test_an_archive_of_something_else_is_refused(tmp_path):
    path = tmp_path / "set.tgz"
    makers.write_tar(path, {"a": b"x"}, "another")
    with pytest.raises(DataError, match="holds no folder set"):
        unpack(path, "set")
    assert os.listdir(tmp_path) == ["set.tgz"]


def test_what_a_person_has_to_fetch_is_said_with_its_place(tmp_path):
    with pytest.raises(DataError, match=r"heart-disease has no address .*archive.ics.uci.edu.* put it at .*se.zip"):
        get("heart-disease", tmp_path)


def test_what_a_person_put_there_is_found_and_checked_as_far_as_it_is_known(tmp_path, monkeypatch):
    (tmp_path / "PACS").mkdir()
    assert get("pacs", tmp_path) == tmp_path / "PACS"
    (tmp_path / "LandmineData.mat").write_bytes(CONTENT)
    with pytest.raises(DataError, match=r"LandmineData.mat has MD5 .* was published: damaged or another file; get it"):
        get("landmine", tmp_path)
    sums = {"LandmineData.mat": hashlib.md5(CONTENT).hexdigest()}
    monkeypatch.setitem(download.BY_HAND, "landmine", download.ByHand("nobody", ["LandmineData.mat"], sums))
    assert get("landmine", tmp_path) == tmp_path / "LandmineData.mat"


def test_every_place_named_for_files_put_by_hand_is_read(tmp_path):
    for name, known in download.BY_HAND.items():
        with pytest.raises(DataError, match=known.places[0].partition(".")[0].replace("+", r"\+")):
            SOURCES[name](makers.data(tmp_path, name, clusters="1:1:1:1"))
