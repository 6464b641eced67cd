"""Views of stored tokens."""

from finishline.api.people import MeView, TokenView
from server.base.models import Token


def token_view(token: Token) -> TokenView:
    """View of a stored token."""
    return TokenView.of(token, user=token.user.name)


def me_view(token: Token) -> MeView:
    """View of a token's holder for themselves."""
    user = token.user
    return MeView.of(
        token,
        user=user.name,
        display_name=user.display_name,
        organisation=user.organisation.name if user.organisation is not None else None,
        email=user.email,
        highest_role=user.role,
        token_id=token.id,
    )
