"""What the state of a session is taken up from where no checkpoint of ours is on its path (A40, A41).

Pure: rows come in. Knows nothing of how they were read nor of what is stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.history.conversation import Conversation
from app.core.runtime.carried import carried_by
from app.core.runtime.foreign import Stored
from app.core.runtime.restore import Restored, restored
from app.core.runtime.snapshot import RuntimeSnapshot
from app.proxy.chronicle.runtime import Past, place_of
from app.storage.journal import StoredCheckpoint, StoredEvent


def restored_on(
    talk: Conversation, past: Past, checkpoints: Sequence[StoredCheckpoint], events: Sequence[StoredEvent]
) -> Restored | None:
    """The state of this path from all that is stored of its session; None when there is nothing to take up.

    A state of ours counts if it is of this path, another system's if the session has none of ours on
    any. What the events tell counts if it is more than what is stored besides them.
    """
    of_session = any(kept.checkpoint.runtime is not None for kept in past.checkpoints)

    def belongs(snapshot: RuntimeSnapshot) -> bool:
        head = snapshot.transcript.head
        return place_of(talk, head) is not None if head else not of_session

    found = restored(_in_order(checkpoints, events), belongs)
    if found is None or found.form != "events_derived":
        return found
    brought = carried_by(found.snapshot, len(past.compactions), past.recovery)
    is_news = brought.is_something or not found.snapshot.usage.is_zero
    return found if is_news and not of_session else None


def _in_order(checkpoints: Sequence[StoredCheckpoint], events: Sequence[StoredEvent]) -> list[Stored]:
    """Both as one list, oldest first: they draw their places from the same counter."""
    places = [
        (row.arrival, Stored("checkpoint", row.checkpoint.payload, row.checkpoint.created_at))
        for row in checkpoints
    ]
    places += [
        (row.seq, Stored(row.event.type, row.event.payload, row.event.created_at, row.event.id))
        for row in events
    ]
    return [stored for _, stored in sorted(places, key=lambda placed: placed[0])]
