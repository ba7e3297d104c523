"""Who may come in and what was learned of the upstreams: namespaces, keys, windows, calibrations.

Must not know keys: only digests of them arrive here (P7).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Double, Table, delete, select, update
from sqlalchemy.dialects.postgresql import Insert
from sqlalchemy.sql.expression import literal_column

from app.storage.contract import KeyRow
from app.storage.database import Database, InsertInto, Statement, Step, named, p, plain, rows_of
from app.storage.learned.contract import Calibration, LearnedWindow
from app.storage.tables.conversations import CREDENTIALS, KEYS, NAMESPACES
from app.storage.tables.servers import CALIBRATIONS, HEARTBEAT, LEARNED_WINDOWS, PEPPER

# Rows read at a start: what is older is learned again.
_MOST_WINDOWS = 5_000
_MOST_CALIBRATIONS = 10_000


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

    async def learned_windows(self, since: float) -> Sequence[LearnedWindow]:
        """See the contract."""
        rows = await self._db.near(rows_of(_WINDOWS, {"since": since}))
        return [LearnedWindow(*row) for row in rows]

    async def learn_window(self, window: LearnedWindow, since: float) -> None:
        """See the contract."""
        row = {
            "namespace": window.namespace,
            "upstream": plain(window.upstream),
            "model": plain(window.model),
            "tokens": window.tokens,
            "source": window.source,
            "learned_at": window.learned_at,
        }
        await self._db.write([Step(_OLD_WINDOWS, [{"since": since}]), Step(_LEARN_WINDOW, [row])])

    async def forget_windows(self, model: str, namespace: str | None) -> int:
        """See the contract."""
        key = {"model": plain(model)}
        step = Step(_FORGET_WINDOWS, [key])
        if namespace is not None:
            step = Step(_FORGET_OWN_WINDOWS, [{**key, "namespace": namespace}])
        (forgotten,) = await self._db.write([step])
        return forgotten

    async def calibrations(self) -> Sequence[Calibration]:
        """See the contract."""
        return [Calibration(*row) for row in await self._db.near(rows_of(_CALIBRATIONS, {}))]

    async def save_calibration(self, calibration: Calibration, now: float) -> None:
        """See the contract."""
        row = {
            "namespace": calibration.namespace,
            "model": plain(calibration.model),
            "ratio": calibration.ratio,
            "samples": calibration.samples,
            "fixed_ratio": calibration.fixed_ratio,
            "fixed_samples": calibration.fixed_samples,
            "saved_at": now,
        }
        await self._db.write([Step(_SAVE_CALIBRATION, [row])])

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
    lambda _: (
        select(*LEARNED_WINDOWS.c)
        .where(LEARNED_WINDOWS.c.learned_at >= p("since", Double))
        .order_by(LEARNED_WINDOWS.c.learned_at.desc())
        .limit(literal_column(str(_MOST_WINDOWS)))
    )
)
_OLD_WINDOWS = Statement(
    lambda _: delete(LEARNED_WINDOWS).where(LEARNED_WINDOWS.c.learned_at < p("since", Double))
)
_LEARN_WINDOW = Statement(_replacing(LEARNED_WINDOWS, "tokens", "source", "learned_at"))
_FORGET_WINDOWS = Statement(lambda _: delete(LEARNED_WINDOWS).where(LEARNED_WINDOWS.c.model == p("model")))
_FORGET_OWN_WINDOWS = Statement(
    lambda _: delete(LEARNED_WINDOWS).where(
        LEARNED_WINDOWS.c.namespace == p("namespace"), LEARNED_WINDOWS.c.model == p("model")
    )
)
_CALIBRATIONS = Statement(
    lambda _: (
        select(*(column for column in CALIBRATIONS.c if column.name != "saved_at"))
        .order_by(CALIBRATIONS.c.saved_at.desc())
        .limit(literal_column(str(_MOST_CALIBRATIONS)))
    )
)
_SAVE_CALIBRATION = Statement(
    _replacing(CALIBRATIONS, "ratio", "samples", "fixed_ratio", "fixed_samples", "saved_at")
)
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
