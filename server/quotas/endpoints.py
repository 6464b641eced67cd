"""Quotas: read one's own; read and set everybody's as an organiser."""

from typing import Annotated

from fastapi import APIRouter, Path

from server.people.dependencies import CallerDep, OrganiserDep, PartsDep
from server.quotas import service
from server.quotas.schemas import MyQuotaView, QuotaList, QuotaSet, QuotaView, SubjectKind
from server.viewer import ORGANISER

router = APIRouter(tags=["quotas"])
SubjectDep = Annotated[str, Path(max_length=100)]


@router.get("/me/quota")
def my_quota(parts: PartsDep, caller: CallerDep) -> MyQuotaView:
    """What you may submit and have replayed, what you used of it, and when there is room again."""
    with parts.database.read(ORGANISER) as session:
        return service.own_quotas(session, parts.settings, caller)


@router.get("/quotas")
def list_quotas(parts: PartsDep, _caller: OrganiserDep) -> QuotaList:
    """What each user may use, and who may use more or less. For organisers."""
    with parts.database.read(ORGANISER) as session:
        return service.read_quotas(session, parts.settings)


@router.get("/quotas/{kind}/{subject}")
def get_quota(
    kind: SubjectKind, subject: SubjectDep, parts: PartsDep, _caller: OrganiserDep
) -> QuotaView:
    """What a user, or everybody on a benchmark, used of what is allowed. For organisers."""
    with parts.database.read(ORGANISER) as session:
        return service.read_quota(session, parts, kind, subject)


@router.put("/quotas/{kind}/{subject}")
def set_quota(
    kind: SubjectKind, subject: SubjectDep, body: QuotaSet, parts: PartsDep, caller: OrganiserDep
) -> QuotaView:
    """Set what a user, each member of an organisation, or everybody on a benchmark may use.

    For organisers; it holds from the next request on.
    """
    with parts.database.write() as session:
        service.set_quota(session, parts, caller, kind, subject, body)
    with parts.database.read(ORGANISER) as session:
        return service.read_quota(session, parts, kind, subject)
