"""Normalise Python files: programs that differ only in their private names have one hash.

A file's name becomes a number, in order of first use: names bound at the top of the file together,
and names bound inside a function or class separately there. A name that something else may look up
stays: attributes, builtins, names in the body of a class, names in a text or another file, and
keywords of a call that may mean any function. For example, `partial(f, rate=1)` keeps `rate`. Code
with `getattr`, `exec` or the like may look up any name, and keeps its docstrings too.
"""

import ast
import builtins
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set

Node = ast.AST
Functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Named = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
    ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping,
)  # fmt: skip
SKIPPED = frozenset({"ctx", "type_comment", "type_ignores", "kind"})
NAME_FIELDS = frozenset({"id", "arg", "name", "names", "rest"})
# The functions of a code submission that the sandbox calls.
INTERFACE = frozenset({"prepare", "train"})
# Names and attributes that may look up any other name.
LOOKUPS = {
    "*", "__annotations__", "__builtins__", "__doc__", "__import__", "builtins", "compile",
    "delattr", "dir", "eval", "exec", "getattr", "globals", "hasattr", "importlib", "inspect",
    "locals", "pickle", "runpy", "setattr", "traceback", "vars",
}  # fmt: skip
LOOKUP_ATTRIBUTES = {
    "__annotations__", "__code__", "__dict__", "__doc__", "__globals__", "__kwdefaults__",
    "__name__", "__prepare__", "__qualname__", "_getframe", "attrgetter", "f_code", "f_globals",
    "f_locals", "methodcaller", "tb_frame",
}  # fmt: skip


def python_hashes(trees: Mapping[str, ast.Module]) -> dict[str, str]:
    """Hash the normal form of each file by name."""
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    looks_up = any(_looks_up(each) for each in nodes)
    kept = _kept_names(trees, nodes)
    found = {}
    for name, tree in trees.items():
        digest = hashlib.sha256()
        for token in _tokens(tree, kept, looks_up=looks_up):
            digest.update(f"{len(token)} {token}\n".encode("utf-8", "surrogatepass"))
        found[name] = digest.hexdigest()
    return found


def _looks_up(node: Node) -> bool:
    """Whether a node may look up any name. In a class A, Python looks up `__x` as `_A__x`."""
    known = LOOKUPS if isinstance(node, ast.Name) else LOOKUP_ATTRIBUTES
    if isinstance(node, ast.Import | ast.ImportFrom | ast.alias):
        known = LOOKUPS | LOOKUP_ATTRIBUTES
    found = [getattr(node, name, None) for name in ("id", "attr", "name", "arg", "module")]
    words = [word for each in found if isinstance(each, str) for word in each.split(".")]
    return any(w in known or (w.startswith("__") and not w.endswith("__")) for w in words)


def _kept_names(trees: Mapping[str, ast.Module], nodes: list[Node]) -> set[str]:
    kept = set(INTERFACE) | set(dir(builtins))
    modules = {part for name in trees for part in name.removesuffix(".py").split("/")}
    for each in nodes:
        if isinstance(each, ast.Attribute):
            kept.add(each.attr)
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            kept.add(each.value)
        elif isinstance(each, ast.ClassDef):
            inside = [node for node in each.body if not isinstance(node, Functions)]
            bound = [*each.body, *(node for part in inside for node in ast.walk(part))]
            kept.update(name for node in bound for name in _names_bound(node))
        elif isinstance(each, ast.ImportFrom) and (
            each.level or not modules.isdisjoint((each.module or "").split("."))
        ):
            kept.update(alias.name for alias in each.names)
    return kept | {word for tree in trees.values() for word in _open_keywords(tree, kept)}


def _open_keywords(tree: ast.Module, kept: Set[str]) -> Iterator[str]:
    """Yield keywords that may mean a parameter of any function, after `**` all parameters."""
    nodes = list(ast.walk(tree))
    counts = Counter(name for node in nodes for name in _names_bound(node))
    counts.update(name for e in nodes if isinstance(e, ast.Nonlocal) for name in e.names)
    functions = {
        node.name: {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and counts[node.name] == 1
        and not node.decorator_list
        and node.name not in kept
    }
    for node in nodes:
        if isinstance(node, ast.Call | ast.ClassDef):
            called = getattr(node, "func", None)
            known = functions.get(called.id, set()) if isinstance(called, ast.Name) else set()
            for keyword in node.keywords:
                if keyword.arg is None:
                    yield from (each.arg for each in nodes if isinstance(each, ast.arg))
                elif keyword.arg not in known:
                    yield keyword.arg


def _tokens(tree: ast.Module, kept: Set[str], *, looks_up: bool) -> Iterator[str]:
    top = {name for node in _outside_functions(tree) for name in _names_bound(node)}
    top.update(name for e in ast.walk(tree) if isinstance(e, ast.Global) for name in e.names)
    top.update(str(each.arg) for each in ast.walk(tree) if isinstance(each, ast.keyword))
    numbers: dict[str, str] = {}
    for statement in tree.body:
        inner = {name for node in ast.walk(statement) for name in _names_bound(node)}
        inner_numbers: dict[str, str] = {}

        def place(name: str, inner: Set[str] = inner, own: dict[str, str] = inner_numbers) -> str:
            if looks_up or name in kept or name.startswith("__"):
                return name
            if name in top:
                return numbers.setdefault(name, f"0.{len(numbers)}")
            return own.setdefault(name, f"1.{len(own)}") if name in inner else name

        if looks_up or not _is_text(statement):
            yield from _tokens_of(statement, place, keeps_texts=looks_up)


def _outside_functions(tree: ast.Module) -> Iterator[Node]:
    stack: list[Node] = [tree]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, Functions):
            stack.extend(ast.iter_child_nodes(node))


def _is_text(node: object) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _tokens_of(statement: Node, place: Callable[[str], str], *, keeps_texts: bool) -> Iterator[str]:
    """Yield the normal form, node by node in a loop: a stranger may nest deeply."""
    stack: list[object] = [statement]
    while stack:
        item = stack.pop()
        if not isinstance(item, ast.AST):
            yield f"{item}"
            continue
        yield type(item).__name__
        if isinstance(item, ast.Constant):
            # Python writes whole numbers of at most 4,300 digits in decimals.
            value = hex(item.value) if isinstance(item.value, int) else repr(item.value)
            yield f"{type(item.value).__name__} {value}"
        elif isinstance(item, ast.alias):
            is_part = item.asname is None and "." in item.name
            yield f"{item.name} {place(_names_bound(item)[0])} {is_part}"
        else:
            parts: list[object] = []
            for name, value in ast.iter_fields(item):
                values = value if isinstance(value, list) else [value]
                values = [each for each in values if keeps_texts or not _is_text(each)]
                if name in NAME_FIELDS:
                    values = [place(each) if isinstance(each, str) else each for each in values]
                if name not in SKIPPED:
                    parts += [f"{name} {len(values)}", *values]
            stack.extend(reversed(parts))


def _names_bound(node: Node) -> list[str]:
    name = None
    if isinstance(node, ast.Name):
        name = None if isinstance(node.ctx, ast.Load) else node.id
    elif isinstance(node, ast.arg):
        name = node.arg
    elif isinstance(node, ast.alias):
        name = node.asname or node.name.partition(".")[0]
    elif isinstance(node, Named):
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
    return [] if name is None else [name]
