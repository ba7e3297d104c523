"""Opens the ground: what lives as long as the process, and is closed last.

The application has two lifetimes. A *generation* is everything that is made from settings (`parts.Parts`,
`front`); a reload makes a new one, and the old one ends once its open requests are answered. For that long
two generations share the ground, in which they are as two servers on one database, but for what is here.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import uuid_utils

from palimpsest.api.front import TakenSlots
from palimpsest.embedding.weights import weights_folder
from palimpsest.errors import SettingsError, StoreError
from palimpsest.proxy.background import Background
from palimpsest.proxy.compacting.leases import HeldLeases
from palimpsest.proxy.erasing import EraseMeans, Scrubber
from palimpsest.proxy.forgetting import Forgetting
from palimpsest.proxy.jobs import Again, Jobs, unless
from palimpsest.proxy.journal.runtime import Usages
from palimpsest.proxy.lookups.executing import RunningLookups
from palimpsest.proxy.pepper import Pepper, load_pepper, wrong_pepper
from palimpsest.proxy.reports import RequestLog
from palimpsest.proxy.sessions.in_flight import InFlight
from palimpsest.proxy.sessions.reader import CountMessage, MessageReader
from palimpsest.proxy.sessions.recovery import Presence, recover
from palimpsest.proxy.sessions.tombstones import Tombstones
from palimpsest.proxy.store_watch import StoreWatch
from palimpsest.proxy.stored_bytes import StorageBounds
from palimpsest.proxy.telemetry.counts import Counts
from palimpsest.proxy.token_counts import Calibrations, ModelTokens
from palimpsest.settings.reload import Reload
from palimpsest.settings.settings import Settings, asked_name, model_settings
from palimpsest.storage.erasure import RecentlyErased
from palimpsest.storage.opening import bound_pepper
from palimpsest.storage.store import Store, open_store
from palimpsest.tokenizer.counting import Counter, Tokenizer

if TYPE_CHECKING:
    from palimpsest.embedding.minilm import Embedder


@dataclass(frozen=True, slots=True)
class Counting:
    """How messages are read and counted, with what was read; `depends_on` are the settings that decide it.

    Generations share it while these stay the same, so that a reload does not count whole histories again.
    """

    depends_on: object
    tokens: ModelTokens
    reader: MessageReader
    calibrations: Calibrations


@dataclass(slots=True)
class Ground:
    """What all generations of one process share, one of each.

    `stopping` is set when the process begins to stop. `erasure` clears what any of them holds. `counting` is
    the newest generation's. `reload`: for whoever may ask for one.
    """

    store: Store
    pepper: Pepper
    tokenizer: Tokenizer
    stopping: asyncio.Event
    jobs: Jobs
    background: Background
    erasure: EraseMeans
    counting: Counting
    counts: Counts | None
    log: RequestLog
    reload: Reload
    embedder: Embedder | None
    storage: StorageBounds
    # What would be wrong if each generation knew only its own.
    in_flight: InFlight
    usages: Usages = field(default_factory=Usages)
    leases: HeldLeases = field(default_factory=HeldLeases)
    lookups: RunningLookups = field(default_factory=dict)
    answered: TakenSlots = field(default_factory=TakenSlots)
    arriving: TakenSlots = field(default_factory=TakenSlots)


async def opened_ground(
    settings: Settings, tokenizer: Tokenizer, stack: AsyncExitStack, stopping: asyncio.Event, reload: Reload
) -> Ground:
    """Open the ground, by the settings that need a restart; `stack` closes it in reverse order."""
    embedder = await asyncio.to_thread(_embedder) if settings.recall.vectors else None
    store, pepper = await _opened_store(settings, stack)
    tokenizer.load()
    jobs, counts, in_flight = Jobs(), Counts() if settings.telemetry.metrics else None, InFlight()
    ground = Ground(
        store=store,
        pepper=pepper,
        tokenizer=tokenizer,
        stopping=stopping,
        jobs=jobs,
        background=Background(jobs),
        erasure=_erasure(settings, store, pepper, in_flight, jobs, stopping),
        counting=_first_counting(settings, tokenizer, store, jobs),
        counts=counts,
        log=RequestLog(jobs, stopping, [counts.ended] if counts is not None else ()),
        reload=reload,
        embedder=embedder,
        storage=_storage(store, jobs, stopping),
        in_flight=in_flight,
    )
    await _present(settings, ground, stack)
    stack.push_async_callback(ground.background.close)
    stack.push_async_callback(
        jobs.drain, settings.server.shutdown_seconds, settings.database.store_deadline_seconds
    )
    await _taken_up(ground)
    _watched(settings, store, stack)
    return ground


def counting_of(ground: Ground, settings: Settings) -> Counting:
    """How a generation with these settings counts."""
    before = ground.counting
    if before.depends_on == _counted_by(settings):
        return before
    tokens, reader = _reading(settings, ground.tokenizer)
    return Counting(_counted_by(settings), tokens, reader, before.calibrations.counted_by(tokens))


def _first_counting(settings: Settings, tokenizer: Tokenizer, store: Store, jobs: Jobs) -> Counting:
    tokens, reader = _reading(settings, tokenizer)
    return Counting(_counted_by(settings), tokens, reader, Calibrations(store.accounts, jobs, tokens))


def _embedder() -> Embedder:
    """The embedding model, imported only if vectors are on. Reads files."""
    folder = weights_folder()
    from palimpsest.embedding.minilm import Embedder

    try:
        return Embedder(folder)
    except (OSError, ValueError, LookupError) as error:
        raise SettingsError(f"recall.vectors: {folder} holds no model that can be read: {error}") from error


def _counted_by(settings: Settings) -> object:
    """The settings that decide how messages are counted, and how many are kept."""
    models = [(entry.match, entry.tokenizer) for entry in settings.models]
    return models, [route.models for route in settings.routes], settings.limits.message_cache_bytes


def _reading(settings: Settings, tokenizer: Tokenizer) -> tuple[ModelTokens, MessageReader]:
    def counter_for(model: str) -> Counter:
        entry = model_settings(settings, model)
        return tokenizer.counter_for(asked_name(settings, model), entry.tokenizer if entry else None)

    tokens = ModelTokens(counter_for)

    def count_of(model: str) -> CountMessage:
        return tokens.counter_of(model).count_message

    return tokens, MessageReader(count_of, settings.limits.message_cache_bytes, tokens.knows)


def _erasure(
    settings: Settings,
    store: Store,
    pepper: Pepper,
    in_flight: InFlight,
    jobs: Jobs,
    stopping: asyncio.Event,
) -> EraseMeans:
    return EraseMeans(
        store=store,
        jobs=jobs,
        gone=RecentlyErased(),
        scrubbing=Scrubber(store.erasure, jobs, stopping, Again(settings.database.scrub_retry_seconds)),
        tombstones=Tombstones(store.erasure, pepper),
        forgetting=Forgetting(jobs, stopping, in_flight),
        clock=time.time,
    )


def _storage(store: Store, jobs: Jobs, stopping: asyncio.Event) -> StorageBounds:
    """The bounds of stored bytes, whose totals have many rows where several servers may write."""
    bounds = StorageBounds(store.body_bytes)
    if store.journal.server is not None:
        jobs.start(unless(stopping, bounds.keep_adding_up()))
    return bounds


def _watched(settings: Settings, store: Store, stack: AsyncExitStack) -> None:
    """Watch the store's files and disk until `stack` is closed."""
    keeping = asyncio.get_running_loop().create_task(
        StoreWatch(store, settings.database.erase_reserve_bytes).keep()
    )

    async def end() -> None:
        keeping.cancel()
        await asyncio.wait([keeping])

    stack.push_async_callback(end)


