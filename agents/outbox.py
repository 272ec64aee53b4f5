"""What the plane has been told and what it has not: only changed observations go up, and all of them after a `hello`.

An observation counts as told when the reply to the request that carried it has come; a request without a reply is
simply said again. Nothing here decides what is true.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from agents.attempts import PodKey
from controlplane.contract.agent.attempts import AttemptObservation, PodObservation

PODS_PER_REQUEST = 400
ATTEMPTS_PER_REQUEST = 400
PODS_WHOLE_MAX = 1_500


@dataclass(frozen=True, slots=True)
class Parcel:
    """One request's worth of news."""

    attempts: tuple[AttemptObservation, ...] = ()
    pods: tuple[PodObservation, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.attempts and not self.pods


@dataclass(slots=True)
class Outbox:
    """The newest observation of everything, and the one last told."""

    _attempts: dict[str, AttemptObservation] = field(default_factory=dict)
    _pods: dict[tuple[str, PodKey], PodObservation] = field(default_factory=dict)
    _told_attempts: dict[str, AttemptObservation] = field(default_factory=dict)
    _told_pods: dict[tuple[str, PodKey], PodObservation] = field(default_factory=dict)

    def observe(self, attempt: AttemptObservation, pods: Iterable[tuple[PodKey, PodObservation]] = ()) -> None:
        """Replace what is known of an Attempt and of its pods."""
        self._attempts[attempt.object_id] = attempt
        for key, seen in pods:
            self._pods[attempt.object_id, key] = seen

    def forget(self, object_id: str) -> None:
        """An Attempt of which nothing exists and the plane knows it."""
        for attempts in (self._attempts, self._told_attempts):
            attempts.pop(object_id, None)
        for pods in (self._pods, self._told_pods):
            for key in [key for key in pods if key[0] == object_id]:
                del pods[key]

    def tell_all_again(self) -> None:
        self._told_attempts.clear()
        self._told_pods.clear()

    def has_news(self) -> bool:
        return not self.parcel(limit=1).is_empty

    def parcel(self, limit: int = PODS_PER_REQUEST) -> Parcel:
        """The next news, pods of one request before the states that rest on them."""
        pods = _changed(self._pods, self._told_pods, limit)
        rest = _changed(self._attempts, self._told_attempts, min(limit, ATTEMPTS_PER_REQUEST))
        return Parcel(tuple(rest), tuple(pods))

    def whole_parcel(self) -> Parcel | None:
        """Everything, if one request can carry it."""
        if len(self._pods) > PODS_WHOLE_MAX or len(self._attempts) > PODS_WHOLE_MAX:
            return None
        return Parcel(tuple(self._attempts.values()), tuple(self._pods.values()))

    def told(self, parcel: Parcel) -> None:
        """The reply to the request with this parcel has come."""
        for attempt in parcel.attempts:
            self._told_attempts[attempt.object_id] = attempt
        for pod in parcel.pods:
            owner = f"{pod.workload}.{pod.attempt}"
            self._told_pods[owner, (pod.pod_set, pod.index)] = pod

    def is_told_gone(self, object_id: str) -> bool:
        seen = self._told_attempts.get(object_id)
        return seen is not None and seen.state == "gone"


def _changed(now: dict, told: dict, limit: int) -> list:  # type: ignore[type-arg]  # one loop for two kinds of dictionaries
    found = []
    for key, seen in now.items():
        if told.get(key) != seen:
            found.append(seen)
            if len(found) >= limit:
                break
    return found
