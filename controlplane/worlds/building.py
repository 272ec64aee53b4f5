"""Documents of a world as one Snapshot for each Pool, with the Policy that its planner would have."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from controlplane.contract.rest.tenancy import PolicyDocument, PoolDocument
from controlplane.contract.rest.worlds import SnapshotDocument, WorldDocument
from controlplane.core.ids import FlavorName, PoolId, QueueId
from controlplane.core.policy import Policy
from controlplane.core.quota import ImpossibleTree, QuotaTree
from controlplane.core.records import Json, from_record
from controlplane.core.scenario import is_accepted
from controlplane.core.snapshot import Snapshot
from controlplane.services.core_values import policy_of
from controlplane.worlds.fleet import Fleet, fleet_from
from controlplane.worlds.reading import Member, Mistakes
from controlplane.worlds.sources import Mistake, WrongWorld
from controlplane.worlds.spent import spent_of
from controlplane.worlds.tree import Tree, tree_from
from controlplane.worlds.work import Work, WorkReader

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class PoolWorld:
    """What one planner would plan on."""

    snapshot: Snapshot
    policy: Policy


@dataclass(frozen=True, slots=True)
class World:
    """All Pools at one moment."""

    now: datetime
    pools: tuple[PoolWorld, ...]


def world_from(members: Sequence[Member], now: datetime | None, present: datetime) -> World:
    """The world that these documents describe; raises WrongWorld with all that is wrong in it.

    `now` counts before what a World document says, and that before the `present`.
    """
    stored = [member for member in members if isinstance(member.document, SnapshotDocument)]
    if stored:
        return _stored(stored[0], members, now)
    mistakes = Mistakes()
    said = _moment(members, mistakes)
    moment = now or said or present
    tree = tree_from(members, mistakes)
    fleet = fleet_from(members, (each.namespace for each in tree.queues.values() if each.namespace), moment, mistakes)
    policies = _policies(members, mistakes)
    declared = {each.document.metadata.name for each in members if isinstance(each.document, PoolDocument)}
    pools = sorted({DEFAULT, *declared, *fleet.pools.values()})
    _refuse_policies_without_pools(policies, pools, mistakes)
    _refuse_impossible(tree, mistakes)
    work = WorkReader(fleet, tree, moment, mistakes).read(members, pools)
    spent = spent_of(tree, (each for pool in work.running.values() for each in pool.values()), moment)
    made = [
        replace(_pool(number, name, pools, fleet, tree, work), spent=spent)
        for number, name in enumerate(pools, start=1)
    ]
    kept = [each for each in made if each.clusters or each.waiting or each.running] or made[:1]
    return World(
        moment,
        tuple(
            PoolWorld(each, policies[each.pool_name][1] if each.pool_name in policies else Policy(version=0))
            for each in kept
        ),
    )


def _stored(member: Member, members: Sequence[Member], now: datetime | None) -> World:
    """One that a plane gave; it is whole, so nothing may stand beside it."""
    if len(members) > 1:
        words = "a Snapshot is a whole world, so it stands alone"
        raise WrongWorld([Mistake(member.source.place_of(member.position, "/kind"), "/kind", words)])
    document = member.document
    assert isinstance(document, SnapshotDocument)
    try:
        snapshot = cast("Snapshot", from_record("Snapshot", cast("Json", document.snapshot)))
        policy = cast("Policy", from_record("Policy", cast("Json", document.policy)))
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        words = f"this is no Snapshot that a plane gave: {error}"[:300]
        raise WrongWorld([Mistake(member.source.place_of(member.position, "/snapshot"), "/snapshot", words)]) from None
    return World(now or document.now, (PoolWorld(snapshot, policy),))


def _moment(members: Sequence[Member], mistakes: Mistakes) -> datetime | None:
    found = [member for member in members if isinstance(member.document, WorldDocument)]
    for member in found[1:]:
        mistakes.add(member, "/kind", "there is one World document in all files together, and this is another")
    return found[0].document.spec.now if found and isinstance(found[0].document, WorldDocument) else None


def _policies(members: Sequence[Member], mistakes: Mistakes) -> dict[str, tuple[Member, Policy]]:
    """By Pool. Version 1 is what a plane would call the first that is applied; where none is, it is 0."""
    found: dict[str, tuple[Member, Policy]] = {}
    for member in members:
        if isinstance(member.document, PolicyDocument):
            name = member.document.metadata.name
            if name in found:
                mistakes.add(member, "/metadata/name", f"Policy {name} stands there twice")
            found[name] = member, policy_of(1, member.document.spec)
    return found


def _refuse_policies_without_pools(
    policies: dict[str, tuple[Member, Policy]], pools: Sequence[str], mistakes: Mistakes
) -> None:
    for name, (member, _) in policies.items():
        if name not in pools:
            mistakes.add(member, "/metadata/name", f"a Policy has its Pool's name, and there is no pool {name}")


def _refuse_impossible(tree: Tree, mistakes: Mistakes) -> None:
    try:
        QuotaTree(tree.queues.values())
    except ImpossibleTree as error:
        words = str(error)
        path = next((path for path in sorted(tree.members, reverse=True) if path in words), min(tree.members))
        mistakes.add(tree.members[path], "/spec", words)


def _pool(number: int, name: str, pools: Sequence[str], fleet: Fleet, tree: Tree, work: Work) -> Snapshot:
    clusters = {each.id: each for each in fleet.clusters.values() if fleet.pools[each.name] == name}
    elsewhere = [pool for pool in pools if pool != name]
    usage: dict[tuple[QueueId, str], int] = {}
    live: dict[QueueId, int] = {}
    for attempt in (each for pool in elsewhere for each in work.running.get(pool, {}).values()):
        live[attempt.queue] = live.get(attempt.queue, 0) + 1
        for flavor, amount in attempt.charges:
            usage[attempt.queue, flavor] = usage.get((attempt.queue, flavor), 0) + amount
    owned: dict[FlavorName, int] = {}
    others = {each.id for each in fleet.clusters.values() if each.id not in clusters and is_accepted(each)}
    for node in fleet.nodes.values():
        for flavor, units in node.owned.items() if node.cluster in others else ():
            owned[flavor] = owned.get(flavor, 0) + units
    return replace(
        Snapshot(PoolId(number), name),
        clusters=clusters,
        nodes={each.id: each for each in fleet.nodes.values() if each.cluster in clusters},
        queues={each.id: each for each in tree.queues.values()},
        waiting=work.waiting.get(name, {}),
        running=work.running.get(name, {}),
        usage_elsewhere=usage,
        owned_elsewhere=owned,
        running_elsewhere=live,
    )
