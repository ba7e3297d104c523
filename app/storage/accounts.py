"""Who may come in and what was learned of the upstreams: namespaces, keys, windows, calibrations.

Must not know keys: only digests of them arrive here (P7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Table, select, update
from sqlalchemy.dialects.postgresql import Insert

from app.storage.contract import KeyRow
from app.storage.database import Database, InsertInto, Statement, Step, named, p, plain, rows_of
from app.storage.learned.contract import Calibration
from app.storage.tables.conversations import CREDENTIALS, KEYS, NAMESPACES
from app.storage.tables.servers import CALIBRATIONS, HEARTBEAT, LEARNED_WINDOWS, PEPPER


class AccountRows:
    """Reads and writes of what belongs to callers and to upstreams, not to sessions."""

    _db: Database
    _new_id: Callable[[], str]

    async def ping(self) -> None:
        """See the contract."""
        await self._db.write([Step(_BEAT, [{"id": "ping", "beats": 1}])])
        await self._db.far(rows_of(_BEATS, {"id": "ping"}))

    async def namespace_of(self, credential: bytes, now: float) -> str:
        """See the contract. Two first requests at once agree on one namespace."""
        key = {"digest": credential}
        found = await self._db.near(rows_of(_NAMESPACE_OF, key))
        if not found:
            row = {**key, "namespace": self._new_id(), "created_at": now}
            await self._db.write([Step(_ADD_CREDENTIAL, [row]), Step(_ADD_NAMESPACE, [key])])
            found = await self._db.near(rows_of(_NAMESPACE_OF, key))
        return str(found[0][0])

    async def bind_pepper(self, fingerprint: bytes) -> bool:
        """See the contract. Two first starts at once agree on one pepper."""
        key = {"id": "pepper"}
        await self._db.write([Step(_ADD_PEPPER, [{**key, "fingerprint": fingerprint}])])
        rows = await self._db.near(rows_of(_PEPPER, key))
        return bool(rows[0][0] == fingerprint)

    async def windows(self) -> dict[tuple[str, str], tuple[int, str]]:
        """See the contract."""
        rows = await self._db.near(rows_of(_WINDOWS, {}))
        return {(upstream, model): (tokens, source) for upstream, model, tokens, source in rows}

    async def learn_window(self, upstream: str, model: str, tokens: int, source: str, now: float) -> None:
        """See the contract."""
        key = {"upstream": plain(upstream), "model": plain(model)}
        row = {**key, "tokens": tokens, "source": source, "learned_at": now}
        await self._db.write([Step(_LEARN_WINDOW, [row])])

    async def calibrations(self) -> Sequence[Calibration]:
        """See the contract."""
        return [Calibration(*row) for row in await self._db.near(rows_of(_CALIBRATIONS, {}))]

    async def save_calibration(self, calibration: Calibration, now: float) -> None:
        """See the contract."""
        row = {"model": plain(calibration.model), "ratio": calibration.ratio}
        await self._db.write(
            [Step(_SAVE_CALIBRATION, [{**row, "samples": calibration.samples, "saved_at": now}])]
        )

    async def keys(self) -> Sequence[KeyRow]:
        """See the contract."""
        return [KeyRow(*row) for row in await self._db.far(rows_of(_ALL_KEYS, {}))]

    async def add_key(self, key: KeyRow, digest: bytes) -> None:
        """See the contract. Its namespace exists afterwards."""
        row = {
            "id": key.id,
            "digest": digest,
            "label": plain(key.label),
            "namespace": key.namespace,
            "created_at": key.created_at,
            "revoked_at": key.revoked_at,
        }
        # An operator vouches for it: it needs no proof by the upstream.
        namespace = {"id": key.namespace, "created_at": key.created_at, "proven_at": key.created_at}
        await self._db.write([Step(_ADD_KEY, [row]), Step(_ADD_NAMED, [namespace])])

    async def revoke_key(self, key_id: str, now: float) -> bool:
        """See the contract."""
        (revoked,) = await self._db.write([Step(_REVOKE_KEY, [{"id": key_id, "revoked_at": now}])])
        return revoked > 0

    async def key_namespace(self, digest: bytes) -> str | None:
        """See the contract."""
        rows = await self._db.near(rows_of(_KEY_NAMESPACE, {"digest": digest}))
        return str(rows[0][0]) if rows else None


def _replacing(table: Table, *changed: str) -> Callable[[InsertInto], Insert]:
    """An INSERT of a whole row that gives an existing one the new values of `changed`."""

    def build(insert: InsertInto) -> Insert:
        new = insert(table).values(named(table))
        return new.on_conflict_do_update(
            index_elements=list(table.primary_key.columns),
            set_={name: new.excluded[name] for name in changed},
        )

    return build


def _adding(table: Table) -> Callable[[InsertInto], Insert]:
    return lambda insert: insert(table).values(named(table)).on_conflict_do_nothing()


def _beat(insert: InsertInto) -> Insert:
    new = insert(HEARTBEAT).values(named(HEARTBEAT))
    return new.on_conflict_do_update(
        index_elements=[HEARTBEAT.c.id], set_={"beats": HEARTBEAT.c.beats + new.excluded.beats}
    )


def _add_namespace(insert: InsertInto) -> Insert:
    """The namespace the credential has, which need not be the one that was proposed."""
    of = select(CREDENTIALS.c.namespace, CREDENTIALS.c.created_at).where(CREDENTIALS.c.digest == p("digest"))
    return insert(NAMESPACES).from_select(["id", "created_at"], of).on_conflict_do_nothing()


_BEAT = Statement(_beat)
_BEATS = Statement(lambda _: select(HEARTBEAT.c.beats).where(HEARTBEAT.c.id == p("id")))
_NAMESPACE_OF = Statement(
    lambda _: select(CREDENTIALS.c.namespace).where(CREDENTIALS.c.digest == p("digest"))
)
_ADD_CREDENTIAL = Statement(_adding(CREDENTIALS))
_ADD_NAMESPACE = Statement(_add_namespace)
_ADD_NAMED = Statement(_adding(NAMESPACES))
_ADD_PEPPER = Statement(_adding(PEPPER))
_PEPPER = Statement(lambda _: select(PEPPER.c.fingerprint).where(PEPPER.c.id == p("id")))
_WINDOWS = Statement(
    lambda _: select(*(LEARNED_WINDOWS.c[name] for name in ("upstream", "model", "tokens", "source")))
)
_LEARN_WINDOW = Statement(_replacing(LEARNED_WINDOWS, "tokens", "source", "learned_at"))
_CALIBRATIONS = Statement(lambda _: select(*(CALIBRATIONS.c[name] for name in ("model", "ratio", "samples"))))
_SAVE_CALIBRATION = Statement(_replacing(CALIBRATIONS, "ratio", "samples", "saved_at"))
_ALL_KEYS = Statement(
    lambda _: select(
        *(KEYS.c[name] for name in ("id", "label", "namespace", "created_at", "revoked_at"))
    ).order_by(KEYS.c.id.desc())
)
_ADD_KEY = Statement(_adding(KEYS))
_REVOKE_KEY = Statement(
    lambda _: (
        update(KEYS)
        .where(KEYS.c.id == p("id"), KEYS.c.revoked_at.is_(None))
        .values(revoked_at=p(KEYS.c.revoked_at))
    )
)
_KEY_NAMESPACE = Statement(
    lambda _: select(KEYS.c.namespace).where(KEYS.c.digest == p("digest"), KEYS.c.revoked_at.is_(None))
)
