"""The precision of a reference: choose it, and refuse one that a device lacks."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from finishline.rules.measurements import PrecisionName
from reference_models import HyperparameterError, PrecisionError, Reference

NEEDS_AMPERE = ("tf32", "bf16")
AMPERE = (8, 0)


def configured(
    reference: Reference, hyperparameters: Mapping[str, float], precision: PrecisionName | None
) -> Any:
    """Return a configuration in a precision, None for its own. Raises HyperparameterError."""
    config = reference.configure(hyperparameters)
    if precision is None:
        return config
    offered: tuple[str, ...] = getattr(reference, "PRECISIONS", ())
    if precision not in offered:
        raise HyperparameterError(
            f"the reference does not train in {precision}",
            field="precision",
            expected=" or ".join(offered) or "no precision: this reference chooses its own",
        )
    return replace(config, precision=precision)


def require_precision(precision: str | None, device: str) -> None:
    """Raise PrecisionError if a device lacks a precision. A processor is checked without torch."""
    if precision is None:
        return
    if not device.startswith("cuda"):
        if precision == "tf32":
            raise _lacking(precision, device, "a processor has no TF32", "fp32, bf16 or fp16")
        return
    import torch

    if torch.version.hip is not None:
        if precision == "tf32":
            raise _lacking(precision, device, "this GPU has no TF32", "fp32, bf16 or fp16")
        return
    if precision in NEEDS_AMPERE and torch.cuda.get_device_capability(device) < AMPERE:
        why = f"{torch.cuda.get_device_name(device)} is older than compute capability 8.0"
        raise _lacking(precision, device, why, "fp32 or fp16")


def _lacking(precision: str, device: str, why: str, instead: str) -> PrecisionError:
    return PrecisionError(
        f"{device} cannot train in {precision}: {why}", field="precision", expected=instead
    )
