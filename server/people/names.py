"""Names of users, organisations and workers: their plain form, and names that look alike."""

import unicodedata

from finishline.rules.table import fault_in_text

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
