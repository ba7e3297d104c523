"""The words by which statements are recognised: tables only, English.

Knows nothing of how they are used.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# File names need a suffix that is one; "e.g" and "example.com" are not files.
FILE_SUFFIXES = _words(
    """py js ts tsx jsx go rs c h cc cpp hpp java kt rb php cs swift scala md rst txt json jsonl yaml yml
    toml cfg ini env sh sql csv tsv xml html css log ipynb lock pdf docx xlsx png jpg svg zip gz tar db
    proto tf"""
)

RULES = _words("""always never must mustn't avoid forbidden mandatory ensure""")
REMINDERS = _words("""remember remind note fyi btw important reminder record mind""")
DECISIONS = _words(
    """decided decide decision agreed chose choose chosen settled approved confirmed prefer prefers
    preferred preference going pick picked"""
)
CHANGES = _words(
    """actually correction instead changed change switch switched moved replace replaced updated update
    longer rather revised scratch corrected renamed"""
)
PERSONAL = _words(
    """my our i'm i've we're we've name named called lives live born birthday allergic favorite favourite"""
)
SUBJECTS = _words(
    """deadline budget limit version port date price cost total code number address phone email account
    id owner team server host branch region key model size due because found fixed caused
    rule policy required"""
)

# Words of what must not be done.
PROHIBITED = _words("""never mustn't avoid forbidden don't without""")
# A sentence that opens so is a rule too; elsewhere these words are talk.
PROHIBITIONS = ("don't", "do not", "please don't", "please do not", "no ", "only ")

# What one word of a class adds to a sentence: rules and reminders are said to be kept.
CUES: tuple[tuple[float, frozenset[str]], ...] = (
    (2.5, RULES),
    (2.5, REMINDERS),
    (2.0, DECISIONS),
    (2.0, CHANGES),
    (1.0, PERSONAL),
    (1.0, SUBJECTS),
)

# Words that announce a new value for something said before.
CHANGE = CHANGES | {"now"}
CHANGE_PHRASES = (
    "no longer",
    "not anymore",
    "changed to",
    "change of plan",
    "change that",
    "make it",
    "make that",
)
# An order that opens so gives a value, whatever it was before.
SETTINGS = (
    "set ",
    "make ",
    "bump ",
    "raise ",
    "lower ",
    "increase ",
    "decrease ",
    "reduce ",
    "extend ",
    "postpone ",
    "reschedule ",
    "rename ",
)
# How an assistant or a tool says that something is no longer as it was.
REPORTED_CHANGES = (
    "changed from",
    "changed to",
    "has changed",
    "is now",
    "are now",
    "moved to",
    "moved from",
    "no longer",
    "updated to",
    "updated from",
    "renamed to",
    "switched to",
    "replaced by",
    "replaced with",
)
# A sentence that opens so is courtesy.
FILLER = (
    "thank",
    "thanks",
    "hi",
    "hello",
    "hey",
    "great",
    "sure",
    "ok",
    "okay",
    "certainly",
    "sorry",
    "glad",
)
# Words that say nothing of what a sentence is about; cue words among them.
STOP = CHANGES | _words(
    """a an the of to in on at is are was were be been being do does did has have had will would can could
    should shall may might it its this that these those there here i you he she we they me him her us them
    my your his our their and or but if so as by for from with about into over after before than then not
    no yes please just also very what which who whom whose when where why how all any some one let's let us
    ok okay now use uses using used make made set remember note important always never must go going get
    got new old plan want like need i'd you'd i'll let know proceed able help please each look looks
    don't doesn't didn't can't cannot couldn't isn't aren't wasn't won't wouldn't it's that's i'm i've we're
    we've hi hello thanks"""
)
