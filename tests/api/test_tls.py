"""Both listeners with a certificate: TLS from the first byte, and a renewed pair taken up without a restart."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from controlplane.api.tls import Certificate, CertificateUnusable
from tests.kube import pki
from tests.support.api import Api, serving, settings_for
from tests.support.databases import Database
from tests.support.waiting import eventually


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a CA, a certificate for the loopback and its key."""
    folder = tmp_path / "tls"
    folder.mkdir()
    pki.write(folder)
    return folder


@pytest.fixture
def api(database: Database, valkey: str, files: Path, tmp_path: Path) -> Iterator[Api]:
    pair = {"tls_cert_file": files / "server.crt", "tls_key_file": files / "server.key"}
    with serving(settings_for(database, valkey, tmp_path / "keys", **pair)) as api:
        yield api


def trusted(url: str, authority: Path) -> bool:
    """Whether a client that trusts this CA alone is answered."""
    try:
        context = ssl.create_default_context(cafile=str(authority))
        return httpx.get(f"{url}/healthz", verify=context, trust_env=False).text == "ok"
    except httpx.ConnectError:
        return False


def test_both_listeners_show_the_certificate_and_speak_nothing_else(api: Api, files: Path) -> None:
    for url in (api.url, api.agent_url):
        assert url.startswith("https://")
        assert trusted(url, files / "ca.crt")
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http") + "/healthz", trust_env=False)


def test_no_tls_older_than_1_2_is_spoken(files: Path) -> None:
    assert Certificate(files / "server.crt", files / "server.key").context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_renewed_certificate_is_taken_up_while_the_plane_runs(api: Api, files: Path) -> None:
    old = files / "ca.old"
    old.write_bytes((files / "ca.crt").read_bytes())
    pki.write(files)
    eventually(lambda: trusted(api.url, files / "ca.crt"), within=20, what="the new certificate")
    eventually(lambda: trusted(api.agent_url, files / "ca.crt"), within=20, what="the new certificate for agents")
    assert not trusted(api.url, old)


def test_half_of_a_renewed_pair_leaves_the_old_one_in_use(files: Path) -> None:
    certificate = Certificate(files / "server.crt", files / "server.key")
    key = (files / "server.key").read_bytes()
    pki.write(files)
    renewed = (files / "server.key").read_bytes()

    (files / "server.key").write_bytes(key)
    assert not certificate.refresh()
    (files / "server.key").write_bytes(renewed)
    assert certificate.refresh()
    (files / "server.key").unlink()
    assert not certificate.refresh()


def test_files_that_hold_no_pair_are_refused_by_name(files: Path) -> None:
    (files / "server.key").write_text("no key")
    with pytest.raises(CertificateUnusable, match=r"server\.crt and .*server\.key are no certificate and its key"):
        Certificate(files / "server.crt", files / "server.key")
    with pytest.raises(CertificateUnusable, match=r"cannot read .*gone\.crt"):
        Certificate(files / "gone.crt", files / "server.key")
