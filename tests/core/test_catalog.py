"""Flavor names from what nodes say. The raw names and sizes are those of public node objects."""

import pytest

from controlplane.core.catalog import ACCELERATORS, flavor_of, speed_of
from controlplane.core.ids import FlavorName


@pytest.mark.parametrize(
    ("vendor", "model", "memory_mib", "profile", "flavor"),
    [
        ("nvidia", "NVIDIA-H100-80GB-HBM3", 81559, None, "nvidia-h100-80gb"),
        ("nvidia", "NVIDIA-H100-80GB-HBM3-SHARED", 81559, "shared", "nvidia-h100-80gb-shared"),
        ("nvidia", "NVIDIA-H100-NVL", 95830, None, "nvidia-h100-nvl-94gb"),
        ("nvidia", "NVIDIA-H200", 143771, None, "nvidia-h200-141gb"),
        ("nvidia", "NVIDIA-GB200", 189471, None, "nvidia-gb200-192gb"),
        ("nvidia", "NVIDIA-GB200-192GB-HBM3e", None, None, "nvidia-gb200-192gb"),
        ("nvidia", "NVIDIA-A100-SXM4-80GB", 81920, None, "nvidia-a100-80gb"),
        ("nvidia", "NVIDIA-A100-SXM4-40GB", 40960, None, "nvidia-a100-40gb"),
        ("nvidia", "NVIDIA-A100-PCIE-40GB", 40537, None, "nvidia-a100-40gb"),
        ("nvidia", "A100-SXM4-40GB", 40537, None, "nvidia-a100-40gb"),
        ("nvidia", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", None, "1g.5gb", "nvidia-a100-40gb-mig-1g.5gb"),
        ("nvidia", "NVIDIA-A100-SXM4-40GB", 40960, "1g.10gb+me", "nvidia-a100-40gb-mig-1g.10gb-me"),
        ("nvidia", "NVIDIA-L4", 23034, None, "nvidia-l4-24gb"),
        ("nvidia", "NVIDIA-L40S-SHARED", 46068, None, "nvidia-l40s-48gb"),
        ("nvidia", "Tesla-T4", 15360, None, "nvidia-t4-16gb"),
        ("nvidia", "Tesla-V100-PCIE-32GB", 32768, None, "nvidia-v100-32gb"),
        ("nvidia", "NVIDIA-GeForce-RTX-4090", 24564, None, "nvidia-rtx-4090-24gb"),
        (
            "nvidia",
            "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
            97887,
            None,
            "nvidia-rtx-pro-6000-blackwell-96gb",
        ),
        ("amd", "AMD_Instinct_MI300X_OAM", 196592, None, "amd-mi300x-192gb"),
        ("amd", "AMD_Instinct_MI300X_OAM", 196592, "cpx_nps4", "amd-mi300x-192gb-cpx-nps4"),
        ("nvidia", "NVIDIA-Unheard-Of", 46068, None, "nvidia-unheard-of-48gb"),
        ("nvidia", "NVIDIA-Unheard-Of", None, None, "nvidia-unheard-of"),
        ("nvidia", "", None, None, "nvidia-unknown"),
    ],
)
def test_a_flavor_is_named_by_vendor_model_memory_and_profile(
    vendor: str, model: str, memory_mib: int | None, profile: str | None, flavor: str
) -> None:
    assert flavor_of(vendor, model, memory_mib, profile) == flavor


def test_a_price_class_comes_last() -> None:
    assert flavor_of("amd", "MI300X", 196592, None, "spot") == "amd-mi300x-192gb-spot"


@pytest.mark.parametrize("model", sorted(ACCELERATORS))
def test_every_listed_model_is_found_again_by_its_name(model: str) -> None:
    vendor, _, name = model.partition("-")
    for memory_gb in ACCELERATORS[model].memory_gb:
        flavor = flavor_of(vendor, name.upper(), memory_gb * 1000)
        assert flavor == f"{model}-{memory_gb}gb"
        assert speed_of(flavor) == ACCELERATORS[model].speed


def test_a_model_that_is_not_listed_has_no_speed() -> None:
    assert speed_of(FlavorName("nvidia-unheard-of-48gb")) is None
    assert speed_of(FlavorName("nvidia-h1000")) is None
