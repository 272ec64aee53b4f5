"""Speaks to a test cluster in raw JSON, for tests that arrange or look: the agent under test has its own client.

Kinds are found by discovery, so any kind that the API server serves can be named. No retries, no watches.
"""

import json
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

Json = dict[str, Any]
"""One Kubernetes object as it came; tests read it by key."""

FIELD_MANAGER = "muster-tests"
CONTENT_TYPES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
SECONDS_MAX = 20.0
COLLECTION_SECONDS = 60  # hundreds of objects at once


class KubeError(Exception):
    """The API server said no."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Resource:
    prefix: str
    plural: str
    is_namespaced: bool
    can_delete_collections: bool


class KubeClient:
    """One client as one user."""

    def __init__(self, url: str, token: str, ca_file: str) -> None:
        tls = ssl.create_default_context(cafile=ca_file)
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, verify=tls, timeout=SECONDS_MAX, trust_env=False)
        self._by_kind: dict[str, _Resource] = {}

    def close(self) -> None:
        self._http.close()

    def get(self, kind: str, name: str, namespace: str | None = None) -> Json:
        return self.request("GET", self.path(kind, namespace, name))

    def find(self, kind: str, name: str, namespace: str | None = None) -> Json | None:
        """`get`, with None for an object that is not there."""
        try:
            return self.get(kind, name, namespace)
        except KubeError as error:
            if error.code == httpx.codes.NOT_FOUND:
                return None
            raise

    def list_all(self, kind: str, namespace: str | None = None, labels: str = "", fields: str = "") -> list[Json]:
        """All objects of a kind, in one namespace or everywhere."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        answer = self.request("GET", self.path(kind, namespace), query={k: v for k, v in query.items() if v})
        items: list[Json] = answer["items"]
        return items

    def version_now(self, kind: str) -> str:
        """Where `events_since` may begin."""
        return str(self.request("GET", self.path(kind), query={"limit": "1"})["metadata"]["resourceVersion"])

    def events_since(self, version: str, kind: str, labels: str = "") -> list[Json]:
        """Every state in which objects of a kind were since then, oldest first; kept for about a minute."""
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "1", "labelSelector": labels}
        answer = self._http.get(self.path(kind), params=query).raise_for_status()
        events = [json.loads(line) for line in answer.text.splitlines()]
        refused = [event["object"] for event in events if event["type"] == "ERROR"]
        if refused:
            raise KubeError(refused[0]["code"], refused[0]["reason"], refused[0]["message"])
        return events

    def create(self, manifest: Json) -> Json:
        return self.request("POST", self._path_of(manifest, named=False), json=manifest)

    def apply(self, manifests: Iterable[Json]) -> list[Json]:
        """Server-side apply, in the order given."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        kind = "application/apply-patch+yaml"
        return [
            self.request("PATCH", self._path_of(each, named=True), json=each, query=query, content_type=kind)
            for each in manifests
        ]

    def patch(
        self,
        kind: str,
        name: str,
        body: Json | list[Json],
        namespace: str | None = None,
        *,
        how: str = "merge",
        subresource: str = "",
    ) -> Json:
        path = self.path(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        return self.request("PATCH", path, json=body, content_type=CONTENT_TYPES[how])

    def delete(self, kind: str, name: str, namespace: str | None = None, *, grace_seconds: int | None = None) -> None:
        """Delete in the background; what is not there already is all right."""
        body: Json = {"propagationPolicy": "Background"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            self.request("DELETE", self.path(kind, namespace, name), json=body)
        except KubeError as error:
            if error.code != httpx.codes.NOT_FOUND:
                raise

    def delete_all(self, kind: str, namespace: str | None = None, labels: str = "", fields: str = "") -> None:
        """Delete what the selectors match, without grace."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        body = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
        if self._resource(kind).can_delete_collections:
            chosen = {name: text for name, text in query.items() if text}
            self.request("DELETE", self.path(kind, namespace), json=body, query=chosen, seconds_max=COLLECTION_SECONDS)
            return
        for found in self.list_all(kind, namespace, labels, fields):
            self.delete(kind, found["metadata"]["name"], namespace, grace_seconds=0)

    def namespaced_kinds(self) -> list[str]:
        """What may lie in a namespace and be deleted there as a whole."""
        self._resource("Pod")
        return [kind for kind, each in self._by_kind.items() if each.is_namespaced and each.can_delete_collections]

    def path(self, kind: str, namespace: str | None = None, name: str = "") -> str:
        """The address of an object or of a list."""
        resource = self._resource(kind)
        middle = f"/namespaces/{namespace}" if namespace and resource.is_namespaced else ""
        return f"{resource.prefix}{middle}/{resource.plural}" + (f"/{name}" if name else "")

    def request(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        seconds_max: float = SECONDS_MAX,
    ) -> Json:
        """One request; raises KubeError for an answer that is not 2xx and httpx errors where there is none."""
        headers = {"Content-Type": content_type} if json is not None else {}
        answer = self._http.request(method, path, json=json, params=query, headers=headers, timeout=seconds_max)
        body: Json = answer.json() if answer.headers.get("content-type", "").startswith("application/json") else {}
        if answer.is_success:
            return body
        raise KubeError(answer.status_code, body.get("reason", ""), body.get("message", answer.text[:300]))

    def _path_of(self, manifest: Json, *, named: bool) -> str:
        metadata = manifest["metadata"]
        resource = self._resource(manifest["kind"])
        namespace = metadata.get("namespace", "default") if resource.is_namespaced else None
        return self.path(manifest["kind"], namespace, metadata["name"] if named else "")

    def _resource(self, kind: str) -> _Resource:
        if kind not in self._by_kind:
            self._by_kind = self._discover()
        return self._by_kind[kind]

    def _discover(self) -> dict[str, _Resource]:
        """Every kind at its preferred version; a core kind wins over its namesake in a group."""
        found: dict[str, _Resource] = {}
        for root in ("/api", "/apis"):
            answer = self._http.get(root, headers={"Accept": DISCOVERY}).raise_for_status().json()
            for group in answer["items"]:
                name = group["metadata"].get("name", "")
                for version in group["versions"]:
                    prefix = f"{root}/{name}/{version['version']}" if name else f"{root}/{version['version']}"
                    for each in version["resources"]:
                        is_namespaced = each["scope"] == "Namespaced"
                        collections = "deletecollection" in each["verbs"]
                        resource = _Resource(prefix, each["resource"], is_namespaced, collections)
                        found.setdefault(each["responseKind"]["kind"], resource)
        return found
