"""`finishline worker probe` beside a driver's tool that answers as real ones do."""

import json
import sys

import pytest

from finishline.cli.main import main

LISTED = "\n".join(f"GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-{n}f0c-4a)" for n in range(2))
SLICED = """GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0f0c-4a)
  MIG 1g.10gb     Device  0: (UUID: MIG-aa11)"""
WHOLE = {
    "--query-gpu=uuid,memory.total": "GPU-0f0c-4a, 81559\nGPU-1f0c-4a, 81559",
    "--query-gpu=uuid,ecc.errors.uncorrected.volatile.total": "GPU-0f0c-4a, 0\nGPU-1f0c-4a, [N/A]",
    "--query-gpu=uuid,clocks_event_reasons.active": (
        "GPU-0f0c-4a, 0x0000000000000001\nGPU-1f0c-4a, 0x0000000000000004"
    ),
    "--query-compute-apps=gpu_uuid,pid": "",
}


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Lets nvidia-smi give recorded answers by its first argument; others are refused."""

    def answer(listed, *, code=0, **answers):
        table = WHOLE | {"-L": listed} | answers
        (tmp_path / "answers.json").write_text(json.dumps(table))
        tool = tmp_path / "nvidia-smi"
        tool.write_text(
            f"#!{sys.executable}\nimport json, sys\n"
            f"answers = json.load(open({str(tmp_path / 'answers.json')!r}))\n"
            "said = answers.get(sys.argv[1])\n"
            "print('Field is not a valid field to query.' if said is None else said)\n"
            f"sys.exit(2 if said is None else {code})\n"
        )
        tool.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("worker.commands.probe.without_platform", list)
    return answer


@pytest.fixture
def probed(capsys):
    def run(*options):
        code = main(["worker", "probe", *options, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize(
    ("listed", "options", "hardware_class", "cards"),
    [
        (LISTED, (), "2x-nvidia-h100-80gb-hbm3",
         [("GPU-0f0c-4a", 81559 * 2**20), ("GPU-1f0c-4a", 81559 * 2**20)]),
        (LISTED, ("--device", "cuda:1"), "1x-nvidia-h100-80gb-hbm3",
         [("GPU-1f0c-4a", 81559 * 2**20)]),
        (SLICED, (), "1x-nvidia-h100-80gb-hbm3-mig-1g-10gb", [("MIG-aa11", None)]),
        ("NVIDIA-SMI has failed", ("--device", "cpu"), "cpu-", []),
    ],
)  # fmt: skip
def test_visible_cards_have_their_memory(driver, probed, listed, options, hardware_class, cards):
    driver(listed, code=9 if cards == [] else 0)
    code, view = probed(*options)
    assert (code, view["problems"]) == (0, [])
    assert view["hardware_class"].startswith(hardware_class)
    assert [(each["uuid"], each["memory_bytes"]) for each in view["accelerators"]] == cards


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"--query-compute-apps=gpu_uuid,pid": "GPU-1f0c-4a, 4711"}, "is busy: process 4711"),
        (
            {"--query-gpu=uuid,ecc.errors.uncorrected.volatile.total": "GPU-1f0c-4a, 3"},
            "3 uncorrected ECC errors",
        ),
        (
            {"--query-gpu=uuid,clocks_event_reasons.active": "GPU-1f0c-4a, 0x0000000000000060"},
            "throttled by heat and by heat, in hardware",
        ),
    ],
)
def test_a_card_in_trouble_is_a_problem_where_it_is_used(answers, told, driver, probed):
    driver(LISTED, **answers)
    code, view = probed()
    assert code == 1
    (problem,) = view["problems"]
    assert told in problem
    assert "GPU-1f0c-4a" in problem
    assert probed("--device", "cuda:0") == (0, probed("--device", "cuda:0")[1])


def test_an_older_driver_names_the_reasons_otherwise(driver, probed, monkeypatch):
    monkeypatch.delitem(WHOLE, "--query-gpu=uuid,clocks_event_reasons.active")
    driver(LISTED, **{"--query-gpu=uuid,clocks_throttle_reasons.active": "GPU-0f0c-4a, 0x80"})
    assert "by its power supply" in probed()[1]["problems"][0]


@pytest.mark.parametrize(
    ("listed", "code", "options", "told"),
    [
        ("NVIDIA-SMI has failed because ...", 9, (), "NVIDIA-SMI has failed"),
        (LISTED, 0, ("--device", "cuda:7"), "no cuda:7 on this machine; expected cpu or cuda:0"),
        (LISTED, 0, ("--device", "tpu"), "'tpu' is no device"),
    ],
)
def test_a_device_that_is_not_here_is_a_problem(listed, code, options, told, driver, probed):
    driver(listed, code=code)
    exit_code, view = probed(*options)
    assert exit_code == 1
    assert told in view["problems"][0]


def test_a_torch_without_cuda_is_a_problem_of_an_accelerator(driver, probed, tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise SystemExit('it is not imported')")
    version = tmp_path / "torch" / "version.py"
    version.write_text("__version__ = '2.13.0'\ncuda: Optional[str] = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    driver(LISTED)
    assert "without CUDA" in probed()[1]["problems"][0]
    assert probed("--device", "cpu")[1]["problems"] == []
    version.write_text("cuda: Optional[str] = '13.0'\n")
    assert probed()[0] == 0
