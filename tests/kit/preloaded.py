"""Does once what every server does after its start: loads what counts tokens, compiles statements.

Imported by the process from which those of `tests.kit.processes` are forked: 1.5 s of a processor for each.
"""

from __future__ import annotations

import palimpsest.main.pages  # noqa: F401 - the pages, which a server loads at the first request for one
from palimpsest.storage import store
from palimpsest.storage.database import compiler_of
from palimpsest.storage.postgres_database import DIALECT
from palimpsest.tokenizer.text import encoding_of
from sqlalchemy.dialects import sqlite

encoding_of("o200k_base")
for compiled in (compiler_of(sqlite.dialect), compiler_of(DIALECT)):
    for statement in store._statements():
        compiled[statement]
