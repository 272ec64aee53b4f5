"""Worlds and Plans as JSON, so that a cycle can be stored and run again with the same result.

`World` is the warm, mutable half: rows by table, changed one by one, frozen into a Snapshot. Where the
rows come from and where records are kept is `db`'s. The codec reads the types of the values themselves,
so a new field with a default needs no line here and old records still load.
"""

import hashlib
import json
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from controlplane.core.capacity import Cluster, Node
from controlplane.core.demand import Earmark, Exclusion, NodeRules, RunningAttempt, Workload
from controlplane.core.facts.planning import Change, Held, Key, Table, Value
from controlplane.core.ids import ClusterId, FlavorName, NodeId, PoolId, QueueId, WorkloadId
from controlplane.core.index import FleetIndex
from controlplane.core.plan import Admit, Plan, Reclaim, SetEarmark
from controlplane.core.policy import Policy
from controlplane.core.quota import QuotaTree
from controlplane.core.scenario import owned_by_all
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Queue, Spent, Standing
from controlplane.core.warm_tree import WarmTree

Json = str | int | bool | None | list["Json"] | dict[str, "Json"]
Decoder = Callable[[Json], object]
Encoder = Callable[[object], Json]

KINDS: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (Cluster, Node, Queue, Workload, RunningAttempt, Earmark, Exclusion, Policy, Plan, Snapshot)
}
DECISIONS: Mapping[str, type] = {kind.__name__: kind for kind in (Admit, Reclaim, SetEarmark)}
ROWS: Mapping[Table, type] = {
    Table.CLUSTERS: Cluster,
    Table.NODES: Node,
    Table.QUEUES: Queue,
    Table.WAITING: Workload,
    Table.RUNNING: RunningAttempt,
    Table.EARMARKS: Earmark,
    Table.EXCLUSIONS: Exclusion,
    Table.USAGE_ELSEWHERE: int,
    Table.OWNED_ELSEWHERE: int,
    Table.OWNED_COUNTED: int,
    Table.SPENT: Spent,
    Table.RUNNING_ELSEWHERE: int,
    Table.STANDINGS: Standing,
    Table.OWNERS: int,
    Table.LEFT_OVER: int,
    Table.HELD: Held,
}


