"""The identity matrix: who may call, and whose answers count. Real TLS, real sockets, port 0."""

import datetime
import json
import socket
from contextlib import contextmanager

import grpc
import pytest

from facade.errors import ExperimentError
from facade.peers import identity
from facade.peers.headers import Kind, Request, Status
from facade.peers.membership import Change, Member, Membership, changed
from facade.peers.refusals import Reason
from facade.runtimes.rpc import Credentials, Link, Links, Server, UnreachableError
from peers.makers import federation, gate


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
        self.server = Server(self.gate, own, "127.0.0.1:0", callers, False)

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


def test_a_connection_over_a_long_way_has_the_time_it_needs(door, monkeypatch):
    asked = {}
    monkeypatch.setattr(grpc, "secure_channel", lambda *_, options: asked.update(options) or grpc.insecure_channel("x"))
    with link(door.made.key("b"), door.made.certificate("b"), door.member()):
        pass
    assert asked["grpc.min_reconnect_backoff_ms"] >= 20_000  # gRPC gives a connection no less; retries come sooner
    assert asked["grpc.max_reconnect_backoff_ms"] <= 1_000


def test_a_certificate_is_written_in_one_way_in_a_list(tmp_path):
    made = federation(tmp_path)
    path, written = made.home("a") / "a.join", json.loads((made.home("a") / "a.join").read_text())
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
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        taken = f"127.0.0.1:{somebody.getsockname()[1]}"
        with pytest.raises(ExperimentError, match="Address already in use; is another node running"):
            Server(asked, own, taken, others, False)
    with pytest.raises(ExperimentError, match="a key or a certificate cannot be used"):
        Server(asked, Credentials(made.key("b"), made.certificate("a")), "127.0.0.1:0", others, False)
    asked.journal.close()
