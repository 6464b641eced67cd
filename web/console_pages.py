"""The pages of the console, as its navigation lists them."""

# Name, address, label.
CONSOLE_PAGES = (
    ("overview", "/console", "Overview"),
    ("verify", "/console/verify", "Verify"),
    ("duels", "/console/duels", "Duels"),
    ("decide", "/console/decide", "Decide"),
    ("calibrations", "/console/calibrations", "Calibrations"),
    ("prices", "/console/prices", "Prices"),
    ("audit", "/console/audit", "Audit log"),
    ("tokens", "/console/tokens", "Tokens"),
    ("account", "/console/account", "Your account"),
)
