"""A long conversation of the kind that outgrows a small window: letters to a keeper of records, with facts.

Knows nothing of who answers.
"""

from __future__ import annotations

from tests.kit.words import prose

SYSTEM = "You keep the records of a small harbour. Answer in one short sentence."
# What is planted, one a letter, and asked for nowhere: it must be readable long after it was folded.
FACTS = (
    "The code of the north silo is K-4417.",
    "Mrs. Aldous Fenwick takes berth 12 from the 3rd of May.",
    "The ferry Calliope draws 2.35 metres and may not enter at low tide.",
    "Invoices go to records/2031/harbour-ledger.csv from now on.",
    "The spare key hangs behind the barometer in room 208.",
    "Captain Ibsen's telephone number is 555-0173.",
    "The crane may lift 7,400 kilograms and not one more.",
    "The lamp at Skerry Point was replaced by model QX-91B.",
)
LETTER_WORDS = 560


def letter(number: int) -> str:
    """One user message of about 800 tokens that holds one fact."""
    fact = FACTS[number % len(FACTS)]
    half = LETTER_WORDS // 2
    first, second = prose(2 * number, half), prose(2 * number + 1, half)
    return f"Letter {number + 1}.\n{first}\nPlease note: {fact}\n{second}\nConfirm that you have read it."
