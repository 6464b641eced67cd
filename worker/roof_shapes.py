"""The shapes that roofs are measured in: large enough for the roof, small enough to be quick."""

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True)
class Shapes:
    """Square matmuls by their side, convolutions as (batch, channels, size), bytes of a copy."""

    gemm_sides: tuple[int, ...]
    convolutions: tuple[tuple[int, int, int], ...]
    copy_bytes: int


SHAPES = {
    "cpu": Shapes(
        gemm_sides=(256, 512, 1024),
        convolutions=((4, 64, 32), (4, 128, 16)),
        copy_bytes=256 * MIB,
    ),
    "cuda": Shapes(
        gemm_sides=(4096, 8192),
        convolutions=((128, 128, 56), (128, 256, 28)),
        copy_bytes=1024 * MIB,
    ),
}
