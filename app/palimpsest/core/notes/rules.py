"""Standing rules of a user: what a label names as one, and short sentences that forbid, demand or limit.

Only what is certain by its words; a model is asked for the others. What a person pastes is data.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

from palimpsest.core.notes.languages import plain
from palimpsest.core.notes.sentences import MOST_READ, sentences_of

# Characters of a rule.
_LONGEST = 240
_LABEL = re.compile(
    r"\W*(?:(?:hard|soft|user|standing|house|general|important|harte|feste) )*"
    r"(?:constraint|rule|preference|requirement|policy|guideline|instruction|regel|vorgabe|règle|consigne|regla|norma|regra|regola|zasada|правило)\s?:\W*\S"
    r"|\W*(?:规则|規則|要求|ルール|규칙)\s?[:：]\s*\S",
    re.IGNORECASE,
)
# "Here is the page:" and the like: what follows on other lines was pasted.
_PASTED = re.compile(
    r"(?im)^.*\b(?:here(?:'s| is| are)|this is|below is|hier ist|voici|aquí está|ecco)\b.*\n|^.{0,80}"
    r"\b(?:page|e?mail|log|article|document|readme|transcript|output|text|policy)\b[^\n]{0,40}:[ \t]*\n"
)
_LEAD = re.compile(
    r"(?:(?:please|and|also|but|so|then|ok|okay|well|by the way|important|note|remember|oh|now|finally"
    r"|whatever happens|bitte|und|außerdem|por favor|s'il (?:te|vous) plaît|per favore|alsjeblieft|proszę"
    r"|пожалуйста|请)\b[,:;!]?\s*"
    r"|(?:until|for|in|after|before|during|while)\b[^,.]{3,60}, (?=\w))+"
)
# Questions bind only where they ask for standing behaviour.
_ASKS = re.compile(
    r"(?:can|could|would|will|kannst|könntest|puedes|podrías|peux-tu|você pode|puoi|kun)\b.*"
    r"\b(?:always|never|from now on|immer|niemals|ab jetzt|siempre|nunca|toujours|jamais|sempre|mai|nooit)\b"
)
# Words of other people, of machines, and of guesses.
_REPORTED = re.compile(
    r"\b(?:said|says|told|error|message|because|must have|must be (?:a|an|the|some|wrong|missing)|give up)\b"
)


@lru_cache(maxsize=1)
def _forms() -> dict[str, re.Pattern[str]]:
    """The forms of `cues/rules.txt` by where they stand in a sentence, those of a place as one pattern."""
    forms: dict[str, list[str]] = {}
    for line in files("palimpsest.core.notes").joinpath("cues", "rules.txt").read_text("utf-8").splitlines():
        if line.startswith("[") and line.endswith("]"):
            forms[line[1:-1]] = alternatives = []
        elif line and not line.startswith("#"):
            alternatives.append(line)
    return {place: re.compile("|".join(each)) for place, each in forms.items()}


def rules_in(text: str) -> tuple[str, ...]:
    """The sentences of a user's own words that forbid, demand, limit or prefer, verbatim and in order.

    A line with a label ("HARD CONSTRAINT: ...") counts whole. Text that the user pasted, questions, reports
    of what others say, and sentences of more than 240 characters do not count.
    """
    text = text[:MOST_READ]
    pasted = _PASTED.search(text)
    own = text[: pasted.end()] if pasted else text
    labelled = [line.strip() for line in own.split("\n") if _LABEL.match(line)]
    said = [each for each in sentences_of(own) if not any(each in line for line in labelled)]
    return tuple(dict.fromkeys((*labelled, *filter(_binds, said))))


def _binds(sentence: str) -> bool:
    if len(sentence) > _LONGEST:
        return False
    low = " ".join(plain(sentence).split())
    lead = _LEAD.match(low)
    rest = low[lead.end() :] if lead else low
    if low.rstrip("\"')»” ")[-1:] in ("?", "？"):
        return bool(_ASKS.match(rest))
    return not _REPORTED.search(low) and bool(
        _forms()["opening"].match(rest) or _forms()["anywhere"].search(low)
    )
