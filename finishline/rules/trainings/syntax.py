"""Normal form of Python files: two that differ in names of their own alone have one hash.

A name is replaced by the place where it is bound: which scope, and how many names came before it
there. A name that an import binds is replaced by what it imports. These names stay as written:
attributes, names of builtins, keywords of calls to something unknown with the arguments of methods
that they may mean, names in the body of a class, and names of a module that another file or a text
mentions.
"""

import ast
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Node = ast.AST
Functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Comprehensions = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# A text that stands where a value is expected has a mark before it that no field has.
SKIPPED = frozenset({"ctx", "type_comment", "type_ignores", "kind"})


@dataclass
class Scope:
    """A scope: the names bound in it, and the number of each that was seen so far.

    `kept` are names that stay as written. A class keeps all of its names, and its methods don't
    see them.
    """

    parent: "Scope | None"
    depth: int
    bound: set[str]
    kept: frozenset[str] = frozenset()
    imported: dict[str, str] = field(default_factory=dict)
    functions: dict[str, list[str]] = field(default_factory=dict)
    is_class: bool = False
    numbers: dict[str, int] = field(default_factory=dict)

    def owner(self, name: str) -> "Scope | None":
        """The scope that binds a name as it is seen from here; None for a builtin."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bound and (scope is self or not scope.is_class):
                return scope
            scope = scope.parent
        return None

    def place(self, name: str) -> str:
        """The name as the normal form has it."""
        scope = self.owner(name)
        if scope is None or scope.is_class or name in scope.kept:
            return name
        if name in scope.imported:
            return f"import {scope.imported[name]}"
        return f"{scope.depth}.{scope.numbers.setdefault(name, len(scope.numbers))}"


def python_hashes(trees: Mapping[str, ast.Module]) -> dict[str, str]:
    """Hash of the normal form of each file by name."""
    mentioned = {name: _mentioned(tree) for name, tree in trees.items()}
    keywords = frozenset(word for tree in trees.values() for word in _open_keywords(tree))
    found = {}
    for name, tree in trees.items():
        elsewhere = {each for other, words in mentioned.items() if other != name for each in words}
        kept = frozenset(elsewhere | _texts(tree) | INTERFACE)
        digest = hashlib.sha256()
        for token in _tokens(tree, kept=kept, keywords=keywords):
            digest.update(f"{len(token)} {token}\n".encode("utf-8", "surrogatepass"))
        found[name] = digest.hexdigest()
    return found


# The functions of a code submission that the sandbox calls.
INTERFACE = frozenset({"prepare", "train"})


def _mentioned(tree: Node) -> set[str]:
    """Names by which a file may reach those of another: attributes, imports and texts."""
    found = _texts(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.name for alias in node.names)
    return found


def _texts(tree: Node) -> set[str]:
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _open_keywords(tree: Node) -> set[str]:
    """Keywords of calls to anything but a name: they may be those of any function."""
    return {
        keyword.arg
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and not isinstance(node.func, ast.Name)
        for keyword in node.keywords
        if keyword.arg is not None
    }


def _tokens(tree: ast.Module, *, kept: frozenset[str], keywords: frozenset[str]) -> Iterator[str]:
    """The normal form, node by node, without recursion: a stranger nests as deep as they like."""
    top = _scope(tree, None, kept=kept)
    stack: list[tuple[object, Scope]] = [(tree, top)]
    while stack:
        item, scope = stack.pop()
        if not isinstance(item, ast.AST):
            yield str(item)
            continue
        yield type(item).__name__
        parts = list(_parts(item, scope, keywords))
        yield str(len(parts))
        stack.extend(reversed(parts))


def _parts(node: Node, scope: Scope, keywords: frozenset[str]) -> Iterator[tuple[object, Scope]]:
    """The parts of a node in order, each with the scope that its names are seen from."""
    if isinstance(node, ast.Name):
        yield scope.place(node.id), scope
    elif isinstance(node, ast.arg):
        yield scope.place(node.arg), scope
        yield from _fields(node, scope, without=("arg",))
    elif isinstance(node, ast.Constant):
        # Python writes no whole number of more than 4,300 digits in decimals.
        value = hex(node.value) if isinstance(node.value, int) else repr(node.value)
        yield f"{type(node.value).__name__} {value}", scope
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from sorted((scope.place(name), scope) for name in node.names)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        module = getattr(node, "module", None) or ""
        yield f"{getattr(node, 'level', 0)} {module}", scope
        yield from ((alias.name, scope) for alias in node.names)
    elif isinstance(node, ast.ExceptHandler):
        yield scope.place(node.name) if node.name else "", scope
        yield from _fields(node, scope, without=("name",))
    elif isinstance(node, ast.Call):
        yield from _call(node, scope)
    elif isinstance(node, Functions):
        yield from _function(node, scope, keywords)
    elif isinstance(node, ast.ClassDef):
        yield scope.place(node.name), scope
        yield from _fields(node, scope, without=("name", "body"))
        inner = _scope(node, scope)
        yield from ((each, inner) for each in _statements(node.body))
    elif isinstance(node, Comprehensions):
        inner = _scope(node, scope)
        yield from _fields(node, inner)
    elif isinstance(node, ast.MatchAs | ast.MatchStar):
        yield scope.place(node.name) if node.name else "", scope
        yield from _fields(node, scope, without=("name",))
    elif isinstance(node, ast.MatchMapping):
        yield scope.place(node.rest) if node.rest else "", scope
        yield from _fields(node, scope, without=("rest",))
    else:
        yield from _fields(node, scope)


def _function(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
    scope: Scope,
    keywords: frozenset[str],
) -> Iterator[tuple[object, Scope]]:
    is_plain = not (scope.is_class or isinstance(node, ast.Lambda))
    named = {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    inner = _scope(node, scope, kept=frozenset() if is_plain else keywords & named)
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
        yield from ((each, inner) for each in _statements(node.body))


def _call(node: ast.Call, scope: Scope) -> Iterator[tuple[object, Scope]]:
    """A call; the keywords of a function of this file are told by their place in it."""
    names: list[str] = []
    if isinstance(node.func, ast.Name):
        owner = scope.owner(node.func.id)
        names = owner.functions.get(node.func.id, []) if owner is not None else []
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
            values = _statements(values)
        yield f"{name} {len(values)}", scope
        for each in values:
            is_plain = each is None or isinstance(each, str | int)
            yield f"= {each}" if is_plain else each, scope


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Statements without those that are a text alone, such as docstrings."""
    return [
        each
        for each in body
        if not (
            isinstance(each, ast.Expr)
            and isinstance(each.value, ast.Constant)
            and isinstance(each.value.value, str)
        )
    ]


