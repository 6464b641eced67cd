"""Who may do what: the roles of users and of their tokens."""

ROLES = ("submitter", "organiser", "admin", "worker")
# An admin may do whatever an organiser may.
ORGANISERS = ("organiser", "admin")
