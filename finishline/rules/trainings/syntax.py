"""Normal form of Python files: programs that differ only in names of their own have one hash.

A name is replaced by the place where it is bound: which scope, and how many names came before it
there. A name that something else may look up stays as written: attributes, builtins, names in the
body of a class, names that a text or another file mentions, and parameters that the keyword of an
uncertain call may mean. For example, `partial(f, rate=1)` keeps each parameter `rate`.
A package with `getattr`, `exec` or the like may look up any name, and keeps its docstrings too.
"""

import ast
import builtins
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field

Node = ast.AST
Functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
Named = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef,
    ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping,
)  # fmt: skip
# A text that stands where a value is expected has a mark before it that no field has.
SKIPPED = frozenset({"ctx", "type_comment", "type_ignores", "kind"})
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


@dataclass(frozen=True)
class Kept:
    """Names of a file that stay as written, in every scope, at its top and as parameters.

    `functions` has those that are surely called by their name, with the names of their parameters.
    """

    everywhere: Set[str]
    top: Set[str]
    parameters: Set[str]
    functions: Mapping[str, list[str]]
    everything: bool


@dataclass
class Scope:
    """A scope: the names bound in it, and the number of each that was seen so far.

    A class keeps all of its names, and its methods don't see them.
    """

    parent: "Scope | None"
    depth: int
    file: Kept
    is_class: bool
    bound: set[str] = field(default_factory=set)
    top_names: set[str] = field(default_factory=set)
    kept: Set[str] = frozenset()
    numbers: dict[str, int] = field(default_factory=dict)

    def owner(self, name: str) -> "Scope | None":
        """The scope that binds a name as it is seen from here; None for a builtin."""
        scope: Scope | None = self
        is_seen = True
        while scope is not None and not (is_seen and name in scope.bound):
            if is_seen and name in scope.top_names:
                while scope.parent is not None:
                    scope = scope.parent
                return scope
            scope = scope.parent
            is_seen = scope is None or not scope.is_class
        return scope

    def place(self, name: str) -> str:
        """The name as the normal form has it."""
        scope = self.owner(name)
        if scope is None or scope.is_class or name in scope.kept:
            return name
        if self.file.everything or name in self.file.everywhere or name.startswith("__"):
            return name
        return f"{scope.depth}.{scope.numbers.setdefault(name, len(scope.numbers))}"


