"""A published training package, fetched from a server by its SHA-256."""

import re

from finishline.cli.client import ServerClient, segment
from finishline.cli.errors import CliError, ExitCode
from finishline.rules.trainings.package import LARGEST_FILE_BYTES, Package, read_package
from finishline.rules.verification.messages import PACKAGE_PREFIX

HASH = re.compile("[0-9a-f]{64}")


def fetch_package(server: ServerClient, name: str) -> Package:
    """A published package by `sha256:` and its hash. Raises CliError.

    The files have to hash to it, whatever the server says.
    """
    sha256 = name.removeprefix(PACKAGE_PREFIX)
    if not HASH.fullmatch(sha256):
        raise CliError(
            f"--compare {name}: expected sha256: and 64 hex digits.", exit_code=ExitCode.USAGE
        )
    found = server.get("/submissions", package=sha256, limit=1)["submissions"]
    if not found:
        raise CliError(
            f"{server.url} has no package {name}; expected the SHA-256 of an entry, as its page "
            "and `finishline show` have it.",
            exit_code=ExitCode.NOT_FOUND,
        )
    path = f"/submissions/{segment(str(found[0]['id']))}/package"
    view = server.get(path)
    listed = view["files"]
    if not listed:
        raise CliError(
            f"The source of {name} is not published yet. Its first verdict publishes it.",
            exit_code=ExitCode.NOT_ALLOWED,
        )
    files = {
        str(each["name"]): server.download(
            f"{path}/files/{each['name']}", limit_bytes=LARGEST_FILE_BYTES
        )
        for each in listed
    }
    package, _ = read_package(files, benchmarks=None)
    if package is None or package.sha256 != sha256:
        raise CliError(
            f"{server.url} sent other files than those of {name}.", exit_code=ExitCode.REFUSED
        )
    return package
