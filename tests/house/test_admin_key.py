"""The admin key is compared in constant time, and held as a digest alone."""

from __future__ import annotations

import ast
import inspect

from palimpsest.proxy.server_secrets import AdminKey

KEY = "operator-0123456789abcdef=="


def test_keys_are_compared_in_constant_time_and_shown_nowhere() -> None:
    tree = ast.parse(inspect.getsource(AdminKey))
    compared = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    # What is compared by itself: sums of bytes, names, and the scheme.
    assert sorted(ast.unparse(node) for node in compared) == [
        "after - before == self._sum",
        "len(given) == 1",
        "name == b'authorization'",
        "scheme.lower() == b'basic'",
        "scheme.lower() == b'bearer'",
    ]
    assert ast.unparse(tree).count("hmac.compare_digest(_digest(") == 2
    assert KEY not in repr(AdminKey(KEY)) + str(vars(AdminKey(KEY)))
