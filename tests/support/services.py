"""The services of an application that a test calls."""

from typing import cast

from fastapi import FastAPI
from fastapi.testclient import TestClient

from server.base.services import Services


def services_of(client: TestClient) -> Services:
    """The services of the application behind a client."""
    services: Services = cast(FastAPI, client.app).state.services
    return services
