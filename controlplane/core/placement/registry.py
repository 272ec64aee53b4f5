"""The placement strategies by name; a new one adds its line here."""

from collections.abc import Mapping

from controlplane.core.demand import StrategyName
from controlplane.core.placement.strategies.base import Strategy
from controlplane.core.placement.strategies.compact import Compact
from controlplane.core.placement.strategies.dynamic import Dynamic
from controlplane.core.placement.strategies.pack import Pack
from controlplane.core.placement.strategies.spread import Spread

_PICKED: Mapping[StrategyName, Strategy] = {
    StrategyName.PACK: Pack(),
    StrategyName.SPREAD: Spread(),
    StrategyName.COMPACT: Compact(),
}

STRATEGIES: Mapping[StrategyName, Strategy] = {**_PICKED, StrategyName.DYNAMIC: Dynamic(_PICKED, StrategyName.PACK)}
