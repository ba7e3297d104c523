"""Five facts that are planted in a long conversation, and what is asked for each of them (C21).

Knows nothing of who plants them, nor of who answers.
"""

from __future__ import annotations

# What is planted, words that only it has, and what is asked for it.
FACTS = (
    ("The project goes by the codename BLUE-HERON-42.", "BLUE-HERON-42", "What was the project's codename?"),
    (
        "We decided to keep the bookings in PostgreSQL on port 6543.",
        "PostgreSQL on port 6543",
        "Where do we keep the bookings, what did we decide?",
    ),
    (
        "The rollback phrase is amber tide returns.",
        "amber tide returns",
        "Which phrase do I say to start the rollback?",
    ),
    (
        "The main risk is that the pier's lease ends on 30 June.",
        "lease ends on 30 June",
        "Remind me of the main risk.",
    ),
    (
        "The auditor's recommendation was to rotate the signing keys each quarter.",
        "rotate the signing keys each quarter",
        "What was the recommendation of the auditor?",
    ),
)
