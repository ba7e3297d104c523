"""The sums of the house, each counted in one plain way; `make ledger` prints them beside their ceilings.

    python -m tests.house.ledger [--calls] [--lower]

`ledger.toml` holds for each sum a ceiling and, where there is one, a goal. A commit may lower a ceiling and
never raise it. `--calls` counts the calls of four turns too, which takes a minute; `--lower` writes the sums
of today as ceilings where they are lower.

- tokens: Python tokens without comments, docstrings and layout
- private_once: functions `_x` without decorator, of at most 8 lines, whose name stands twice in its file
- bags_once: dataclasses without bases and methods, whose name is called at most once in the package
- class_twice, file_twice: public class names that two files define; files whose name another file has
- head_lines: what must be held in the head: all but additions, notes, commands, pages and the demo
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.house.sources import ROOT

LEDGER = ROOT / "tests" / "house" / "ledger.toml"
_LAYOUT = frozenset(
    {
        *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
        *(tokenize.ENCODING, tokenize.ENDMARKER),
    }
)
_OUTSIDE = frozenset({"addons", "notes", "cli", "ui", "demo"})
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def tokens_of(text: str) -> int:
    """Python tokens of a source that are neither comment, docstring nor layout."""
    docstrings = {
        node.body[0].lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, _DOCUMENTED)
        and node.body
        and isinstance(first := node.body[0], ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    }
    return sum(
        token.type not in _LAYOUT and not (token.type == tokenize.STRING and token.start[0] in docstrings)
        for token in tokenize.tokenize(io.BytesIO(text.encode()).readline)
    )


def sums(root: Path = ROOT) -> dict[str, int]:
    """The sums that are counted from files: of the package, of each room `room.NAME`, of the tests."""
    app = root / "app" / "palimpsest"
    found: Counter[str] = Counter()
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(app.rglob("*.py"))}
    texts = {path: text for path, text in texts.items() if text.strip()}
    classes: defaultdict[str, set[Path]] = defaultdict(set)
    called = Counter(re.findall(r"\b([A-Z]\w+)\(", "\n".join(texts.values())))
    for path, text in texts.items():
        parts = path.relative_to(app).parts
        room = "/".join(parts[:2]) if parts[0] == "addons" and len(parts) > 2 else parts[0]
        counted = {"tokens": tokens_of(text), "lines": text.count("\n"), "files": 1}
        for unit, number in counted.items():
            found[unit] += number
            found[f"room.{room.removesuffix('.py')}.{unit}"] += number
        if not _OUTSIDE & set(parts[:-1]):
            found["head_lines"] += counted["lines"]
        used = Counter(re.findall(r"\b_\w+\b", text))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found["private_once"] += _is_fragment(node, used)
            elif isinstance(node, ast.ClassDef):
                found["classes"] += 1
                found["bags_once"] += _is_bag(node) and called[node.name] <= 1
                classes[node.name].add(path)
    names = Counter(path.name for path in texts if path.stem not in ("__init__", "__main__"))
    found["class_twice"] = sum(len(where) > 1 for name, where in classes.items() if name[0] != "_")
    found["file_twice"] = sum(times for times in names.values() if times > 1)
    found["test_lines"] = sum(
        path.read_text(encoding="utf-8").count("\n") for path in (root / "tests").rglob("*.py")
    )
    return dict(found)


def _is_fragment(node: ast.FunctionDef | ast.AsyncFunctionDef, used: Mapping[str, int]) -> bool:
    docstring = (
        node.body[0].end_lineno or 0 if ast.get_docstring(node) is not None else node.body[0].lineno - 1
    )
    return (
        re.match("_[^_]", node.name) is not None
        and used[node.name] == 2
        and not node.decorator_list
        and (node.end_lineno or 0) - docstring <= 8
    )


def _is_bag(node: ast.ClassDef) -> bool:
    return (
        not node.bases
        and any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
        and not any(isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) for part in node.body)
    )


def surface() -> dict[str, int]:
    """What people can turn, ask and call: settings, endpoints, commands; and the tables."""
    # The program is imported by who asks for this, not by who counts lines.
    from palimpsest.cli.main import app
    from palimpsest.settings.reference import tables
    from palimpsest.storage.tables import METADATA
    from typer.main import get_command

    from tests.house.test_routes import registered

    return {
        # The rows of docs/configuration.md.
        "settings": sum(line.startswith("| `") for line in tables().splitlines()),
        # A HEAD beside its GET is not another endpoint.
        "endpoints": sum(not route.startswith("HEAD ") for route in registered()),
        "commands": len(vars(get_command(app))["commands"]),
        "tables": len(METADATA.tables),
    }


def ledger() -> dict[str, dict[str, int]]:
    """Sum -> its `ceiling`, and its `goal` where it has one."""
    return {name: dict(row) for name, row in tomllib.loads(LEDGER.read_text(encoding="utf-8")).items()}


def over(found: Mapping[str, int], rows: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """What is above its ceiling, or has none."""
    for name, number in sorted(found.items()):
        ceiling = rows.get(name, {}).get("ceiling")
        if ceiling is None:
            yield f"{name} is {number:,} and stands in no row of {LEDGER.name}"
        elif number > ceiling:
            yield f"{name} is {number:,}, above its ceiling of {ceiling:,}"


def lowered(found: Mapping[str, int], rows: Mapping[str, Mapping[str, int]]) -> str:
    """The ledger with each ceiling at the sum of today, where that is lower; a room that is gone leaves."""
    head = LEDGER.read_text(encoding="utf-8").partition("\n\n")[0]
    lines = [head, ""]
    for name, row in rows.items():
        if name in found:
            row = {**row, "ceiling": min(found[name], row["ceiling"])}
        elif name.startswith("room."):
            continue
        inside = ", ".join(f"{key} = {value}" for key, value in row.items())
        lines.append(f"{json.dumps(name) if '.' in name else name} = {{ {inside} }}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prints every sum beside its ceiling and its goal; ends with 1 where one is above it."""
    found = sums() | surface()
    if "--calls" in sys.argv:
        from tests.house.calls import SCENES, calls_of

        found |= {f"calls.{scene}": calls_of(scene) for scene in SCENES}
    rows = ledger()
    for name, row in rows.items():
        goal = f"{row['goal']:,}" if "goal" in row else ""
        number = f"{found[name]:,}" if name in found else "-"
        sys.stdout.write(f"{name:32}{number:>10}{row['ceiling']:>12,}{goal:>12}\n")
    if "--lower" in sys.argv:
        LEDGER.write_text(lowered(found, rows), encoding="utf-8")
    problems = list(over(found, rows))
    sys.stdout.write("".join(f"{problem}\n" for problem in problems))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