async def _taken_up(ground: Ground) -> None:
    """Load calibrations, and continue work that a stop or a kill interrupted."""
    await ground.counting.calibrations.load()
    await recover(ground.store.exchanges, ground.counting.reader, time.time())
    if await ground.store.search.needs_scrub():
        # The last server stopped between an erase and the end of its scrub.
        ground.erasure.scrubbing.begin()


async def _present(settings: Settings, ground: Ground, stack: AsyncExitStack) -> None:
    """Announce this server to others on a shared database until `stack` is closed, after its jobs."""
    journal = ground.store.journal
    if journal.server is None:
        return

    async def found() -> None:
        await recover(ground.store.exchanges, ground.counting.reader, time.time())

    await journal.beat()
    presence = Presence(journal, found, settings.database.heartbeat_timeout_seconds)
    keeping = asyncio.get_running_loop().create_task(presence.keep())

    async def end() -> None:
        keeping.cancel()
        await asyncio.wait([keeping])
        with suppress(StoreError):
            await journal.leave()

    stack.push_async_callback(end)


async def _opened_store(settings: Settings, stack: AsyncExitStack) -> tuple[Store, Pepper]:
    database, url = settings.database, settings.database.url.get_secret_value()
    # First: with another pepper nothing is written.
    pepper = load_pepper(database.pepper_file, await bound_pepper(url))
    store = await open_store(
        url,
        synchronous=database.synchronous,
        deadline_seconds=database.store_deadline_seconds,
        new_id=new_id,
        sole=True,
    )
    stack.push_async_callback(store.close)
    # Another server may have bound the database to its own pepper meanwhile.
    if not await store.accounts.bind_pepper(pepper.fingerprint):
        raise wrong_pepper(database.pepper_file)
    return store, pepper


def new_id() -> str:
    """A time-ordered id (UUIDv7, RFC 9562): rows of the same time are adjacent in the index."""
    return str(uuid_utils.uuid7())
