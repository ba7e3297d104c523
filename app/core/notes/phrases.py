"""Sentences by which somebody decides or reports a discovery, known by their wording (D07, D08).

English, as the rows ask for. Knows nothing of messages or of states.
"""

from __future__ import annotations

import re

# What is only about to be looked at is no decision.
_LOOKING = (
    r"(?!(?:now |first |just |quickly )*"
    r"(?:see|look|check|take|start|begin|read|view|verify|run|find|know|go)\b)"
)
_DECIDES = re.compile(
    rf"\b(?:(?:i|we)(?:['’]?ll| will) use|i['’]?ve (?:decided|chosen)|decided (?:to|on|against)"
    rf"|let['’]?s {_LOOKING}|(?:going to|gonna) {_LOOKING}|going with|choosing|chose|opted (?:for|to)"
    rf"|opting for|switching to|switched to|settled on|sticking with|instead of)\b",
    re.IGNORECASE,
)
_DISCOVERS = re.compile(
    r"\b(?:found (?:that|out)|discovered|the (?:\w+ )?(?:issue|problem|bug|cause|culprit|reason) (?:was|is)"
    r"|turn(?:s|ed) out|it appears|root cause|reali[sz]ed|noticed (?:that|the)"
    r"|i (?:can )?see (?:that|the (?:issue|problem))|it looks like|caused by)\b",
    re.IGNORECASE,
)


def decides(sentence: str) -> re.Match[str] | None:
    """The words by which a sentence decides; None for a question, and for one that decides nothing."""
    return None if sentence.endswith(("?", "？")) else _DECIDES.search(sentence)


def discovers(sentence: str) -> re.Match[str] | None:
    """The words by which a sentence reports what was found; None where it does not."""
    return _DISCOVERS.search(sentence)