class World:
    """One Pool's rows as last read."""

    def __init__(self, pool: PoolId, pool_name: str = "default") -> None:
        self.pool = pool
        self.pool_name = pool_name
        self._rows: dict[Table, dict[Key, Value]] = {table: {} for table in Table}
        self._given: set[Table] = set()  # tables that a Snapshot holds: they are copied before they change
        self._exclusions: tuple[Value, ...] = ()
        self._changed_nodes: set[NodeId] = set()  # since the last Snapshot
        self._stale_nodes: set[NodeId] = set()  # up to it, and not counted by the index yet
        self._index: FleetIndex | None = None
        self._tree = WarmTree()

    def rename(self, pool_name: str) -> None:
        """The Pool's name has changed."""
        self.pool_name = pool_name

    def apply(self, changes: Iterable[Change]) -> tuple[Change, ...]:
        """Bring rows up to date; what is not there any more goes. Returns the changes that changed something."""
        told: list[Change] = []
        for given in changes:
            change = given if given.table is not Table.HELD else self._held(given)
            table = change.table
            rows = self._rows[table]
            before = rows.get(change.key)
            if before == change.value:
                continue  # read again, because its writer was not finished at the last reading
            told.append(given)
            self._tree.follow(change.table, change.key, before, change.value)
            if table is Table.NODES:
                self._changed_nodes.add(cast("NodeId", change.key))
            if table in self._given:
                self._given.discard(table)
                rows = self._rows[table] = dict(rows)
            if change.value is None:
                del rows[change.key]
            else:
                rows[change.key] = change.value
        return tuple(told)

    def node(self, node: NodeId) -> Node | None:
        """One of its nodes, if it is there."""
        return cast("Node | None", self._rows[Table.NODES].get(node))

    def _held(self, change: Change) -> Change:
        """The node that a change of its counters makes of the one that is there; no change if there is none."""
        node = self.node(cast("NodeId", change.key))
        return Change(Table.NODES, change.key, None if node is None else holding(node, cast("Held", change.value)))

    def changes(self) -> tuple[Change, ...]:
        """Everything there is, as changes to an empty World, in a fixed order."""
        return tuple(
            Change(table, key, self._rows[table][key]) for table in Table for key in sorted(self._rows[table], key=repr)
        )

    def of_left_over(self, left: Collection[WorkloadId]) -> list[Change]:
        """The changes after which the World has exactly these as left over."""
        before = self._rows[Table.LEFT_OVER]
        gone = [Change(Table.LEFT_OVER, key, None) for key in sorted(before, key=str) if key not in left]
        return [*gone, *(Change(Table.LEFT_OVER, key, 1) for key in sorted(left) if key not in before)]

    def freeze(self) -> Snapshot:
        """The Snapshot of now: the tables themselves, which are copied when they change, since rows are values."""
        rows = self._rows
        if Table.EXCLUSIONS not in self._given:
            self._exclusions = tuple(self._sorted(Table.EXCLUSIONS))
        self._given.update(Table)
        self._stale_nodes |= self._changed_nodes
        self._changed_nodes = set()
        return Snapshot(
            pool=self.pool,
            pool_name=self.pool_name,
            clusters=cast("dict[ClusterId, Cluster]", rows[Table.CLUSTERS]),
            nodes=cast("dict[NodeId, Node]", rows[Table.NODES]),
            queues=cast("dict[QueueId, Queue]", rows[Table.QUEUES]),
            waiting=cast("dict[WorkloadId, Workload]", rows[Table.WAITING]),
            running=cast("dict[WorkloadId, RunningAttempt]", rows[Table.RUNNING]),
            earmarks=cast("dict[WorkloadId, Earmark]", rows[Table.EARMARKS]),
            exclusions=cast("tuple[Exclusion, ...]", self._exclusions),
            usage_elsewhere=cast("dict[tuple[QueueId, str], int]", rows[Table.USAGE_ELSEWHERE]),
            owned_elsewhere=cast("dict[FlavorName, int]", rows[Table.OWNED_ELSEWHERE]),
            owned_counted=cast("dict[tuple[ClusterId, str], int]", rows[Table.OWNED_COUNTED]),
            spent=cast("tuple[Spent, ...]", tuple(self._sorted(Table.SPENT))),
            running_elsewhere=cast("dict[QueueId, int]", rows[Table.RUNNING_ELSEWHERE]),
            standings=cast("dict[QueueId, Standing]", rows[Table.STANDINGS]),
            owners=cast("dict[tuple[QueueId, str], int]", rows[Table.OWNERS]),
            left_over=cast("tuple[WorkloadId, ...]", tuple(sorted(rows[Table.LEFT_OVER], key=str))),
        )

    def warm_index(self, snapshot: Snapshot) -> FleetIndex:
        """The fleet index of a Snapshot just frozen: only what changed since the last one is counted again."""
        if self._index is None:
            self._index = FleetIndex(snapshot.clusters, snapshot.nodes)
        else:
            self._index = self._index.refreshed(snapshot.clusters, snapshot.nodes, self._stale_nodes)
        self._stale_nodes = set()
        return self._index

    def warm_tree(self, snapshot: Snapshot, index: FleetIndex) -> QuotaTree:
        """The quota tree of a Snapshot just frozen, with its index; built anew only where Queues changed."""
        return self._tree.of(snapshot, owned_by_all(snapshot, index))

    def _sorted(self, table: Table) -> list[Value]:
        return [self._rows[table][key] for key in sorted(self._rows[table], key=repr)]


_NODE = tuple(each.name for each in fields(Node))
_HELD = tuple(_NODE.index(name) for name in (
    "held", "cpu_milli_held", "memory_bytes_held", "pods_held", "rdma_held", "hugepages_bytes_held",
    "local_storage_bytes_held",
))  # fmt: skip
_read_node = attrgetter(*_NODE)


def holding(node: Node, held: Held) -> Node:
    """The node with other counters, quicker than `replace`: a cycle makes thousands."""
    values = list(_read_node(node))
    counters = (
        dict(held.units), held.cpu_milli, held.memory_bytes, held.pods, held.rdma, held.hugepages_bytes,
        held.local_storage_bytes,
    )  # fmt: skip
    for at, value in zip(_HELD, counters, strict=True):
        values[at] = value
    return Node(*values)


