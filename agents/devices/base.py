"""What every vendor's reader offers: does this node carry its devices, and which are they?

A reader reports facts from one node and never raises on what a cluster publishes; what it cannot read becomes a
discrepancy. Flavor names are the plane's business.
"""

from dataclasses import dataclass, field
from typing import Protocol

from agents.facts import NodeFacts
from controlplane.contract.agent.inventory import DeviceReport, DiscrepancyReport


@dataclass(slots=True)
class Reading:
    """What one reader found on one node. `resources` are the resource names that it explains."""

    devices: list[DeviceReport] = field(default_factory=list)
    resources: set[str] = field(default_factory=set)
    driver_versions: dict[str, str] = field(default_factory=dict)
    discrepancies: list[DiscrepancyReport] = field(default_factory=list)

    def disagree(self, code: str, believed: str, **values: object) -> None:
        texts = {name: str(value)[:1024] for name, value in values.items()}
        self.discrepancies.append(DiscrepancyReport(code=code, values=texts, believed=believed))


class DeviceReader(Protocol):
    """One vendor's way of publishing devices."""

    def matches(self, node: NodeFacts) -> bool: ...

    def read(self, node: NodeFacts) -> Reading: ...
