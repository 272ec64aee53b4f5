"""The knobs of one Pool, versioned; each has a safe default. Durations in whole seconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True, slots=True)
class Policy:
    """What a cycle may do. `version` is stored with each cycle, so that replay uses the same knobs."""

    version: int = 1
    work_units_max: int = 200_000  # node and Workload looks per cycle; counted, not clocked, so replay agrees
    admissions_max: int = 2_000  # decisions per cycle: bounds the commit
    reclaim: bool = True
    earmark_seconds: int = 600
    evidence_seconds: int = 300
    inventory_stale_seconds: int = 900
    inventory_fall_permille_per_hour: int = 100  # of what a cluster owned: what is no longer told stops counting so
    exclusion_seconds: int = 900
    exclusions_before_reason: int = 3
    node_lost_seconds: int = 60
    backoff_seconds: int = 30
    history_half_life_seconds: int = 604_800  # of contended usage
    history_strength_permille: int = 1_000  # how much the past moves weights and owners' turns; 0: not at all
    history_floor_permille: int = 10  # of a Queue's weight: what history always leaves of it
    history_margin_permille: int = 20  # of a Queue's weight: smaller changes by history leave it as it was
    weights_every_seconds: int = 3_600  # history is reckoned into weights so often
    dynamic_spread_below_permille: int = 300  # of a Flavor in use: below it, strategy dynamic spreads
    dynamic_pack_from_permille: int = 700  # and from here on it packs; between the two it keeps gangs compact
    dynamic_large_devices: int = 64  # a gang that asks for so many units of a Flavor is large
    dynamic_large_permille: int = 250  # of the units that wait for it in large gangs: from here on dynamic packs anyway
    cluster_preference: Mapping[str, int] = field(default_factory=dict)  # by name, lower first; 0 where not named


def policy_from(version: int, spec: Mapping[str, object]) -> Policy:
    """Build a Policy from a stored document's spec; knobs that it does not name keep their defaults.

    Documents are validated when they are applied, so an unknown name here is a broken invariant: AssertionError.
    """
    known = {each.name for each in fields(Policy)} - {"version"}
    assert set(spec) <= known, f"unknown policy knobs {sorted(set(spec) - known)}"
    return Policy(version=version, **spec)  # type: ignore[arg-type]  # validated where it was applied
