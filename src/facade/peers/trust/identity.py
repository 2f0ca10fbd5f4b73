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
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from facade.errors import ExperimentError, StorageError
from facade.files import store

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

TLS_KEY, SIGNING_KEY, CERTIFICATE = "tls.key", "signing.key", "certificate.pem"
ID = "[a-z0-9][a-z0-9-]{0,31}"


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
            written = json.loads(path.read_text())
            join = cls(**{key: str(written[key]) for key in ("id", "address", "certificate", "signing_key")})
            check_name(join.id)
            check_address("address", join.address)
            join = dataclasses.replace(join, certificate=canonical_pem(join.certificate))
            check_certificate(join.id, join.certificate)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ExperimentError(f"{path} is not a .join file ({error}); make one with: facade node init") from None
        return join

    def json(self) -> str:
        """As the file holds it."""
        return json.dumps(self.__dict__, indent=1) + "\n"


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


def new_signing_key(path: Path) -> str:
    """Make an Ed25519 key in a file; its public half, hexadecimal."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private(path, key.private_bytes(*pem))
    return public_half(key)


def load_signing_key(path: Path) -> Ed25519PrivateKey:
    """The Ed25519 key of a file; ExperimentError if there is none."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = load_key(path)
    if not isinstance(key, Ed25519PrivateKey):
        raise ExperimentError(f"{path} is not an Ed25519 key")
    return key


def load_key(path: Path) -> PrivateKeyTypes:
    """The private key of a file; ExperimentError if there is none."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(read_private(path), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ExperimentError(
            f"{path} is not a private key in PEM, without a password; restore it, or make keys with: facade node init"
        ) from None


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


def new_certificate(name: str, days: int, starts: datetime.datetime | None = None) -> tuple[bytes, bytes]:
    """(P-256 key, self-signed certificate), both PEM. It can sign no other certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
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
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return secret, certificate.public_bytes(pem)


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
    except x509.ExtensionNotFound:
        raise ValueError(f"the certificate of '{id}' was not made by facade node init or rotate") from None
    common = [attribute.value for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if common != [id] or list(names) != [x509.DNSName(tls_name(id))] or signs:
        raise ValueError(
            f"the certificate of '{id}' is not made out to that site alone; make one with: facade node init"
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