def to_record(value: object) -> Json:
    """A core value as JSON. Maps become lists of pairs, since their keys need not be text."""
    return _encoder_of(value)(value)


def from_record(kind: str, record: Json) -> object:
    """The value again; `kind` is one of KINDS. Fields that the record does not have get their defaults."""
    if kind == Plan.__name__ and isinstance(record, dict) and "why" in record:
        told = [
            [workload, why] for why, workloads in map(_items, _items(record["why"])) for workload in _items(workloads)
        ]
        record = {**record, "reasons": cast("Json", told)}
    return _decoder(KINDS[kind])(record)


def rules_from(record: Json) -> NodeRules:
    """A PodSet's rules again."""
    return cast("NodeRules", _decoder(NodeRules)(record))


def change_to_record(change: Change) -> Json:
    """A change as JSON."""
    return {"table": change.table.value, "key": to_record(change.key), "value": to_record(change.value)}


def change_from_record(record: Json) -> Change:
    """The change again."""
    assert isinstance(record, dict)
    table, key, value = Table(str(record["table"])), record["key"], record["value"]
    row = None if value is None else cast("Value", _decoder(ROWS[table])(value))
    return Change(table, cast("Key", tuple(key) if isinstance(key, list) else key), row)


def canonical(record: Json) -> str:
    """JSON in one form only: keys sorted, no spaces."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def plan_hash(plan: Plan) -> str:
    """Sha256 of the Plan's canonical JSON, in hex."""
    return hashlib.sha256(canonical(to_record(plan)).encode()).hexdigest()


def changes_text(changes: Iterable[Change], *, assumes: bool = False) -> str:
    """Changes as they are stored and hashed: one canonical JSON list.

    `assumes`: first comes what the cycle stored before decided, as `assumed.assumed` works it out, which is not listed.
    """
    records = [change_to_record(change) for change in changes]
    return canonical([{"assumes": True}, *records] if assumes else [*records])


def changes_from_text(text: str | bytes) -> tuple[bool, list[Change]]:
    """Whether what the cycle before decided comes first, and the changes."""
    records = json.loads(text)
    assumes = bool(records) and "assumes" in records[0]
    return assumes, [change_from_record(record) for record in records[assumes:]]


def running_hash(before: str, changes: str, plan_sha256: str) -> str:
    """The hash of a chain of cycles: of the one before, of what changed since (`changes_text`), of this Plan's hash."""
    digest = hashlib.sha256(before.encode())
    digest.update(changes.encode())
    digest.update(plan_sha256.encode())
    return digest.hexdigest()


_PLAIN = frozenset({int, bool, str, type(None)})
_ENCODERS: dict[type, Encoder] = {}  # by class: a cycle stores thousands of rows of a few classes


def _encoder_of(value: object) -> Encoder:
    kind = type(value)
    encoder = _ENCODERS.get(kind)
    if encoder is None:
        encoder = _ENCODERS[kind] = _new_encoder(kind)
    return encoder


def _new_encoder(kind: type) -> Encoder:
    if kind in _PLAIN:
        return lambda value: cast("Json", value)
    if issubclass(kind, Enum):
        return lambda value: str(cast("Enum", value).value)
    if issubclass(kind, datetime):
        return lambda value: cast("datetime", value).isoformat()
    if issubclass(kind, Mapping):
        return _mapping_to_record
    if issubclass(kind, frozenset):
        return lambda value: sorted((to_record(each) for each in cast("frozenset[object]", value)), key=canonical)
    if issubclass(kind, tuple):
        return _tuple_to_record
    assert is_dataclass(kind), f"{kind.__name__} has no record"
    return _plan_to_record if kind is Plan else _dataclass_encoder(kind)


