"""The pages: the same views as the API's, handed to web's templates and charts."""

from fastapi import APIRouter

from server.pages import (
    api_reference,
    board_charts,
    boards,
    convergence,
    docs,
    feeds,
    home,
    prices,
    static_files,
    submissions,
    verifications,
    workers,
)

router = APIRouter(include_in_schema=False)
for page in (
    home,
    boards,
    board_charts,
    convergence,
    submissions,
    verifications,
    workers,
    feeds,
    prices,
    api_reference,
    # After the API reference, which has an address among the documents.
    docs,
    static_files,
):
    router.include_router(page.router)
