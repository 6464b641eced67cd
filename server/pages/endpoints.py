"""The pages: the same views as the API's, handed to web's templates and charts."""

from server.pages import (
    board,
    board_charts,
    compare,
    console_boards,
    console_people,
    console_work,
    declared,
    docs,
    files,
    home,
    lists,
    runs,
    sign_in,
    submissions,
    submit,
    verifications,
)

# These modules only declare pages and forms.
DECLARED = (compare, console_work, home, lists, runs)
PAGES = (
    board,
    board_charts,
    submissions,
    verifications,
    files,
    sign_in,
    submit,
    console_boards,
    console_people,
    docs,
)
# A page may have the address of a chart without its ".json", so declared pages come last. The
# application includes each router itself, because FastAPI analyses every route of nested routers.
ROUTERS = (*(page.router for page in PAGES), declared.routes())
