"""The pages: the same views as the API's, handed to web's templates and charts."""

from fastapi import APIRouter

from server.pages import (
    api_reference,
    board_charts,
    boards,
    calibrations,
    compare,
    console_account,
    console_audit,
    console_calibrations,
    console_decide,
    console_duels,
    console_overview,
    console_own_tokens,
    console_prices,
    console_sign_in,
    console_tokens,
    console_users,
    console_verify,
    console_workers,
    convergence,
    docs,
    feeds,
    home,
    prices,
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
    prices,
    console_sign_in,
    console_overview,
    console_account,
    console_own_tokens,
    console_verify,
    console_duels,
    console_decide,
    console_calibrations,
    console_prices,
    console_workers,
    console_audit,
    console_tokens,
    console_users,
    api_reference,
    # After the API reference, which has an address among the documents.
    docs,
    static_files,
):
    router.include_router(page.router)
