"""Namespaces, credentials, proxy-issued keys and their use; learned windows and calibrations of models.

Credentials and keys arrive here as digests only (P7). Learned values contain no conversation text. What was
learned from a caller's prompts belongs to its namespace and is erased with it; what an upstream states in its
list of models is stored under the namespace "".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from palimpsest.storage.database import Recent, Repository, SqlDatabase, Step, p, step
from palimpsest.storage.sql import (
    columns_of,
    fields_of,
    literal,
    new_row,
    of_namespace,
    plain,
    replacing,
    total_of,
)
from palimpsest.storage.tables import (
    CALIBRATIONS,
    CREDENTIALS,
    KEYS,
    LEARNED_WINDOWS,
    MESSAGES,
    NAMESPACES,
    PEPPER,
    RESERVED,
    SESSIONS,
    USAGE,
)

# The namespace of facts that upstreams state themselves.
UPSTREAM_NAMESPACE = ""
# Rows read at start; older ones are learned again.
_MOST_WINDOWS = 5_000
_MOST_CALIBRATIONS = 10_000


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A proxy-issued key, without the key.

    `daily_tokens` is what it may use in a UTC day; None: what `access` says. `retention_days` and
    `retention_bytes` are what is kept of its namespace; None: what `retention` says.
    """

    id: str
    label: str
    namespace: str
    created_at: float
    revoked_at: float | None = None
    expires_at: float | None = None
    last_used_at: float | None = None
    daily_tokens: int | None = None
    retention_days: int | None = None
    retention_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Charge:
    """What an answer adds to the use of `account` on `day`, a UTC date as YYYY-MM-DD; may be negative.

    `released`: what its request had reserved, which it reserves no more.
    """

    account: str
    day: str
    tokens: int
    released: int = 0


class UsedTokens(NamedTuple):
    """Tokens that an account has used on a day, and those that requests in progress have reserved."""

    tokens: int = 0
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class NamespaceStatus:
    """`proven`: the upstream has answered the namespace with a 2xx; `messages` is then 0, not counted."""

    proven: bool
    messages: int


@dataclass(frozen=True, slots=True)
class LearnedWindow:
    """One model's window in its own tokens, as `namespace` learned it at `upstream`; `source` says how."""

    namespace: str
    upstream: str
    model: str
    tokens: int
    source: Literal["overflow", "observed", "upstream"]
    learned_at: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """An upstream model's token counts relative to ours, for the prompts of one namespace.

    `ratio` is theirs / ours for text over `samples`; `fixed_ratio` for tool schemas over `fixed_samples`.
    """

    namespace: str
    model: str
    ratio: float
    samples: int
    fixed_ratio: float
    fixed_samples: int


