"""Certificates and keys of one test cluster: its own CA, a serving certificate for loopback, the key of its tokens.

They live for a day and guard nothing; they exist so that the agent's check of the API server's certificate is real.
"""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = datetime.timedelta(days=1)
NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
ADDRESSES = ("127.0.0.1", "10.0.0.1")


def write(folder: Path) -> None:
    """Write ca.crt, server.crt, server.key and sa.key into `folder`, readable for the owner only."""
    now = datetime.datetime.now(datetime.UTC)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name, server_name = _name("muster-test-ca"), _name("kube-apiserver")
    authority = (
        _certificate(authority_name, authority_name, authority_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_signs_certificates(), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in NAMES]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in ADDRESSES]
    server = (
        _certificate(server_name, authority_name, server_key.public_key(), now)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    _write(folder / "ca.crt", authority.public_bytes(serialization.Encoding.PEM))
    _write(folder / "server.crt", server.public_bytes(serialization.Encoding.PEM))
    _write(folder / "server.key", _pem(server_key))
    _write(folder / "sa.key", _pem(ec.generate_private_key(ec.SECP256R1())))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _signs_certificates() -> x509.KeyUsage:
    """Asked for by OpenSSL's strict check, which Python 3.13 turns on."""
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)
