"""Roles of a user, each with the rights of a token."""

from typing import Literal

Role = Literal["submitter", "organiser", "admin", "worker"]