class Accounts(Repository):
    """See the module docstring; `palimpsest.storage.store` states the guarantees of every method."""

    def __init__(
        self,
        database: SqlDatabase,
        new_id: Callable[[], str],
        proven: Recent[str, bool],
        server: str | None = None,
    ) -> None:
        super().__init__(database)
        self._new_id = new_id
        self._proven = proven
        self._server = server or ""

    async def namespace_of(self, credential: bytes, now: float) -> str:
        """The namespace of a credential's HMAC, created the first time.

        Two concurrent first requests get the same namespace.
        """
        found = await self._few(_NAMESPACE_OF, digest=credential)
        if not found:
            row = {"digest": credential, "namespace": self._new_id(), "created_at": now}
            await self._db.write([step(_ADD_CREDENTIAL, **row), step(_ADD_NAMESPACE, digest=credential)])
            found = await self._few(_NAMESPACE_OF, digest=credential)
        return str(found[0][0])

    async def bind_pepper(self, fingerprint: bytes) -> bool:
        """True when the database belongs to the pepper of this fingerprint; the first one is stored.

        Two concurrent first starts agree on one pepper.
        """
        await self._wrote(_ADD_PEPPER, id="pepper", fingerprint=fingerprint)
        return bool((await self._few(_PEPPER, id="pepper"))[0][0] == fingerprint)

    async def status(self, namespace: str) -> NamespaceStatus:
        """Whether an exchange that closed as done or incomplete with a 2xx has proven the namespace."""
        if namespace in self._proven or await self._few(_PROVEN, namespace=namespace):
            self._proven[namespace] = True
            return NamespaceStatus(proven=True, messages=0)
        counted = await self._few(_STORED, namespace=namespace)
        return NamespaceStatus(proven=False, messages=counted[0][0])

    async def keys(self) -> list[KeyRow]:
        """All proxy-issued keys, newest first, revoked ones included."""
        return await self._all(KeyRow, _ALL_KEYS)

    async def add_key(self, key: KeyRow, digest: bytes) -> None:
        """`digest` is the sha256 of the key, which is never stored. The namespace exists afterwards."""
        # An operator issued the key: its namespace needs no proof by the upstream.
        namespace = {"id": key.namespace, "created_at": key.created_at, "proven_at": key.created_at}
        new_key = step(_ADD_KEY, **fields_of(key), digest=digest)
        await self._db.write([new_key, step(_ADD_NAMED, **namespace)])

    async def revoke_key(self, key_id: str, now: float) -> bool:
        """False when the key does not exist or is revoked already."""
        return await self._wrote(_REVOKE_KEY, id=key_id, revoked_at=now) > 0

    async def key_of(self, digest: bytes) -> KeyRow | None:
        """The row of a proxy key, which may have expired; None when the key is unknown or revoked."""
        rows = await self._few(_KEY_OF, digest=digest)
        return KeyRow(*rows[0]) if rows else None

    async def change_key(self, key: KeyRow) -> bool:
        """Store the key's label, expiry and limits; False when it does not exist or is revoked."""
        return await self._wrote(_CHANGE_KEY, **fields_of(key)) > 0

    async def key_used(self, key_id: str, now: float) -> None:
        """Store when the key was used last."""
        await self._wrote(_KEY_USED, id=key_id, last_used_at=now)

    async def used(self, account: str, day: str) -> UsedTokens:
        """The account's use on the day, a UTC date as YYYY-MM-DD; reads a row for each server inline."""
        return UsedTokens(*(await self._few(_USED, account=account, day=day))[0])

    async def reserve(self, account: str, day: str, tokens: int, limit: int) -> bool:
        """Reserve tokens of the day while less than `limit` is used and reserved; False from then on.

        Of requests at the same time, on any server, one is the first at the limit. What is reserved goes with
        the charge that releases it, or with its server.
        """
        key = {"account": account, "day": day}
        # The account's row is locked first: on PostgreSQL what is read next is what others have committed.
        first = step(_CHARGE, **key, tokens=0)
        asked = {"server": self._server, "tokens": tokens, "limit": limit}
        return (await self._db.write([first, step(_RESERVE, **key, **asked)]))[1] > 0

    async def used_on(self, day: str) -> Mapping[str, int]:
        """Tokens that every account has used on the day."""
        return dict(map(tuple, await self._rows(_USED_ON, day=day)))

    async def charge(self, charge: Charge) -> None:
        """Add to what was used. Not idempotent."""
        await self._db.write(self.steps_of(charge))

    def steps_of(self, charge: Charge) -> list[Step]:
        """The steps that add to what an account has used, and release what was reserved."""
        key = {"account": charge.account, "day": charge.day}
        steps = [step(_CHARGE, **key, tokens=charge.tokens)]
        if charge.released:
            steps.append(step(_RELEASE, **key, server=self._server, released=charge.released))
        return steps

    async def learned_windows(self, since: float) -> list[LearnedWindow]:
        """Windows learned at or after `since`, newest first; at most 5,000."""
        return [LearnedWindow(*row) for row in await self._few(_WINDOWS, since=since)]

    async def learn_window(self, window: LearnedWindow, since: float) -> None:
        """Replaces the namespace's window of the model there; deletes windows learned before `since`."""
        await self._db.write([step(_OLD_WINDOWS, since=since), step(_LEARN_WINDOW, **fields_of(window))])

    async def forget_windows(self, model: str, namespace: str | None) -> int:
        """Deletes the model's windows in the namespace, or (None) in all; returns how many."""
        statement = _FORGET_WINDOWS if namespace is None else _FORGET_OWN_WINDOWS
        return await self._wrote(statement, model=plain(model), namespace=namespace)

    async def calibrations(self) -> list[Calibration]:
        """Stored calibrations, newest first; at most 10,000."""
        return [Calibration(*row) for row in await self._few(_CALIBRATIONS)]

    async def save_calibration(self, calibration: Calibration, now: float) -> None:
        """Replaces the namespace's calibration of the model."""
        await self._wrote(_SAVE_CALIBRATION, **fields_of(calibration), saved_at=now)


def proof_step(namespace: str, now: float) -> Step:
    """The step that marks a namespace as proven, creating it if no credential has led to it yet."""
    return step(_PROVE, id=namespace, created_at=now, proven_at=now)


_NAMESPACE_OF = sa.select(CREDENTIALS.c.namespace).where(CREDENTIALS.c.digest == p("digest"))
_ADD_CREDENTIAL = new_row(CREDENTIALS).on_conflict_do_nothing()
# The credential's namespace may differ from the proposed one: a concurrent request was first.
_ADD_NAMESPACE = (
    insert(NAMESPACES)
    .from_select(
        ["id", "created_at"],
        sa.select(CREDENTIALS.c.namespace, CREDENTIALS.c.created_at).where(
            CREDENTIALS.c.digest == p("digest")
        ),
    )
    .on_conflict_do_nothing()
)
_ADD_NAMED = new_row(NAMESPACES).on_conflict_do_nothing()
_ADD_PEPPER = new_row(PEPPER).on_conflict_do_nothing()
_PEPPER = sa.select(PEPPER.c.fingerprint).where(PEPPER.c.id == p("id"))

