"""Documents for tests of the API, and what came of applying them, in few words."""

from collections.abc import Mapping
from typing import Any

import httpx
import yaml

from tests.api.bodies import YAML

H100 = "nvidia-h100-80gb"
STANDS = {"If-Match": "*"}
Document = dict[str, Any]
Params = Mapping[str, str]
NOTHING: Params = {}
DRY = {"dryRun": "true"}


def document(kind: str, name: str, labels: dict[str, str] | None = None, **spec: object) -> Document:
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    return {"apiVersion": "muster.dev/v1", "kind": kind, "metadata": metadata, "spec": spec}


def applied(
    client: httpx.Client, *documents: Document, headers: Mapping[str, str] | None = None, how: Params = NOTHING
) -> httpx.Response:
    body = yaml.safe_dump_all(documents)
    return client.post("/api/v1/apply", content=body, headers={**YAML, **(headers or {})}, params=dict(how))


def results(answer: httpx.Response) -> dict[str, str]:
    assert answer.status_code == 200, answer.text
    return {f"{each['kind']} {each['name']}": each["result"] for each in answer.json()["applied"]}


def changes(answer: httpx.Response, at: int = 0) -> dict[str, tuple[object, object]]:
    """By pointer: before and after; None where the document does not say it."""
    listed = answer.json()["applied"][at]["changes"]
    return {each["path"]: (each.get("before"), each.get("after")) for each in listed}


def slug(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, str(answer.json()["type"]).rpartition("/")[2]


def paths(client: httpx.Client) -> list[str]:
    return [each["path"] for each in client.get("/api/v1/queues").json()["items"]]


def deeds(client: httpx.Client, **asked: str) -> list[Document]:
    listed: list[Document] = client.get("/api/v1/audit", params={"limit": 500, **asked}).json()["items"]
    return listed
