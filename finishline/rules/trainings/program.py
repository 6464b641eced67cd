"""The program of a package: everything that decides how it trains, and nothing that a reader sees.

Two packages are the same program if their files have the same names, their Python files the same
tokens, their other files the same bytes, and their manifests the same fields that a run depends on.
"""

import hashlib
import io
import tokenize
from collections.abc import Iterator, Mapping

from finishline.rules.proof.hash_chain import sha256_of
from finishline.rules.trainings.manifest import FILE, Manifest

# Tokens without a meaning: where a line ends inside an expression, and blank lines.
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)
# Tokens that have a meaning whatever their text is.
_WITHOUT_TEXT = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def program_sha256(manifest: Manifest, files: Mapping[str, bytes]) -> str:
    """Hash over the program of a package, in hex.

    Comments, docstrings, blank lines, indentation and line continuation do not change it, and
    neither do title, licence, parent, precision and words of factors. Another name of a file does.
    """
    runs = [manifest.benchmark, manifest.module, manifest.environment]
    contents = [
        [name, _python(content) if name.endswith(".py") else hashlib.sha256(content).hexdigest()]
        for name, content in sorted(files.items())
        if name != FILE
    ]
    return sha256_of([*runs, sorted(manifest.factors or {}), contents])


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
