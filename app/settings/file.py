"""Reads the settings file: YAML, with a key standing once, and what cannot be read refused with its line.

Knows nothing of which settings there are.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from app.errors import SettingsError


class _Loader(yaml.SafeLoader):
    """YAML's own loader keeps the last of two equal keys without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in lines:
                said = f"{key.value} stands twice, first in line {lines[key.value]}; keep one of them"
                raise yaml.constructor.ConstructorError(None, None, said, key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep=deep)


def read_yaml(file: Path) -> dict[str, Any]:
    """What the file says, empty for an empty one. FileNotFoundError; SettingsError for all else."""
    text = _text(file)
    try:
        content = yaml.load(text, _Loader)  # noqa: S506  # a SafeLoader
    except RecursionError:
        raise SettingsError(f"{file}: is nested too deeply; see config.example.yaml") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise SettingsError(f"{file}, line {line}: {_problem(error)}") from None
    except yaml.YAMLError:
        raise SettingsError(f"{file}: holds a character that YAML does not allow") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{file}: must hold sections such as `server:` at the top level")
    return content


def _text(file: Path) -> str:
    try:
        # A byte order mark is no part of the text.
        return file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise
    except IsADirectoryError:
        raise SettingsError(f"{file}: is a folder; name a file in it, such as palimpsest.yaml") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{file}: is not text in UTF-8; save it as UTF-8") from None
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror}); is it yours to read?") from None


def _problem(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "it breaks off"
    if "'\\t'" in problem:
        return "indented with a tab, which YAML does not take; use spaces"
    if isinstance(error, yaml.constructor.ConstructorError) and "stands twice" in problem:
        return problem
    return f"not YAML: {problem}"
