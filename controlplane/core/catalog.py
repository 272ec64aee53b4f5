"""Accelerator models as data, and the one rule that turns a raw model name into a Flavor's name.

Memory is the size it is sold by, in GB. Speed is dense half-precision throughput in thousandths of an
H100's, a first guess for start estimates and for PodSets that may choose; people may override it. A
model that is not listed still gets a Flavor: its name and memory are read from what the node says.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from controlplane.core.ids import FlavorName


class Fabric(StrEnum):
    """How devices of one node or rack reach each other."""

    NONE = "none"
    NVLINK = "nvlink"
    NVLINK_RACK = "nvlink-rack"  # one domain over many nodes
    INFINITY_FABRIC = "infinity-fabric"
    ETHERNET = "ethernet"
    ICI = "ici"
    NEURONLINK = "neuronlink"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One model. Several sizes of memory: the node says which."""

    memory_gb: tuple[int, ...]
    fabric: Fabric
    speed: int


ACCELERATORS: Mapping[str, Accelerator] = {
    "nvidia-v100": Accelerator((16, 32), Fabric.NVLINK, 126),
    "nvidia-t4": Accelerator((16,), Fabric.NONE, 66),
    "nvidia-a10": Accelerator((24,), Fabric.NONE, 126),
    "nvidia-a30": Accelerator((24,), Fabric.NONE, 167),
    "nvidia-a40": Accelerator((48,), Fabric.NONE, 151),
    "nvidia-a100": Accelerator((40, 80), Fabric.NVLINK, 315),
    "nvidia-l4": Accelerator((24,), Fabric.NONE, 122),
    "nvidia-l40": Accelerator((48,), Fabric.NONE, 183),
    "nvidia-l40s": Accelerator((48,), Fabric.NONE, 366),
    "nvidia-h20": Accelerator((96, 141), Fabric.NVLINK, 150),
    "nvidia-h100": Accelerator((64, 80, 96), Fabric.NVLINK, 1000),
    "nvidia-h100-nvl": Accelerator((94,), Fabric.NONE, 844),
    "nvidia-h200": Accelerator((141,), Fabric.NVLINK, 1000),
    "nvidia-h200-nvl": Accelerator((141,), Fabric.NONE, 844),
    "nvidia-gh200": Accelerator((96, 144), Fabric.NVLINK, 1000),
    "nvidia-b200": Accelerator((192,), Fabric.NVLINK, 2275),
    "nvidia-b300": Accelerator((288,), Fabric.NVLINK, 2275),
    "nvidia-gb200": Accelerator((192,), Fabric.NVLINK_RACK, 2528),
    "nvidia-gb300": Accelerator((288,), Fabric.NVLINK_RACK, 2528),
    "nvidia-rtx-4090": Accelerator((24,), Fabric.NONE, 167),
    "nvidia-rtx-pro-6000-blackwell": Accelerator((96,), Fabric.NONE, 505),
    "amd-mi210": Accelerator((64,), Fabric.INFINITY_FABRIC, 183),
    "amd-mi250x": Accelerator((128,), Fabric.INFINITY_FABRIC, 387),
    "amd-mi300a": Accelerator((128,), Fabric.INFINITY_FABRIC, 992),
    "amd-mi300x": Accelerator((192,), Fabric.INFINITY_FABRIC, 1322),
    "amd-mi325x": Accelerator((256,), Fabric.INFINITY_FABRIC, 1322),
    "amd-mi355x": Accelerator((288,), Fabric.INFINITY_FABRIC, 2528),
    "intel-gaudi2": Accelerator((96,), Fabric.ETHERNET, 437),
    "intel-gaudi3": Accelerator((128,), Fabric.ETHERNET, 1855),
}

# Words of a raw name that say nothing of the model: makers, product lines, form factors, kinds of memory.
_NOISE = re.compile(
    r"nvidia|amd|intel|advanced|micro|devices|tesla|geforce|quadro|instinct|radeon|habana|"
    r"sxm\d*|pcie?|oam|hbm\w*|gddr\w*|hgx|dgx|hl|server|edition|workstation|graphics|accelerator"
)
_STRIPPED = re.compile(r"-shared$|-mig-.*$")
_MEMORY = re.compile(r"(\d+)gi?b")
_MIG = re.compile(r"\d+(c\.\d+)?g\.\d+gb([+.]me\S*)?")
_SIZES = (4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 144, 192, 256, 288)
_MIB_PER_GB_SOLD = 1000  # what a card of n GB shows lies between 0.95 and 1.03 times n × 1000 MiB


def flavor_of(
    vendor: str, model_raw: str, memory_mib: int | None, profile: str | None = None, price_class: str | None = None
) -> FlavorName:
    """`vendor-model[-memory][-profile][-priceclass]`. `memory_mib` is the whole card's, not a partition's."""
    model, sold = _read(model_raw.lower())
    base = f"{_clean(vendor)}-{model or 'unknown'}"
    known = ACCELERATORS.get(base)
    memory = sold or _memory(known.memory_gb if known is not None else _SIZES, memory_mib, known)
    parts = [base, f"{memory}gb" if memory else "", _profile(profile), _clean(price_class or "")]
    return FlavorName("-".join(part for part in parts if part))


def speed_of(flavor: FlavorName) -> int | None:
    """Thousandths of an H100's speed; None for a model that is not listed."""
    matches = [model for model in ACCELERATORS if flavor == model or flavor.startswith(model + "-")]
    return ACCELERATORS[max(matches, key=len)].speed if matches else None


def _read(raw: str) -> tuple[str, int | None]:
    """The model's own words and the memory it is sold by, if the name says so."""
    words, sold = [], None
    for word in re.split(r"[^a-z0-9.]+", _STRIPPED.sub("", raw.strip())):
        if found := _MEMORY.fullmatch(word):
            sold = int(found.group(1))
        elif word and not _NOISE.fullmatch(word):
            words.append(word)
    return "-".join(words), sold


def _memory(sizes: tuple[int, ...], memory_mib: int | None, known: Accelerator | None) -> int | None:
    if known is not None and len(known.memory_gb) == 1:
        return known.memory_gb[0]
    if not memory_mib:
        return None
    return min(sizes, key=lambda size: (abs(size * _MIB_PER_GB_SOLD - memory_mib), size))


def _profile(profile: str | None) -> str:
    text = (profile or "").lower()
    if _MIG.fullmatch(text):
        text = f"mig-{text}"
    return _clean(text)


def _clean(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-.")
