"""Removal of key-shaped strings from what a summarizer reads and writes (A17).

The archive is never filtered. The shapes are narrow on purpose: a summary must keep ids, hashes, paths and
plain URLs.
"""

from __future__ import annotations

import re
from contextlib import suppress

from palimpsest.core.text.fence import sendable
from palimpsest.core.text.message_text import without_data
from palimpsest.core.wire.credentials import USUAL_NAMES, RawHeaders, bearer_token
from palimpsest.core.wire.json_text import decoded
from palimpsest.errors import InvalidJson

REMOVED = "[secret removed]"


class Shape:
    """One kind of secret.

    The pattern is tried only on texts that, in lower case, have one of `needles` (separated by spaces), and
    in which `sign` is found, if there is one. Its first group stays.
    """

    def __init__(self, needles: str, pattern: str, *, sign: str = "", flags: int = 0) -> None:
        self.needles = needles.split()
        self.pattern = re.compile(pattern, flags)
        self.replacement = rf"\1{REMOVED}" if self.pattern.groups else REMOVED
        self.sign = re.compile(sign)


# A value after "password=" and the like: no variable, placeholder or call.
_VALUE = r"(?!\$|<|\{|\[|%|\*{3}|os\.|env\b|process\.|none\b|null\b|true\b|false\b)[^\s\"'`\\,;&<>(){}\[\]]"
_NAME = (
    r"(?:pass(?:word|wd|phrase)|pwd|api[_-]?keys?|apikey|secret(?:[_-]?(?:access[_-]?)?key)?|client[_-]?secret"
    r"|(?:access|auth|refresh|bearer|session|id)[_-]?token|private[_-]?key|auth[_-]?key)"
)
# Separators of a name and its value, in code, JSON and JSON inside JSON.
_IS = r"\\?[\"']?\s*(?:=>|[:=])\s*\\?[\"']?"
# The end of "the password is hunter22"; it closes the group that stays.
_SPOKEN = rf"\s+(?:is|was)(?:\s+now)?:?\s+[\"'`]?)(?=\S*\d){_VALUE}{{6,}}"
_NAMES = (
    "password passwd passphrase pwd api_key api-key apikey secret _token -token accesstoken"
    " authtoken private_key private-key privatekey auth_key auth-key authkey"
)

# Order matters: whole structures first, then prefixed keys, then values that only their name identifies.
SHAPES = (
    Shape(
        "-----begin",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?"
        r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    Shape("eyj", r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    Shape("://", r"(?<=://)[^\s/@:\"']{1,80}:[^\s/@\"']{3,200}(?=@)"),
    Shape("sk-", r"\bsk-(?=[\w-]*\d)[A-Za-z0-9_-]{16,}"),
    Shape("sk_ rk_ pk_", r"\b[srp]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    Shape("ghp_ gho_ ghu_ ghs_ ghr_", r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
    Shape("github_pat_", r"\bgithub_pat_\w{20,}"),
    Shape("glpat-", r"\bglpat-[\w-]{16,}"),
    Shape("akia asia", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    Shape("aiza ya29.", r"\b(?:AIza[0-9A-Za-z_-]{30,}|ya29\.[\w-]{20,})"),
    Shape("xox", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    Shape("hooks.slack.com", r"(?<=hooks\.slack\.com/services/)[\w/]{16,}"),
    Shape("hf_", r"\bhf_[A-Za-z0-9]{20,}"),
    Shape("npm_ pypi-", r"\b(?:npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,})"),
    Shape("sg.", r"\bSG\.[\w-]{16,}\.[\w-]{16,}"),
    Shape("gsk_ xai-", r"\b(?:gsk_|xai-)[A-Za-z0-9]{24,}"),
    Shape(
        "bearer",
        r"\b(bearer\s+)(?=[A-Za-z._~+/-]*\d|[A-Za-z._~+/-]{24})[A-Za-z0-9._~+/-]{12,}=*",
        flags=re.IGNORECASE,
    ),
    Shape(
        "basic",
        rf"\b(authorization{_IS}basic\s+)[\w+/-]{{8,}}=*",
        flags=re.IGNORECASE,
    ),
    Shape(
        _NAMES,
        rf"(?<![A-Za-z])({_NAME}{_IS}){_VALUE}{{6,}}",
        flags=re.IGNORECASE,
    ),
    # "token" also names things that are not secrets, so its value must look like one.
    Shape(
        "token",
        rf"(?<![A-Za-z])(token{_IS})(?=[^\s\"']*\d|[^\s\"']{{20}}){_VALUE}{{8,}}",
        flags=re.IGNORECASE,
        sign=rf"token{_IS}",
    ),
    Shape(
        _NAMES,
        rf"(?<![A-Za-z])({_NAME}{_SPOKEN}",
        flags=re.IGNORECASE,
    ),
    Shape(
        "token",
        rf"(?<![A-Za-z])(token{_SPOKEN}",
        flags=re.IGNORECASE,
        sign=r"token\s+(?:is|was)",
    ),
)

# Most needles have a character that most texts lack, so that a glance spares looking for them.
_RARE = "_-:."
_BY_SIGN = tuple(
    (
        sign,
        tuple(
            (needle, place)
            for place, shape in enumerate(SHAPES)
            for needle in shape.needles
            if sign == next((rare for rare in _RARE if rare in needle), "")
        ),
    )
    for sign in ("", *_RARE)
)


def clean(text: str) -> str:
    """`text` without secrets and data that is not text, valid as UTF-8."""
    return sendable(without_secrets(without_data(text)))


def without_secrets(text: str) -> str:
    """`text` with every key-shaped string replaced by "[secret removed]". Idempotent."""
    low = text.lower()
    tried = {place for sign, needles in _BY_SIGN if sign in low for needle, place in needles if needle in low}
    for place in sorted(tried):
        shape = SHAPES[place]
        if shape.sign.search(low):
            text = shape.pattern.sub(shape.replacement, text)
    return text


# The message in an error's JSON.
_MESSAGE = re.compile(rb'"(?:message|detail|error)"\s*:\s*("(?:[^"\\]|\\.)+")')
# Of an error, bytes that are read and characters that are kept. Shorter values of headers are no keys.
_READ_BYTES, _KEPT_CHARS, _KEY_CHARS = 65_536, 500, 4


def error_words(body: bytes, headers: RawHeaders) -> str:
    """An upstream's error in its own words, on one line: the message, else the body; at most 500 characters.

    Without key-shaped strings, and without the keys in `headers`, whatever their form.
    """
    said = body[:_READ_BYTES].decode("utf-8", "replace")
    with suppress(InvalidJson):
        said = str(decoded(found[1])) if (found := _MESSAGE.search(body[:_READ_BYTES])) else said
    for _, value in USUAL_NAMES.only(headers):
        if len(key := bearer_token(value.decode("latin-1"))) >= _KEY_CHARS:
            said = said.replace(key, REMOVED)
    return " ".join(clean(said).split())[:_KEPT_CHARS]
