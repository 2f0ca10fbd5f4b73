"""The identity matrix: who may call, and whose answers count. Real TLS, real sockets, port 0."""

import datetime
import json
import socket
import ssl
import struct
from contextlib import contextmanager

import grpc
import pytest

from facade.errors import ExperimentError
from facade.peers.protocol.gate import Gate
from facade.peers.protocol.headers import Kind, Request, Status
from facade.peers.protocol.refusals import Reason, RefusedError
from facade.peers.protocol.rpc import Credentials, Link, Links, Server
from facade.peers.protocol.study_gates import MOST_CALLS
from facade.peers.protocol.transport import UnreachableError
from facade.peers.trust import identity
from facade.peers.trust.membership import Change, Member, Membership, changed
from peers.makers import federation, gate, together, until


def unsealed(join):
    """What a .join file says, without its checksum: what is made of it was made on purpose."""
    return {key: value for key, value in json.loads(join.read_text()).items() if key != "sha256"}


class Door:
    """Site a, listening; counts what gets past the certificate."""

    def __init__(self, made, path):
        self.made, self.gate, self.parsed = made, gate(made, path), 0
        answer = self.gate.answer

        def counting(id, content):
            self.parsed += 1
            return answer(id, content)

        self.gate.answer = counting
        own = Credentials(made.key("a"), made.certificate("a"))
        callers = lambda: [m for epoch in self.gate.epochs.current(self.gate.round) for m in epoch.members]  # noqa: E731
        self.server = Server(together((self.gate, callers)), own, "127.0.0.1:0", False)

    def member(self, id="a", pem=None):
        """Site a as callers have it in their list."""
        return Member(
            id=id,
            address=f"127.0.0.1:{self.server.port}",
            certificate=pem or self.made.certificate("a").decode(),
            signing_key="",
        )

    def request(self, caller=1):
        return Request(Kind.PULL, self.made.membership.digest, caller, 0, 0, 100)


@pytest.fixture
def door(tmp_path):
    opened = Door(federation(tmp_path), tmp_path)
    yield opened
    opened.server.stop()
    opened.gate.journal.close()


@contextmanager
def link(key, certificate, peer):
    made = Link(Credentials(key, certificate), peer, 1 << 20)
    yield made
    made.close()


def refused(door, key, certificate, peer=None):
    with link(key, certificate, peer or door.member()) as caller, pytest.raises(UnreachableError):
        caller.call(door.request(), 5)
    assert door.parsed == 0


def test_a_member_is_answered(door):
    with link(door.made.key("b"), door.made.certificate("b"), door.member()) as caller:
        reply = caller.call(door.request(), 10)
    assert reply.status is Status.HERE
    assert reply.chunk == b"x" * 100
    assert door.parsed == 1


def test_a_caller_without_a_certificate_is_refused(door):
    refused(door, None, None)


def test_a_caller_in_plain_text_is_refused(door):
    with grpc.insecure_channel(door.member().address) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary("/facade.Peer/Call")(door.request().packed(), timeout=5)
    assert door.parsed == 0


def test_a_stranger_is_refused(door):
    refused(door, *identity.new_certificate("stranger", 10))


def test_a_member_s_name_with_another_key_is_refused(door):
    refused(door, *identity.new_certificate("b", 10))


@pytest.mark.parametrize("starts", [-20, 20])
def test_a_listed_certificate_out_of_its_time_is_refused(starts, tmp_path):
    made = federation(tmp_path)
    when = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=starts)
    key, certificate = identity.new_certificate("b", 10, when)
    members = [
        m.model_copy(update={"certificate": certificate.decode()} if m.id == "b" else {})
        for m in made.membership.members
    ]
    made.membership = made.membership.model_copy(update={"members": members})
    made.membership.__dict__.pop("by_fingerprint", None)
    door = Door(made, tmp_path)
    refused(door, key, certificate)
    door.server.stop()
    door.gate.journal.close()


def signed_by(issuer_key, issuer_certificate, name):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    signer = serialization.load_pem_private_key(issuer_key, None)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder(identity.parsed(issuer_certificate).subject, subject, key.public_key(), 77)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(identity.tls_name(name))]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return secret, certificate.public_bytes(pem)


