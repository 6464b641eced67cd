"""AMD's accelerators by a stand-in for amdsmi: its calls and answers are those of release 7.0.2."""

import importlib.machinery
import sys
from enum import IntEnum
from types import ModuleType

import pytest

from finishline.amd import amd_facts, amd_memory_bytes
from finishline.cli.up.workers import LocalWorker
from finishline.device_health import problems_of
from finishline.devices import find_devices
from finishline.machine import local_system
from worker.sensors import open_amdsmi, open_sensors


class AmdSmiException(Exception):  # noqa: N818 - the library's name
    """Base of everything that the library raises."""


class AmdSmiLibraryException(AmdSmiException):
    """What a call raises that a card or driver does not support."""


class AmdSmiClkType(IntEnum):
    GFX = 1


class AmdSmiTemperatureType(IntEnum):
    JUNCTION = 2


class AmdSmiTemperatureMetric(IntEnum):
    CURRENT = 0


UUIDS = ["GPU-1f2e3d4c5b6a7980", "GPU-ffee3d4c5b6a7981"]
ANSWERS = {
    "amdsmi_get_gpu_asic_info": lambda n: {
        "market_name": "AMD Instinct MI300X",
        "vendor_id": "0x1002",
        "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
        "device_id": "0x74a1",
        "asic_serial": f"0x{UUIDS[n][4:].upper()}",
        "num_compute_units": 304,
        "target_graphics_version": "gfx942",
    },
    "amdsmi_get_gpu_enumeration_info": lambda n: {
        "drm_render": 128 + n,
        "drm_card": n,
        "hsa_id": n + 1,
        "hip_id": n,
        "hip_uuid": UUIDS[n],
    },
    "amdsmi_get_gpu_vram_info": lambda n: {"vram_type": 7, "vram_size": 196592},
    "amdsmi_get_gpu_driver_info": lambda n: {"driver_name": "amdgpu", "driver_version": "6.16.6"},
    "amdsmi_get_gpu_process_list": lambda n: [],
    "amdsmi_get_gpu_total_ecc_count": lambda n: {
        "correctable_count": 5,
        "uncorrectable_count": 0,
        "deferred_count": 0,
    },
    "amdsmi_get_violation_status": lambda n: {
        "active_prochot_thrm": "N/A",
        "active_socket_thrm": False,
        "active_ppt_pwr": False,
        "per_socket_thrm": 0,
    },
    # 15.259 microjoules a step, as ROCm's documentation gives it.
    "amdsmi_get_energy_count": lambda n: {
        "energy_accumulator": 1_000_000 * (n + 1),
        "counter_resolution": 15.259,
        "timestamp": 123,
    },
    "amdsmi_get_power_info": lambda n: {
        "current_socket_power": 300 if n else "N/A",
        "average_socket_power": "N/A" if n else 200,
    },
    "amdsmi_get_clock_info": lambda n, kind: {"clk": 2100 if n else 1900, "max_clk": 2100},
    "amdsmi_get_temp_metric": lambda n, sensor, metric: 45 + n,
    "amdsmi_get_gpu_activity": lambda n: {"gfx_activity": 50 * (n + 1), "mm_activity": "N/A"},
}


class Library(ModuleType):
    """Two cards whose handles are their numbers, listed by their sockets and not as HIP counts."""

    def __init__(self, *, driver=True, **changed):
        super().__init__("amdsmi")
        self.__spec__ = importlib.machinery.ModuleSpec("amdsmi", None)
        kinds = (
            AmdSmiException,
            AmdSmiLibraryException,
            AmdSmiClkType,
            AmdSmiTemperatureType,
            AmdSmiTemperatureMetric,
        )
        for kind in kinds:
            setattr(self, kind.__name__, kind)
        self.driver = driver
        for name, answer in (ANSWERS | changed).items():
            if answer is not None:  # A release before it was added.
                setattr(self, name, answer)

    def amdsmi_init(self):
        if not self.driver:
            raise AmdSmiLibraryException("Error code:\n\t34 | AMDSMI_STATUS_DRIVER_NOT_LOADED")

    def amdsmi_get_processor_handles(self):
        return [1, 0]


def refuse(*_):
    raise AmdSmiLibraryException("2 | AMDSMI_STATUS_NOT_SUPPORTED")


