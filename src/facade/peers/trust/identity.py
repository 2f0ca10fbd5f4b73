"""Who a site is: two keys that never leave it, a certificate, and a small public .join file."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from facade.errors import DamagedFileError, ExperimentError, StorageError
from facade.files import seals, store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes, PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization import KeySerializationEncryption
    from cryptography.x509 import Certificate

TLS_KEY, SIGNING_KEY, CERTIFICATE = "tls.key", "signing.key", "certificate.pem"
ID = "[a-z0-9][a-z0-9-]{0,31}"
_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"

Ask = Callable[[], bytes]
"""Gives the passphrase of encrypted keys; called only if they are."""


def cannot_ask() -> bytes:
    """Where nobody can be asked."""
    raise ExperimentError(
        "a key is encrypted, and nobody can be asked for its passphrase here; the commands of `facade node` and `facade"
        " network` ask for it"
    )


@dataclass(frozen=True)
class Join:
    """What a site tells the others about itself."""

    id: str
    address: str
    certificate: str
    """PEM."""
    signing_key: str
    """Ed25519 public key, hexadecimal."""

    @classmethod
    def load(cls, path: Path) -> Join:
        """A .join file."""
        try:
            written = seals.read_json(path).content
            join = cls(**{key: str(written[key]) for key in ("id", "address", "certificate", "signing_key")})
            check_name(join.id)
            check_address("address", join.address)
            join = dataclasses.replace(join, certificate=canonical_pem(join.certificate))
            check_certificate(join.id, join.certificate)
        except (DamagedFileError, ValueError, KeyError, TypeError) as error:
            raise ExperimentError(f"{path} is not a .join file ({error}); make one with: facade node init") from None
        return join

    def json(self) -> str:
        """As the file holds it, with a checksum."""
        return seals.sealed_json(self.__dict__).decode()


def check_name(name: str) -> None:
    """Ids are short and plain, for they become names in certificates and paths."""
    if not re.fullmatch(ID, name):
        raise ExperimentError(f"id '{name}' is not possible; use up to 32 letters a-z, digits and hyphens, such as h07")


def check_address(name: str, address: str) -> None:
    """Refuse what is not host:port; `name` says what it is."""
    host, _, port = address.rpartition(":")
    plain = re.fullmatch(r"\[[0-9A-Fa-f:.%]+\]|[^\s/:\[\]]+", host)
    if not plain or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ExperimentError(
            f"{name} {address} is not possible; expected host:port, such as h07.example:7700 or [2001:db8::7]:7700"
        )


def check_place(name: str, address: str) -> None:
    """ValueError for what is not host:port; `name` says what it is."""
    try:
        check_address(name, address)
    except ExperimentError as error:
        raise ValueError(str(error)) from None


def check_member(id: str, address: str) -> None:
    """ValueError for an id or an address that no site could have been founded with."""
    try:
        check_name(id)
        if len(address) > 255:
            raise ExperimentError(f"an address of {len(address)} characters is not possible; expected at most 255")
        check_address("address", address)
    except ExperimentError as error:
        raise ValueError(str(error)) from None


def private(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read; an existing one is never written over. It is on the disk
    when this returns: others may be told of a key only if it cannot be lost."""
    try:
        with store.writing(path):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            store.sync(path.parent)
    except StorageError as error:
        if isinstance(error.__cause__, FileExistsError):
            raise ExperimentError(f"{path} exists already; keys are never written over: move it away first") from None
        raise


def new_signing_key(path: Path, passphrase: bytes | None = None) -> str:
    """Make an Ed25519 key in a file, encrypted if there is a passphrase; its public half, hexadecimal."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private(path, pem_of(key, passphrase))
    return public_half(key)


def pem_of(key: PrivateKeyTypes, passphrase: bytes | None = None) -> bytes:
    """A private key as PKCS#8 in PEM, encrypted if there is a passphrase."""
    from cryptography.hazmat.primitives import serialization

    encryption: KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        encryption = serialization.BestAvailableEncryption(passphrase)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def load_signing_key(path: Path, ask: Ask = cannot_ask) -> Ed25519PrivateKey:
    """The Ed25519 key of a file; ExperimentError if there is none."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = load_key(path, ask)
    if not isinstance(key, Ed25519PrivateKey):
        raise ExperimentError(f"{path} is not an Ed25519 key")
    return key


def is_encrypted(path: Path) -> bool:
    """Whether a key file needs a passphrase."""
    return read_private(path).lstrip().startswith(_ENCRYPTED)


def load_key(path: Path, ask: Ask = cannot_ask) -> PrivateKeyTypes:
    """The private key of a file; ExperimentError if there is none, or the passphrase is another."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    content, encrypted = read_private(path), is_encrypted(path)
    passphrase = ask() if encrypted else None
    try:
        key = load_pem_private_key(content, passphrase)
        _refuse_halves_of_two(key)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        if encrypted:
            raise ExperimentError(
                f"the passphrase does not open {path}; give the one that it was made with, or, if that was it,"
                " restore the file from a copy: it is damaged"
            ) from None
        raise ExperimentError(
            f"{path} is not a private key in PEM; restore it from a copy, or make keys with: facade node init"
        ) from None
    return key


