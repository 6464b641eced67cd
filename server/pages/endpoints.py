"""The pages: the same views as the API's, handed to web's templates and charts."""

from fastapi import APIRouter

from server.pages import (
    api_reference,
    board_charts,
    boards,
    calibrations,
    compare,
    convergence,
    docs,
    feeds,
    home,
    static_files,
    submissions,
    verification_comparison,
    verifications,
    workers,
)

router = APIRouter(include_in_schema=False)
for page in (
    home,
    boards,
    convergence,
    board_charts,
    submissions,
    compare,
    calibrations,
    verification_comparison,  # before the page of one verification, whose path would fit it too
    verifications,
    workers,
    feeds,
    api_reference,
    # After the API reference, which has an address among the documents.
    docs,
    static_files,
):
    router.include_router(page.router)
