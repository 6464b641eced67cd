"""Accounts: tokens and their holders, roles and names."""

import hashlib
import logging
import re
import secrets
import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, get_args

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    func,
    literal,
    select,
    union_all,
    update,
)
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, contains_eager

from finishline.api.people import Role
from finishline.rules.table import fault_in_text
from server.base.database import Database, insert_missing, utc_now
from server.base.errors import ConflictError, ContentError, NotSignedInError
from server.base.models import Organisation, PublishedResult, Token, User
from server.base.visibility import ORGANISER

# The first letter of a group is its prototype, and the others look like it.
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
# Invisible letters and marks, though Unicode calls them printable.
INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | frozenset(
    map(chr, (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)


def skeletons(name: str) -> frozenset[str]:
    """Return the name's shapes without case: as written, and in small letters."""
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
# The name of an erased account.
FORMER = re.compile(r"former-\d+")
# Names under which the server itself acts, in the audit log and elsewhere.
OF_THE_SERVER = (
    "Finishline", "server", "report check", "cross-check", "failures", "reference", "phases",
)  # fmt: skip
MOST_TOKENS = 20


def require_new_name(session: Session, name: str, *, user_id: int | None = None) -> None:
    """Refuse a new name that looks like another name. Raises ContentError or ConflictError.

    The display name of user `user_id` may look like the name of their account.
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
# An admin may also act as an organiser.
ORGANISERS: tuple[Role, ...] = ("organiser", "admin")
# A user's role is the highest that their tokens may have.
RANK: dict[str, int] = {"worker": 0, "submitter": 1, "organiser": 2, "admin": 3}
# Without worker, because a worker's token is on a stranger's host.
SUBMITTERS: tuple[Role, ...] = ("submitter", *ORGANISERS)
# Roles of tokens accepted for the role of a declaration.
MAY: dict[str, tuple[Role, ...]] = {
    "user": ROLES,
    "submitter": SUBMITTERS,
    "organiser": ORGANISERS,
    "admin": ("admin",),
    "worker": ("worker",),
}


def require_person(user: User) -> None:
    """Raise ConflictError for a user who is the server itself."""
    if user.name in OF_THE_SERVER:
        raise ConflictError(
            f"{user.name} is the server itself: it can't be changed, and nobody has a token of it."
        )


def may_hold(user_role: str, token_role: str) -> bool:
    """Return whether a user of a role may have tokens of another. Any may have a worker's."""
    return RANK[token_role] <= RANK[user_role]


def is_within(role: str, other: str) -> bool:
    """Return whether the other role may do everything this role may."""
    return role == other or 0 < RANK[role] < RANK[other]


USED_EVERY = timedelta(minutes=1)
TOKEN_PREFIX = "fl_"  # noqa: S105  a prefix, so that leaked tokens can be searched for


@dataclass(frozen=True)
class NewToken:
    """A new token. Its `secret` is shown only once."""

    token: Token
    secret: str


def hash_token(secret: str) -> str:
    """Hash a token for storage. Tokens are random, so a plain SHA-256 can't be guessed back."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create_token(
    session: Session, *, user_name: str, role: str, expires_in: timedelta | None
) -> NewToken:
    """Create a token and its user. Permissions are unchecked, and a lower role is raised."""
    now = utc_now()
    if find_user_or_none(session, user_name) is None:
        require_new_name(session, user_name)
    insert_missing(session, User, name=user_name, role=role, created_at=now)
    user = session.scalars(select(User).where(User.name == user_name)).one()
    require_room(session, user)
    user.role = max(user.role, role, key=RANK.__getitem__)
    expires_at = now + expires_in if expires_in is not None else None
    return add_token(session, user, role=role, expires_at=expires_at)


def require_room(session: Session, user: User) -> None:
    """Raise ConflictError if a user is disabled, or has as many live tokens as one may have."""
    if user.disabled_at is not None:
        raise ConflictError(f"User {user.name} is disabled and gets no token.")
    count = select(func.count(Token.id)).where(Token.user_id == user.id, is_live())
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
    """Find a user by name, if there is one."""
    return session.scalar(select(User).where(User.name == name))


def find_token(database: Database, secret: str) -> Token:
    """Find the valid token of a secret, with its user. Raises NotSignedInError."""
    known = Token.token_sha256 == hash_token(secret)
    return _valid_token(database, known, "This token is not known here; ask an organiser for one.")


def find_session_token(database: Database, token_id: int, number: int) -> Token:
    """Find the token of a session. Raises NotSignedInError if session or token has ended."""
    known = (Token.id == token_id) & (User.session_number == number)
    return _valid_token(database, known, "You are not signed in, or signed out elsewhere.")


def _valid_token(database: Database, known: ColumnElement[bool], unknown: str) -> Token:
    query = select(Token).join(Token.user).options(contains_eager(Token.user)).where(known)
    with database.read(ORGANISER) as session:
        token = session.scalar(query)
    if token is None:
        raise NotSignedInError(unknown)
    require_valid(token)
    return token


def note_use(database: Database, token: Token) -> None:
    """Record the use of a token, at most once a minute. A failed write is only logged."""
    now = utc_now()
    if token.last_used_at is not None and now - token.last_used_at < USED_EVERY:
        return
    try:
        with database.write_beside() as session:
            session.execute(update(Token).where(Token.id == token.id).values(last_used_at=now))
    except SQLAlchemyError as error:
        log.warning("the use of token %d was not recorded: %s", token.id, error)


def require_valid(token: Token) -> None:
    """Raise NotSignedInError unless a token is valid and its user may still hold it."""
    user = token.user
    if token.state == "revoked":
        raise NotSignedInError("This token was revoked; ask an organiser for a new one.")
    if token.state == "expired":
        raise NotSignedInError(
            f"This token expired on {token.expires_at:%Y-%m-%d %H:%M} UTC; "
            "ask an organiser for a new one."
        )
    if user.disabled_at is not None:
        raise NotSignedInError(f"The account {user.name} is disabled; ask an admin.")
    if not may_hold(user.role, token.role):
        raise NotSignedInError(
            f"This token is of role {token.role}, but {user.name} is now {user.role}; "
            "ask an admin for a matching token."
        )


def is_live() -> ColumnElement[bool]:
    """Return the condition of a valid token."""
    later = Token.expires_at.is_(None) | (Token.expires_at > utc_now())
    return Token.revoked_at.is_(None) & later
