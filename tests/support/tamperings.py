"""Named ways to tamper with a proof of format 2, each with the check that must fail.

Those that sign again act as the server itself would; the others as somebody without its key.
"""

import base64
import json
import struct
import zlib
from collections.abc import Callable
from random import Random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from finishline.rules.proof.envelope import ENVELOPE_NAME, canonical, pre_authentication, sha256_of
from finishline.rules.proof.proof import PARTS, key_id_of
from server.base.signing import load_signer
from tests.support.proofs import TakenApart, zip_of

Tampering = Callable[[TakenApart, Random], bytes]
TAMPERINGS: dict[str, tuple[str, Tampering]] = {}


def fails(check):
    """Name the check that a tampering must make fail."""

    def add(tampering):
        TAMPERINGS[tampering.__name__] = (check, tampering)
        return tampering

    return add


def _pack(proof, envelope, *more):
    return zip_of((ENVELOPE_NAME, envelope), *proof.entries()[1:], *more)


def _envelope(proof, **changed):
    document = json.loads(proof.proof()[1]) | changed
    return canonical({name: value for name, value in document.items() if value is not None})


def _signed(proof, payload):
    """The bundle with another payload under a signature of the server."""
    signer = load_signer(proof.signing_key)
    value = base64.b64encode(signer.sign(pre_authentication(payload))).decode()
    return _pack(
        proof,
        _envelope(
            proof,
            payload=base64.b64encode(payload).decode(),
            signatures=[{"keyid": signer.key_id, "sig": value}],
        ),
    )


def _flip(content, at, bit=0):
    changed = bytearray(content)
    changed[at] ^= 1 << bit
    return bytes(changed)


def _foreign(proof, *, key_id):
    key = Ed25519PrivateKey.generate()
    value = base64.b64encode(key.sign(pre_authentication(proof.payload()))).decode()
    named = key_id or key_id_of(key.public_key().public_bytes_raw())
    return _pack(proof, _envelope(proof, signatures=[{"keyid": named, "sig": value}]))


@fails("signature")
def outcome_changed(proof, random):
    proof.document["verdict"]["outcome"] = "inconclusive"
    proof.document["parts"]["verdict"] = sha256_of(proof.document["verdict"])
    return zip_of(*proof.entries())


@fails("signature")
def digit_changed(proof, random):
    payload = proof.payload()
    digits = [at for at, byte in enumerate(payload) if byte in b"123456"]
    return _pack(
        proof,
        _envelope(proof, payload=base64.b64encode(_flip(payload, random.choice(digits))).decode()),
    )


@fails("signature")
def signature_flipped(proof, random):
    key_id, value = proof.signed
    proof.signed = (key_id, _flip(value, random.randrange(64), random.randrange(8)))
    return zip_of(*proof.entries())


@fails("signature")
def signature_cut_short(proof, random):
    key_id, value = proof.signed
    proof.signed = (key_id, value[: random.randrange(64)])
    return zip_of(*proof.entries())


@fails("signer")
def signed_with_another_key(proof, random):
    return _foreign(proof, key_id=None)


@fails("signature")
def another_key_under_the_servers_id(proof, random):
    return _foreign(proof, key_id=proof.signed[0])


@fails("signature")
def signed_without_the_type(proof, random):
    """The payload signed as it is, not its pre-authentication encoding."""
    signer = load_signer(proof.signing_key)
    proof.signed = (signer.key_id, signer.sign(proof.payload()))
    return zip_of(*proof.entries())


@fails("signer")
def key_id_changed(proof, random):
    proof.signed = (f"{random.randrange(16**16):016x}", proof.signed[1])
    return zip_of(*proof.entries())


@fails("envelope")
def no_key_id(proof, random):
    value = base64.b64encode(proof.signed[1]).decode()
    return _pack(proof, _envelope(proof, signatures=[{"sig": value}]))


@fails("envelope")
def no_signatures(proof, random):
    return _pack(proof, _envelope(proof, signatures=random.choice([[], None, {}])))


@fails("envelope")
def another_payload_type(proof, random):
    kinds = ["application/json", "application/vnd.in-toto+JSON", "", None, 7]
    return _pack(proof, _envelope(proof, payloadType=random.choice(kinds)))


@fails("envelope")
def another_base64(proof, random):
    """Spellings that lax decoders read as the same bytes."""
    text = json.loads(proof.proof()[1])["payload"]
    spellings = [text + "\n", f"{text[:40]} {text[40:]}", text + "====", text[:-1] + "-"]
    return _pack(proof, _envelope(proof, payload=random.choice(spellings)))


@fails("bundle")
def name_twice_in_the_envelope(proof, random):
    name = random.choice(["payload", "payloadType", "signatures"])
    again = json.dumps(json.loads(proof.proof()[1])[name])
    return _pack(proof, proof.proof()[1][:-1] + f',"{name}":{again}}}'.encode())


