"""The pages: the same views as the API's, handed to web's templates and charts."""

from server.pages import (
    board_charts,
    boards,
    calibrations,
    compare,
    console_account,
    console_audit,
    console_benchmarks,
    console_calibrations,
    console_notices,
    console_people,
    console_phases,
    console_preview,
    console_prices,
    console_quotas,
    console_sign_in,
    console_work,
    declared,
    docs,
    feeds,
    home,
    ideas,
    install,
    join,
    lists,
    mail_links,
    openid,
    packages,
    proofs,
    rounds,
    runs,
    static_files,
    submissions,
    submit,
    verifications,
    well_known,
    workers,
)

PAGES = (
    boards,
    board_charts,
    submissions,
    verifications,
    proofs,
    feeds,
    console_sign_in,
    openid,
    submit,
    join,
    mail_links,
    console_benchmarks,
    console_preview,
    console_audit,
    docs,
    well_known,
    static_files,
)
# Their pages and forms are declared, so their order in this list says nothing.
DECLARED = (
    calibrations, compare, console_account, console_calibrations, console_notices, console_people,
    console_phases, console_prices, console_quotas, console_work, home, ideas, install, lists,
    packages, rounds, runs, workers,
)  # fmt: skip
# Each is given to the application itself: when a router of routers is included, FastAPI analyses
# every route of theirs to see whether its path is empty.
ROUTERS = (declared.routes(), *(page.router for page in PAGES))
