"""Two names of one accelerator, and of two."""

import pytest

from finishline.rules.scoring.utilisation import is_same_kind


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM5", True),
        ("8x NVIDIA A100-SXM4-40GB", "nvidia_a100", True),
        ("Tesla T4", "NVIDIA T4 GPU", True),
        ("Tesla V100-SXM2-16GB", "V100 SXM3 32GB", True),
        ("AMD Instinct MI300X OAM", "MI300X", True),
        ("TPUv3", "Google Cloud TPU v3", True),
        ("Gaudi 2", "Gaudi2", True),
        ("RTX A6000", "NVIDIA A6000", True),
        ("NVIDIA GPU", "H100", True),  # Tells nothing.
        ("H100 80GB", "A100 80GB", False),
        ("H200", "GH200 480GB", False),
        ("L40", "L40S", False),
        ("A10G", "A100", False),
        ("GeForce RTX 3090", "GeForce RTX 4090", False),
        ("TPU v5e", "TPU v5p", False),
        ("Radeon RX 6800XT", "RX 6900XT", False),
    ],
)
def test_names_of_one_accelerator_are_told_from_those_of_two(
    one: str, other: str, same: bool
) -> None:
    assert is_same_kind(one, other) is is_same_kind(other, one) is same
