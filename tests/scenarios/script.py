"""A small language for stories of the planner: commands, and after `----` what came of them.

cluster NAME [levels=block,rack,host] [state=ready] [labels=k:v,…] [domain=NETWORK] [facts=f,…] [unknown=yes]
racks N nodes=M [devices=8] [flavor=F] [block=b0]        label NODE k:v,…        taint NODE KEY
queue PATH NOMINAL [borrow=N] [lend=N] [weight=N] [flavor=F]      NOMINAL may be `owned`: what clusters own
quota PATH NOMINAL [borrow=N] [lend=N] [flavor=F]        move PATH PARENT|-      delete PATH
budget PATH HOURS per=week [flavor=*] [hard=yes]         spent PATH HOURS per=week [flavor=*]     most PATH N
submit NAME QUEUE PODSxDEVICES[+PODSxDEVICES…] [required=L] [preferred=L] [strategy=S] [priority=N] [minute=N]
       [owner=O] [flavors=F,…] [least=N] [slices=N@L] [beside=yes] [clusters=N] [avoid=C] [select=k:v,…] [on=k:v,…]
       [tolerates=KEY] [requires=f,…] [cpu=MILLI]        `beside`: later PodSets with the first; `on`: labels of nodes
run NAME QUEUE NODE:UNITS… [minute=N] [flavor=F] [owner=O] [priority=N]
end NAME…          its pods are gone                     requeue NAME     gone, and waits again for its old place
repair NAME        the same, as a gang that lost a part  evade NAME C     the same, elsewhere than in cluster C
cordon NODE… [why=W]     takes no new pods (`why`: by us)
uncordon NODE…     takes pods again                      withhold NODE UNITS [why=W]     of cordoned devices
drain CLUSTER why=W      takes nothing new               undrain CLUSTER
state CLUSTER STATE      as its agent is heard           silent CLUSTER…  tells no inventory from now on
heard CLUSTER…     tells it again                        wait MINUTES     time passes
policy KNOB=VALUE…                                       prefer CLUSTER=N…
cycle              plan, and carry the Plan out          explain NAME     every Reason

Each cycle is planned a second time with all input the other way round: the Plan must be the same.
A block ends with `----` and its output up to the next empty line.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import timedelta

from controlplane.core.budgets import period_of
from controlplane.core.capacity import Taint
from controlplane.core.cycle import explain, plan_cycle
from controlplane.core.demand import Earmark, NodeRules, PodNeeds, PodSet, StrategyName, Toleration, TopologyMode
from controlplane.core.ids import ClusterId, FlavorName, WorkloadId
from controlplane.core.lifecycle import ClusterState
from controlplane.core.plan import Admit, Decision, Placement, Plan, Reclaim
from controlplane.core.policy import Policy
from controlplane.core.records import plan_hash
from controlplane.core.snapshot import Snapshot
from controlplane.core.tenancy import Budget, Period, Quota, Spent
from tests.builders.core import H100, NOW, AWorkload, AWorld, a_workload, a_world

Options = dict[str, str]
HOUR = 3_600


class Script:
    """One story being told."""

    def __init__(self) -> None:
        self.world: AWorld = a_world()
        self.workloads: dict[str, AWorkload] = {}
        self.policy = Policy()
        self.silent: set[str] = set()
        self.now = NOW
        self.number = 0  # of the cycle

    def run(self, line: str) -> list[str]:
        """Carry one command out; what it says."""
        verb, *words = line.split()
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        says = getattr(self, f"_{verb}")(names, options)
        return list(says or ())

    def _cluster(self, names: list[str], options: Options) -> None:
        levels = tuple(options.get("levels", "block,rack,host").split(","))
        self.world.cluster(
            names[0],
            levels,
            state=ClusterState(options.get("state", "ready")),
            labels=_pairs(options.get("labels", "")),
            network_domain=options.get("domain", ""),
            facts=frozenset(_listed(options.get("facts", ""))),
            inventory_at=None if "unknown" in options else self.now,
        )

    def _racks(self, names: list[str], options: Options) -> None:
        flavor = FlavorName(options.get("flavor", H100))
        devices, block = int(options.get("devices", "8")), options.get("block", "b0")
        self.world.racks(int(names[0]), int(options["nodes"]), devices, flavor, block)

    def _label(self, names: list[str], options: Options) -> None:
        self.world.change_node(names[0], labels=dict(_pairs(names[1])))

    def _taint(self, names: list[str], options: Options) -> None:
        self.world.change_node(names[0], taints=(Taint(names[1]),))

    def _queue(self, names: list[str], options: Options) -> None:
        self.world.queue_of(names[0], _quota(names[1], options), weight=int(options.get("weight", "1")))

    def _quota(self, names: list[str], options: Options) -> None:
        queue, new = self.world.queues[names[0]], _quota(names[1], options)
        quotas = (*(each for each in queue.quotas if each.flavor != new.flavor), new)
        self.world.queues[names[0]] = replace(queue, quotas=quotas)

    def _move(self, names: list[str], options: Options) -> None:
        parent = None if names[1] == "-" else self.world.queues[names[1]].id
        self.world.queues[names[0]] = replace(self.world.queues[names[0]], parent=parent)

    def _delete(self, names: list[str], options: Options) -> None:
        del self.world.queues[names[0]]

    def _budget(self, names: list[str], options: Options) -> None:
        budget = Budget(options.get("flavor", "*"), int(names[1]), Period(options["per"]), "hard" in options)
        queue = self.world.queues[names[0]]
        self.world.queues[names[0]] = replace(queue, budgets=(*queue.budgets, budget))

    def _spent(self, names: list[str], options: Options) -> None:
        per, queue = Period(options["per"]), self.world.queues[names[0]].id
        began, _ = period_of(per, self.now)
        self.world.spent.append(Spent(queue, options.get("flavor", "*"), per, int(names[1]) * HOUR, began))

    def _most(self, names: list[str], options: Options) -> None:
        self.world.queues[names[0]] = replace(self.world.queues[names[0]], most_running=int(names[1]))

    def _run(self, names: list[str], options: Options) -> None:
        name, queue, *places = names
        nodes = {node: int(units) for node, units in (place.split(":") for place in places)}
        flavor = FlavorName(options.get("flavor", H100))
        self.world.runs(name, queue, nodes, minutes=int(options.get("minute", "0")), flavor=flavor)
        priority, owner = int(options.get("priority", "0")), options.get("owner", "someone")
        running = self.world.running[WorkloadId(name)]
        self.world.running[WorkloadId(name)] = replace(running, priority=priority, owner=owner)
        again = a_workload(name).in_queue(queue).asking(len(nodes), max(nodes.values()), flavor)
        self.workloads[name] = again.at(int(options.get("minute", "0"))).having(priority=priority, owner=owner)

    def _submit(self, names: list[str], options: Options) -> None:
        name, queue, size = names
        workload = a_workload(name).in_queue(queue).at(int(options.get("minute", "0")))
        workload = workload.with_sets(*_pod_sets(size, options)).with_priority(int(options.get("priority", "0")))
        workload = workload.having(
            owner=options.get("owner", "someone"),
            strategy=StrategyName(options.get("strategy", "pack")),
            clusters_max=int(options.get("clusters", "1")),
            clusters_avoided=frozenset(_listed(options.get("avoid", ""))),
            cluster_selector=_pairs(options.get("select", "")),
            requires=tuple(_listed(options.get("requires", ""))),
        )
        self.workloads[name] = workload
        self.world.waits(workload)

    def _end(self, names: list[str], options: Options) -> None:
        for name in names:
            self.world.ends(name)

    def _requeue(self, names: list[str], options: Options, **changes: object) -> None:
        attempt = self.world.running[WorkloadId(names[0])]
        self.world.ends(names[0])
        nodes = tuple(share.node for share in attempt.shares)
        again = self.workloads[names[0]].having(preferred_nodes=nodes, next_attempt=attempt.attempt + 1, **changes)
        self.world.waits(again)

    def _repair(self, names: list[str], options: Options) -> None:
        self._requeue(names, options, is_repair=True)

    def _evade(self, names: list[str], options: Options) -> None:
        self._requeue(names, options, clusters_avoided=frozenset(names[1:]))

    def _cordon(self, names: list[str], options: Options) -> None:
        for name in names:
            why = options.get("why", "")
            self.world.change_node(name, is_schedulable=False, is_cordoned=bool(why), cordon=why)

    def _uncordon(self, names: list[str], options: Options) -> None:
        for name in names:
            self.world.change_node(name, is_schedulable=True, is_cordoned=False, cordon="")

    def _withhold(self, names: list[str], options: Options) -> None:
        node = next(each for each in self.world.nodes.values() if each.name == names[0])
        units = int(names[1])
        usable = {H100: node.owned[H100] - units}
        self.world.change_node(names[0], usable=usable, withheld={H100: units}, cordon=options.get("why", "?"))

    def _drain(self, names: list[str], options: Options) -> None:
        self._change_cluster(names[0], drain=options.get("why", ""))

    def _undrain(self, names: list[str], options: Options) -> None:
        self._drain(names, {})

    def _state(self, names: list[str], options: Options) -> None:
        self._change_cluster(names[0], state=ClusterState(names[1]))

    def _silent(self, names: list[str], options: Options) -> None:
        self.silent.update(names)

    def _heard(self, names: list[str], options: Options) -> None:
        self.silent.difference_update(names)
        self._wait(["0"], {})

    def _wait(self, names: list[str], options: Options) -> None:
        self.now += timedelta(minutes=int(names[0]))
        for cluster in list(self.world.clusters.values()):
            if cluster.name not in self.silent and cluster.inventory_at is not None:
                self._change_cluster(cluster.name, inventory_at=self.now)

    def _policy(self, names: list[str], options: Options) -> None:
        kinds = {each.name: bool if each.type in (bool, "bool") else int for each in fields(Policy)}
        changes = {knob: value == "yes" if kinds[knob] is bool else int(value) for knob, value in options.items()}
        self.policy = replace(self.policy, **changes)  # type: ignore[arg-type]  # a story names real knobs

    def _prefer(self, names: list[str], options: Options) -> None:
        preference = {cluster: int(rank) for cluster, rank in options.items()}
        self.policy = replace(self.policy, cluster_preference=preference)

    def _explain(self, names: list[str], options: Options) -> Iterator[str]:
        for reason in explain(self.world.build(), self.policy, self.now, WorkloadId(names[0])):
            yield reason.sentence()

    def _cycle(self, names: list[str], options: Options) -> Iterator[str]:
        plan = plan_cycle(self.world.build(), self.policy, self.now)
        again = plan_cycle(_turned(self.world.build()), self.policy, self.now)
        assert plan_hash(again) == plan_hash(plan), "the order of input decides nothing"
        self.number += 1
        for decision in plan.decisions:
            yield self._told(decision)
        for workload, reasons in plan.reasons.items():
            yield f"{workload} waits: {reasons[0].sentence()}"
        if not plan.decisions and not plan.reasons:
            yield "nothing to do"
        self._carry_out(plan)

    def _change_cluster(self, name: str, **changes: object) -> None:
        cluster = next(each for each in self.world.clusters.values() if each.name == name)
        self.world.clusters[cluster.id] = replace(cluster, **changes)  # type: ignore[arg-type]  # real fields

    def _told(self, decision: Decision) -> str:
        if isinstance(decision, Admit):
            places = "; ".join(self._place(each) for each in decision.placements)
            others = sorted({flavor for flavor, _ in decision.charges} - {H100})
            of = f" (on {', '.join(others)})" if others else ""
            return f"{decision.workload} starts in {places}{of}"
        if isinstance(decision, Reclaim):
            return f"{decision.workload} stops: {decision.reason.sentence()}"
        places = " ".join(f"{self.world.nodes[share.node].name}:{share.amount}" for share in decision.shares)
        return f"kept for {decision.workload}: {places}"

    def _place(self, placement: Placement) -> str:
        nodes: dict[str, int] = {}
        for pod in placement.pods:
            name = self.world.nodes[pod.node].name
            nodes[name] = nodes.get(name, 0) + 1
        places = " ".join(name if count == 1 else f"{name}*{count}" for name, count in nodes.items())
        return f"{self.world.clusters[ClusterId(placement.cluster)].name}: {places}"

    def _carry_out(self, plan: Plan) -> None:
        for decision in plan.decisions:
            if isinstance(decision, Admit):
                self.world.earmarks.pop(decision.workload, None)
                self.world.admits(decision)
                placed_at = self.now - timedelta(minutes=30) + timedelta(seconds=self.number)
                running = self.world.running[decision.workload]
                self.world.running[decision.workload] = replace(running, placed_at=placed_at)
            elif isinstance(decision, Reclaim):
                self.world.stops(decision.workload)
            else:
                kept = Earmark(decision.workload, decision.cluster, decision.shares, decision.until)
                self.world.earmarks[decision.workload] = kept


def _listed(text: str) -> list[str]:
    return [each for each in text.split(",") if each]


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (each.partition(":") for each in _listed(text))
    return tuple((key, value) for key, _, value in pairs)


def _quota(nominal: str, options: Options) -> Quota:
    borrow, lend = (int(options[each]) if each in options else None for each in ("borrow", "lend"))
    units = None if nominal == "owned" else int(nominal)
    return Quota(FlavorName(options.get("flavor", H100)), units, borrow, lend)


def _pod_sets(size: str, options: Options) -> list[PodSet]:
    """`4x8+1x0`: PodSets `main` and `set-1`; what else is said holds for all, `least` and `slices` for the first."""
    flavors = tuple(FlavorName(flavor) for flavor in options.get("flavors", H100).split(","))
    mode = next((each for each in (TopologyMode.REQUIRED, TopologyMode.PREFERRED) if each.value in options), None)
    tolerations = tuple(Toleration(key, "Exists") for key in _listed(options.get("tolerates", "")))
    rules = NodeRules(_pairs(options.get("on", "")), (), tolerations)
    sets = []
    for number, each in enumerate(size.split("+")):
        pods, devices = map(int, each.split("x"))
        pod_set = PodSet(f"set-{number}" if number else "main", pods, devices, flavors if devices else ())
        pod_set = replace(pod_set, rules=rules, needs=PodNeeds(cpu_milli=int(options.get("cpu", "0"))))
        if mode is not None:
            pod_set = replace(pod_set, topology_mode=mode, topology_level=options[mode.value])
        if number == 0 and "least" in options:
            pod_set = replace(pod_set, min_replicas=int(options["least"]))
        if number == 0 and "slices" in options:
            count, _, level = options["slices"].partition("@")
            pod_set = replace(pod_set, slice_size=int(count), slice_level=level)
        sets.append(replace(pod_set, with_pod_set="main") if number and "beside" in options else pod_set)
    return sets


def _turned(snapshot: Snapshot) -> Snapshot:
    """The same world in another order."""
    names = ("clusters", "nodes", "queues", "waiting", "running", "earmarks")
    parts = {name: dict(reversed(list(getattr(snapshot, name).items()))) for name in names}
    return replace(snapshot, **parts)  # type: ignore[arg-type]  # each part keeps its type


def told(text: str) -> str:
    """The script with the outputs that come of it now."""
    script, lines, output = Script(), list[str](), list[str]()
    is_output = False
    for line in text.splitlines():
        if line == "----":
            lines += ["----", *output]
            output, is_output = [], True
        elif is_output and line:
            continue
        else:
            is_output = False
            lines.append(line)
            if line and not line.startswith("#"):
                output += script.run(line)
    assert not output, "the last block has no ----"
    return "\n".join(lines) + "\n"