@pytest.fixture
def amd(monkeypatch, tmp_path):
    """Install the stand-in, on a host without NVIDIA's tool."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("ROCR", "HIP", "CUDA"):
        monkeypatch.delenv(f"{name}_VISIBLE_DEVICES", raising=False)

    def install(**changed):
        library = Library(**changed)
        monkeypatch.setitem(sys.modules, "amdsmi", library)
        return library

    return install


def test_cards_are_counted_as_hip_counts_them_and_name_the_class(amd):
    amd()
    found = find_devices()
    assert [(each.uuid, each.vendor) for each in found.accelerators] == [
        (uuid, "amd") for uuid in UUIDS
    ]
    assert found.problem is None
    system = local_system("cuda")
    assert system["hardware_class"] == "2x-amd-instinct-mi300x"
    assert (system["accelerator"], system["accelerator_count"]) == ("AMD Instinct MI300X", 2)
    assert local_system("cuda:1")["hardware_class"] == "1x-amd-instinct-mi300x"


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({"ROCR": UUIDS[1]}, [1]),
        ({"ROCR": "1,0", "HIP": "0"}, [1]),
        ({"HIP": "1"}, [1]),
        ({"HIP": "1", "CUDA": "0"}, [1]),
        ({"CUDA": "1"}, [1]),
        ({"ROCR": f"{UUIDS[1]},{UUIDS[0]}"}, [1, 0]),
        ({"ROCR": ""}, []),
    ],
)
def test_the_variables_of_rocm_show_cards(amd, monkeypatch, variables, shown):
    amd()
    for name, value in variables.items():
        monkeypatch.setenv(f"{name}_VISIBLE_DEVICES", value)
    assert [each.uuid for each in find_devices().accelerators] == [UUIDS[n] for n in shown]


def test_a_release_without_enumeration_has_the_uuid_by_the_serial_number(amd):
    amd(
        amdsmi_get_gpu_enumeration_info=None,
        amdsmi_get_gpu_asic_info=lambda n: (
            ANSWERS["amdsmi_get_gpu_asic_info"](n) | {"market_name": "N/A"}
        ),
    )
    found = find_devices().accelerators
    assert [(each.uuid, each.name) for each in found] == [
        (uuid, "AMD 0x74a1") for uuid in reversed(UUIDS)
    ]


def test_without_a_driver_the_library_is_quoted_and_without_a_library_nothing_is(
    amd, monkeypatch, tmp_path, capsys
):
    amd(driver=False)
    assert "34 | AMDSMI_STATUS_DRIVER_NOT_LOADED" in find_devices().problem
    assert open_amdsmi(UUIDS) is None
    # As the package does where libamd_smi.so is missing.
    (tmp_path / "amdsmi.py").write_text("print('Unable to find it')\n{}['libamd_smi.so']\n")
    monkeypatch.delitem(sys.modules, "amdsmi")
    monkeypatch.syspath_prepend(tmp_path)
    assert (find_devices().accelerators, find_devices().problem) == ((), None)
    assert capsys.readouterr().out == ""


def test_trouble_of_a_card_is_told_where_the_library_tells_it(amd, monkeypatch):
    monkeypatch.setattr("finishline.device_health.torch_platforms", lambda: {"hip"})
    amd()
    assert problems_of(find_devices().accelerators) == []
    amd(
        amdsmi_get_gpu_process_list=lambda n: [{"name": "N/A", "pid": 4711, "mem": 1}] if n else [],
        amdsmi_get_gpu_total_ecc_count=lambda n: {"uncorrectable_count": 3} if n else refuse(),
        amdsmi_get_violation_status=lambda n: {"active_socket_thrm": True} if n else refuse(),
    )
    card = f"AMD Instinct MI300X ({UUIDS[1]})"
    assert problems_of(find_devices().accelerators) == [
        f"{card} is busy: process 4711 uses it",
        f"{card} has 3 uncorrected ECC errors since the driver's start",
        f"{card} is throttled by heat",
    ]
    monkeypatch.setattr("finishline.device_health.torch_platforms", lambda: {"cuda"})
    assert "torch is installed without ROCm" in problems_of(find_devices().accelerators)[-1]


def test_memory_and_driver_are_the_librarys(amd):
    amd()
    assert amd_memory_bytes(UUIDS) == dict.fromkeys(UUIDS, 196592 * 2**20)
    assert amd_facts(UUIDS[0]) == {"driver": "6.16.6", "accelerator_memory": "196592 MiB"}
    amd(amdsmi_get_gpu_vram_info=refuse)
    assert amd_memory_bytes(UUIDS) == {}


def test_energy_and_sensors_are_of_the_cards_that_train(amd):
    amd()
    sensors = open_sensors("cuda")
    assert sensors.source == "amdsmi"
    assert sensors.energy_joules() == pytest.approx(3 * 15.259)
    assert open_sensors("cuda:1").energy_joules() == pytest.approx(2 * 15.259)
    reading = sensors.read()
    assert (reading.watts, reading.clock_mhz) == (500.0, 2000.0)
    assert (reading.celsius, reading.utilisation_percent) == (46.0, 75.0)


def test_a_sensor_that_one_card_lacks_is_absent(amd):
    amd(
        amdsmi_get_energy_count=lambda n: refuse() if n else ANSWERS["amdsmi_get_energy_count"](n),
        amdsmi_get_gpu_activity=lambda n: {"gfx_activity": "N/A"},
        amdsmi_get_temp_metric=refuse,
    )
    sensors = open_amdsmi(UUIDS)
    assert sensors.energy_joules() is None
    reading = sensors.read()
    assert (reading.watts, reading.celsius, reading.utilisation_percent) == (500.0, None, None)


def test_a_worker_of_up_is_shown_its_card_by_rocm():
    shown = LocalWorker("-cuda-1", "cuda:1", UUIDS[1], "amd").settings()
    assert (shown["ROCR_VISIBLE_DEVICES"], shown["HIP_VISIBLE_DEVICES"]) == (UUIDS[1], "0")
    assert "CUDA_VISIBLE_DEVICES" not in shown


@pytest.mark.parametrize(("built", "vendors"), [("hip", {"amd"}), ("cuda", {"nvidia"})])
def test_on_a_host_with_both_those_count_that_torch_is_built_for(
    amd, monkeypatch, tmp_path, built, vendors
):
    amd()
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: GPU-aa)'\n")
    tool.chmod(0o755)
    monkeypatch.setattr("finishline.devices.torch_platforms", lambda: {built})
    assert {each.vendor for each in find_devices().accelerators} == vendors
