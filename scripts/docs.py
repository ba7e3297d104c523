"""`make docs`: README.md, docs/ and the other pages at the top become a site, checked on the way.

A link, an anchor or a picture that does not exist, and a page without a place in the navigation, fail it.
Beside each page stands its Markdown (`start/` has `start.md`), and `llms.txt` lists all of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
# What is not in docs/, and its name on the site.
TOP = {
    "README.md": "index.md",
    "CHANGELOG.md": "changes.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "config.example.yaml": "config.example.yaml",
    "LICENSE": "LICENSE",
}
_LINK = re.compile(r"(\]\()(?!https?:|#|mailto:)([^)#\s]+)")
_FILE_NAME = re.compile(r"\[[\w-]+\.md\](?=\(([^)#\s]+))")
_COLOUR = re.compile(r"\033\[[\d;]*m")
_FENCE = re.compile(r"^(?: {4}|\t|```)")


class Refused(Exception):
    """The documentation is not in order; the message says where."""


def stage(root: Path, into: Path) -> None:
    """Every page under the name it has on the site, with links that fit."""
    shutil.copytree(root / "docs", into)
    for name, there in TOP.items():
        shutil.copy(root / name, into / there)
    for page in sorted(into.rglob("*.md")):
        there = page.relative_to(into).as_posix()
        source = next((name for name, staged in TOP.items() if staged == there), f"docs/{there}")
        page.write_text(_relinked(page.read_text(encoding="utf-8"), source, there, root), encoding="utf-8")
    with (into / "decisions" / "index.md").open("a", encoding="utf-8") as index:
        index.write(f"\n{_decisions(into)}\n")


def _decisions(staged: Path) -> str:
    """A line for each: so that a new one need not be entered anywhere."""
    pages = sorted((staged / "decisions").glob("0*.md"))
    return "\n".join(f"- [{page.name[:4]}]({page.name}) {_title(page).partition(' ')[2]}" for page in pages)


def _title(page: Path) -> str:
    return page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")


def _relinked(text: str, source: str, there: str, root: Path) -> str:
    """With links that fit, and with a page's title where the text of a link is the name of its file."""

    def fitting(link: re.Match[str]) -> str:
        target = os.path.normpath(PurePosixPath(source).parent / link[2])
        if not (root / target).exists():
            raise Refused(f"{source}: {link[2]} does not exist")
        if (root / target).is_dir():
            target += "/index.md"
        staged = TOP.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if staged is None:
            raise Refused(f"{source}: {link[2]} is not part of the site")
        return link[1] + os.path.relpath(staged, PurePosixPath(there).parent)

    def titled(name: re.Match[str]) -> str:
        page = (root / source).parent / name[1]
        return f"[{_title(page)}]" if page.exists() else name[0]

    lines = text.split("\n")
    return "\n".join(
        line if _FENCE.match(line) else _LINK.sub(fitting, _FILE_NAME.sub(titled, line)) for line in lines
    )


class _Loader(yaml.SafeLoader):
    """Reads the configuration without making what its tags name."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def navigation(root: Path) -> list[tuple[str, list[tuple[str, str]]]]:
    """Each section with its pages: titles and names; pages outside of sections are one without a title."""
    configuration: Any = yaml.load((root / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)
    sections: dict[str, list[tuple[str, str]]] = {"": []}
    for entry in configuration["nav"]:
        for title, below in entry.items():
            if isinstance(below, str):
                sections[""].append((title, below))
            else:
                sections[title] = [(name, page) for each in below for name, page in each.items()]
    return list(sections.items())


def check_navigation(root: Path, staged: Path) -> None:
    """Every page has one place."""
    placed = [page for _, pages in navigation(root) for _, page in pages]
    pages = {path.relative_to(staged).as_posix() for path in staged.rglob("*.md")}
    # The decisions are listed on their own page.
    unplaced = {page for page in pages - set(placed) if not re.fullmatch(r"decisions/\d{4}-.+\.md", page)}
    if unplaced or set(placed) - pages or len(placed) != len(set(placed)):
        raise Refused(
            f"mkdocs.yml: without a place: {sorted(unplaced)}; not there: {sorted(set(placed) - pages)}"
        )


def summary_of(page: str) -> str:
    """The first sentence below the title."""
    for paragraph in re.split(r"\n\s*\n", page):
        if paragraph.strip() and not re.match(r"[#|!<\s]", paragraph):
            plain = re.sub(r"[*`]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph))
            return re.split(r"(?<=[.!?])\s", " ".join(plain.split()), maxsplit=1)[0].rstrip(":")
    return ""


def llms_txt(root: Path, staged: Path) -> str:
    """The list of pages for programs that read: https://llmstxt.org."""
    configuration: Any = yaml.load((root / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)
    lines = [f"# {configuration['site_name']}", "", f"> {configuration['site_description']}"]
    for section, pages in navigation(root):
        lines += ["", f"## {section or 'First'}", ""]
        lines += [
            f"- [{title}]({page}): {summary_of((staged / page).read_text('utf-8'))}" for title, page in pages
        ]
    return "\n".join([*lines, ""])


def build(root: Path, into: Path) -> Path:
    """The folder of the finished site."""
    shutil.rmtree(into, ignore_errors=True)
    staged, site = into / "docs", into / "site"
    stage(root, staged)
    check_navigation(root, staged)
    shutil.copy(root / "mkdocs.yml", into)
    made = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict"],
        cwd=into,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if made.returncode:
        said = _COLOUR.sub("", made.stdout + made.stderr).partition("Traceback")[0]
        raise Refused(said.strip() or "Zensical failed and said nothing.")
    for page in _pages(staged):
        target = site / page.relative_to(staged)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, target)
    (site / "llms.txt").write_text(llms_txt(root, staged), encoding="utf-8")
    return site


def _pages(staged: Path) -> Iterator[Path]:
    yield from sorted(staged.rglob("*.md"))


def main() -> None:
    """Builds into build/docs; the exit code is 1 if something is not in order."""
    try:
        site = build(ROOT, ROOT / "build" / "docs")
    except Refused as refused:
        sys.exit(str(refused))
    sys.stdout.write(f"{site.relative_to(ROOT)}: python3 -m http.server -d {site.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
