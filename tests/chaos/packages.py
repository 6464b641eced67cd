"""Training packages of digits, made of the example of `finishline init`."""

from importlib.resources import files

EXAMPLE = files("finishline.rules.trainings").joinpath("template")
RIDGE = "3.0, 1.0, 400, 5"


def digits_package(number):
    """The parts of an honest package; every number makes another program."""
    text = EXAMPLE.joinpath("train.py.example").read_text()
    assert RIDGE in text
    changed = text.replace(RIDGE, f"3.0, {1 + number / 100}, 400, 5")
    manifest = EXAMPLE.joinpath("training.toml.example").read_text()
    found = {"train.py": changed, "training.toml": manifest}
    return [("files", (name, content.encode())) for name, content in found.items()]
