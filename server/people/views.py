"""Views of stored tokens."""

from finishline.api.people import MeView, TokenView
from server.base.models import Token


def token_view(token: Token) -> TokenView:
    """View of a stored token."""
    return TokenView(
        id=token.id,
        user=token.user.name,
        role=token.role,
        label=token.label,
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
        last_used_at=token.last_used_at,
        made_with=token.made_with,
    )


def me_view(token: Token) -> MeView:
    """View of a token's holder for themselves."""
    user = token.user
    return MeView(
        user=user.name,
        display_name=user.display_name,
        organisation=user.organisation.name if user.organisation is not None else None,
        email=user.email,
        highest_role=user.role,
        token_id=token.id,
        label=token.label,
        role=token.role,
        expires_at=token.expires_at,
    )
