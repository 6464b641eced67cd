"""Checks that a withdrawal cut short: their submitter saw them go on, and took them back."""

from server.models import Submission, Verification

# Of a verification and its submission. A withdrawal is dated before it ends anything
# (server.withdrawals.service), so what ended otherwise ended earlier.
CUT_SHORT = (Verification.state == "cancelled") & (Verification.ended_at >= Submission.withdrawn_at)
