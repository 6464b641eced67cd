"""The pages of the console, as its navigation lists them."""

# Name, address, label.
CONSOLE_PAGES = (
    ("overview", "/console", "Overview"),
    ("verify", "/console/verify", "Verify"),
    ("duels", "/console/duels", "Duels"),
    ("decide", "/console/decide", "Decide"),
    ("calibrations", "/console/calibrations", "Calibrations"),
    ("phases", "/console/phases", "Phases"),
    ("workers", "/console/workers", "Workers"),
    ("prices", "/console/prices", "Prices"),
    ("quotas", "/console/quotas", "Quotas"),
    ("audit", "/console/audit", "Audit log"),
    ("tokens", "/console/tokens", "Tokens"),
    ("users", "/console/users", "Users"),
    ("notices", "/console/notices", "Notices"),
    ("account", "/console/account", "Your account"),
)
EVERYBODYS = ("account",)
SUBMITTERS = ("notices", *EVERYBODYS)
ADMINS_ALONE = ("users",)


def console_pages_of(role: str) -> list[tuple[str, str, str]]:
    """The pages that whoever is signed in with a role finds in the navigation."""
    if role == "admin":
        return list(CONSOLE_PAGES)
    if role == "organiser":
        return [page for page in CONSOLE_PAGES if page[0] not in ADMINS_ALONE]
    own = SUBMITTERS if role == "submitter" else EVERYBODYS
    return [page for page in CONSOLE_PAGES if page[0] in own]