@fails("bundle")
def envelope_that_is_no_json(proof, random):
    content = proof.proof()[1]
    kinds = [b"", content[: len(content) // 2], b"\xef\xbb\xbf" + content, b"\xff" + content]
    return _pack(proof, random.choice(kinds))


@fails("statement")
def spaces_in_the_payload(proof, random):
    statement = json.loads(proof.payload())
    kinds = [{"indent": 1}, {"separators": (", ", ": ")}]
    return _signed(proof, json.dumps(statement, sort_keys=True, **random.choice(kinds)).encode())


@fails("statement")
def names_in_another_order(proof, random):
    names = list(json.loads(proof.payload()).items())
    backwards = dict(reversed(names))
    return _signed(proof, json.dumps(backwards, separators=(",", ":")).encode())


@fails("statement")
def number_written_otherwise(proof, random):
    spelling = random.choice([b"2.0", b"2e0", b"2.00000000000000000001", b"0.2e1"])
    payload = proof.payload()
    assert payload.count(b'"format":2,') == 1
    return _signed(proof, payload.replace(b'"format":2,', b'"format":' + spelling + b","))


@fails("statement")
def character_escaped_needlessly(proof, random):
    spelling = random.choice([b"\\/", b"\\u002f"])
    return _signed(proof, proof.payload().replace(b"in-toto.io/", b"in-toto.io" + spelling))


@fails("statement")
def whole_number_no_double_holds(proof, random):
    number = str(2**53 + 1 + 2 * random.randrange(100)).encode()
    return _signed(proof, proof.payload().replace(b'"format":2,', b'"format":' + number + b","))


@fails("statement")
def half_a_character(proof, random):
    half = rb"\ud8" + f"{random.randrange(256):02x}".encode()
    return _signed(proof, proof.payload().replace(b'"format":2,', b'"format":"' + half + b'",'))


@fails("statement")
def nested_too_deep(proof, random):
    deep = b"[" * 120 + b"]" * 120
    return _signed(proof, proof.payload().replace(b'"format":2,', b'"format":' + deep + b","))


@fails("statement")
def name_twice_in_the_payload(proof, random):
    payload = proof.payload()
    outcome = b'{"outcome":'
    assert payload.count(outcome) == 1
    return _signed(proof, payload.replace(outcome, b'{"outcome":"rejected","outcome":'))


def _restated(check, name, change):
    """Add a tampering that changes the statement, and signs it without hashing its parts again."""

    def tampering(proof, random):
        change(proof, random)
        proof.sign_payload()
        return zip_of(*proof.entries())

    TAMPERINGS[name] = (check, tampering)


def _of_statement(name, *values):
    return lambda proof, random: proof.statement.update({name: random.choice(values)})


def _of_subjects(change):
    return lambda proof, random: change(proof.statement["subject"], random)


def _other_digest(subjects, random):
    random.choice(subjects)["digest"]["sha256"] = "ab" * 32


def _other_name_and_digest(subjects, random):
    random.choice(subjects).update(name="logs/" + "ab" * 32, digest={"sha256": "ab" * 32})


_restated(
    "statement", "unknown_type", _of_statement("_type", "x", "https://in-toto.io/Statement/v0.1")
)
_restated("statement", "unknown_predicate", _of_statement("predicateType", "x", None, 2))
_restated("statement", "field_added_to_the_statement", _of_statement("note", "x", None))
_restated(
    "statement", "another_format", lambda p, r: p.document.update(format=r.choice([1, 3, "2"]))
)
_restated("statement", "subject_of_another_type", _of_statement("subject", 7, None, "logs"))
_restated("statement", "subject_of_another_digest", _of_subjects(_other_digest))
_restated("subjects", "subject_without_its_file", _of_subjects(_other_name_and_digest))
_restated(
    "subjects", "file_that_no_subject_names", _of_subjects(lambda s, r: s.remove(r.choice(s)))
)
_restated("subjects", "subject_twice", _of_subjects(lambda s, r: s.append(r.choice(s))))
_restated("parts", "part_changed", lambda p, r: p.document["code"].update(version="9.9"))
_restated("parts", "part_without_a_hash", lambda p, r: p.document["parts"].pop(r.choice(PARTS)))
_restated("parts", "hash_without_a_part", lambda p, r: p.document["parts"].update(more="ab" * 32))
_restated("format", "part_missing", lambda p, r: p.document.pop(r.choice(PARTS)))
_restated("format", "part_added", lambda p, r: p.document.update(note="more"))


def _resigned(check, name, change):
    """Add a tampering of the server itself: parts are hashed and signed again."""

    def tampering(proof, random):
        change(proof.document)
        proof.sign()
        return zip_of(*proof.entries())

    TAMPERINGS[name] = (check, tampering)


def _other_definition(document):
    document["benchmark"]["definition"] += "\n"


def _other_seed(document):
    document["draw"]["seeds"][0] ^= 1


def _other_claim(document):
    document["submission"]["claim_sha256"] = "ab" * 32


_resigned("definition", "definition_changed", _other_definition)
_resigned("seal", "seed_changed", _other_seed)
_resigned("logs", "claim_of_another_hash", _other_claim)


@fails("subjects")
def log_changed(proof, random):
    sha256 = random.choice(list(proof.files))
    content = proof.files[sha256]
    proof.files[sha256] = _flip(content, random.randrange(len(content)), random.randrange(8))
    return zip_of(*proof.entries())


@fails("subjects")
def log_missing(proof, random):
    del proof.files[random.choice(list(proof.files))]
    return zip_of(*proof.entries())


@fails("subjects")
def log_added(proof, random):
    proof.files[f"{random.randrange(16**64):064x}"] = b"more"
    return zip_of(*proof.entries())


@fails("bundle")
def name_twice_in_the_zip(proof, random):
    entries = proof.entries()
    return zip_of(*entries, random.choice(entries))


@fails("bundle")
def strange_name_in_the_zip(proof, random):
    names = ["proof.json", "logs/", "../proof.dsse.json", "README", f"logs/{'AB' * 32}", "ä"]
    return zip_of(*proof.entries(), (random.choice(names), b"{}"))


@fails("bundle")
def no_proof(proof, random):
    return zip_of(*proof.entries()[1:])


@fails("bundle")
def data_behind_the_end(proof, random):
    return zip_of(*proof.entries()) + bytes(random.randrange(1, 40))


@fails("bundle")
def data_before_the_first_entry(proof, random):
    """As self-extracting archives have them: the offsets count from the first entry."""
    return b"PK" + bytes(random.randrange(40)) + zip_of(*proof.entries())


@fails("bundle")
def cut_off(proof, random):
    content = zip_of(*proof.entries())
    return content[: random.randrange(2, len(content))]


def _in_directory(proof, offset, value, *, local=None):
    """A zip with other bytes in the first entry of its directory, and so in its local header."""
    content = bytearray(zip_of(*proof.entries()))
    (directory,) = struct.unpack_from("<I", content, len(content) - 6)
    content[directory + offset : directory + offset + len(value)] = value
    if local is not None:
        content[local : local + len(value)] = value
    return bytes(content)


@fails("bundle")
def headers_that_differ(proof, random):
    return _in_directory(proof, random.choice([10, 12, 16, 20, 24]), bytes([1, 1]))


@fails("bundle")
def encrypted(proof, random):
    return _in_directory(proof, 8, b"\x01\x00", local=6)


@fails("bundle")
def sizes_behind_the_data(proof, random):
    return _in_directory(proof, 8, b"\x08\x00", local=6)


@fails("bundle")
def unknown_method(proof, random):
    return _in_directory(proof, 10, bytes([random.choice([1, 9, 12, 93, 99]), 0]), local=8)


@fails("bundle")
def size_that_is_a_lie(proof, random):
    size = random.choice([0, 1, 2**20, 2**31, 2**32 - 1])
    return _in_directory(proof, 24, struct.pack("<I", size), local=22)


@fails("bundle")
def overlapping_entries(proof, random):
    return _in_directory(proof, 42, struct.pack("<I", random.randrange(1, 99)))


@fails("bundle")
def bytes_behind_the_packed(proof, random):
    """Bytes behind a deflated stream, inside its entry: lax readers never see them."""
    name, content = proof.proof()
    packing = zlib.compressobj(wbits=-15)
    packed = packing.compress(content) + packing.flush() + bytes(random.randrange(1, 9))
    head = struct.pack(
        "<5H3I2H", 20, 0, 8, 0, 33, zlib.crc32(content), len(packed), len(content), len(name), 0
    )
    local = b"PK\3\4" + head + name.encode() + packed
    rows = b"PK\1\2" + struct.pack("<H", 20) + head + struct.pack("<3H2I", 0, 0, 0, 0, 0)
    rows += name.encode()
    end = struct.pack("<4H2IH", 0, 0, 1, 1, len(rows), len(local), 0)
    return local + rows + b"PK\5\6" + end


@fails("bundle")
def comment_at_the_end(proof, random):
    content = bytearray(zip_of(*proof.entries()))
    content[-2:] = b"\x04\x00"
    return bytes(content) + b"more"


@fails("bundle")
def counts_of_zip64(proof, random):
    content = bytearray(zip_of(*proof.entries()))
    content[-14:-10] = b"\xff\xff\xff\xff"
    return bytes(content)