def _plan_to_record(value: object) -> Json:
    """Of thousands that wait for the same Reasons, these are told once, with whom they are for."""
    plan = cast("Plan", value)
    texts: dict[object, str] = {}
    waiting: dict[str, tuple[Json, list[Json]]] = {}
    for workload, reasons in plan.reasons.items():
        same = tuple([(each.code, *each.facts.items()) for each in reasons])
        text = texts.get(same)
        if text is None:
            record = to_record(reasons)
            text = texts[same] = canonical(record)
            waiting.setdefault(text, (record, []))
        waiting[text][1].append(workload)
    why: list[Json] = [[waiting[text][0], sorted(waiting[text][1], key=str)] for text in sorted(waiting)]
    record = cast("dict[str, Json]", _PLAN_ENCODER(replace(plan, reasons={})))
    return {**record, "why": why} if why else record


def _tuple_to_record(value: object) -> Json:
    listed = cast("tuple[Json, ...]", value)
    return [each if type(each) in _PLAIN else _encoder_of(each)(each) for each in listed]


def _mapping_to_record(value: object) -> Json:
    pairs: list[Json] = [
        [to_record(key), to_record(each)] for key, each in cast("Mapping[object, object]", value).items()
    ]
    return pairs if len(pairs) < 2 else sorted(pairs, key=canonical)


def _dataclass_encoder(kind: type) -> Encoder:
    """Fields that have their default are left out: most rows have most of them, and thousands are stored."""
    names = tuple(each.name for each in fields(kind))
    defaults = tuple(_default(each) for each in fields(kind))
    read = attrgetter(*names) if len(names) > 1 else lambda value: (getattr(value, names[0]),)
    tag: dict[str, Json] = {"kind": kind.__name__} if kind.__name__ in DECISIONS else {}

    def encode(value: object) -> Json:
        record = tag.copy()
        for name, default, each in zip(names, defaults, read(value), strict=True):
            if each == default:
                continue
            record[name] = each if type(each) in _PLAIN else _encoder_of(each)(each)
        return record

    return encode


def _default(each: Field[Any]) -> object:
    if each.default is not MISSING:
        return each.default
    return MISSING if each.default_factory is MISSING else each.default_factory()


_PLAN_ENCODER = _dataclass_encoder(Plan)


@cache
def _decoder(kind: object) -> Decoder:
    """How to read a value of this type from JSON."""
    origin = get_origin(kind)
    if supertype := getattr(kind, "__supertype__", None):
        return _decoder(supertype)
    if origin in {Union, types.UnionType}:
        return _union_decoder(get_args(kind))
    if origin is tuple:
        return _tuple_decoder(get_args(kind))
    if origin is frozenset:
        each = _decoder(get_args(kind)[0])
        return lambda record: frozenset(each(item) for item in _items(record))
    if origin is not None:
        key, value = (_decoder(part) for part in get_args(kind))
        return lambda record: {key(pair[0]): value(pair[1]) for pair in map(_items, _items(record))}
    if kind is datetime:
        return lambda record: datetime.fromisoformat(str(record))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if isinstance(kind, type) and is_dataclass(kind):
        return _dataclass_decoder(kind)
    return lambda record: record


def _items(record: Json) -> list[Json]:
    assert isinstance(record, list)
    return record


def _union_decoder(parts: tuple[object, ...]) -> Decoder:
    if set(parts) == set(DECISIONS.values()):
        return lambda record: _decoder(DECISIONS[str(cast("dict[str, Json]", record)["kind"])])(record)
    real = [part for part in parts if part is not type(None)]
    if len(real) > 1:  # int | str: JSON tells them apart
        return lambda record: record
    each = _decoder(real[0])
    return lambda record: None if record is None else each(record)


def _tuple_decoder(parts: tuple[object, ...]) -> Decoder:
    if len(parts) == 2 and parts[1] is Ellipsis:
        each = _decoder(parts[0])
        return lambda record: tuple(each(item) for item in _items(record))
    decoders = [_decoder(part) for part in parts]
    return lambda record: tuple(decode(item) for decode, item in zip(decoders, _items(record), strict=True))


def _dataclass_decoder(kind: type) -> Decoder:
    hints = get_type_hints(kind)
    decoders = {each.name: _decoder(hints[each.name]) for each in fields(kind)}

    def decode(record: Json) -> object:
        assert isinstance(record, dict)
        return kind(**{name: decoders[name](value) for name, value in record.items() if name in decoders})

    return decode
