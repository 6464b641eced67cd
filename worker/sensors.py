"""Which sensors a training on a device is observed with."""

from worker.nvml import open_nvml
from worker.powercap import open_powercap
from worker.telemetry import Sensors


def open_sensors(device: str, *, visible: str | None = None) -> Sensors | None:
    """The accelerators' for a training there, the processor packages' for one on a processor.

    None where there is nothing that can be read. `visible` is CUDA_VISIBLE_DEVICES.
    """
    if device.startswith("cuda"):
        return open_nvml(visible=visible)
    return open_powercap()
