"""How conversations, summaries and large payloads are named in results, beside messages (C10).

A name is made of what the thing is stored under, never drawn anew: recorded again, or read after a restart,
it has the same one. Knows nothing of where things are stored.

| name | of | made from |
|---|---|---|
| `dcc_` | a conversation | the session's id, a UUID |
| `dcm_` | a message | its chain digest (`context_id`) |
| `dcp_` | a message that is a large payload | the same |
| `dcs_` | a summary | the compaction's id, a UUID |
"""

from __future__ import annotations

import re

from app.core.view.compaction import context_id

_CONVERSATION, _SUMMARY, _PAYLOAD = "dcc_", "dcs_", "dcp_"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UUID_DIGITS = re.compile(r"[0-9a-f]{32}")
_MESSAGE = re.compile(r"(?:dc[mp]_)?([0-9a-f]{4,64})")


def conversation_id(session: str) -> str:
    """The name of a conversation by its session's id."""
    return _CONVERSATION + _short(session)


def summary_id(compaction: str) -> str:
    """The name of a summary by its compaction's id."""
    return _SUMMARY + _short(compaction)


def payload_id(chain: bytes) -> str:
    """The name of a large payload by its chain digest: the digits are the message's."""
    return _PAYLOAD + context_id(chain).removeprefix("dcm_")


def session_of(name: str) -> str | None:
    """The session's id that a conversation's name was made from; None for any other text."""
    return _long(name.removeprefix(_CONVERSATION)) if name.startswith(_CONVERSATION) else None


def compaction_of(ident: str) -> str:
    """The compaction's id that a summary's name was made from; any other text is such an id itself."""
    return _long(ident.removeprefix(_SUMMARY))


def chain_digits_of(ident: str) -> str | None:
    """The digits a message's chain digest begins with, of its name or the digits alone; else None."""
    match = _MESSAGE.fullmatch(ident.lower())
    return match.group(1) if match else None


def _short(ident: str) -> str:
    """A UUID without dashes, in one case; what an import brought, and is none, as it is."""
    return ident.replace("-", "") if _UUID.fullmatch(ident) else ident


def _long(digits: str) -> str:
    low = digits.lower()
    if not _UUID_DIGITS.fullmatch(low):
        return digits
    return "-".join((low[:8], low[8:12], low[12:16], low[16:20], low[20:]))