def test_a_certificate_that_a_member_signed_is_refused(door):
    key, certificate = signed_by(door.made.key("b"), door.made.certificate("b"), "d")
    refused(door, key, certificate)
    refused(door, key, certificate + door.made.certificate("b"))


def test_a_removed_member_is_refused_on_its_open_connection_and_on_a_new_one(door):
    made = door.made
    with link(made.key("b"), made.certificate("b"), door.member()) as caller:
        assert caller.call(door.request(), 10).status is Status.HERE
        door.gate.epochs.add(changed(made.membership, Change(remove=["b"]), 5))
        assert caller.call(door.request(), 10).status is Status.HERE
        door.gate.round, door.parsed = 5, 0
        with pytest.raises(UnreachableError, match="stranger"):
            caller.call(door.request(), 10)
    refused(door, made.key("b"), made.certificate("b"))


def test_after_a_rotation_both_certificates_are_good_and_later_only_the_new_one(door):
    made = door.made
    key, certificate = identity.new_certificate("b", 10)
    join = made.join("b")
    rotated = identity.Join("b", join.address, certificate.decode(), join.signing_key)
    second = changed(made.membership, Change(rotate=[rotated]), 5)
    door.gate.epochs.add(second)
    for pair in ((made.key("b"), made.certificate("b")), (key, certificate)):
        with link(*pair, door.member()) as caller:
            assert caller.call(door.request(), 10).status is Status.HERE
    door.gate.epochs.add(changed(second, Change(remove=["c"]), 6))
    door.gate.round, door.parsed = 6, 0
    refused(door, made.key("b"), made.certificate("b"))


def test_a_link_is_closed_when_a_list_names_other_certificates(door):
    own = Credentials(door.made.key("b"), door.made.certificate("b"))
    certificates = [door.made.certificate("a").decode()]
    links = Links(own, 1 << 20, lambda _: list(certificates))
    old = links.to(door.member())
    assert old.call(door.request(), 10).status is Status.HERE
    assert links.to(door.member()) is old
    certificates.append(door.made.certificate("c").decode())
    new = links.to(door.member())
    assert new.call(door.request(), 10).status is Status.HERE
    with pytest.raises(UnreachableError, match="closed"):
        old.call(door.request(), 10)
    links.close()


def test_a_member_that_claims_to_be_another_is_refused(door):
    with link(door.made.key("b"), door.made.certificate("b"), door.member()) as caller:
        reply = caller.call(door.request(caller=0), 10)
    assert (reply.status, reply.reason, reply.chunk) == (Status.REFUSED, Reason.OTHER_IDENTITY, b"")


def test_a_member_that_is_no_neighbour_is_refused(door):
    with link(door.made.key("c"), door.made.certificate("c"), door.member()) as caller:
        reply = caller.call(door.request(caller=2), 10)
    assert (reply.status, reply.reason, reply.chunk) == (Status.REFUSED, Reason.NOT_ENTITLED, b"")


def test_another_list_is_refused_and_both_are_named(door):
    other = Request(Kind.PULL, b"o" * 32, 1, 0, 0, 100)
    with link(door.made.key("b"), door.made.certificate("b"), door.member()) as caller:
        reply = caller.call(other, 10)
    assert reply.reason is Reason.OTHER_MEMBERSHIP
    assert reply.digest == door.made.membership.digest
    log = (door.made.base / "log.jsonl").read_text()
    assert (b"o" * 8).hex() in log
    assert door.made.membership.digest.hex()[:16] in log


def test_a_member_at_another_member_s_address_is_not_taken_for_it(door):
    refused(door, door.made.key("b"), door.made.certificate("b"), door.member("c", door.made.certificate("c").decode()))


def test_an_oversize_request_never_reaches_the_gate(door):
    own = grpc.ssl_channel_credentials(door.made.certificate("a"), door.made.key("b"), door.made.certificate("b"))
    options = [("grpc.ssl_target_name_override", identity.tls_name("a"))]
    with grpc.secure_channel(door.member().address, own, options) as channel, pytest.raises(grpc.RpcError) as error:
        channel.unary_unary("/facade.Peer/Call")(b"x" * 5000, timeout=5)
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert door.parsed == 0


