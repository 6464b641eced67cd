"""The files of a submission, as commands take them."""

from pathlib import Path

from finishline.cli.client import cli_errors
from finishline.client import files
from finishline.client.files import CLAIM_NAME, SubmissionFiles

__all__ = ["CLAIM_NAME", "SubmissionFiles", "find_submission_files"]


def find_submission_files(path: Path) -> SubmissionFiles:
    """The files of the submission at `path`. Raises CliError for what is missing."""
    with cli_errors():
        return files.find_submission_files(path)
