"""What tables are made of: one collection of them all, and the types of their columns.

Knows no table.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Double,
    Index,
    LargeBinary,
    MetaData,
    Text,
)

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def text(name: str, *, key: bool = False, null: bool = False) -> Column[str]:
    """A string, not null unless `null`."""
    return Column(name, Text, primary_key=key, nullable=null)


def binary(name: str, *, key: bool = False, null: bool = False) -> Column[bytes]:
    """Bytes, not null unless `null`."""
    return Column(name, LargeBinary, primary_key=key, nullable=null)


def whole(name: str, *, null: bool = False) -> Column[int]:
    """A 64-bit integer."""
    return Column(name, BigInteger, nullable=null)


def flag(name: str, *, null: bool = False) -> Column[bool]:
    """A boolean, not null unless `null`."""
    return Column(name, Boolean(create_constraint=False), nullable=null)


def moment(name: str, *, null: bool = False) -> Column[float]:
    """UTC seconds."""
    return Column(name, Double, nullable=null)


def session_key(*names: str) -> list[Column[str]]:
    """The key of a row of text keys in a session."""
    return [text(name, key=True) for name in ("session", *names, "namespace")]


def some(name: str, where: ColumnElement[bool], *columns: Column[Any]) -> Index:
    """An index over the rows that `where` holds for."""
    return Index(name, *columns, sqlite_where=where, postgresql_where=where)