class DeafCaller:
    """Member b on a bare HTTP/2 connection whose window stays shut: whatever is sent to it is never taken."""

    def __init__(self, door):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        home = door.made.home("b")
        context.load_cert_chain(home / identity.CERTIFICATE, home / identity.TLS_KEY)
        context.set_alpn_protocols(["h2"])
        bare = socket.create_connection(("127.0.0.1", door.server.port))
        self.socket = context.wrap_socket(bare, server_hostname=identity.tls_name("a"))
        no_window = struct.pack(">HI", 4, 0)
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + self._frame(4, 0, 0, no_window))

    def _frame(self, kind, flags, stream, content):
        return struct.pack(">I", len(content))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + content

    def call(self, stream, request):
        fields = {
            ":method": "POST", ":scheme": "https", ":path": "/facade.Peer/Call", ":authority": "a",
            "te": "trailers", "content-type": "application/grpc",
        }  # fmt: skip
        head = b"".join(
            b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
            for name, value in fields.items()
        )
        body = b"\x00" + struct.pack(">I", len(request)) + request
        self.socket.sendall(self._frame(1, 4, stream, head) + self._frame(0, 1, stream, body))


def test_a_member_that_takes_no_reply_has_no_more_than_its_few_calls(door):
    measure = Request(Kind.MEASURE, door.made.membership.digest, 1, 0, 0, 1 << 16)
    deaf = DeafCaller(door)
    for call in range(3 * MOST_CALLS):
        deaf.call(2 * call + 1, measure.packed())
    until(lambda: door.gate.journal.refusals["busy"] == 2 * MOST_CALLS)
    second = DeafCaller(door)
    for call in range(2):
        second.call(2 * call + 1, measure.packed())
    until(lambda: door.gate.journal.refusals["busy"] == 2 * MOST_CALLS + 1)  # what it has not taken is still there
    assert door.parsed == MOST_CALLS + 1, "over every connection one call is answered"
    deaf.socket.close()
    with link(door.made.key("b"), door.made.certificate("b"), door.member()) as caller:
        until(lambda: caller.call(measure, 10).status is Status.HERE)
    second.socket.close()


def test_what_a_member_says_in_a_refusal_is_one_plain_line(door, monkeypatch):
    abort = grpc._server._Context.abort
    lies = "\x1b[2J\nlist 9 is in force " + 1000 * "x"
    monkeypatch.setattr(grpc._server._Context, "abort", lambda self, code, _: abort(self, code, lies))
    member = door.made.key("b"), door.made.certificate("b"), door.member()
    door.gate.admit = lambda fingerprint: Gate.admit(door.gate, 64 * "0")
    with link(*member) as caller, pytest.raises(UnreachableError) as said:
        caller.call(door.request(), 10)
    assert str(said.value).startswith("PERMISSION_DENIED: ?[2J?list 9 is in force")
    assert len(str(said.value)) < 400


def test_what_comes_compressed_is_not_unpacked(door, monkeypatch):
    served = Server._call
    monkeypatch.setattr(Server, "_call", lambda self, content, context: served(self, content, squeezed(context)))

    def squeezed(context):
        context.set_compression(grpc.Compression.Gzip)
        return context

    made = door.made
    own = Credentials(made.key("a"), made.certificate("a"))
    server = Server(together((door.gate, lambda: made.membership.members)), own, "127.0.0.1:0", False)
    peer = door.member().model_copy(update={"address": f"127.0.0.1:{server.port}"})
    with link(made.key("b"), made.certificate("b"), peer) as caller, pytest.raises(RefusedError) as refusal:
        caller.call(Request(Kind.MEASURE, made.membership.digest, 1, 0, 0, 1 << 16), 10)
    server.stop()
    assert refusal.value.reason is Reason.MALFORMED_REPLY