def _refuse_halves_of_two(key: PrivateKeyTypes) -> None:
    """ValueError for an elliptic key whose file holds the public half of another: one changed bit makes it so."""
    from cryptography.hazmat.primitives.asymmetric import ec

    if isinstance(key, ec.EllipticCurvePrivateKey):
        secret = key.private_numbers().private_value
        if ec.derive_private_key(secret, key.curve).public_key() != key.public_key():
            raise ValueError("the halves do not belong together")


def read_private(path: Path) -> bytes:
    """A key file; refused if others could read it too."""
    try:
        if path.stat().st_mode & 0o077:
            raise ExperimentError(f"{path} can be read by others than its owner; run: chmod 600 {quote(str(path))}")
        return path.read_bytes()
    except OSError as error:
        raise ExperimentError(f"{path} cannot be read ({error.strerror}); make keys with: facade node init") from None


def public_half(key: Ed25519PrivateKey) -> str:
    """The public key, hexadecimal."""
    return key.public_key().public_bytes_raw().hex()


def verify(public: str, signature: str, content: bytes) -> bool:
    """Whether the owner of the public key signed the content."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), content)
    except (InvalidSignature, ValueError):
        return False
    return True


def new_certificate(
    name: str, days: int, starts: datetime.datetime | None = None, passphrase: bytes | None = None
) -> tuple[bytes, bytes]:
    """(P-256 key, self-signed certificate), both PEM; the key is encrypted if there is a passphrase. The certificate
    can sign no other."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    # TLS looks trusted certificates up by subject: two of one site must differ in it to be good side by side.
    distinct = x509.NameAttribute(NameOID.SERIAL_NUMBER, secrets.token_hex(8))
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name), distinct])
    start = starts or datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(tls_name(name))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .sign(key, hashes.SHA256())
    )
    return pem_of(key, passphrase), certificate.public_bytes(Encoding.PEM)


def tls_name(id: str) -> str:
    """The name a member's certificate is made out to; addresses play no part in trust."""
    return f"{id}.facade.invalid"


def check_certificate(id: str, pem: str) -> None:
    """ValueError for a certificate that is made out to another than the site of an id, or could sign others. TLS
    looks trusted ones up by subject: whoever had another's would shut that site out."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    certificate = parsed(pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        signs = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise ValueError(f"the certificate of '{id}' was not made by facade node init or rotate") from None
    common = [attribute.value for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if common != [id] or list(names) != [x509.DNSName(tls_name(id))] or signs:
        raise ValueError(
            f"the certificate of '{id}' is not made out to that site alone; make one with: facade node init"
        )


def check_certificates(id: str, pems: list[str]) -> None:
    """ValueError for certificates that are not a site's own, or not in the one way of writing them."""
    try:
        plain = all(pem == canonical_pem(pem) for pem in pems)
        subjects = {parsed(pem).subject for pem in pems}
    except Exception as error:  # the parser has many
        raise ValueError(f"a certificate of '{id}' cannot be read ({type(error).__name__})") from None
    if not plain:
        raise ValueError(f"the certificate of '{id}' is not in plain PEM; make the list of .join files")
    for pem in pems:
        check_certificate(id, pem)
    if len(subjects) < len(pems):
        raise ValueError(
            f"the two certificates of '{id}' have the same subject, by which TLS looks them up; make a new one with:"
            " facade node rotate"
        )


@functools.lru_cache(maxsize=4096)  # asked for at every call
def fingerprint(pem: str | bytes) -> str:
    """SHA-256 of the certificate itself, hexadecimal; ValueError if it is none."""
    from cryptography.hazmat.primitives.serialization import Encoding

    return hashlib.sha256(parsed(pem).public_bytes(Encoding.DER)).hexdigest()


@functools.lru_cache(maxsize=4096)
def parsed(pem: str | bytes) -> Certificate:
    """The certificate in a PEM text."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(pem.encode() if isinstance(pem, str) else pem)


def certified_key(pem: bytes) -> CertificatePublicKeyTypes:
    """The public key in a certificate; ValueError if there is none."""
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return parsed(pem).public_key()
    except UnsupportedAlgorithm as error:
        raise ValueError(error) from None


def canonical_pem(text: str) -> str:
    """The certificate in a PEM text in the one way of writing it, which can be joined to others';
    ValueError unless there is exactly one."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    certificates = x509.load_pem_x509_certificates(text.encode())
    if len(certificates) != 1:
        raise ValueError(f"{len(certificates)} certificates are given where one is expected")
    return certificates[0].public_bytes(Encoding.PEM).decode()


def days_left(pem: str | bytes) -> float:
    """Days until a certificate expires."""
    left = parsed(pem).not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return left.total_seconds() / 86400


def days_to_wait(pem: str | bytes) -> float:
    """Days until a certificate begins to be good; negative for one that has begun."""
    left = parsed(pem).not_valid_before_utc - datetime.datetime.now(datetime.UTC)
    return left.total_seconds() / 86400


def canonical(content: Any) -> bytes:
    """JSON with one way of writing it, so that it can be signed and compared."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
