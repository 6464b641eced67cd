"""The services of an application that a test calls."""

from typing import cast

from fastapi import FastAPI


def services_of(client):
    return cast(FastAPI, client.app).state.services
