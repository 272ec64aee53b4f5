"""Carries out actions at the API server: server-side apply under our field manager, patches and deletes bound to uids.

An object that is there already is ours only if it carries our workload and attempt; any other is a conflict and is not
touched. What each refusal means is said in `Verdict`s; nothing is repeated here.
"""

from collections.abc import Callable
from dataclasses import dataclass

from agents.cluster import Action, Annotate, ClusterUnreachable, Create, Delete, Outcome, Place, Verdict
from agents.facts import HOSTNAME, Json
from agents.kube.client import APPLY, JSON_PATCH, KubeClient, KubeError, collection
from controlplane.contract.agent.attempts import (
    ANNOTATION_RANK,
    FIELD_MANAGER,
    GATE,
    LABEL_ATTEMPT,
    LABEL_WORKLOAD,
)

NOT_FOUND, CONFLICT, FORBIDDEN, TOO_MANY, SERVER_ERROR = 404, 409, 403, 429, 500
UNAUTHORIZED = 401
RBAC_WORDS = " cannot "
ENDING_WORDS = "being terminated"
MANAGED = {"fieldManager": FIELD_MANAGER}


@dataclass(slots=True)
class Hand:
    """Writes to one cluster; `learned` gets each object that an answer showed."""

    client: KubeClient
    learned: Callable[[str, Json], None]

    async def carry_out(self, action: Action) -> Outcome:
        """Do it; the outcome says what became of it."""
        try:
            match action:
                case Create():
                    return await self._create(action)
                case Place():
                    return await self._patch("Pod", action.namespace, action.name, placement_patch(action))
                case Annotate():
                    return await self._patch(action.kind, action.namespace, action.name, annotation_patch(action))
                case Delete():
                    return await self._delete(action)
        except KubeError as error:
            return outcome_of(error)
        except ClusterUnreachable as error:
            return Outcome(Verdict.LATER, str(error))

    async def _create(self, action: Create) -> Outcome:
        path = f"{collection(action.kind, action.namespace)}/{action.name}"
        if (found := await self._find(action.kind, path)) is not None:
            return _judge_found(found, action)
        try:
            made = await self.client.request("PATCH", path, action.manifest, MANAGED, APPLY)
        except KubeError as error:
            if error.status != CONFLICT:
                raise
            # Somebody made one of this name in between.
            found = await self._find(action.kind, path)
            return _judge_found(found, action) if found is not None else Outcome(Verdict.LATER, error.message)
        self.learned(action.kind, made)
        return Outcome(Verdict.DONE)

    async def _find(self, kind: str, path: str) -> Json | None:
        try:
            found = await self.client.request("GET", path)
        except KubeError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        self.learned(kind, found)
        return found

    async def _patch(self, kind: str, namespace: str, name: str, operations: list[Json]) -> Outcome:
        path = f"{collection(kind, namespace)}/{name}"
        try:
            self.learned(kind, await self.client.request("PATCH", path, operations, MANAGED, JSON_PATCH))
        except KubeError as error:
            # A test that failed comes as 422: another object, or another state than we saw.
            if error.status in (NOT_FOUND, CONFLICT, 422):
                return Outcome(Verdict.CHANGED, error.message)
            raise
        return Outcome(Verdict.DONE)

    async def _delete(self, action: Delete) -> Outcome:
        body: Json = {"preconditions": {"uid": action.uid}, "propagationPolicy": action.propagation}
        if action.grace_seconds is not None:
            body["gracePeriodSeconds"] = action.grace_seconds
        try:
            path = f"{collection(action.kind, action.namespace)}/{action.name}"
            await self.client.request("DELETE", path, body)
        except KubeError as error:
            if error.status not in (NOT_FOUND, CONFLICT):  # gone already, or another one of this name
                raise
        return Outcome(Verdict.DONE)


def placement_patch(action: Place) -> list[Json]:
    """A JSON patch that holds only for the pod and the state that were seen."""
    operations: list[Json] = [{"op": "test", "path": "/metadata/uid", "value": action.uid}]
    if action.hostname is not None:
        if not action.has_selector:
            operations.append({"op": "add", "path": "/spec/nodeSelector", "value": {}})
        key = HOSTNAME.replace("/", "~1")
        operations.append({"op": "add", "path": f"/spec/nodeSelector/{key}", "value": action.hostname})
    if action.rank is not None:
        key = ANNOTATION_RANK.replace("/", "~1")
        operations.append({"op": "add", "path": f"/metadata/annotations/{key}", "value": str(action.rank)})
    if action.gate_index is not None:
        gate = f"/spec/schedulingGates/{action.gate_index}"
        operations += [{"op": "test", "path": f"{gate}/name", "value": GATE}, {"op": "remove", "path": gate}]
    return operations


def annotation_patch(action: Annotate) -> list[Json]:
    """The same for words on an anchor, which always has some."""
    words = [
        {"op": "add", "path": f"/metadata/annotations/{name.replace('/', '~1')}", "value": text}
        for name, text in action.annotations.items()
    ]
    return [{"op": "test", "path": "/metadata/uid", "value": action.uid}, *words]


def outcome_of(error: KubeError) -> Outcome:
    """What a refusal means for the action."""
    words = error.message or error.reason
    if error.status in (UNAUTHORIZED, TOO_MANY) or error.status >= SERVER_ERROR:
        return Outcome(Verdict.LATER, words, error.retry_seconds)
    if error.status == NOT_FOUND or ENDING_WORDS in words:
        return Outcome(Verdict.NO_NAMESPACE, words)
    # RBAC refuses before it says whether the namespace exists: to us, unbound and missing are the same.
    if error.status == FORBIDDEN and words.partition(":")[0].endswith("is forbidden") and RBAC_WORDS in words:
        return Outcome(Verdict.NO_NAMESPACE, words)
    return Outcome(Verdict.REFUSED, words)


def _judge_found(found: Json, action: Create) -> Outcome:
    metadata = found["metadata"]
    ours, wanted = metadata.get("labels") or {}, action.manifest["metadata"]["labels"]
    if any(ours.get(label) != wanted.get(label) for label in (LABEL_WORKLOAD, LABEL_ATTEMPT)):
        return Outcome(Verdict.CONFLICT, f"{action.kind} {action.namespace}/{action.name} is not ours")
    if "deletionTimestamp" in metadata:
        return Outcome(Verdict.LATER, f"{action.kind} {action.name} is being deleted")
    return Outcome(Verdict.DONE)
