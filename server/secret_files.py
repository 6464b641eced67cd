"""Secrets in files, as container engines hand them to a process."""

from pathlib import Path
from urllib.parse import quote, urlsplit

from pydantic import SecretStr


def read_secret(variable: str, path: str) -> str:
    """What a file holds, without the line end that editors leave.

    Raises RuntimeError that names the variable if the file cannot be read or is empty.
    """
    try:
        secret = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise RuntimeError(f"{variable} names a file that cannot be read: {error}") from error
    if not secret:
        raise RuntimeError(f"{variable} names an empty file, {path}: expected a secret in it.")
    return secret


def with_password(url: str, password: SecretStr) -> str:
    """An address with a password in place of any it has."""
    parts = urlsplit(url)
    user, _, host = parts.netloc.rpartition("@")
    secret = quote(password.get_secret_value(), safe="")
    return parts._replace(netloc=f"{user.partition(':')[0]}:{secret}@{host}").geturl()
