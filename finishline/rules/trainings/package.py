"""A training package: its files, its hash, and every problem found without running it."""

import ast
import hashlib
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from finishline.rules.benchmarks.policy import LARGEST_PACKAGE_BYTES
from finishline.rules.canonical import sha256_of
from finishline.rules.errors import RuleError
from finishline.rules.fields import MISLEADING
from finishline.rules.text import line_of, refuse_utf16, shown
from finishline.rules.trainings.environment import (
    COMPILING,
    EXAMPLES,
    Family,
    family_of,
    has_compiler,
)
from finishline.rules.trainings.manifest import FILE, Manifest, PackageError, read_manifest
from finishline.rules.trainings.program import COMPILED_SUFFIXES, program_sha256

MOST_FILES = 33  # training.toml and 32 others
LARGEST_FILE_BYTES = 128 << 10
LONGEST_LINE = 1_000
LONGEST_NAME = 100
SUFFIXES = (".py", ".toml", ".md", ".txt")
FUNCTIONS = {"prepare": 1, "train": 3}
_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")


@dataclass(frozen=True)
class Package:
    """A package that breaks no rule that can be checked without a server.

    Packages of one `program_sha256` are the same program.
    """

    manifest: Manifest
    files: Mapping[str, bytes]
    program_sha256: str

    @property
    def sha256(self) -> str:
        """Hash over the sorted (name, size, SHA-256) of the files, in hex."""
        return sha256_of(package_index(self.files))

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.files.values()))


def is_left_out(name: str) -> bool:
    """Whether a file or folder that tools leave beside code is no part of a package."""
    return name.startswith(".") or name == "__pycache__"


def package_index(files: Mapping[str, bytes]) -> list[list[str | int]]:
    """Name, size in bytes and SHA-256 of each file, by name: a package's hash is over this."""
    return [
        [name, len(content), hashlib.sha256(content).hexdigest()]
        for name, content in sorted(files.items())
    ]


def read_package(
    files: Mapping[str, bytes], *, benchmarks: Iterable[str] | None
) -> tuple[Package | None, list[RuleError]]:
    """The package that these files are, or None with every problem, each with file and line.

    Without `benchmarks` it may name any.
    """
    offered = None if benchmarks is None else sorted(benchmarks)
    found: list[RuleError] = []
    manifest = _manifest(files, found)
    compiled = manifest is not None and has_compiler(manifest.environment)
    problems = [*_files(files, compiled=compiled), *found]
    family = family_of(manifest.environment) if manifest is not None else None
    if manifest is not None:
        problems += _manifest_problems(manifest, files, offered)
    problems += python_problems(files, family)
    for each in problems:
        if each.field is not None and each.line is None:
            each.line = line_of(files[FILE], each.field)
    if problems or manifest is None:
        return None, problems
    return Package(manifest, dict(files), program_sha256(manifest, files)), []


def _files(files: Mapping[str, bytes], *, compiled: bool) -> Iterator[RuleError]:
    if len(files) > MOST_FILES:
        expected = f"{FILE} and at most {MOST_FILES - 1} others"
        yield PackageError(f"{len(files)} files", expected=expected)
    total = sum(map(len, files.values()))
    if total > LARGEST_PACKAGE_BYTES:
        yield PackageError(f"{total} bytes", expected=f"at most {LARGEST_PACKAGE_BYTES} bytes")
    folders = {str(folder) for name in files for folder in PurePosixPath(name).parents}
    for name in sorted(folders.intersection(files)):
        yield PackageError("the name of a folder as well", file=name, expected="another name")
    spellings: dict[str, str] = {}
    for name in sorted(folders.union(files)):
        other = spellings.setdefault(name.casefold(), name)
        if other != name:
            message = f"the name {other} in other letters"
            expected = "names that differ on every disk"
            yield PackageError(message, file=name[:200], expected=expected)
    for name, content in sorted(files.items()):
        yield from _file(name, content, compiled=compiled)


def _file(name: str, content: bytes, *, compiled: bool) -> Iterator[RuleError]:
    allowed = _NAME.fullmatch(name) and not {".", ".."}.intersection(name.split("/"))
    if not allowed or len(name) > LONGEST_NAME:
        expected = f"a relative name of A-Z, a-z, 0-9, _, . and -, at most {LONGEST_NAME} of them"
        yield PackageError("a file's name that is not allowed", file=name[:200], expected=expected)
    suffixes = (*SUFFIXES, *(COMPILED_SUFFIXES if compiled else ()))
    if not name.endswith(suffixes):
        expected = " ".join(suffixes)
        if name.endswith(COMPILED_SUFFIXES):
            expected += f"; {' '.join(COMPILED_SUFFIXES)} in an environment such as {COMPILING}"
        yield PackageError("a kind of file that is not allowed", file=name, expected=expected)
    if len(content) > LARGEST_FILE_BYTES:
        expected = f"at most {LARGEST_FILE_BYTES} bytes"
        yield PackageError(f"{len(content)} bytes", file=name, expected=expected)
        return
    try:
        refuse_utf16(content, file=name, error=PackageError)
        text = content.decode()
    except RuleError as error:
        yield error
        return
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        yield PackageError("not UTF-8", file=name, line=line, expected="UTF-8 text")
        return
    for number, written in enumerate(text.split("\n"), start=1):
        if len(written) > LONGEST_LINE:
            message, expected = f"a line of {len(written)} characters", f"at most {LONGEST_LINE}"
        elif hidden := MISLEADING.search(written.removesuffix("\r")):
            # Readers have to see the source as it runs.
            message = f"the character U+{ord(hidden[0]):04X}"
            expected = "text that shows as it is"
        else:
            continue
        yield PackageError(message, file=name, line=number, expected=expected)
        return


