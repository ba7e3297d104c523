"""The parts that find again what was said, and let models do so.

Knows nothing of how requests and answers travel.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from app.main.parts import Parts, new_id
from app.proxy.hidden.mixed import MixedTurns
from app.proxy.hidden.replaying import Replays
from app.proxy.recall.catching_up import CatchingUp
from app.proxy.recall.describing import Describing
from app.proxy.recall.executing import Executing
from app.proxy.recall.indexing import Indexing
from app.proxy.recall.offering import Offering
from app.proxy.recall.recalling import Recalling
from app.proxy.recall.refusing import Refusing
from app.proxy.recall.rounds import RoundMeans
from app.proxy.recall.searching import Searching
from app.proxy.recall.streaming import RoundLimits
from app.proxy.recall.switch import RecallSwitch
from app.proxy.recall.tools import RecallTools
from app.settings.session import recall_enabled, session_recalls


@dataclass(frozen=True, slots=True)
class Recall:
    """Each exists once."""

    indexing: Indexing
    searching: Searching
    tools: RecallTools
    recalling: Recalling
    mixed: MixedTurns
    replays: Replays


def recall_of(parts: Parts, stopping: asyncio.Event) -> Recall:
    """Who searches, and who offers models our tools and has their calls carried out."""
    settings, how, limits = parts.settings, parts.settings.recall, parts.settings.limits
    switch = RecallSwitch(parts.store, partial(recall_enabled, settings))
    indexing = Indexing(parts.store, parts.jobs, stopping, switch)
    catching_up = CatchingUp(parts.store, indexing, switch, how.search_wait_seconds)
    searching = Searching(parts.store, catching_up, switch, how)
    describing = Describing(parts.store, how.large_payload_tokens)
    tools = RecallTools(parts.store, searching, describing, switch, new_id)
    refusing = Refusing()
    offering = Offering(
        refusing,
        partial(recall_enabled, settings),
        session_recalls,
        by_default=how.tools,
        without_tools=how.tools_for_all,
    )
    executing = Executing(tools, lambda model: parts.tokens.counter_of(model).count_message, how.result_chars)
    bounds = RoundLimits(how.rounds, limits.frame_bytes, limits.answer_bytes)
    # What a search waits for is the store, and the index of words.
    wait_seconds = settings.database.store_deadline_seconds + how.search_wait_seconds
    return Recall(
        indexing=indexing,
        searching=searching,
        tools=tools,
        recalling=Recalling(RoundMeans(parts.destinations, executing, refusing, bounds)),
        mixed=MixedTurns(parts.store, parts.jobs, executing, wait_seconds),
        replays=Replays(parts.store, parts.tokens, offering, how.result_chars, how.tools_share),
    )
