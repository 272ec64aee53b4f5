"""A small language for stories of the planner: commands, and after `----` what came of them.

cluster NAME [levels=block,rack,host] [state=ready]      racks N nodes=M [devices=8] [flavor=F] [block=b0]
queue PATH NOMINAL [borrow=N] [lend=N] [weight=N]        run NAME QUEUE NODE:UNITS… [minute=N]
submit NAME QUEUE PODSxDEVICES [required=L] [preferred=L] [strategy=S] [priority=N] [minute=N]
end NAME…          its pods are gone                     requeue NAME     gone, and waits again for its old place
cordon NODE… [why=W]     takes no new pods (`why`: by us) quota PATH NOMINAL
uncordon NODE…     takes pods again                      withhold NODE UNITS [why=W]     of cordoned devices
drain CLUSTER why=W      takes nothing new               undrain CLUSTER
cycle              plan, and carry the Plan out          explain NAME     every Reason

A block ends with `----` and its output up to the next empty line.
"""

from collections.abc import Iterator
from dataclasses import replace

from controlplane.core.cycle import explain, plan_cycle
from controlplane.core.demand import StrategyName
from controlplane.core.ids import FlavorName, WorkloadId
from controlplane.core.lifecycle import ClusterState
from controlplane.core.plan import Admit, Decision, Plan, Reclaim
from controlplane.core.policy import Policy
from tests.builders.core import H100, NOW, AWorkload, AWorld, a_workload, a_world

Options = dict[str, str]


class Script:
    """One story being told."""

    def __init__(self) -> None:
        self.world: AWorld = a_world()
        self.workloads: dict[str, AWorkload] = {}
        self.minute = 0

    def run(self, line: str) -> list[str]:
        """Carry one command out; what it says."""
        verb, *words = line.split()
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        says = getattr(self, f"_{verb}")(names, options)
        return list(says or ())

    def _cluster(self, names: list[str], options: Options) -> None:
        levels = tuple(options.get("levels", "block,rack,host").split(","))
        self.world.cluster(names[0], levels, state=ClusterState(options.get("state", "ready")))

    def _racks(self, names: list[str], options: Options) -> None:
        flavor = FlavorName(options.get("flavor", H100))
        devices, block = int(options.get("devices", "8")), options.get("block", "b0")
        self.world.racks(int(names[0]), int(options["nodes"]), devices, flavor, block)

    def _queue(self, names: list[str], options: Options) -> None:
        borrow, lend = (int(options[each]) if each in options else None for each in ("borrow", "lend"))
        flavor = FlavorName(options.get("flavor", H100))
        self.world.queue(names[0], int(names[1]), borrow, lend, int(options.get("weight", "1")), flavor)

    def _quota(self, names: list[str], options: Options) -> None:
        queue = self.world.queues[names[0]]
        quotas = tuple(replace(quota, nominal=int(names[1])) for quota in queue.quotas)
        self.world.queues[names[0]] = replace(queue, quotas=quotas)

    def _run(self, names: list[str], options: Options) -> None:
        name, queue, *places = names
        nodes = {node: int(units) for node, units in (place.split(":") for place in places)}
        self.world.runs(name, queue, nodes, minutes=int(options.get("minute", "0")))

    def _submit(self, names: list[str], options: Options) -> None:
        name, queue, size = names
        pods, devices = map(int, size.split("x"))
        flavors = [FlavorName(flavor) for flavor in options.get("flavors", H100).split(",")]
        workload = a_workload(name).in_queue(queue).asking(pods, devices, *flavors).at(int(options.get("minute", "0")))
        workload = workload.with_priority(int(options.get("priority", "0")))
        if "required" in options:
            workload = workload.required(options["required"])
        if "preferred" in options:
            workload = workload.preferred(options["preferred"])
        workload = workload.having(strategy=StrategyName(options.get("strategy", "pack")))
        self.workloads[name] = workload
        self.world.waits(workload)

    def _end(self, names: list[str], options: Options) -> None:
        for name in names:
            self.world.ends(name)

    def _requeue(self, names: list[str], options: Options) -> None:
        attempt = self.world.running[WorkloadId(names[0])]
        self.world.ends(names[0])
        nodes = tuple(share.node for share in attempt.shares)
        self.world.waits(self.workloads[names[0]].having(preferred_nodes=nodes, next_attempt=attempt.attempt + 1))

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
        cluster = next(each for each in self.world.clusters.values() if each.name == names[0])
        self.world.clusters[cluster.id] = replace(cluster, drain=options.get("why", ""))

    def _undrain(self, names: list[str], options: Options) -> None:
        self._drain(names, {})

    def _explain(self, names: list[str], options: Options) -> Iterator[str]:
        for reason in explain(self.world.build(), Policy(), NOW, WorkloadId(names[0])):
            yield reason.sentence()

    def _cycle(self, names: list[str], options: Options) -> Iterator[str]:
        plan = plan_cycle(self.world.build(), Policy(), NOW)
        self.minute += 1
        for decision in plan.decisions:
            yield self._told(decision)
        for workload, reasons in plan.reasons.items():
            yield f"{workload} waits: {reasons[0].sentence()}"
        if not plan.decisions and not plan.reasons:
            yield "nothing to do"
        self._carry_out(plan)

    def _told(self, decision: Decision) -> str:
        if isinstance(decision, Admit):
            nodes: dict[str, int] = {}
            for pod in decision.placements[0].pods:
                name = self.world.nodes[pod.node].name
                nodes[name] = nodes.get(name, 0) + 1
            places = " ".join(name if count == 1 else f"{name}*{count}" for name, count in nodes.items())
            return f"{decision.workload} starts in {self.world.clusters[decision.placements[0].cluster].name}: {places}"
        if isinstance(decision, Reclaim):
            return f"{decision.workload} stops: {decision.reason.sentence()}"
        places = " ".join(f"{self.world.nodes[share.node].name}:{share.amount}" for share in decision.shares)
        return f"kept for {decision.workload}: {places}"

    def _carry_out(self, plan: Plan) -> None:
        for decision in plan.decisions:
            if isinstance(decision, Admit):
                self.world.earmarks.pop(decision.workload, None)
                self.world.admits(decision, minutes=60 + self.minute)
            elif isinstance(decision, Reclaim):
                self.world.stops(decision.workload)
            else:
                nodes = {self.world.nodes[share.node].name: share.amount for share in decision.shares}
                self.world.keeps(decision.workload, nodes)


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
