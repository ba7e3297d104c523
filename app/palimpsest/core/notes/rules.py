"""Standing rules of a user: what a label names as one, and short sentences that forbid, demand or limit.

Only what is certain by its words; a model is asked for the others. What a person pastes is data.
"""

from __future__ import annotations

import re

from palimpsest.core.notes.languages import plain
from palimpsest.core.notes.sentences import MOST_READ, sentences_of

# Characters of a rule.
_LONGEST = 240
_LABEL = re.compile(
    r"\W*(?:(?:hard|soft|user|standing|house|general|important|harte|feste) )*(?:constraint|rule|preference|requirement"
    r"|policy|guideline|instruction|regel|vorgabe|règle|consigne|regla|norma|regra|regola|zasada|правило)\s?:\W*\S"
    r"|\W*(?:规则|規則|要求|ルール|규칙)\s?[:：]\s*\S",
    re.IGNORECASE,
)
# "Here is the page:" and the like: what follows on other lines was pasted.
_PASTED = re.compile(
    r"(?im)^.*\b(?:here(?:'s| is| are)|this is|below is|hier ist|voici|aquí está|ecco)\b.*\n|^.{0,80}"
    r"\b(?:page|mail|email|log|article|document|readme|report|transcript|output|text|policy)\b[^\n]{0,40}:[ \t]*\n"
)
_LEAD = re.compile(
    r"(?:(?:please|and|also|but|so|then|ok|okay|well|by the way|important|note|remember|oh|now|finally|whatever happens"
    r"|bitte|und|außerdem|por favor|s'il (?:te|vous) plaît|per favore|alsjeblieft|proszę|пожалуйста|请)\b[,:;!]?\s*"
    r"|(?:until|for|in|after|before|during|while)\b[^,.]{3,60}, (?=\w))+"
)
# Questions bind only where they ask for standing behaviour.
_ASKS = re.compile(
    r"(?:can|could|would|will|kannst|könntest|puedes|podrías|peux-tu|você pode|puoi|kun)\b.*\b(?:always|never|from now on"
    r"|immer|niemals|ab jetzt|siempre|nunca|toujours|jamais|sempre|mai|altijd|nooit)\b"
)
# Words of other people, of machines, and of guesses.
_REPORTED = re.compile(
    r"\b(?:said|says|told|error|message|because|must have|must be (?:a|an|the|some|wrong|missing)|give up)\b"
)
_NO = r"(?!problem|worr|idea|thank|need|way|doubt|one|error|matter|luck|sorry|change|just|not|longer|i |it|that|this|you|we|te |se |me |sé |hay|func|lo |la |es )"
_VERBS = r"(?!.*\b(?:is|are|was|were|has|have|had|did|does|should|could|yet|far|time)\b)"
_OPENING = re.compile(
    # English
    r"(?:do not|don'?t|never)\b(?! (?:worry|bother|mind|know|understand|think|see|remember|have|care|be|hesitate|got"
    r"|had|heard|been|was|want|get|like|feel|forget|again))"
    r"|(?:avoid|refrain from|hands off|stay away from|stick to|make sure|ensure|prefer)\b(?! (?:it|that|i))|stop \w+ing\b"
    r"|leave\b.*\b(?:alone|untouched|unchanged|as (?:it is|they are|is))"
    rf"|no {_NO}[\w-]+{_VERBS}|always (?!been|had|got|the|a|on|in|fails|works)\w+"
    r"|only (?!the|an?|one|two|three|\d|i|we|it|he|she|they|if|when|then|because|after|some|half)\w+"
    r"|(?:ask|check with|confirm with|consult|tell|warn|inform|notify) (?:me|us)\b.*\b(?:before|first|when|if|every)"
    r"|use\b.*\b(?:not|instead of|rather than|only|everywhere|never|for (?:all|every))\b"
    r"|keep\b.*\b(?:short|brief|concise|under|below|within|stable|working|intact|as|unchanged|compatib\w+|simple|plain"
    r"|the same|in place|at all times)\b"
    r"|(?:answer|reply|respond|speak|report|explain)\b.*\b(?:in [a-z]+|as|always|only|briefly|concisely)\b"
    r"|(?:every|each|all|any|tests|code)\b [\w' -]{2,60}? ?(?:must|has to|have to|needs? to|should|shall)\b(?! have)"
    r"|(?:whenever|every time|each time) you\b|[a-z][\w -]{2,30} only(?: (?:to|by|with|after|via|through|from|in|on|at)\b.*)?\W*$"
    r"|(?:that )?i'?m (?:a )?(?:vegetarian|vegan)"
    # German, French
    r"|(?:niemals|nie)\b(?! (?:wieder|mehr|gehört|wiem|martw|dział|mam|ma|jest)\b)|nur (?!eine?|der|die|das|ich|wenn|noch)\w+|immer \w+|frag\w* mich"
    r"|keinen? \w+en\b(?!.*\b(?:ist|hat|gibt))|(?:vermeide|achte darauf|stell sicher|denk daran)\b"
    r"|(?!ich|er|es|wir|das|mach dir|habe|sehe)\w+(?:e|en sie|ss|ib|ch)\b.* (?:nie(?:mals)?|nichts?|keine\w?|immer|nur)\b"
    r"|alles auf \w+|(?:ne|n')\s?(?!t'inq|vous inq|sais)\w+.*\b(?:pas|jamais|rien)\b|demandez?-moi\b|aucune? (?!idée|prob)\w+"
    r"|\w+(?:e|s|ez)\b.* (?:toujours|uniquement|seulement) \w+|(?:évite|veille)z?\b"
    # Spanish, Portuguese, Italian
    r"|no (?!te|se|me|sé|hay|es|está|tengo|funciona|one)\w+(?:es|as|e|a|en|an)\b|nunca (?:uses|\w+es|\w+as|use)\b"
    r"|hay que\b|(?:pregúnta|consúlta|avísa)(?:me|nos)\b|ningun[ao]? (?!problem)\w+|evit[ae]\b"
    r"|\w+[ae] (?:siempre|sempre)\b|\w+[ae] (?:solo|sólo|apenas)\b|não (?!se|sei|há|é|func|tenho)\w+(?:e|a)\b|me pergunte"
    r"|nenhuma? (?!prob)\w+|non (?!ti|si|so|è|ho|fun)\w+(?:are|ere|ire|ate)\b|rispondi sempre|chiedimi|nunca \w+e\b"
    # Dutch, Polish, Russian
    r"|(?:gebruik|raak|antwoord|schrijf|verwijder|wijzig)\b.*\b(?:niet|nooit|geen|altijd|alleen)\b|vraag het? ?mij|geen \w+e \w+"
    r"|nie (?!martw|wiem|dział)\w+(?:aj|uj|j|cie)\b|nigdy nie|\w+aj zawsze|zapytaj mnie|не (?!бесп|волн|пом)\w+[йи]\b"
    r"|никогда не|\w+й всегда|спроси меня"
)
_ANYWHERE = re.compile(
    r"[,;:] (?:but |and )?(?:please )?(?:do not|don'?t|never) (?!worry|know|think|see|have|got|had|been|was|want|get)\w"
    r"|\b(?:must|may|shall) (?:not|never|only)\b|\bmustn'?t\b|\bshould (?:never|always|only)\b|\byou (?:can|may) only\b"
    r"|\b(?!i |there )\w+ must (?:always|be|keep|use|stay|remain|quote|carry|include|contain|pass|run|follow|arrive|depart"
    r"|support|match|end|start|cost|ask)\b|\bhas to (?:work|run|stay|remain|be)\b"
    r"|\b(?:is|are) (?:strictly )?(?:forbidden|prohibited|off[- ]limits|not allowed|not permitted|mandatory|append-only"
    r"|read-only|frozen|capped|not negotiable|not to \w+)\b|\bnot to be \w+ed\b"
    r"|\b(?:under no circumstances|in no case|at all times|from now on|going forward|until further notice|no exceptions)\b"
    r"|\bwithout (?:asking|telling|checking|my|our|prior|explicit|written|approval|permission)\b"
    r"|\b(?:until|unless|before) i (?:say|tell|ask|confirm|approve|allow|agree|have (?:seen|approved|reviewed|confirmed))\b"
    r"|\b(?:at most|no more than|not more than|no later than|not exceed|nothing (?:over|above|below|outside|goes|leaves|may))\b"
    r"|\b(?:budget|limit|deadline|presupuesto|orçamento|budżet|бюджет)\b.{0,40}\d|预算.*\d|예산.*\d|予算.*\d"
    r"|\b(?:i|we) (?:strongly |much )?(?:prefer|insist|(?:can'?t|cannot|don'?t) (?:eat|drink|fly|accept|want any|allow)"
    r"|only (?:eat|drink|fly|accept|want))\b|\bi'?(?:d| would) rather (?!not|speak|talk|say)|\bis allergic\b"
    r"|\bi (?:want|expect) (?:every|all|each|no|only)\b|\bwe (?:never|always) (?!had|got|was)\w+(?<!ed)\b"
    r"|\bdarf(?:st)? .{0,40}(?:nicht|nichts|nur|nie)\b|\bdürfen .{0,40}(?:nicht|nur)\b|\bohne (?:meine|vorherige|rückfrage)"
    r"|\b(?:unter keinen umständen|auf keinen fall|ab (?:jetzt|sofort)|höchstens|maximal|bevor ich|nichts, bevor)\b|fliege nur"
    r"|\bne doit\b|\bsans (?:mon|ma|me)\b|\b(?:désormais|au maximum|en aucun cas|je préfère|d'ora in poi|al massimo|preferisco)\b"
    r"|\b(?:nunca|jamás) \w+(?:es|as)\b|\bsolo se puede\b|\bno se (?:puede|debe)n?\b|\bsin mi\b|\bcomo máximo\b|\bno máximo\b"
    r"|\ba partir de (?:ahora|agora|maintenant)\b|\bprefiero\b|\bprefiro\b|\b(?:vanaf nu|maximaal|od teraz|maksymalnie|wolę)\b"
    r"|не более|нельзя|\bвпредь\b|без моего|предпочитаю|(?:不要|别|不得|不可|请勿|切勿|禁止|永远不)(?!担心|急|紧)\S{2}|必须|只修改|先问我"
    r"|最多|请用\S+回答|从现在起|更喜欢|(?<!心配し)(?<!気にし)(?:ないで|してはいけ)|必ず|今後は|前に.*ください|だけ.*ください|최대|절대"
    r"|(?<!걱정하)지 마|항상.*(?:세요|줘)|앞으로는|없이.*안 됩"
)


def rules_in(text: str) -> tuple[str, ...]:
    """The sentences of a user's own words that forbid, demand, limit or prefer, verbatim, in order, each once.

    A line with a label ("HARD CONSTRAINT: ...") counts whole. Text that the user pasted, questions, reports of
    what others say, and sentences of more than 240 characters do not count.
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
    return not _REPORTED.search(low) and bool(_OPENING.match(rest) or _ANYWHERE.search(low))
