"""The ways a trained model is run for one item: each prepares a call, or says why it cannot."""

import io
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from finishline.rules.verification.messages import AbsenceCode, Backend

Call = Callable[..., Any]


class BackendAbsentError(Exception):
    """A backend cannot be measured here; `code` is from the closed list."""

    def __init__(self, code: AbsenceCode, message: str) -> None:
        self.code = code
        super().__init__(message)


def prepare_eager(model: Any, _example: tuple[Tensor, ...], _device: str) -> Call:
    """The module as it is."""
    call: Call = model
    return call


def prepare_compiled(model: Any, example: tuple[Tensor, ...], _device: str) -> Call:
    """The module through torch.compile, compiled for one item."""
    torch.compiler.reset()  # What a training compiled before does not decide about this.
    try:
        # Compilers in a pool of processes would outlive this one when it is killed.
        call: Call = torch.compile(model, dynamic=False, options={"compile_threads": 1})
        with torch.inference_mode():
            call(*example)
    except MemoryError:
        raise
    except RuntimeError as error:
        if "not supported" in str(error):
            raise BackendAbsentError("not_supported", first_line(error)) from error
        raise BackendAbsentError("compile_failed", first_line(error)) from error
    except Exception as error:
        raise BackendAbsentError("compile_failed", first_line(error)) from error
    return call


def prepare_onnxruntime(model: Any, example: tuple[Tensor, ...], device: str) -> Call:
    """The module exported to ONNX and run on the processor with as many threads as torch has."""
    if device != "cpu":
        raise BackendAbsentError("not_supported", f"measured on a processor only, not on {device}")
    onnxruntime = _import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        export(model, example), options, providers=["CPUExecutionProvider"]
    )
    names = [item.name for item in session.get_inputs()]

    def call(*item: Tensor) -> Any:
        return session.run(None, dict(zip(names, (part.numpy() for part in item), strict=True)))

    return call


def export(model: Any, example: tuple[Tensor, ...]) -> bytes:
    """The model as ONNX, through torch's dynamo exporter."""
    content = io.BytesIO()
    try:
        with torch.no_grad():
            torch.onnx.export(model, example, dynamo=True, verbose=False).save(content)
    except MemoryError:
        raise
    except Exception as error:
        raise BackendAbsentError("export_failed", first_line(error)) from error
    return content.getvalue()


def _import_onnxruntime() -> ModuleType:
    """ONNX Runtime, once it is sure that what exports for it is there too."""
    try:
        import onnx  # noqa: F401
        import onnxruntime
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise BackendAbsentError(
            "not_installed",
            f"{error.name or error} is missing: pip install -c constraints.txt -e '.[onnx]'",
        ) from error
    module: ModuleType = onnxruntime
    return module


def first_line(error: BaseException) -> str:
    """What an error says, without its report of many lines."""
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300]


BACKENDS: dict[Backend, Callable[..., Call]] = {
    "eager": prepare_eager,
    "compiled": prepare_compiled,
    "onnxruntime": prepare_onnxruntime,
}
