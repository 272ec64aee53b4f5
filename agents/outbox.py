"""What the plane has been told and what it has not: only changed observations go up, and all of them after a `hello`.

An observation counts as told when the reply to the request that carried it has come; a request without a reply is
simply said again. Nothing here decides what is true.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from agents.attempts import PodKey
from controlplane.contract.agent.attempts import AttemptObservation, PodObservation
from controlplane.contract.agent.sync import ListPart, PodPlace

PODS_PER_REQUEST = 400
ATTEMPTS_PER_REQUEST = 400


Place = tuple[str, PodKey]


@dataclass(frozen=True, slots=True)
class Parcel:
    """One request's worth of news; `part`: and all that there is within these bounds, so what is missing is gone."""

    attempts: tuple[AttemptObservation, ...] = ()
    pods: tuple[PodObservation, ...] = ()
    part: ListPart | None = None

    @property
    def is_empty(self) -> bool:
        return not self.attempts and not self.pods


@dataclass(slots=True)
class Outbox:
    """The newest observation of everything, the one last told, and the keys of those that differ."""

    _attempts: dict[str, AttemptObservation] = field(default_factory=dict)
    _pods: dict[Place, PodObservation] = field(default_factory=dict)
    _told_attempts: dict[str, AttemptObservation] = field(default_factory=dict)
    _told_pods: dict[Place, PodObservation] = field(default_factory=dict)
    # Dictionaries for their order: what has waited longest goes first.
    _new_attempts: dict[str, None] = field(default_factory=dict)
    _new_pods: dict[Place, None] = field(default_factory=dict)

    def observe(self, attempt: AttemptObservation, pods: Iterable[tuple[PodKey, PodObservation]] = ()) -> None:
        """Replace what is known of an Attempt and of its pods."""
        owner = attempt.object_id
        self._attempts[owner] = attempt
        _mark(self._new_attempts, owner, is_new=self._told_attempts.get(owner) != attempt)
        for key, seen in pods:
            self._pods[owner, key] = seen
            _mark(self._new_pods, (owner, key), is_new=self._told_pods.get((owner, key)) != seen)

    def forget(self, object_id: str) -> None:
        """An Attempt of which nothing exists and the plane knows it."""
        for attempts in (self._attempts, self._told_attempts, self._new_attempts):
            attempts.pop(object_id, None)
        for pods in (self._pods, self._told_pods, self._new_pods):
            for key in [key for key in pods if key[0] == object_id]:
                del pods[key]

    def tell_all_again(self) -> None:
        self._told_attempts.clear()
        self._told_pods.clear()
        self._new_attempts = dict.fromkeys(self._attempts)
        self._new_pods = dict.fromkeys(self._pods)

    def has_news(self) -> bool:
        return bool(self._new_attempts or self._new_pods)

    def parcel(self) -> Parcel:
        """The next news; pods before the states that rest on them, so states wait while pods do not fit."""
        pods = [self._pods[key] for key in islice(self._new_pods, PODS_PER_REQUEST)]
        room = 0 if len(self._new_pods) > PODS_PER_REQUEST else ATTEMPTS_PER_REQUEST
        attempts = [self._attempts[key] for key in islice(self._new_attempts, room)]
        return Parcel(tuple(attempts), tuple(pods))

    def list_part(self, since: PodPlace | None = None) -> Parcel:
        """The next part of the complete list; an Attempt's state goes with the last of its pods, on which it rests."""
        start = None if since is None else (since.object_id, (since.pod_set, since.index))
        places = sorted(place for place in self._pods if start is None or place >= start)
        owners = sorted(owner for owner in self._attempts if since is None or owner >= since.object_id)
        ends = [places[PODS_PER_REQUEST]] if len(places) > PODS_PER_REQUEST else []
        ends += [(owners[ATTEMPTS_PER_REQUEST], ("", 0))] if len(owners) > ATTEMPTS_PER_REQUEST else []
        end = min(ends, default=None)
        attempts = [self._attempts[owner] for owner in owners if end is None or owner < end[0]]
        pods = [self._pods[place] for place in places if end is None or place < end]
        until = None if end is None else PodPlace(object_id=end[0], pod_set=end[1][0], index=end[1][1])
        return Parcel(tuple(attempts), tuple(pods), ListPart(since=since, until=until))

    def told(self, parcel: Parcel) -> None:
        """The reply to the request with this parcel has come; what changed meanwhile is still news."""
        for attempt in parcel.attempts:
            owner = attempt.object_id
            self._told_attempts[owner] = attempt
            _mark(self._new_attempts, owner, is_new=self._attempts.get(owner, attempt) != attempt)
        for pod in parcel.pods:
            place = (f"{pod.workload}.{pod.attempt}", (pod.pod_set, pod.index))
            self._told_pods[place] = pod
            _mark(self._new_pods, place, is_new=self._pods.get(place, pod) != pod)

    def is_told_gone(self, object_id: str) -> bool:
        seen = self._told_attempts.get(object_id)
        return seen is not None and seen.state == "gone"


Told = TypeVar("Told")


def _mark(news: dict[Told, None], place: Told, *, is_new: bool) -> None:
    if is_new:
        news[place] = None
    else:
        news.pop(place, None)
