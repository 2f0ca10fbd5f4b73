"""Whom the server answers, and that it holds out."""

import http.client
import re
import socket
import stat

import pytest

from facade.errors import ExperimentError
from facade.watch import server as servers
from facade.watch.access import Access, Listen, kept_token
from handmade import write_run
from watch.watched import PATIENCE, Stream, served

OWN = ("127.0.0.1", "localhost", "[::1]", "LocalHost")
FOREIGN = ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "10.0.0.1", "evil.example:80:80")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of two rounds, written by hand."""
    chosen = [(1000, [0, 0, 0, 1])] * 2
    return write_run(tmp_path_factory.mktemp("runs") / "one", chosen, {2: [9, 9, 9, 5]}, [9, 9, 9, 5])


@pytest.fixture(scope="module", params=["", "a-token-of-at-least-thirty-two-letters"])
def server(request, finished):
    with served(finished, token=request.param) as opened:
        yield opened


def ask(server, path="/", method="GET", **headers):
    """(status, headers, body) of one request; the token is given as a browser gives it, unless a cookie is."""
    port, access = server.access.listen.port, server.access
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.putrequest(method, path, skip_host=True)
    headers = {"Host": f"127.0.0.1:{port}", "Cookie": f"{access.cookie}={access.token}"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    for name, value in headers.items():
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                connection.putheader(name, one)
    connection.endheaders()
    answer = connection.getresponse()
    told = answer.status, dict(answer.getheaders()), answer.read() if path != "/events" or method == "HEAD" else b""
    connection.close()
    return told


@pytest.mark.parametrize("path", ["/", "/page.css", "/page.js", "/charts.js", "/graph.js", "/sites.js", "/words.js"])
def test_files_are_given_with_headers_that_let_nothing_else_in(server, path):
    status, headers, body = ask(server, path)
    assert (status, bool(body)) == (200, True)
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Server"] == "facade"
    assert ask(server, path, "HEAD")[0::2] == (200, b"")


def test_no_file_of_the_page_names_another_address(server):
    for path in servers._FILES:
        text = ask(server, path)[2].decode()
        assert set(re.findall(r"https?://[^\s\"']+", text)) <= {"http://www.w3.org/2000/svg"}, path


@pytest.mark.parametrize("host", OWN)
@pytest.mark.parametrize("port", ["", ":PORT", ":9"])
def test_a_name_of_this_machine_is_answered_through_whatever_port_a_tunnel_has(server, host, port):
    host += port.replace("PORT", str(server.access.listen.port))
    assert ask(server, Host=host)[0] == 200
    assert ask(server, Host=host, Origin=f"http://{host}")[0] == 200


@pytest.mark.parametrize("path", ["/", "/events", "/page.js"])
def test_foreign_names_and_foreign_pages_are_refused(server, path):
    own = f"127.0.0.1:{server.access.listen.port}"
    for host in FOREIGN:
        assert ask(server, path, Host=host)[0] == 403, host
    for hosts in (None, [own, "evil.example"], [own, own]):
        assert ask(server, path, Host=hosts)[0] == 403, hosts
    for origin in ("http://evil.example", "null", f"https://{own}", "http://127.0.0.1:1", f"http://{own}.evil.example"):
        assert ask(server, path, Origin=origin)[0] == 403, origin
    for site in ("cross-site", "same-site"):
        assert ask(server, path, Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="image")[0] == 403
    framed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"}
    assert ask(server, path, **framed)[0] == 403


def test_a_link_on_another_page_may_be_followed(server):
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert ask(server, "/", **followed)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"])
def test_only_reading_is_possible(server, method):
    status, headers, _ = ask(server, "/", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert ask(server, "/../../etc/passwd")[0] == 404
    assert ask(server, "/page.html")[0] == 404


def test_the_token_is_asked_for_everywhere_and_kept_in_a_cookie(finished):
    token = "t" * 40
    with served(finished, token=token) as server:
        port = server.access.listen.port
        assert server.url == f"http://127.0.0.1:{port}/?token={token}"
        for cookie in (None, "", f"facade-watch-{port}=", f"facade-watch-{port}={token}x", f"other={token}"):
            for path in ("/", "/events", "/page.js", "/?token=", "/?token=wrong", f"/?token={token[1:]}"):
                assert ask(server, path, Cookie=cookie)[0] == 403, (cookie, path)
        status, headers, _ = ask(server, f"/?token={token}", Cookie=None)
        assert status == 200
        assert headers["Set-Cookie"] == f"facade-watch-{port}={token}; HttpOnly; SameSite=Strict; Path=/"
        kept = headers["Set-Cookie"].partition(";")[0]
        assert ask(server, "/page.js", Cookie=f"a=b; {kept}")[0] == 200
        stream = Stream(server, {"Cookie": kept})
        assert stream.until_round(2)
        stream.close()


def test_a_token_is_needed_wherever_others_can_listen(finished, tmp_path):
    with served(finished, listen="0.0.0.0:0") as server:
        assert len(server.access.token) >= 40
        assert f"?token={server.access.token}" in server.url
        assert ask(server, Host="10.1.2.3:80")[0] == 200, "an address cannot be another page's name"
        assert ask(server, Host="evil.example")[0] == 403
        assert ask(server, Cookie=None)[0] == 403
    kept = kept_token(tmp_path / "token")
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert kept_token(tmp_path / "token") == kept
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(ExperimentError, match="can be read by others"):
        kept_token(tmp_path / "token")


def test_where_to_listen_is_read_with_care():
    for text in ("8765", ":8765", "host:", "host:port", "host:70000", "[::1]"):
        with pytest.raises(ExperimentError, match="expected HOST:PORT"):
            Listen.parse(text)
    assert Listen.parse("[::1]:80") == ("::1", 80)
    loopback = {text: Listen.parse(text).is_loopback for text in ("127.9.9.9:1", "[::1]:1", "localhost:1", "0.0.0.0:1")}
    assert list(loopback.values()) == [True, True, True, False]
    assert not Listen.parse("evil.example:1").is_loopback
    assert "secret" not in repr(Access(Listen("::1", 1), "secret"))


def test_a_port_that_is_taken_and_a_place_that_is_not_there_cost_a_sentence(command, finished, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = command("watch", finished, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "cannot be listened on" in ended.err
    ended = command("watch", tmp_path / "nowhere")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "does not exist" in ended.err
    (tmp_path / "site.json").touch()
    ended = command("watch", tmp_path / "site.json")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "are shown beside a site" in ended.err


def test_connections_are_bounded_and_those_that_say_nothing_are_closed(finished, monkeypatch):
    monkeypatch.setattr(servers, "_SECONDS", 0.2)
    with served(finished) as server:
        silent = [socket.create_connection(("127.0.0.1", server.access.listen.port)) for _ in range(40)]
        for one in silent:
            one.settimeout(PATIENCE)
            assert one.recv(1) == b"", "it is closed, at once or when its time is over"
            one.close()
        assert ask(server)[0] == 200


def test_what_is_no_request_is_refused_and_the_server_goes_on(server):
    for sent in (b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.access.listen.port)) as one:
            one.settimeout(PATIENCE)
            one.sendall(sent)
            told = b""
            while part := one.recv(1 << 16):
                told += part
        assert b"Accuracy" not in told
        assert b"Traceback" not in told
    assert ask(server)[0] == 200
