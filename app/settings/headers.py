"""Values that are sent as headers: what no server could be sent is refused at start.

Knows nothing of which settings they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, SecretStr

# RFC 9110, 5.1 and 5.5: a name is a token, a value holds no control characters but the tab.
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


# What documents and templates write where a key belongs, and variables that nobody has filled in.
_PLACEHOLDER = re.compile(
    r"(?:sk-|bearer )?(?:change[-_ ]?(?:me|it)|replace[-_ ]?(?:me|this)"
    r"|(?:put|insert|add)?[-_ ]?(?:your|my)[-_ ](?:[a-z]+[-_ ])*(?:key|token|secret)(?:[-_ ]here)?"
    r"|todo|placeholder|x{3,}|\*{3,}|\.{3,}|…|<.*>|\$\{?\w+\}?)",
    re.IGNORECASE,
)


def _value(value: SecretStr) -> SecretStr:
    if _PLACEHOLDER.fullmatch(value.get_secret_value().strip()):
        raise ValueError("is a placeholder, not a key: put the real one there, or leave it out")
    if _CONTROL.search(value.get_secret_value()):
        raise ValueError("must not hold a line break or another control character: it is sent in a header")
    return value


def _named(headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    if not all(map(_NAME.fullmatch, headers)):
        raise ValueError("must be names of headers, such as x-team")
    return headers


HeaderValue = Annotated[SecretStr, AfterValidator(_value)]
AddedHeaders = Annotated[Mapping[str, HeaderValue], AfterValidator(_named)]
