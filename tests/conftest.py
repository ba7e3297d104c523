"""What every test of the project shares: the record of which specification rows were proved."""

from __future__ import annotations

pytest_plugins = ["tests.house.spec_marks"]