_PROVE = replacing(new_row(NAMESPACES), "proven_at", where=NAMESPACES.c.proven_at.is_(None))
_PROVEN = sa.select(NAMESPACES.c.id).where(
    NAMESPACES.c.id == p("namespace"), NAMESPACES.c.proven_at.is_not(None)
)
_OWN_SESSIONS = sa.select(SESSIONS.c.id).where(of_namespace(SESSIONS))
_STORED = (
    sa.select(sa.func.count())
    .select_from(MESSAGES)
    .where(of_namespace(MESSAGES), MESSAGES.c.session.in_(_OWN_SESSIONS))
)

_KEY = columns_of(KEYS, *KeyRow.__slots__)
_ALL_KEYS = sa.select(*_KEY).order_by(KEYS.c.id.desc())
_ADD_KEY = new_row(KEYS).on_conflict_do_nothing()
_OF_VALID_KEY = sa.update(KEYS).where(KEYS.c.id == p("id"), KEYS.c.revoked_at.is_(None))
_REVOKE_KEY = _OF_VALID_KEY.values(revoked_at=p(KEYS.c.revoked_at))
_KEY_OF = sa.select(*_KEY).where(KEYS.c.digest == p("digest"), KEYS.c.revoked_at.is_(None))
_CHANGED = ("label", "expires_at", "daily_tokens", "retention_days", "retention_bytes")
_CHANGE_KEY = _OF_VALID_KEY.values({name: p(KEYS.c[name]) for name in _CHANGED})
_KEY_USED = sa.update(KEYS).where(KEYS.c.id == p("id")).values(last_used_at=p(KEYS.c.last_used_at))


def _sum_of(table: sa.Table) -> sa.ScalarSelect[int]:
    """The tokens of an account's day."""
    of_day = table.c.account == p("account"), table.c.day == p("day")
    return sa.select(total_of(table.c.tokens)).where(*of_day).scalar_subquery()


_USED = sa.select(_sum_of(USAGE), _sum_of(RESERVED))
_NEW_RESERVED = insert(RESERVED).from_select(
    RESERVED.c.keys(),
    sa.select(*(p(column) for column in RESERVED.c)).where(_sum_of(USAGE) + _sum_of(RESERVED) < p("limit")),
)
_RESERVE = replacing(_NEW_RESERVED, tokens=RESERVED.c.tokens + _NEW_RESERVED.excluded.tokens)
_LEFT = RESERVED.c.tokens - p("released")
_NONE = literal(0)
# Never below zero: a server that was given up, and runs on, releases what is gone already.
_RELEASE = (
    sa.update(RESERVED)
    .where(RESERVED.c.account == p("account"), RESERVED.c.day == p("day"), RESERVED.c.server == p("server"))
    .values(tokens=sa.case((_LEFT > _NONE, _LEFT), else_=_NONE))
)
_USED_ON = sa.select(USAGE.c.account, USAGE.c.tokens).where(USAGE.c.day == p("day"))
_NEW_USE = new_row(USAGE)
_CHARGE = replacing(_NEW_USE, tokens=USAGE.c.tokens + _NEW_USE.excluded.tokens)

_WINDOWS = (
    sa.select(*LEARNED_WINDOWS.c)
    .where(LEARNED_WINDOWS.c.learned_at >= p("since"))
    .order_by(LEARNED_WINDOWS.c.learned_at.desc())
    .limit(literal(_MOST_WINDOWS))
)
_OLD_WINDOWS = sa.delete(LEARNED_WINDOWS).where(LEARNED_WINDOWS.c.learned_at < p("since"))
_LEARN_WINDOW = replacing(new_row(LEARNED_WINDOWS), "tokens", "source", "learned_at")
_FORGET_WINDOWS = sa.delete(LEARNED_WINDOWS).where(LEARNED_WINDOWS.c.model == p("model"))
_FORGET_OWN_WINDOWS = _FORGET_WINDOWS.where(of_namespace(LEARNED_WINDOWS))
_CALIBRATIONS = (
    sa.select(*(column for column in CALIBRATIONS.c if column.name != "saved_at"))
    .order_by(CALIBRATIONS.c.saved_at.desc())
    .limit(literal(_MOST_CALIBRATIONS))
)
_SAVE_CALIBRATION = replacing(
    new_row(CALIBRATIONS), "ratio", "samples", "fixed_ratio", "fixed_samples", "saved_at"
)
