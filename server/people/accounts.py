"""Accounts: tokens and their holders, roles and names."""

import hashlib
import logging
import re
import secrets
import unicodedata
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, cast, get_args

from sqlalchemy import (
    CompoundSelect,
    Connection,
    Table,
    bindparam,
    func,
    literal,
    select,
    union_all,
    update,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from finishline.api.people import Role
from finishline.rules.table import fault_in_text
from server.base.database import Database, insert_missing, utc_now
from server.base.errors import ConflictError, ContentError, NotSignedInError, no_such
from server.base.models import Organisation, PublishedResult, Token, User

# The first of a group is its prototype, which the others look like.
GROUPS = """
    2ƧꙄꝚ 3ƷȜЗӠꝪꞫ 4Ꮞ 5Ƽ 6бᏮ 8Ȣȣ 9Ꝯ AΑАᎪ BΒВᏴꞴ CСᏟ DᎠ EΕЕᎬ FϜꞘ GԌᏀᏳ HΗНᎻ JͿЈᎫꞲ KΚКᏦ LᏞ MΜϺМᎷ NΝ
    O0ΟОՕ PΡРᏢ RƦᎡᏒ SЅՏᏕᏚ TΤТᎢ UՍ VѴᏙ WԜᎳᏔ XΧХꞳ YΥУҮᎩᎽ ZΖᏃ aɑαа bƄЬᏏ cсᴄꮯ dԁᏧ eеҽꬲ fƒքẝꞙꬵ gƍɡցᶃ
    hһհᏂ iıɩɪιіւᎥꙇꭵ jϳј l1IƖǀΙІӀӏ nոռ oοσоօᴏᴑꬽ pþƿρϸр qԛգզ rгᴦꭇꭈꮁ sƽѕꜱꮪ uʋυսᴜꞟꭎꭒ vνѵᴠꮩ wɯшѡԝաᴡꮃ
    xх yɣʏγуүᶌỿꭚ zᴢꮓ ÞϷ ßβᏰẞꞵꟖ ĸκкᴋꮶ ƅьꮟ ƆϽ ƏӘ ƐԐᏋ ƨᴤꙅ ƩΣ ƫᎿ ǝəә ǶԊ ȝʒӡꝫ ȷյ ɂꭾ ɅΛЛ ɋᶐ ɔͻᴐↄ ɜзᴈ
    ɢԍᏻꮐ ɰպ ɸφф ʀꭱꮢ ʃꭍ ʌᴧ ʍмᴍꮇ ʘꙨ ʙвᏼ ʚꞝ ʜнꮋ ʟꮮ ΓГᎱ ΠП ΦФՓ ΨѰ πпᴨ ςϛ χꭓꭕ ψѱ ωꙍꞷ ИͶ лᴫ љꭠ ѠᏇ ҶӋ
    ҷӌ ᴀꭺ ᴅꭰ ᴇꭼ ᴊꭻ ᴎͷи ᴘᴩꮲ ᴙя ᴛτтꭲ ẟδծ ⱵͰᎨᎰ ⱶꮀ ꙌꞶ ꜧꞕ ꜾϿ ꜿͽ Ꝺꝺ ꞒЄ ꞓɛεєԑꮛ
"""
PAIRS = {
    "m": "rn", "æ": "ae", "ӕ": "ae", "Æ": "AE", "Ӕ": "AE", "Ы": "bl", "Ю": "lO", "œ": "oe",
    "Œ": "OE", "ǁ": "ll", "ꝏ": "oo", "Ꝏ": "OO", "ʣ": "dz", "ʦ": "ts", "ꜳ": "aa", "Ꜳ": "AA",
    "\u030c": "\u0306", "\u0327": "\u0326",
}  # fmt: skip
PROTOTYPES = str.maketrans(
    {other: group[0] for group in GROUPS.split() for other in group[1:]} | PAIRS
)
# Letters and marks that show nothing, though Unicode calls them printable.
INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(
    map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)


def skeletons(name: str) -> frozenset[str]:
    """Return the name's shapes without case: as it is written, and as it is in small letters."""
    plain = unicodedata.normalize("NFKC", name)
    return frozenset((_skeleton(plain).casefold(), _skeleton(plain.casefold())))


def _skeleton(text: str) -> str:
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", text).translate(PROTOTYPES))


def fault_in(name: str) -> str | None:
    """Describe the fault in the form of a new name, and the remedy."""
    if not name.isprintable() or not INVISIBLE.isdisjoint(name):
        return "has invisible or direction-changing characters; remove them"
    if not name or name != name.strip():
        return "is empty, or begins or ends with a space; remove spaces around it"
    if fault := fault_in_text(name):
        return f"has {fault}; write fewer"
    if "  " in name:
        return "has several spaces in a row; write one"
    plain = unicodedata.normalize("NFKC", name)
    return f"has compatibility characters; write it as {plain!r}" if plain != name else None


log = logging.getLogger(__name__)
# The name of an account that was erased.
FORMER = re.compile(r"former-\d+")
# Names under which the server itself acts, in the audit log and elsewhere.
OF_THE_SERVER = (
    "Finishline", "server", "report check", "cross-check", "failures", "reference", "phases",
)  # fmt: skip
MOST_TOKENS = 20


def require_new_name(session: Session, name: str, *, user_id: int | None = None) -> None:
    """Refuse a name that is like another one.

    A user's display name may be like the name of their own account: `user_id` says whose it is.
    Raises ContentError about its form, ConflictError naming the similar name. Existing names stay
    as they are.
    """
    if fault := fault_in(name):
        raise ContentError(f"The name {name!r} {fault}.")
    if FORMER.fullmatch(name.casefold()):
        raise ContentError(f"The name {name!r} is kept for an account that was erased.")
    is_under = any(shape.startswith("server.") for shape in skeletons(name))
    if is_under or not _bare(name).isdisjoint(RESERVED):
        raise ContentError(f"The name {name!r} is kept for the server itself. Choose another one.")
    others = User.id.is_distinct_from(user_id)
    taken: CompoundSelect[Any] = union_all(
        select(literal("a user"), User.name).where(others),
        select(literal("a user called"), User.display_name).where(
            others, User.display_name.is_not(None)
        ),
        select(literal("an organisation"), Organisation.name),
        select(literal("a submitter"), PublishedResult.organisation)
        .where(PublishedResult.organisation.is_not(None))
        .distinct(),
    )
    shapes = skeletons(name)
    for kind, other in session.execute(taken):
        if other == name:
            raise ConflictError(f"There is {kind} {other!r} already.")
        if not shapes.isdisjoint(skeletons(other)):
            raise ConflictError(
                f"The name {name!r} looks like that of {kind}, {other!r}. Choose a clearly "
                "different name."
            )


def _bare(name: str) -> frozenset[str]:
    return frozenset(re.sub(r"[\W_]", "", shape) for shape in skeletons(name))


RESERVED = frozenset[str]().union(*map(_bare, OF_THE_SERVER))
ROLES: tuple[Role, ...] = get_args(Role)
# An admin may do whatever an organiser may.
ORGANISERS: tuple[Role, ...] = ("organiser", "admin")
# From the least to the most: a user's role is the highest that their tokens may have.
RANK: dict[str, int] = {"worker": 0, "submitter": 1, "organiser": 2, "admin": 3}
# A worker's token lies on the host of a stranger: it opens nothing of these.
SUBMITTERS: tuple[Role, ...] = ("submitter", *ORGANISERS)


def require_person(user: User) -> None:
    """Raise ConflictError for a user under whose name the server itself acts."""
    if user.name in OF_THE_SERVER:
        raise ConflictError(
            f"{user.name} is the server itself: it can't be changed, and nobody has a token of it."
        )


def may_hold(user_role: str, token_role: str) -> bool:
    """Whether a user of a role may have tokens of another; any user may have a worker's."""
    return RANK[token_role] <= RANK[user_role]


def is_within(role: str, other: str) -> bool:
    """Whether the other role may do everything a role may do."""
    return role == other or 0 < RANK[role] < RANK[other]


_TOKENS, _USERS = (cast(Table, each.__table__) for each in (Token, User))
_HOLDERS = select(
    *(_TOKENS.c.id, _TOKENS.c.user_id, _USERS.c.name, _TOKENS.c.role, _USERS.c.role),
    _USERS.c.organisation_id,
    *(_TOKENS.c.expires_at, _TOKENS.c.revoked_at, _USERS.c.disabled_at),
    *(_TOKENS.c.last_used_at, _USERS.c.session_number),
).join_from(_TOKENS, _USERS, _USERS.c.id == _TOKENS.c.user_id)
_HOLDER = _HOLDERS.where(_TOKENS.c.token_sha256 == bindparam("sha256"))
_SIGNED_IN = _HOLDERS.where(
    _TOKENS.c.id == bindparam("token_id"), _USERS.c.session_number == bindparam("number")
)
USED_EVERY = timedelta(minutes=1)
TOKEN_PREFIX = "fl_"  # noqa: S105  a prefix, so that leaked tokens can be searched for


@dataclass(frozen=True)
class NewToken:
    """Token just made; `secret` is shown only once. `new_user`: its user was made with it."""

    token: Token
    secret: str
    new_user: bool = False


class Holder(NamedTuple):
    """Columns of a token and its user that decide access; `role` is the token's."""

    token_id: int
    user_id: int
    name: str
    role: str
    user_role: str
    organisation_id: int | None
    expires_at: datetime | None
    revoked_at: datetime | None
    disabled_at: datetime | None
    last_used_at: datetime | None
    session_number: int


def hash_token(secret: str) -> str:
    """Hash of a token, which is stored. It is random, so a plain SHA-256 cannot be guessed back."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create_token(
    session: Session, *, user_name: str, role: str, expires_in: timedelta | None
) -> NewToken:
    """Create a token, and its user unless there is one.

    Checks no permission: a user with a lower role is raised to this one.
    """
    now = utc_now()
    known = find_user_or_none(session, user_name) is not None
    if not known:
        require_new_name(session, user_name)
    insert_missing(session, User, name=user_name, role=role, created_at=now)
    user = session.scalars(select(User).where(User.name == user_name)).one()
    if user.disabled_at is not None:
        raise ConflictError(f"User {user_name} is disabled and gets no token.")
    require_room(session, user)
    user.role = max(user.role, role, key=RANK.__getitem__)
    expires_at = now + expires_in if expires_in is not None else None
    made = add_token(session, user, role=role, expires_at=expires_at)
    return replace(made, new_user=not known)


def require_room(session: Session, user: User) -> None:
    """Raise ConflictError if a user has as many live tokens as one user may have."""
    living = Token.revoked_at.is_(None) & (
        Token.expires_at.is_(None) | (Token.expires_at > utc_now())
    )
    count = select(func.count()).select_from(Token).where(Token.user_id == user.id, living)
    if (session.scalar(count) or 0) >= MOST_TOKENS:
        raise ConflictError(
            f"{user.name} has {MOST_TOKENS} live tokens, which is the most. Hint: revoke one that "
            "is no longer used."
        )


def add_token(
    session: Session,
    user: User,
    *,
    role: str,
    expires_at: datetime | None,
    label: str | None = None,
    made_with: int | None = None,
) -> NewToken:
    """Add a token to a user, who must be a person."""
    require_person(user)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = Token(
        user=user,
        role=role,
        label=label,
        token_sha256=hash_token(secret),
        created_at=utc_now(),
        expires_at=expires_at,
        made_with=made_with,
    )
    session.add(token)
    session.flush()
    return NewToken(token=token, secret=secret)


def find_user_or_none(session: Session, name: str) -> User | None:
    """Find a user by name, or None."""
    return session.scalar(select(User).where(User.name == name))


def find_holder(connection: Connection, secret: str) -> Holder:
    """Find the holder of a valid token. Raises NotSignedInError if it is not valid.

    Every request with a token needs this, so it reads only columns.
    """
    row = connection.execute(_HOLDER, {"sha256": hash_token(secret)}).one_or_none()
    return _valid_holder(row, "This token is not known here; ask an organiser for one.")


def find_session_holder(connection: Connection, token_id: int, number: int) -> Holder:
    """Find the holder of a session. Raises NotSignedInError once it or its token has ended."""
    row = connection.execute(_SIGNED_IN, {"token_id": token_id, "number": number}).one_or_none()
    return _valid_holder(row, "You are not signed in, or signed out elsewhere.")


def _valid_holder(row: Any | None, unknown: str) -> Holder:
    if row is None:
        raise NotSignedInError(unknown)
    holder = Holder._make(row)
    require_valid(holder)
    return holder


def holder_of(token: Token) -> Holder:
    """Holder of a loaded token."""
    user = token.user
    return Holder(
        token_id=token.id,
        user_id=token.user_id,
        name=user.name,
        role=token.role,
        user_role=user.role,
        organisation_id=user.organisation_id,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
        disabled_at=user.disabled_at,
        last_used_at=token.last_used_at,
        session_number=user.session_number,
    )


def note_use(database: Database, holder: Holder) -> None:
    """Record the use of a token, at most once a minute. A failed write fails no request."""
    now = utc_now()
    if holder.last_used_at is not None and now - holder.last_used_at < USED_EVERY:
        return
    try:
        with database.write_beside() as session:
            session.execute(
                update(Token).where(Token.id == holder.token_id).values(last_used_at=now)
            )
    except SQLAlchemyError as error:
        log.warning("the use of token %d was not recorded: %s", holder.token_id, error)


def require_valid(holder: Holder) -> None:
    """Raise NotSignedInError unless a token is valid and its user may still hold it."""
    if holder.revoked_at is not None:
        raise NotSignedInError("This token was revoked; ask an organiser for a new one.")
    if is_expired(holder, utc_now()):
        raise NotSignedInError(
            f"This token expired on {holder.expires_at:%Y-%m-%d %H:%M} UTC; "
            "ask an organiser for a new one."
        )
    if holder.disabled_at is not None:
        raise NotSignedInError(f"The account {holder.name} is disabled; ask an admin.")
    if not may_hold(holder.user_role, holder.role):
        raise NotSignedInError(
            f"This token is of role {holder.role}, but {holder.name} is now {holder.user_role}; "
            "ask an admin for a matching token."
        )


def is_expired(token: Token | Holder, now: datetime) -> bool:
    """Whether a token has expired."""
    return token.expires_at is not None and token.expires_at <= now


def find_own_token(session: Session, user_id: int, token_id: int) -> Token:
    """Find one of a user's own tokens. Raises NotFoundError, also if it is somebody else's."""
    token = session.get(Token, token_id)
    if token is None or token.user_id != user_id:
        raise no_such("token", token_id, of="You have no")
    return token


def list_own_tokens(session: Session, user_id: int) -> list[Token]:
    """List a user's tokens, newest first."""
    query = select(Token).where(Token.user_id == user_id).order_by(Token.id.desc())
    return list(session.scalars(query))