def named(common, alternative, signs=False):
    """A certificate that says what it likes."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name) for name in common])
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), 77)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in alternative]), critical=False)
    )
    if signs is not None:
        made = made.add_extension(x509.BasicConstraints(ca=signs, path_length=None), critical=True)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(
    ("common", "alternative", "signs"),
    [
        (["a"], ["b.facade.invalid"], False),
        (["B"], ["b.facade.invalid"], False),
        (["a", "b"], ["b.facade.invalid"], False),
        (["b"], ["a.facade.invalid"], False),
        (["b"], ["b.facade.invalid", "a.facade.invalid"], False),
        (["b"], ["b.facade.invalid"], True),
        (["b"], ["b.facade.invalid"], None),
    ],
)
def test_a_certificate_that_is_not_its_site_s_own_is_in_no_list(common, alternative, signs, tmp_path):
    made, forged = federation(tmp_path), named(common, alternative, signs)
    written = unsealed(made.home("b") / "b.join")
    (made.home("b") / "b.join").write_text(json.dumps(written | {"certificate": forged}))
    with pytest.raises(ExperimentError, match=r"the certificate of 'b' (is not made out to|was not made by)"):
        made.join("b")
    members = [m.model_dump() | ({"next_certificate": forged} if m.id == "b" else {}) for m in made.membership.members]
    with pytest.raises(ValueError, match="the certificate of 'b'"):
        Membership.model_validate(made.membership.model_dump(by_alias=True) | {"members": members})


def test_two_certificates_of_a_site_differ_in_their_subjects(tmp_path):
    made = federation(tmp_path)
    twice = {"next_certificate": made.certificate("b").decode()}
    members = [m.model_dump() | (twice if m.id == "b" else {}) for m in made.membership.members]
    with pytest.raises(ValueError, match="the two certificates of 'b' have the same subject"):
        Membership.model_validate(made.membership.model_dump(by_alias=True) | {"members": members})


def test_an_address_that_cannot_be_called_is_in_no_list(tmp_path):
    made = federation(tmp_path)
    written = unsealed(made.home("b") / "b.join")
    (made.home("b") / "b.join").write_text(json.dumps(written | {"address": "unix:/tmp/x"}))
    with pytest.raises(ExperimentError, match="address unix:/tmp/x is not possible; expected host:port"):
        made.join("b")


def test_a_connection_over_a_long_way_has_the_time_it_needs(door, monkeypatch):
    asked = {}
    monkeypatch.setattr(grpc, "secure_channel", lambda *_, options: asked.update(options) or grpc.insecure_channel("x"))
    with link(door.made.key("b"), door.made.certificate("b"), door.member()):
        pass
    assert asked["grpc.min_reconnect_backoff_ms"] >= 20_000  # gRPC gives a connection no less; retries come sooner
    assert asked["grpc.max_reconnect_backoff_ms"] <= 1_000


def test_a_certificate_is_written_in_one_way_in_a_list(tmp_path):
    made = federation(tmp_path)
    path, written = made.home("a") / "a.join", unsealed(made.home("a") / "a.join")
    plain = written["certificate"]
    for text in (plain.rstrip(), plain.replace("\n", "\r\n"), "of h07\n" + plain):
        path.write_text(json.dumps(written | {"certificate": text}))
        assert made.join("a").certificate == plain
        members = [m.model_dump() | ({"certificate": text} if m.id == "a" else {}) for m in made.membership.members]
        with pytest.raises(ValueError, match="the certificate of 'a' is not in plain PEM"):
            Membership.model_validate(made.membership.model_dump(by_alias=True) | {"members": members})
    path.write_text(json.dumps(written | {"certificate": plain + made.certificate("b").decode()}))
    with pytest.raises(ExperimentError, match="2 certificates are given where one is expected"):
        made.join("a")


def test_why_nothing_can_listen_is_said(tmp_path):
    made = federation(tmp_path)
    asked = gate(made, tmp_path)
    own, others = Credentials(made.key("a"), made.certificate("a")), lambda: made.membership.members
    gates = together((asked, others))
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = f"127.0.0.1:{somebody.getsockname()[1]}"
        with pytest.raises(ExperimentError, match="Address already in use; is another node running"):
            Server(gates, own, taken, False)
    with pytest.raises(ExperimentError, match="a key or a certificate cannot be used"):
        Server(gates, Credentials(made.key("b"), made.certificate("a")), "127.0.0.1:0", False)
    asked.journal.close()
