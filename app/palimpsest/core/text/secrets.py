"""Removal of key-shaped strings from what a summarizer reads and writes (A17).

The archive is never filtered. The shapes are narrow on purpose: a summary must keep ids, hashes, paths and
plain URLs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from palimpsest.core.text.fence import sendable
from palimpsest.core.text.message_text import without_data

REMOVED = "[secret removed]"


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of secret.

    The pattern is tried only on texts that, in lower case, have one of `needles`, and in which `sign` is
    found, if there is one.
    """

    name: str
    needles: tuple[str, ...]
    pattern: re.Pattern[str]
    replacement: str = REMOVED
    sign: re.Pattern[str] | None = None


def _shape(
    name: str, needles: str, pattern: str, replacement: str = REMOVED, *, flags: int = 0, sign: str = ""
) -> Shape:
    looked_for = re.compile(sign) if sign else None
    return Shape(name, tuple(needles.split()), re.compile(pattern, flags), replacement, looked_for)


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
SHAPES: tuple[Shape, ...] = (
    _shape(
        "pem",
        "-----begin",
        r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?"
        r"(?:-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    _shape("jwt", "eyj", r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    _shape("url password", "://", r"(?<=://)[^\s/@:\"']{1,80}:[^\s/@\"']{3,200}(?=@)"),
    _shape("sk", "sk-", r"\bsk-(?=[\w-]*\d)[A-Za-z0-9_-]{16,}"),
    _shape("payment", "sk_ rk_ pk_", r"\b[srp]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    _shape("github", "ghp_ gho_ ghu_ ghs_ ghr_", r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
    _shape("github fine-grained", "github_pat_", r"\bgithub_pat_\w{20,}"),
    _shape("gitlab", "glpat-", r"\bglpat-[\w-]{16,}"),
    _shape("aws", "akia asia", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    _shape("google", "aiza ya29.", r"\b(?:AIza[0-9A-Za-z_-]{30,}|ya29\.[\w-]{20,})"),
    _shape("slack", "xox", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _shape("slack hook", "hooks.slack.com", r"(?<=hooks\.slack\.com/services/)[\w/]{16,}"),
    _shape("hugging face", "hf_", r"\bhf_[A-Za-z0-9]{20,}"),
    _shape("npm and pypi", "npm_ pypi-", r"\b(?:npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,})"),
    _shape("sendgrid", "sg.", r"\bSG\.[\w-]{16,}\.[\w-]{16,}"),
    _shape("groq and xai", "gsk_ xai-", r"\b(?:gsk_|xai-)[A-Za-z0-9]{24,}"),
    _shape(
        "bearer",
        "bearer",
        r"\b(bearer\s+)(?=[A-Za-z._~+/-]*\d|[A-Za-z._~+/-]{24})[A-Za-z0-9._~+/-]{12,}=*",
        rf"\1{REMOVED}",
        flags=re.IGNORECASE,
    ),
    _shape(
        "basic",
        "basic",
        rf"\b(authorization{_IS}basic\s+)[\w+/-]{{8,}}=*",
        rf"\1{REMOVED}",
        flags=re.IGNORECASE,
    ),
    _shape(
        "named value",
        _NAMES,
        rf"(?<![A-Za-z])({_NAME}{_IS}){_VALUE}{{6,}}",
        rf"\1{REMOVED}",
        flags=re.IGNORECASE,
    ),
    # "token" also names things that are not secrets, so its value must look like one.
    _shape(
        "named token",
        "token",
        rf"(?<![A-Za-z])(token{_IS})(?=[^\s\"']*\d|[^\s\"']{{20}}){_VALUE}{{8,}}",
        rf"\1{REMOVED}",
        flags=re.IGNORECASE,
        sign=rf"token{_IS}",
    ),
    _shape(
        "spoken password",
        _NAMES,
        rf"(?<![A-Za-z])({_NAME}{_SPOKEN}",
        rf"\1{REMOVED}",
        flags=re.IGNORECASE,
    ),
    _shape(
        "spoken token",
        "token",
        rf"(?<![A-Za-z])(token{_SPOKEN}",
        rf"\1{REMOVED}",
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
        if shape.sign is None or shape.sign.search(low):
            text = shape.pattern.sub(shape.replacement, text)
    return text
