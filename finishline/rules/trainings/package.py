"""Read a code submission: its files, its hash, and every problem found without running it."""

import ast
import hashlib
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from finishline.rules.benchmarks.definition_tables import LARGEST_PACKAGE_BYTES
from finishline.rules.canonical import sha256_of
from finishline.rules.errors import RuleError
from finishline.rules.table import MISLEADING
from finishline.rules.text import count_text, line_of, refuse_utf16, shown
from finishline.rules.trainings.manifest import (
    COMPILING,
    EXAMPLES,
    FILE,
    Family,
    Manifest,
    PackageError,
    family_of,
    has_compiler,
    read_manifest,
)
from finishline.rules.trainings.syntax import python_hashes

MOST_FILES = 33  # training.toml and 32 others
LARGEST_FILE_BYTES = 128 << 10
LONGEST_LINE = 1_000
LONGEST_NAME = 100
SUFFIXES = (".py", ".toml", ".md", ".txt")
FUNCTIONS = {"prepare": ("task",), "train": ("prepared", "data", "seed")}
_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*")
# Also where the environment has a compiler.
COMPILED_SUFFIXES = (".cpp", ".h")
# Of C++: comments and white space, then raw strings, strings and characters, numbers, and the rest.
# An open one extends to the end of the file, so that no other search begins in it.
_CPP = re.compile(
    rb"(?P<layout>//[^\n]*|/\*.*?(?:\*/|\Z)|\s+|\\\r?\n)"
    rb"|(?:u8|[uUL])?R\"(?P<mark>[^()\s\\]{0,16})\(.*?(?:\)(?P=mark)\"|\Z)"
    rb"|\"(?:\\[^\n]|[^\"\\\n])*\"|'(?:\\[^\n]|[^'\\\n])+'|\d[\w'.]*|\w+|.",
    re.DOTALL,
)


@dataclass(frozen=True)
class Package:
    """Code that passes every check without a server. Equal programs have one `program_sha256`."""

    manifest: Manifest
    files: Mapping[str, bytes]
    program_sha256: str

    @property
    def sha256(self) -> str:
        """Hash the sorted (name, size, SHA-256) of the files, in hex."""
        return sha256_of(package_index(self.files))

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.files.values()))


@dataclass(frozen=True)
class Source:
    """A parsed Python file: a problem if it has one, and its tree if Python reads it."""

    problem: RuleError | None
    tree: ast.Module | None = None
    imports: tuple[tuple[int, str], ...] = ()  # line and module
    texts: frozenset[str] = frozenset()


def is_left_out(name: str) -> bool:
    """Whether tools leave this file or folder near code, so that it is left out."""
    return name.startswith(".") or name == "__pycache__"


def package_index(files: Mapping[str, bytes]) -> list[list[str | int]]:
    """Return name, size in bytes and SHA-256 of each file, by name, for the hash of the code."""
    return [
        [name, len(content), hashlib.sha256(content).hexdigest()]
        for name, content in sorted(files.items())
    ]


def read_package(
    files: Mapping[str, bytes], *, benchmarks: Iterable[str] | None
) -> tuple[Package | None, list[RuleError]]:
    """Read the code in these files, or None with every problem, each with file and line.

    Without `benchmarks` it may name any.
    """
    offered = None if benchmarks is None else sorted(benchmarks)
    found: list[RuleError] = []
    manifest = None
    try:
        if FILE not in files:
            raise PackageError("missing", file=FILE, expected="a manifest")
        manifest = read_manifest(files[FILE])
    except RuleError as error:
        found = error.problems
    family = family_of(manifest.environment) if manifest is not None else None
    compiled = manifest is not None and has_compiler(manifest.environment)
    problems = [*_files(files, compiled=compiled), *found]
    sources = parse_files(files)
    if manifest is not None:
        problems += _manifest_problems(manifest, sources, offered)
    problems += python_problems(sources, family)
    for each in problems:
        if each.field is not None and each.line is None:
            each.line = line_of(files[FILE], each.field)
    if problems or manifest is None:
        return None, problems
    return Package(manifest, dict(files), program_sha256(manifest, files, sources)), []


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
    wrong = partial(PackageError, file=name[:200])
    allowed = _NAME.fullmatch(name) and not {".", ".."}.intersection(name.split("/"))
    if not allowed or len(name) > LONGEST_NAME:
        expected = f"a relative name of A-Z, a-z, 0-9, _, . and -, at most {LONGEST_NAME} of them"
        yield wrong("a file's name that is not allowed", expected=expected)
    suffixes = (*SUFFIXES, *(COMPILED_SUFFIXES if compiled else ()))
    if not name.endswith(suffixes):
        expected = " ".join(suffixes)
        if name.endswith(COMPILED_SUFFIXES):
            expected += f"; {' '.join(COMPILED_SUFFIXES)} in an environment such as {COMPILING}"
        yield wrong("a kind of file that is not allowed", expected=expected)
    if len(content) > LARGEST_FILE_BYTES:
        yield wrong(f"{len(content)} bytes", expected=f"at most {LARGEST_FILE_BYTES} bytes")
        return
    try:
        refuse_utf16(content, file=name, error=PackageError)
        text = content.decode()
    except RuleError as error:
        yield error
        return
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        yield wrong("not UTF-8", line=line, expected="UTF-8 text")
        return
    for number, written in enumerate(text.split("\n"), start=1):
        if len(written) > LONGEST_LINE:
            message, expected = f"a line of {len(written)} characters", f"at most {LONGEST_LINE}"
        elif hidden := MISLEADING.search(written.removesuffix("\r")):
            # Readers have to see the source as it runs.
            message, expected = f"the character U+{ord(hidden[0]):04X}", "text that shows as it is"
        else:
            continue
        yield wrong(message, line=number, expected=expected)
        return


