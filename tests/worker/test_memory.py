import sys
from types import SimpleNamespace

from worker.memory import accelerator_peak_bytes, resident_peak_bytes


def test_peak_of_the_resident_set_is_in_bytes(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmPeak:\t 900 kB\nVmHWM:\t   512 kB\nVmRSS:\t 400 kB\n")
    assert resident_peak_bytes(status) == 512 * 1024


def test_this_process_has_a_peak_between_a_megabyte_and_the_memory_of_any_host():
    assert 2**20 < resident_peak_bytes() < 2**50


def test_without_the_kernels_file_the_peak_is_absent(tmp_path):
    assert resident_peak_bytes(tmp_path / "absent") is None


def test_accelerators_are_added_up_once_torch_uses_them(monkeypatch):
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        max_memory_allocated=[100, 50].__getitem__,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert accelerator_peak_bytes() == 150
    cuda.is_initialized = lambda: False
    assert accelerator_peak_bytes() is None
