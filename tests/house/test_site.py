"""The documentation builds into a site in which nothing is dead, unplaced, or fetched from elsewhere."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from palimpsest.settings.reference import SCHEMA

from scripts.docs import TOP, Refused, build, navigation
from tests.house.sources import ROOT

# What makes a browser fetch: not a link, which makes a person go.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed|link)\b[^>]*?\b(?:src|href)=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|url\(\s*[\"']?((?:https?:)?//[^)\"']+)|@import\s+[\"']((?:https?:)?//[^\"']+)"
)
# Markdown that one reader takes for a table or a list, and the other for text.
_LEFT = re.compile(r"(?:<p>|\n)\s*(?:\|[^\n]*|[-*] [^\n]*|\d+\. [^\n]*)|\*\*|\]\(")
_CODE = re.compile(r"<pre.*?</pre>|<code.*?</code>", re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("documentation") / "build")


def pages(site: Path) -> list[Path]:
    found = sorted(site.rglob("*.html"))
    assert len(found) > 70
    return found


def test_no_page_fetches_from_elsewhere(site: Path) -> None:
    texts = [*pages(site), *sorted(site.rglob("*.css"))]
    fetched = {path.name: _FETCHED.findall(path.read_text(encoding="utf-8")) for path in texts}
    assert {name: hosts for name, hosts in fetched.items() if hosts} == {}


def test_the_pattern_sees_what_a_browser_would_fetch() -> None:
    """The control."""
    for text in (
        '<link rel="stylesheet" href="https://fonts.example/css">',
        "<script async src=//cdn.example/a.js></script>",
        'a{background:url("https://x.example/a.png")}',
    ):
        assert _FETCHED.search(text)
    assert not _FETCHED.search('<a href="https://example.org">there</a><img src="images/a.svg">')


def test_no_markdown_is_left_in_a_page(site: Path) -> None:
    left = {}
    for page in pages(site):
        article = re.search(r"<article.*?</article>", page.read_text(encoding="utf-8"), re.DOTALL)
        if article and (found := _LEFT.findall(_CODE.sub("", article[0]))):
            left[page.parent.name] = found
    assert left == {}


def test_every_page_has_its_markdown_and_is_listed(site: Path) -> None:
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", (site / "llms.txt").read_text("utf-8"), re.MULTILINE)
    assert listed == [page for _, pages in navigation(ROOT) for _, page in pages]
    for page in pages(site):
        name = page.parent.relative_to(site)
        twin = site / "index.md" if name == Path() else site / f"{name}.md"
        if page.name == "index.html":
            assert (twin if twin.exists() else site / name / "index.md").read_text("utf-8").startswith("# ")


def test_the_schema_of_the_configuration_is_on_it(site: Path) -> None:
    assert (site / SCHEMA.name).read_bytes() == (ROOT / SCHEMA).read_bytes()


def test_every_decision_is_listed(site: Path) -> None:
    decisions = [path.name for path in sorted((ROOT / "docs" / "decisions").glob("0*.md"))]
    listed = re.findall(
        r"^- \[\d{4}\]\(([^)]+)\) \S", (site / "decisions" / "index.md").read_text("utf-8"), re.MULTILINE
    )
    assert listed == decisions


def test_links_of_the_markdown_lead_to_files(site: Path) -> None:
    """A program that follows them needs no HTML."""
    for twin in sorted(site.rglob("*.md")):
        prose = re.sub(r"^ {4}.*$", "", twin.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", prose):
            assert (twin.parent / link).exists(), (twin, link)


def _add(name: str, text: str) -> Callable[[Path], None]:
    def spoil(root: Path) -> None:
        path = root / name
        path.write_text(path.read_text("utf-8") + text if path.exists() else text, encoding="utf-8")

    return spoil


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_add("docs/start.md", "\n[a](nowhere.md)\n"), "nowhere.md does not exist"),
        (_add("docs/start.md", "\n[a](recall.md#nowhere)\n"), "anchor does not exist"),
        (_add("docs/start.md", "\n[a](#nowhere)\n"), "anchor does not exist"),
        (_add("docs/start.md", "\n![a](images/nowhere.png)\n"), "nowhere.png does not exist"),
        (_add("docs/start.md", "\n[a](../pyproject.toml)\n"), "not part of the site"),
        (_add("README.md", "\n[a](docs/recall.md#nowhere)\n"), "anchor does not exist"),
        (_add("docs/stray.md", "# Stray\n"), "without a place: ['stray.md']"),
        (lambda root: (root / "docs" / "start.md").unlink(), "start.md does not exist"),
    ],
    ids=["file", "anchor", "own-anchor", "picture", "outside", "readme", "unplaced", "missing"],
)
def test_what_is_dead_or_unplaced_fails_the_build(
    tmp_path: Path, spoil: Callable[[Path], None], said: str
) -> None:
    """The control: a site that is in order but for one thing."""
    root = tmp_path / "root"
    shutil.copytree(ROOT / "docs", root / "docs")
    for name in (*TOP, "mkdocs.yml", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    spoil(root)
    with pytest.raises(Refused, match=re.escape(said)):
        build(root, tmp_path / "build")