def _scope(node: Node, parent: Scope | None, *, kept: frozenset[str] = frozenset()) -> Scope:
    scope = Scope(parent, 0 if parent is None else parent.depth + 1, set(), kept)
    scope.is_class = isinstance(node, ast.ClassDef)
    elsewhere: set[str] = set()
    stack: list[Node] = list(_inside(node))
    while stack:
        each = stack.pop()
        if isinstance(each, ast.Global | ast.Nonlocal):
            elsewhere.update(each.names)
        if isinstance(each, ast.Global):
            _top(scope).bound.update(each.names)
        _bind(each, scope)
        if not isinstance(each, (*Functions, ast.ClassDef, *Comprehensions)):
            stack.extend(ast.iter_child_nodes(each))
        elif isinstance(each, Comprehensions):  # A walrus in it binds outside of it.
            inner = (n for n in ast.walk(each) if isinstance(n, ast.NamedExpr))
            stack.extend(named.target for named in inner)
    scope.bound -= elsewhere
    return scope


def _top(scope: Scope) -> Scope:
    while scope.parent is not None:
        scope = scope.parent
    return scope


def _inside(node: Node) -> Iterator[Node]:
    """The nodes of a scope that may bind its names."""
    if isinstance(node, Functions):
        yield node.args
        yield from node.body if isinstance(node.body, list) else [node.body]
    elif isinstance(node, Comprehensions):
        yield from (each.target for each in node.generators)
    elif isinstance(node, ast.Module | ast.ClassDef):
        yield from node.body


def _bind(node: Node, scope: Scope) -> None:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        scope.bound.add(node.id)
    elif isinstance(node, ast.arg):
        scope.bound.add(node.arg)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        scope.bound.add(node.name)
        if not isinstance(node, ast.ClassDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            scope.functions[node.name] = [each.arg for each in arguments]
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        scope.bound.add(node.name)
    elif isinstance(node, ast.MatchMapping) and node.rest:
        scope.bound.add(node.rest)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        module = "" if isinstance(node, ast.Import) else f"{'.' * node.level}{node.module or ''}."
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            whole = alias.name if alias.asname or module else name
            scope.bound.add(name)
            scope.imported[name] = module + whole
