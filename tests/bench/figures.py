"""What a figure is, how it is judged, and where it is written. The figures themselves stand in `figure_*.py`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

REPORT = Path("build/bench.json")


@dataclass(frozen=True, slots=True)
class Target:
    """The bound that a value must keep: at least or at most `bound`."""

    bound: float
    is_floor: bool

    def __str__(self) -> str:
        return f"{'>=' if self.is_floor else '<='} {self.bound:g}"

    def holds(self, value: float) -> bool:
        return value >= self.bound if self.is_floor else value <= self.bound


@dataclass(frozen=True, slots=True)
class Result:
    """One measured figure with the parameters of its protocol."""

    figure: str
    value: float
    unit: str
    target: Target | None
    parameters: Mapping[str, object] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.target is None:
            return "shown"
        return "met" if self.target.holds(self.value) else "missed"

    def line(self) -> str:
        target = "-" if self.target is None else str(self.target)
        return f"{self.figure} {self.value:g} {self.unit} {target} {self.verdict}"

    def record(self) -> dict[str, object]:
        target = None if self.target is None else str(self.target)
        return asdict(self) | {"target": target, "verdict": self.verdict}


Figure = Callable[[], list[Result]]


def at_least(bound: float) -> Target:
    return Target(bound, is_floor=True)


def at_most(bound: float) -> Target:
    return Target(bound, is_floor=False)


def write_report(results: list[Result], report: Path = REPORT) -> None:
    """Write all results as one JSON list, whole or not at all."""
    report.parent.mkdir(parents=True, exist_ok=True)
    draft = report.with_suffix(".draft")
    draft.write_text(json.dumps([result.record() for result in results], indent=1) + "\n")
    draft.replace(report)
