"""`finishline admin`: users, organisations and their tokens, over the API.

The first admin's token is made on the server's own machine: `python -m server.admin token`.
"""

import typer

from finishline.cli.commands import admin_tokens, admin_users

app = typer.Typer(no_args_is_help=True, help="Users, organisations and tokens (admins).")
app.add_typer(admin_users.users, name="user")
app.add_typer(admin_users.organisations, name="organisation")
app.add_typer(admin_tokens.app, name="token")
