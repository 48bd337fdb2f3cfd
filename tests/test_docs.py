"""Documentation is code: blocks run and print what the page says, commands and links exist, every page is in the site, the site builds."""

from __future__ import annotations

import contextlib
import doctest
import functools
import importlib
import importlib.util
import io
import itertools
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

import pairgrad

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", *DOCS.glob("**/*.md")])
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
# The README sets "what vMF code has today" beside ours: that block is a sketch of other people's code and runs nowhere.
SKETCHES = ("log_miller_bessel",)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


class Block(NamedTuple):
    """A fenced block: its language, its text, what stands between the block before it and itself, and where it begins."""

    language: str
    text: str
    before: str
    line: int


def blocks(text: str) -> Iterator[Block]:
    end = 0
    for found in FENCE.finditer(text):
        yield Block(found[1].strip(), found[2], text[end : found.start()], text.count("\n", 0, found.start()) + 1)
        end = found.end()


def pattern(expected: str) -> re.Pattern[str]:
    """What an output must match as a whole: "..." stands for anything, over several lines too; spaces at the ends of lines do not count."""
    lines = (line.rstrip() for line in expected.strip("\n").splitlines())
    return re.compile(re.escape("\n".join(lines)).replace(re.escape("..."), ".*?"), re.DOTALL)


def printed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def run_page(text: str, page: str) -> list[str]:
    """Run the python blocks of a page in one scope. A ```text block right after one says what it prints; returned are those that print something else."""
    import torch

    scope: dict[str, object] = {"kappa": torch.rand(4) + 1, "r": (torch.rand(4) + 2).requires_grad_()}
    wrong: list[str] = []
    output: str | None = None
    for block in blocks(text):
        if block.language == "text" and output is not None and not block.before.strip():
            assert block.text.strip(" .\n"), f"{page}:{block.line} expects nothing in particular"
            if not pattern(block.text).fullmatch(printed(output)):
                wrong.append(f"{page}:{block.line} says\n{block.text}\nand what is printed is\n{output}")
        output = None
        if block.language == "python" and not any(name in block.text for name in SKETCHES):
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(compile("\n" * block.line + block.text, page, "exec"), scope)
            output = stream.getvalue()
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_blocks_run_and_print_what_is_shown(page: Path) -> None:
    wrong = run_page(page.read_text(), name_of(page))
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize(
    ("shown", "right"),
    [
        ("1\n2", True),
        ("1\n...", True),
        ("...2", True),
        ("1\n2  \n", True),
        ("1", False),
        ("1\n3", False),
        ("2\n...", False),
        ("1.2", False),
    ],
)
def test_an_output_that_is_not_the_one_shown_is_noticed(shown: str, right: bool) -> None:
    page = f"```python\nfor i in (1, 2):\n    print(i)\n```\n\n```text\n{shown}\n```\n"
    assert (run_page(page, "page") == []) is right


def test_only_a_block_right_after_code_is_an_output() -> None:
    assert run_page("```python\nprint(1)\n```\n\nProse.\n\n```text\n2\n```\n", "page") == []
    with pytest.raises(AssertionError, match="nothing in particular"):
        run_page("```python\nprint(1)\n```\n```text\n...\n```\n", "page")


def test_the_tutorials_show_outputs() -> None:
    for page in DOCS.glob("start/*.md"):
        kinds = [block.language for block in blocks(page.read_text())]
        assert [a for a, b in itertools.pairwise(kinds) if (a, b) == ("python", "text")], f"{page.name} shows no output"


@pytest.mark.parametrize(
    "module",
    [
        m.name
        for m in pkgutil.walk_packages(pairgrad.__path__, "pairgrad.")
        if not m.name.startswith(("pairgrad.cli", "pairgrad.integrations."))
    ],
)
def test_doctests(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0


def test_the_main_example_is_a_doctest() -> None:
    assert doctest.testmod(importlib.import_module("pairgrad.potentials.registry")).attempted >= 5


SHELLS = ("sh", "bash", "console", "")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
STARTS = re.compile(
    r"(?:[A-Za-z_]\w*=\S* )*(?:pairgrad|python|torchrun|make)\b"
)  # other lines of a block are what commands print, or files
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=\S*")


def shell_lines(text: str) -> Iterator[tuple[int, str]]:
    """The command lines of a page: those of shell blocks, and those after a prompt in blocks of output, with the line their block begins at."""
    for block in blocks(text):
        prompted = "\n".join(line[2:] for line in block.text.splitlines() if line.startswith("$ "))
        body = prompted or (block.text if block.language in SHELLS else "")
        if block.language == "yaml":  # the steps of a pipeline
            body = re.sub(r"^\s*- (?:run: )?", "", block.text, flags=re.MULTILINE)
        for line in body.replace("\\\n", " ").splitlines():
            if STARTS.match(line.strip()) and line.count('"') % 2 == 0:  # a program in quotes is none of ours
                yield block.line, line.strip()


def words(line: str) -> list[list[str]]:
    """The commands of a line, each as a list of words, without comments, assignments and what a pipe or a redirection adds."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&>")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    redirected = False
    for word in lexer:
        if set(word) <= set(";|&"):
            commands.append([])
        elif set(word) == {">"}:
            redirected = True
        elif redirected:
            redirected = False
        elif commands[-1] or not ASSIGNMENT.fullmatch(word):
            commands[-1].append(word)
    return commands


def of_pairgrad(command: list[str]) -> list[str] | None:
    """What is handed to `pairgrad`, also through `python -m` and `torchrun -m`; None for other commands."""
    if command and command[0] == "pairgrad":
        return command[1:]
    if command and command[0] in ("python", "torchrun"):
        for first, second in itertools.pairwise(command):
            if (first, second) == ("-m", "pairgrad"):
                return command[command.index("pairgrad") + 1 :]
    return None


@functools.cache
def command_tree() -> Any:
    import typer.main

    from pairgrad.cli.app import app

    return typer.main.get_command(app)


def mistake(arguments: list[str]) -> str | None:
    """What the command line says against them; nothing is run."""
    tree = command_tree()
    if not arguments or arguments[0].startswith("-"):
        known = {name for parameter in tree.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
        return next((f"no option {word}" for word in arguments if word not in known), None)
    command = tree.commands.get(arguments[0])
    if command is None:
        return f"no command {arguments[0]!r}"
    try:
        with command.make_context(arguments[0], arguments[1:]):
            return None
    except Exception as error:  # click's own, of the version that typer carries
        return str(error) or type(error).__name__


def mentioned_mistake(span: str) -> str | None:
    """The same for a command in a sentence, where values may be missing or stand for others: the command and its options must exist."""
    name, *rest = re.split(r" [|&;>]", span)[0].split()[1:] or [""]
    if name.startswith("-") or not name:
        return None if not name else mistake([name])
    command = command_tree().commands.get(name)
    if command is None:
        return f"no command {name!r}"
    known = {opt for parameter in command.params for opt in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    return next((f"{name} has no option {word}" for word in rest if word.startswith("-") and word.split("=")[0] not in known), None)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_exist(page: Path) -> None:
    text = page.read_text()
    wrong = [
        f"{name_of(page)}:{line} {' '.join(command)}: {found}"
        for line, shell in shell_lines(text)
        for command in words(shell)
        if (arguments := of_pairgrad(command)) is not None and (found := mistake(arguments)) is not None
    ]
    spans = (span.strip() for span in SPAN.findall(FENCE.sub("", text)))
    wrong += [f"`{span}`: {found}" for span in spans if re.match(r"pairgrad( |$)", span) and (found := mentioned_mistake(span)) is not None]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("pairgrad tables --only ratio-fidelity    # a comment", True),
        ("OMP_NUM_THREADS=1 pairgrad figures -o there && pairgrad report", True),
        ("torchrun --nproc-per-node 2 -m pairgrad train digits-lt --class-parallel 2", True),
        ("pairgrad plan --classes 1e7 --dim 512 --ranks 64 --batch 8192 --json plan.json", True),
        ("pairgrad plan --classes 1e7", False),
        ("pairgrad table", False),
        ("pairgrad tables --omly ratio-fidelity", False),
        ("pairgrad prove --dim many", False),
        ("python -m pairgrad report --opem", False),
        ("pairgrad tables && pairgrad tabels", False),
        ("pairgrad tables --only", False),
    ],
)
def test_a_wrong_command_is_noticed(line: str, right: bool) -> None:
    found = [mistake(arguments) for command in words(line) if (arguments := of_pairgrad(command)) is not None]
    assert found
    assert (found == [None] * len(found)) is right


@pytest.mark.parametrize(
    ("span", "right"),
    [
        ("pairgrad prove --dim DIM", True),
        ("pairgrad tables --only", True),
        ("pairgrad report || [ $? -eq 2 ]", True),
        ("pairgrad tables --onyl X", False),
        ("pairgrad tabel", False),
    ],
)
def test_a_wrong_command_in_a_sentence_is_noticed(span: str, right: bool) -> None:
    assert (mentioned_mistake(span) is None) is right


def targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def code_of(text: str) -> str:
    """What a page shows as code that is not Python: shell blocks and spans."""
    shells = [block.text for block in blocks(text) if block.language in (*SHELLS, "yaml")]
    return "\n".join([*shells, *SPAN.findall(FENCE.sub("", text))])


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_targets_modules_and_options_exist(page: Path) -> None:
    code = code_of(page.read_text())
    named = set(re.findall(r"\bmake (?:[A-Z_]+=(?:\"[^\"]*\"|\S+) )*([a-z][a-z-]*)", code))
    assert named <= targets(), f"make has no {sorted(named - targets())}"
    for module in set(re.findall(r"python -m (benchmarks[\w.]*)", code)):
        assert importlib.util.find_spec(module) is not None, f"there is no module {module}"
    plugin = (ROOT / "src/pytest_pairgrad.py").read_text()
    for option in set(re.findall(r"--coherence[-a-z]*", code)):
        assert f'"{option}"' in plugin, f"pytest has no option {option}"


def test_the_makefile_is_read() -> None:
    assert {"setup", "demo", "test", "docs"} <= targets()
    assert "tests" not in targets()


def test_citations_exist() -> None:
    keys = set(re.findall(r"@\w+\{([^,]+),", (DOCS / "references.bib").read_text()))
    sources = [*ROOT.glob("src/**/*.py"), *DOCS.glob("**/*.md")]
    cited = {key for path in sources for key in re.findall(r"\[([A-Za-z]+_?\d{4}[A-Za-z_]*)(?:, Eq\.[^\]]*)?\]", path.read_text())}
    assert cited
    assert cited <= keys, cited - keys


def prose(text: str) -> str:
    """A page without code, in which brackets are no links."""
    return SPAN.sub("``", FENCE.sub("", text))


def anchors(page: Path) -> set[str]:
    """The places that a link can point to: headings as the site names them, and what has an id."""
    from markdown.extensions.toc import slugify

    text = FENCE.sub("", page.read_text())
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.+?)\s*$", text, re.MULTILINE):
        plain = re.sub(r"\{[^}]*\}$|[`*]", "", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)).strip()
        slug, number = slugify(plain, "-"), 0
        while (unique := slug if number == 0 else f"{slug}_{number}") in found:
            number += 1
        found.add(unique)
    return found | set(re.findall(r"""(?:\{ ?#|id=["'])([\w.-]+)""", text))


def broken_links(page: Path) -> list[str]:
    wrong = []
    for target in re.findall(r"\]\(\s*([^)\s]+)[^)]*\)", prose(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists():
            wrong.append(f"{target}: no such file")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file):
            wrong.append(f"{target}: no such place")
    return wrong


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_links_exist(page: Path) -> None:
    assert broken_links(page) == []


def test_broken_links_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A title, `with` code\n\n## Twice\n\n## Twice\n\n<a id='here'></a>\n**this**{ #too } it\n")
    page = tmp_path / "page.md"
    good = "[a](there.md) [b](there.md#a-title-with-code) [c](there.md#twice_1) [d](there.md#here) [d](there.md#too) [e](#own) `[x](gone.md)`\n\n## Own\n"
    page.write_text(good)
    assert broken_links(page) == []
    page.write_text(good + "[f](gone.md) [g](there.md#gone) [h](#gone)")
    assert len(broken_links(page)) == 3


def nav_pages(entry: Any) -> Iterator[str]:
    """The pages of a navigation, in its order."""
    if isinstance(entry, str):
        yield entry
    else:
        for child in entry.values() if isinstance(entry, dict) else entry:
            yield from nav_pages(child)


def test_every_page_is_in_the_navigation_once() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    left_out = set(settings["exclude_docs"].split())
    pages = [str(page.relative_to(DOCS)) for page in DOCS.glob("**/*.md")]
    assert sorted(nav_pages(settings["nav"])) == sorted(page for page in pages if page not in left_out)
    assert all((DOCS / name).exists() for name in left_out)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """About seven seconds. `--strict` makes every warning an error: pages, links, places and references that are not there. (Not `--quiet`, which keeps
    warnings from being counted.)
    """
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(ROOT / "mkdocs.yml"),
        "--site-dir",
        str(tmp_path),
    ]
    done = subprocess.run(
        command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=1000, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "index.html").exists()


def test_checks_that_do_not_hold_are_said_to() -> None:
    """`limits.md` counts the checks of all tables and figures, and links to every page with one that says NO."""
    answers = {page: re.findall(r"^- .*: (yes|NO)$", page.read_text(), re.MULTILINE) for page in DOCS.glob("evidence/*.md")}
    answers = {
        page: found for page, found in answers.items() if page.name not in ("index.md", "study.md")
    }  # which show what other pages hold
    failing = [page.name for page, found in answers.items() if "NO" in found]
    limits = (DOCS / "limits.md").read_text()
    assert f"Four of the {sum(map(len, answers.values()))} checks of the tables and figures say NO" in limits
    assert sum(found.count("NO") for found in answers.values()) == len(failing) == 4
    assert all(f"(evidence/{name})" in limits for name in failing)


def test_limits_say_of_the_published_numbers_what_is_counted() -> None:
    from docs import limits

    assert limits.PAGE.read_text() == limits.text(), "python -m docs.limits writes it"
    assert re.search(r"<!-- begin numbers -->\n\n\d+ published numbers: .* differ, ", limits.PAGE.read_text())


def test_changelog_has_the_version_or_unreleased() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "## Unreleased" in text or f"## {pairgrad.__version__}" in text