def _manifest_problems(
    manifest: Manifest, sources: Mapping[str, Source], benchmarks: list[str] | None
) -> Iterator[RuleError]:
    wrong = partial(PackageError, file=FILE)
    if benchmarks is not None and manifest.benchmark not in benchmarks:
        expected = " or ".join(benchmarks) or "a benchmark that trains code submissions"
        message = f"unknown benchmark {shown(manifest.benchmark)}"
        yield wrong(message, field="benchmark", expected=expected)
    if family_of(manifest.environment) is None:
        message = f"unknown environment {shown(manifest.environment)}"
        yield wrong(message, field="environment", expected=EXAMPLES)
    path = manifest.module.replace(".", "/")
    file = next((name for name in (f"{path}.py", f"{path}/__init__.py") if name in sources), None)
    if file is None:
        yield wrong("no such module", field="module", expected=f"a file {path}.py")
        return
    yield from _functions(file, sources[file].tree)
    # A factor must be a string in a file, or it can't be switched off.
    texts = {text for source in sources.values() for text in source.texts}
    for name in manifest.factors or {}:
        if name not in texts:
            expected = f'task["factors"]["{name}"] in a .py file'
            yield wrong("a factor that no file reads", field=f"factors.{name}", expected=expected)


def _functions(file: str, tree: ast.Module | None) -> Iterator[RuleError]:
    """Require `prepare` and `train` at the top of the module, defined, imported or assigned."""
    if tree is None:
        return  # Already reported with the file.
    bound = set(_bound_names(tree))
    defined = {node.name: node for node in tree.body[::-1] if isinstance(node, ast.FunctionDef)}
    for name, arguments in FUNCTIONS.items():
        found, count = defined.get(name), len(arguments)
        if found is None and name not in bound:
            expected = f"def {name}({', '.join(arguments)})"
            yield PackageError(f"no function {name}", file=file, expected=expected)
        elif found is not None and not _takes(found.args, count):
            message, expected = f"{name} takes other arguments", count_text(count, "argument")
            yield PackageError(message, file=file, line=found.lineno, expected=expected)


def _takes(arguments: ast.arguments, count: int) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    most = count if arguments.vararg else positional
    return positional - len(arguments.defaults) <= count <= most and all(arguments.kw_defaults)


def _bound_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def parse_files(files: Mapping[str, bytes]) -> dict[str, Source]:
    return {
        name: parse_source(name, content)
        for name, content in sorted(files.items())
        if name.endswith(".py")
    }


def parse_source(name: str, content: bytes) -> Source:
    """Parse a Python file, and note its imports and strings."""
    wrong = partial(PackageError, file=name)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        tree = ast.parse(content)
    except SyntaxError as error:
        return Source(wrong(f"not Python: {error.msg}", line=error.lineno, expected="Python"))
    except (ValueError, RecursionError, MemoryError) as error:
        message = f"not Python: {str(error) or 'nested too deeply'}"
        return Source(wrong(message, expected="Python"))
    imports: list[tuple[int, str]] = []
    texts: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.add(node.value)
        elif isinstance(node, ast.Import):
            imports += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            imports.append((node.lineno, node.module))
    is_utf8 = encoding.startswith("utf-8")
    problem = None if is_utf8 else wrong(f"encoding {encoding}", line=1, expected="utf-8")
    return Source(problem, tree, tuple(imports), frozenset(texts))


def python_problems(sources: Mapping[str, Source], family: Family | None) -> Iterator[RuleError]:
    """Find problems of the Python files: syntax, names, unknown imports."""
    installed = set(sys.stdlib_module_names) | set(family.imports if family else ())
    modules = {name: name.split("/")[0].removesuffix(".py") for name in sources}
    known = installed.union(modules.values())
    for name, module in modules.items():
        wrong = partial(PackageError, file=name)
        if module in installed:
            message = f"the name of a module of Python or of the environment, {module}"
            yield wrong(message, expected="another name")
        source = sources[name]
        if source.problem is not None:
            yield source.problem
        if family is None:
            continue
        for line, imported in source.imports:
            if imported.split(".")[0] not in known:
                message = f"imports {imported}, which the environment lacks"
                expected = "the standard library, " + ", ".join(family.imports)
                yield wrong(message, line=line, expected=expected)


def program_sha256(
    manifest: Manifest, files: Mapping[str, bytes], sources: Mapping[str, Source]
) -> str:
    """Hash the program of a code submission, in hex. `sources` are its Python files, parsed.

    The hash ignores comments, docstrings, layout, a file's own names of locals, functions and
    constants, texts for readers (`.md`), title, licence, parent, precision and words of factors. It
    covers the names of files.
    """
    runs = [manifest.benchmark, manifest.module, manifest.environment]
    trees = {name: each.tree for name, each in sources.items() if each.tree is not None}
    python = python_hashes(trees)
    contents = [
        [name, python.get(name) or _content(name, content)]
        for name, content in sorted(files.items())
        if name != FILE and not name.endswith(".md")
    ]
    return sha256_of([*runs, sorted(manifest.factors or {}), contents])


def _content(name: str, content: bytes) -> str:
    if name.endswith(COMPILED_SUFFIXES):
        content = b"\n".join(found[0] for found in _CPP.finditer(content) if not found["layout"])
    return hashlib.sha256(content).hexdigest()
