"""One Secret, made in the cluster that hosts the plane, by the one pod that may: a hook of the chart.

The plane itself speaks to no API server. This asks for `create` and nothing more: the hook's role can read no Secret.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

import httpx

from controlplane.services.signing import load_signer

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SECONDS_MAX = 20
LABELS = {"app.kubernetes.io/name": "muster", "app.kubernetes.io/part-of": "muster"}


class Unreachable(Exception):
    """The API server gave no answer that serves; the message has its words."""


def new_signing_key() -> dict[str, bytes]:
    """The files of a new signing key, by name, as a folder of secrets holds them."""
    with tempfile.TemporaryDirectory() as folder:
        load_signer(Path(folder))
        return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def make_secret(name: str, account: Path, files: Mapping[str, bytes]) -> bool:
    """Make the Secret; False where it is there already, whatever it holds. Raises Unreachable."""
    try:
        namespace = (account / "namespace").read_text().strip()
        token = (account / "token").read_text().strip()
        trust = ssl.create_default_context(cafile=str(account / "ca.crt"))
    except OSError as error:
        raise Unreachable(f"no ServiceAccount is mounted in {account}: {error}") from error
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": LABELS},
        "type": "Opaque",
        "data": {file: base64.b64encode(raw).decode() for file, raw in files.items()},
    }
    url = f"{_server()}/api/v1/namespaces/{namespace}/secrets"
    try:
        answer = httpx.post(
            url, json=body, headers={"Authorization": f"Bearer {token}"}, verify=trust, timeout=SECONDS_MAX,
            trust_env=False,
        )  # fmt: skip
    except httpx.HTTPError as error:
        raise Unreachable(f"the API server does not answer: {error}") from error
    if answer.status_code == httpx.codes.CONFLICT:
        return False
    if answer.status_code != httpx.codes.CREATED:
        raise Unreachable(f"Secret {name} was not made: {answer.status_code} {answer.text[:300]}")
    return True


def _server() -> str:
    try:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    except KeyError as error:
        raise Unreachable(f"{error} is not set: this is no pod") from error
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
