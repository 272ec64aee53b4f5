"""The objects of a simulated cluster: raw JSON by uid and by name, each change projected into the view at once."""

import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from agents.cluster import View
from agents.facts import Json, node_facts, object_facts, pod_facts

Named = tuple[str, str, str]


@dataclass(slots=True)
class Store:
    """Keeps objects; knows no behaviour. `changed` is called after each change."""

    rng: random.Random
    changed: Callable[[], None]
    view: View = field(default_factory=View)
    nodes: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)
    objects: dict[str, Json] = field(default_factory=dict)
    _by_name: dict[Named, str] = field(default_factory=dict)
    _on_node: dict[str, set[str]] = field(default_factory=dict)
    _version: int = 0

    def new_uid(self) -> str:
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))

    def find(self, kind: str, namespace: str, name: str) -> Json | None:
        uid = self._by_name.get((kind, namespace, name), "")
        return self.pods.get(uid) if kind == "Pod" else self.objects.get(uid)

    def by_uid(self, kind: str, uid: str) -> Json | None:
        return self.pods.get(uid) if kind == "Pod" else self.objects.get(uid)

    def put_node(self, raw: Json) -> None:
        self._stamp(raw)
        self.nodes[raw["metadata"]["name"]] = raw
        self.view.put_node(node_facts(raw))
        self.changed()

    def drop_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self.view.drop_node(name)
            self.changed()

    def put_pod(self, raw: Json) -> None:
        uid = self._stamp(raw)
        self.pods[uid] = raw
        self._name("Pod", raw, uid)
        if node := raw["spec"].get("nodeName"):
            self._on_node.setdefault(node, set()).add(uid)
        self.view.put_pod(pod_facts(raw))
        self.changed()

    def drop_pod(self, uid: str) -> None:
        raw = self.pods.pop(uid, None)
        if raw is not None:
            self._unname("Pod", raw, uid)
            self._on_node.get(raw["spec"].get("nodeName", ""), set()).discard(uid)
            self.view.drop_pod(uid)
            self.changed()

    def put_object(self, kind: str, raw: Json) -> None:
        uid = self._stamp(raw)
        self.objects[uid] = raw
        self._name(kind, raw, uid)
        facts = object_facts(kind, raw)
        if facts.workload:  # as a watch with our label selector would see it
            self.view.put_object(facts)
        self.changed()

    def drop_object(self, kind: str, uid: str) -> None:
        raw = self.objects.pop(uid, None)
        if raw is not None:
            self._unname(kind, raw, uid)
            self.view.drop_object(uid)
            self.changed()

    def pods_on(self, node: str) -> list[Json]:
        return [self.pods[uid] for uid in sorted(self._on_node.get(node, ()))]

    def pods_of_job(self, uid: str) -> Iterator[Json]:
        for raw in list(self.pods.values()):
            if any(owner["uid"] == uid for owner in raw["metadata"].get("ownerReferences") or []):
                yield raw

    def _stamp(self, raw: Json) -> str:
        self._version += 1
        metadata: Json = raw["metadata"]
        metadata["resourceVersion"] = str(self._version)
        uid: str = metadata.setdefault("uid", self.new_uid())
        return uid

    def _name(self, kind: str, raw: Json, uid: str) -> None:
        self._by_name[kind, raw["metadata"]["namespace"], raw["metadata"]["name"]] = uid

    def _unname(self, kind: str, raw: Json, uid: str) -> None:
        key = (kind, raw["metadata"]["namespace"], raw["metadata"]["name"])
        if self._by_name.get(key) == uid:
            del self._by_name[key]