def python_hashes(trees: Mapping[str, ast.Module]) -> dict[str, str]:
    """Hash of the normal form of each file by name."""
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    constants = [each.value for each in nodes if isinstance(each, ast.Constant)]
    texts = {each for each in constants if isinstance(each, str)}
    reached = texts | INTERFACE | set(dir(builtins))
    reached |= {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    modules = {part for name in trees for part in name.removesuffix(".py").split("/")}
    for each in nodes:
        path = (each.module or "").split(".") if isinstance(each, ast.ImportFrom) else []
        if isinstance(each, ast.ImportFrom) and (each.level or not modules.isdisjoint(path)):
            reached |= {alias.name for alias in each.names}
    functions = {name: _sure_functions(tree, reached) for name, tree in trees.items()}
    keywords = {
        word for name, tree in trees.items() for word in _open_keywords(tree, functions[name])
    }
    if None in keywords:
        keywords |= {each.arg for each in nodes if isinstance(each, ast.arg)}
    parameters = {word for word in keywords if word is not None}
    looks_up = any(_looks_up(each) for each in nodes)
    found = {}
    for name, tree in trees.items():
        everywhere = texts | _ambiguous(tree)
        kept = Kept(everywhere, reached, parameters, functions[name], looks_up)
        digest = hashlib.sha256()
        for token in _tokens(tree, kept):
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


def _sure_functions(tree: Node, reached: Set[str]) -> dict[str, list[str]]:
    """Functions whose name means them alone in a file, with the names of their parameters."""
    nodes = list(ast.walk(tree))
    counts = Counter(name for node in nodes for name in _names_bound(node))
    counts.update(node.arg for node in nodes if isinstance(node, ast.arg))
    counts.update(n for e in nodes if isinstance(e, ast.Global | ast.Nonlocal) for n in e.names)
    return {
        node.name: [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and counts[node.name] == 1
        and not node.decorator_list
        and node.name not in reached
    }


def _open_keywords(tree: Node, functions: Mapping[str, list[str]]) -> Iterator[str | None]:
    """Keywords that may mean a parameter of any function; None for `**`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call | ast.ClassDef):
            known: list[str] = []
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                known = functions.get(node.func.id, [])
            yield from (each.arg for each in node.keywords if each.arg not in known)


def _ambiguous(tree: Node) -> set[str]:
    """Names that mean two things in one scope: `x = x` in a class reads the `x` of the file."""
    found = set[str]()
    for node in ast.walk(tree):
        if type(node).__name__ in ("TypeVar", "TypeVarTuple", "ParamSpec"):
            found.add(str(getattr(node, "name", "")))
        elif isinstance(node, ast.ClassDef):
            own = list(_own(node))
            bound = {name for each, inner in own if not inner for name in _names_bound(each)}
            targets = [each.target for each, _ in own if isinstance(each, ast.AugAssign)]
            read = [each for each, _ in own if isinstance(getattr(each, "ctx", None), ast.Load)]
            found |= bound & {each.id for each in (*read, *targets) if isinstance(each, ast.Name)}
    return found


def _tokens(tree: ast.Module, kept: Kept) -> Iterator[str]:
    """The normal form, node by node, without recursion: a stranger nests as deep as they like."""
    stack: list[tuple[object, Scope]] = [(tree, _scope(tree, None, kept))]
    while stack:
        item, scope = stack.pop()
        if not isinstance(item, ast.AST):
            yield str(item)
            continue
        yield type(item).__name__
        parts = list(_parts(item, scope))
        yield str(len(parts))
        stack.extend(reversed(parts))


def _parts(node: Node, scope: Scope) -> Iterator[tuple[object, Scope]]:
    """The parts of a node in order, each with the scope that its names are seen from."""
    if isinstance(node, ast.Name):
        yield scope.place(node.id), scope
    elif isinstance(node, ast.arg):
        yield scope.place(node.arg), scope
        yield from _fields(node, scope.parent or scope, without=("arg",))
    elif isinstance(node, ast.Constant):
        # Python writes no whole number of more than 4,300 digits in decimals.
        value = hex(node.value) if isinstance(node.value, int) else repr(node.value)
        yield f"{type(node.value).__name__} {value}", scope
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from ((scope.place(name), scope) for name in node.names)
    elif isinstance(node, ast.alias):
        is_part = node.asname is None and "." in node.name
        yield f"{node.name} {scope.place(_names_bound(node)[0])} {is_part}", scope
    elif isinstance(node, ast.Call):
        yield from _call(node, scope)
    elif isinstance(node, Functions):
        yield from _function(node, scope)
    elif isinstance(node, ast.ClassDef):
        yield scope.place(node.name), scope
        yield from _fields(node, scope, without=("name", "body"))
        inner = _scope(node, scope, scope.file)
        yield from ((each, inner) for each in _statements(node.body, scope))
    elif isinstance(node, Comprehensions):
        inner, around = _scope(node, scope, scope.file), scope
        for each in node.generators:  # The first iterable is evaluated around the others.
            yield each.iter, around
            yield from _fields(each, inner, without=("iter",))
            around = inner
        yield from _fields(node, inner, without=("generators",))
    elif isinstance(node, Named):
        yield "".join(map(scope.place, _names_bound(node))), scope
        yield from _fields(node, scope, without=("name", "rest"))
    else:
        yield from _fields(node, scope)


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope
) -> Iterator[tuple[object, Scope]]:
    inner = _scope(node, scope, scope.file)
    if not isinstance(node, ast.Lambda):
        yield scope.place(node.name), scope
        yield from _fields(node, scope, without=("name", "args", "body"))
    given = [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
    yield str([each is not None for each in node.args.kw_defaults]), scope
    yield from ((each, scope) for each in given)
    yield from _fields(node.args, inner, without=("defaults", "kw_defaults"))
    if isinstance(node, ast.Lambda):
        yield node.body, inner
    else:
        yield from ((each, inner) for each in _statements(node.body, scope))


def _call(node: ast.Call, scope: Scope) -> Iterator[tuple[object, Scope]]:
    """A call. A keyword of a function of this file is told by its place in it."""
    names: list[str] = []
    if isinstance(node.func, ast.Name) and scope.owner(node.func.id) is not None:
        names = scope.file.functions.get(node.func.id, [])
    yield node.func, scope
    yield f"{len(node.args)} arguments", scope
    yield from ((each, scope) for each in node.args)
    for keyword in node.keywords:
        known = keyword.arg in names
        yield f"#{names.index(keyword.arg or '')}" if known else f"{keyword.arg}=", scope
        yield keyword.value, scope


def _fields(
    node: Node, scope: Scope, *, without: tuple[str, ...] = ()
) -> Iterator[tuple[object, Scope]]:
    """Fields of a node that are set, each with its name, and how many there are of a list."""
    for name, value in ast.iter_fields(node):
        if name in SKIPPED or name in without or value is None or value == []:
            continue
        values = value if isinstance(value, list) else [value]
        if name == "body":
            values = _statements(values, scope)
        yield f"{name} {len(values)}", scope
        for each in values:
            is_plain = each is None or isinstance(each, str | int)
            yield f"= {each}" if is_plain else each, scope


def _statements(body: list[ast.stmt], scope: Scope) -> list[ast.stmt]:
    """Statements without texts such as docstrings, unless the package may look at them."""
    return [
        each
        for each in body
        if scope.file.everything
        or not (
            isinstance(each, ast.Expr)
            and isinstance(each.value, ast.Constant)
            and isinstance(each.value.value, str)
        )
    ]


def _scope(node: Node, parent: Scope | None, file: Kept) -> Scope:
    depth = 0 if parent is None else parent.depth + 1
    scope = Scope(parent, depth, file, isinstance(node, ast.ClassDef))
    outer: set[str] = set()
    if isinstance(node, Functions):
        scope.bound.update(each.arg for each in _arguments(node.args))
        scope.kept = scope.bound & file.parameters
    for each, is_inner in _own(node):
        if isinstance(each, ast.Global):
            scope.top_names.update(each.names)
        elif isinstance(each, ast.Nonlocal):
            outer.update(each.names)
        elif isinstance(each, ast.NamedExpr) or not is_inner:
            scope.bound.update(_names_bound(each))
    scope.bound -= outer | scope.top_names
    if parent is None:
        scope.kept = file.top
        declared = (each.names for each in ast.walk(node) if isinstance(each, ast.Global))
        scope.bound.update(name for names in declared for name in names)
    return scope


def _own(node: Node) -> Iterator[tuple[Node, bool]]:
    """The nodes of a scope without the functions and classes in it.

    Each has whether it is in a comprehension, where only `:=` binds a name of the scope.
    """
    start = getattr(node, "body", [each.target for each in getattr(node, "generators", [])])
    stack = [(each, False) for each in (start if isinstance(start, list) else [start])]
    while stack:
        each, is_inner = stack.pop()
        yield each, is_inner
        is_inner |= isinstance(each, Comprehensions)
        if isinstance(each, (*Functions, ast.ClassDef)):
            stack.extend((part, is_inner) for part in _around(each))
        elif isinstance(each, ast.AnnAssign) and not (each.simple or each.value):
            stack.append((each.annotation, is_inner))  # `(x): int` binds nothing.
        else:
            stack.extend((part, is_inner) for part in ast.iter_child_nodes(each))


def _around(node: Node) -> Iterator[Node]:
    """The parts of a function or class that are evaluated where it stands."""
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.arguments):
            yield from (each for each in (*value.defaults, *value.kw_defaults) if each is not None)
            yield from (each.annotation for each in _arguments(value) if each.annotation)
        elif name != "body":
            parts = value if isinstance(value, list) else [value]
            yield from (each for each in parts if isinstance(each, ast.AST))


def _arguments(node: ast.arguments) -> list[ast.arg]:
    ends = [each for each in (node.vararg, node.kwarg) if each is not None]
    return [*node.posonlyargs, *node.args, *node.kwonlyargs, *ends]


def _names_bound(node: Node) -> list[str]:
    """The names that a node binds in its scope, one at the most."""
    name = None
    if isinstance(node, ast.NamedExpr):
        node = node.target
    if isinstance(node, ast.Name):
        name = None if isinstance(node.ctx, ast.Load) else node.id
    elif isinstance(node, ast.alias):
        name = node.asname or node.name.partition(".")[0]
    elif isinstance(node, Named):
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
    return [] if name is None else [name]
