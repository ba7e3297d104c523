"""The handoff: a model's record in nine sections, and behind it what binds and what was done, by code.

What the model wrote is kept apart from the block, so that the next question gives it back as it was.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import msgspec

from app.core.summary.acceptance import SummaryReply, accepted
from app.core.summary.block import Frame, summary_block
from app.core.summary.prompt import SummaryLimits, SummaryRequest, rebuilding_requests, summary_requests
from app.core.summary.source import CountText, SummarySource, stored_as
from app.core.summary.styles.style import Written
from app.core.text.fence import DEFAULT_TAG


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model wrote, as it stands in the block, and how many lines of it were taken out.

    `is_behind`: code has folded more since, of which only the block tells.
    """

    record: str = ""
    taken_out: int = 0
    is_behind: bool = False


@dataclass(frozen=True, slots=True)
class HandoffStyle:
    """See `Style`. `tag` is the fence's (A31)."""

    tag: str = DEFAULT_TAG

    def requests(
        self, source: SummarySource, limits: SummaryLimits, count_text: CountText, focus: str
    ) -> Generator[SummaryRequest, str, None]:
        """As many calls as the input needs, each continuing the record of the one before (A21, F07).

        A record written anew: each part by itself, then what was written of all.
        """
        earlier = record_in(source.state)
        if earlier.record and not earlier.is_behind:
            source = replace(source, previous=earlier.record)
        asking = rebuilding_requests if source.is_anew else summary_requests
        return asking(source, limits, count_text, focus)

    def accepted(
        self, reply: SummaryReply, request: SummaryRequest, replaced_tokens: int, count_text: CountText
    ) -> str:
        """The text; SummaryRejected where it is plainly none (F09 to F12)."""
        return accepted(reply, request, replaced_tokens, count_text)

    def written(self, source: SummarySource, told: str | None, tokens: int, count_text: CountText) -> Written:
        """The record first, then what it does not say; by code alone without one."""
        frame = Frame(tokens, count_text, self.tag)
        block = summary_block(source, record_in(source.state).record, told, frame)
        record = Record(block.record, block.taken_out, is_behind=told is None)
        state = msgspec.json.encode(record) if block.record else b""
        return Written(block.text, state)


def record_in(state: bytes) -> Record:
    """What an earlier block's state holds; an empty record for none, and for damaged bytes."""
    return stored_as(Record, state) or Record()
