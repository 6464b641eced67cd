"""The program of a package: everything that decides how it trains, and nothing that a reader sees.

Two packages are the same program if their files have the same names, their Python and C++ files
the same tokens, their other files the same bytes, and their manifests the same fields that a run
depends on.
"""

import hashlib
import io
import re
import tokenize
from collections.abc import Iterator, Mapping

from finishline.rules.canonical import sha256_of
from finishline.rules.trainings.manifest import FILE, Manifest

# Also of a package whose environment has a compiler.
COMPILED_SUFFIXES = (".cpp", ".h")
# Tokens without a meaning: where a line ends inside an expression, and blank lines.
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)
# Tokens that have a meaning whatever their text is.
_WITHOUT_TEXT = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
# Of C++: comments and white space, then raw strings, strings and characters, numbers, and the rest.
# One without an end goes on to that of the file, so that no other search begins within it.
_CPP = re.compile(
    rb"(?P<layout>//[^\n]*|/\*.*?(?:\*/|\Z)|\s+|\\\r?\n)"
    rb"|(?:u8|[uUL])?R\"(?P<mark>[^()\s\\]{0,16})\(.*?(?:\)(?P=mark)\"|\Z)"
    rb"|\"(?:\\[^\n]|[^\"\\\n])*\"|'(?:\\[^\n]|[^'\\\n])+'|\d[\w'.]*|\w+|.",
    re.DOTALL,
)


def program_sha256(manifest: Manifest, files: Mapping[str, bytes]) -> str:
    """Hash over the program of a package, in hex.

    Comments, docstrings, blank lines, indentation and line continuation do not change it, and
    neither do title, licence, parent, precision and words of factors. Another name of a file does.
    """
    runs = [manifest.benchmark, manifest.module, manifest.environment]
    named = sorted(files.items())
    contents = [[name, _content(name, content)] for name, content in named if name != FILE]
    return sha256_of([*runs, sorted(manifest.factors or {}), contents])


def _content(name: str, content: bytes) -> str:
    if name.endswith(".py"):
        return _python(content)
    if name.endswith(COMPILED_SUFFIXES):
        content = b"\n".join(found[0] for found in _CPP.finditer(content) if not found["layout"])
    return hashlib.sha256(content).hexdigest()


def _python(content: bytes) -> str:
    digest = hashlib.sha256()
    try:
        for kind, text in _tokens(content):
            digest.update(f"{kind} {len(text)} {text}\n".encode())
    except (tokenize.TokenError, SyntaxError):
        return hashlib.sha256(content).hexdigest()  # Python reads it, and its tokenizer does not.
    return digest.hexdigest()


def _tokens(content: bytes) -> Iterator[tuple[int, str]]:
    """Type and text of the tokens, without statements that are a string alone."""
    statement: list[tuple[int, str]] = []
    for token in tokenize.tokenize(io.BytesIO(content).readline):
        if token.type in _LAYOUT:
            continue
        if token.type in _WITHOUT_TEXT:
            if any(kind != tokenize.STRING for kind, _ in statement):
                yield from (*statement, (tokenize.NEWLINE, ""))
            statement = []
            if token.type != tokenize.NEWLINE:
                yield token.type, ""
            continue
        statement.append((token.type, token.string))
