"""The agent's identity in the Secret `muster-agent-key`: the one Secret that it may read.

The chart makes the Secret, empty, because the right to create cannot be bound to a name; where there is none and we
may, we make it.
"""

import base64
import binascii

from agents.cluster import ClusterUnreachable
from agents.facts import Json
from agents.kube.client import MERGE_PATCH, KubeClient, KubeError, collection

NAME = "muster-agent-key"
ENTRY = "identity.json"
NOT_FOUND = 404


class SecretStore:
    """Fulfils `agents.identity.KeyStore`."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self._client = client
        self._path = collection("Secret", namespace)

    async def load(self) -> str | None:
        found = await self._read()
        text = ((found or {}).get("data") or {}).get(ENTRY, "")
        try:
            return base64.b64decode(text, validate=True).decode() or None
        except (binascii.Error, UnicodeDecodeError):
            return text or None  # not ours; whoever reads it says so

    async def save(self, text: str) -> None:
        data = {ENTRY: base64.b64encode(text.encode()).decode()}
        try:
            if await self._read() is None:
                body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": NAME}, "data": data}
                await self._client.request("POST", self._path, body)
            else:
                await self._client.request("PATCH", f"{self._path}/{NAME}", {"data": data}, None, MERGE_PATCH)
        except KubeError as error:
            raise ClusterUnreachable(f"the key cannot be kept: {error}") from error

    async def _read(self) -> Json | None:
        try:
            return await self._client.request("GET", f"{self._path}/{NAME}")
        except KubeError as error:
            if error.status == NOT_FOUND:
                return None
            raise ClusterUnreachable(f"the key cannot be read: {error}") from error
