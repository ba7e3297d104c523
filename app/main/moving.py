"""The parts that move sessions in and out.

Knows nothing of what a session is made of.
"""

from __future__ import annotations

import time

from app.api.session.moving import Moving
from app.core.runtime.records import RecordLimits
from app.main.parts import Parts, new_id
from app.proxy.chronicle.chronicle import Chronicle
from app.proxy.chronicle.importing import ImportLimits, ImportParts, Imports
from app.proxy.chronicle.readings import Readings


def moving_of(parts: Parts, chronicle: Chronicle) -> Moving:
    """Who exports and imports sessions."""
    limits = parts.settings.limits
    readings = Readings(parts.store, parts.reader, parts.tokens)
    made_of = ImportParts(
        store=parts.store,
        reader=parts.reader,
        readings=readings,
        newcomers=parts.newcomers,
        tombstones=parts.erasure.tombstones,
        clock=time.time,
        new_id=new_id,
    )
    bounds = ImportLimits(RecordLimits(limits.depth, limits.import_events), limits.messages)
    return Moving(chronicle, Imports(made_of, bounds), limits.body_bytes, limits.body_idle_seconds)
