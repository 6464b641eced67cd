"""Services: process-wide objects, for endpoints by dependency and for others by their session."""

from collections import UserDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, Request

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.artifacts import ArtifactStore
from server.base.database import Database
from server.base.settings import Settings

Kind = TypeVar("Kind")


class OfferedBenchmarks(UserDict[str, Benchmark]):
    """Benchmarks in the order of their ids. They may be replaced during an iteration.

    `redefined` has the ids of changed definitions until their boards are marked as changed.
    """

    def __init__(self, benchmarks: Iterable[Benchmark] = ()) -> None:
        super().__init__()
        self.redefined: set[str] = set()
        self.replace(benchmarks)
        self.redefined.clear()

    def replace(self, benchmarks: Iterable[Benchmark]) -> None:
        """Offer exactly these benchmarks."""
        later = {one.benchmark_id: one for one in benchmarks}
        self.redefined |= {name for name in later if later[name] is not self.data.get(name)}
        self.data = dict(sorted(later.items()))


@dataclass(frozen=True)
class Services:
    """Process-wide objects of an application or a command. Rooms find their objects by type."""

    settings: Settings
    database: Database
    artifacts: ArtifactStore
    benchmarks: OfferedBenchmarks

    def __post_init__(self) -> None:
        self.put(self)
        self.put(self.settings)

    def of(self, kind: type[Kind]) -> Kind:
        """Return a room's object of a type, as `RoomState.of` does."""
        return self.database.state.of(kind)

    def put(self, value: Kind) -> Kind:
        """Keep a room's object under its type."""
        return self.database.state.put(value)


def services_of(request: Request) -> Services:
    """Return the services of a request's application."""
    services: Services = request.app.state.services
    return services


async def get_services(request: Request) -> Services:
    """Return the services as a dependency. It is async, because a thread would take longer."""
    return services_of(request)


ServicesDep = Annotated[Services, Depends(get_services)]


def site_address(request: Request, settings: Settings) -> str:
    """Return the server's address as set, else as requested, without a slash at its end."""
    return (settings.public_url or str(request.base_url)).rstrip("/")