def _manifest(files: Mapping[str, bytes], problems: list[RuleError]) -> Manifest | None:
    if FILE not in files:
        problems.append(PackageError("missing", file=FILE, expected="a manifest"))
        return None
    try:
        return read_manifest(files[FILE])
    except RuleError as error:
        problems += error.problems
        return None


def _manifest_problems(
    manifest: Manifest,
    files: Mapping[str, bytes],
    benchmarks: list[str] | None,
) -> Iterator[RuleError]:
    if benchmarks is not None and manifest.benchmark not in benchmarks:
        yield PackageError(
            f"unknown benchmark {shown(manifest.benchmark)}",
            file=FILE,
            field="benchmark",
            expected=" or ".join(benchmarks) or "a benchmark that trains packages",
        )
    if family_of(manifest.environment) is None:
        yield PackageError(
            f"unknown environment {shown(manifest.environment)}",
            file=FILE,
            field="environment",
            expected=EXAMPLES,
        )
    file = module_file(manifest.module, files)
    if file is None:
        expected = f"a file {manifest.module.replace('.', '/')}.py"
        yield PackageError("no such module", file=FILE, field="module", expected=expected)
        return
    yield from _functions(file, files[file])
    yield from _unread_factors(manifest, files)


def _unread_factors(manifest: Manifest, files: Mapping[str, bytes]) -> Iterator[RuleError]:
    """A factor that no file names as a string cannot be switched off."""
    trees = [parsed(content) for name, content in files.items() if name.endswith(".py")]
    nodes = (node for tree in trees if tree is not None for node in ast.walk(tree))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    for name in manifest.factors or {}:
        if name not in texts:
            expected = f'task["factors"]["{name}"] in a .py file'
            yield PackageError(
                "a factor that no file reads", file=FILE, field=f"factors.{name}", expected=expected
            )


def module_file(module: str, files: Mapping[str, bytes]) -> str | None:
    """The file of a dotted module name, or None."""
    path = module.replace(".", "/")
    return next((name for name in (f"{path}.py", f"{path}/__init__.py") if name in files), None)


def _functions(file: str, content: bytes) -> Iterator[RuleError]:
    """`prepare` and `train` must stand at the top of the module, or be imported or assigned."""
    tree = parsed(content)
    if tree is None:
        return  # Already reported with the file.
    bound = set(_bound_names(tree))
    for name, count in FUNCTIONS.items():
        found = next(
            (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name),
            None,
        )
        if found is None and name not in bound:
            arguments = ("task",) if name == "prepare" else ("prepared", "data", "seed")
            expected = f"def {name}({', '.join(arguments)})"
            yield PackageError(f"no function {name}", file=file, expected=expected)
        elif found is not None and not _takes(found.args, count):
            expected = f"{count} argument{'s' if count > 1 else ''}"
            yield PackageError(
                f"{name} takes other arguments", file=file, line=found.lineno, expected=expected
            )


def _takes(arguments: ast.arguments, count: int) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    needed = positional - len(arguments.defaults)
    required = any(default is None for default in arguments.kw_defaults)
    most = count if arguments.vararg else positional
    return needed <= count <= most and not required


def _bound_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name) for alias in node.names)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id


def parsed(content: bytes) -> ast.Module | None:
    """The syntax tree of a Python file, None where Python cannot read it."""
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def python_problems(files: Mapping[str, bytes], family: Family | None) -> Iterator[RuleError]:
    """Problems of the Python files: syntax, names, imports that are neither known nor own."""
    modules = {
        name: name.split("/")[0].removesuffix(".py")
        for name in sorted(files)
        if name.endswith(".py")
    }
    for name, top in modules.items():
        yield from _python_file(name, top, files[name], family, set(modules.values()))


def _python_file(
    name: str, top: str, content: bytes, family: Family | None, own: set[str]
) -> Iterator[RuleError]:
    known = set(sys.stdlib_module_names) | set(family.imports if family else ())
    if top in known:
        yield PackageError(
            f"the name of a module of Python or of the environment, {top}",
            file=name,
            expected="another name",
        )
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        tree = ast.parse(content)
    except SyntaxError as error:
        yield PackageError(
            f"not Python: {error.msg}", file=name, line=error.lineno, expected="Python"
        )
        return
    except (ValueError, RecursionError, MemoryError) as error:
        told = str(error) or "nested too deeply"
        yield PackageError(f"not Python: {told}", file=name, expected="Python")
        return
    if not encoding.startswith("utf-8"):
        yield PackageError(f"encoding {encoding}", file=name, line=1, expected="utf-8")
    if family is None:
        return
    for line, module in _imports(tree):
        if module.split(".")[0] not in known | own:
            yield PackageError(
                f"imports {module}, which the environment lacks",
                file=name,
                line=line,
                expected="the standard library, " + ", ".join(family.imports),
            )


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module
