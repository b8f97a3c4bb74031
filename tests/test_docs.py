"""What README and guides tell users to type is accepted, and their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from trainer.config_compose import compose_config, expand_sweep, groups

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def train_commands() -> list[str]:
    """Every printed `memgrpo train` that needs no file of the reader's own."""
    found = set()
    for page in PAGES:
        for line in re.findall(r"^(?:\$ )?memgrpo train .*$", page.read_text(encoding="utf-8"), re.MULTILINE):
            command = line.removeprefix("$ ").partition(" #")[0].strip()
            command = re.sub(r"<[^<>]*>", "given", command)
            if "--config-dir" not in command and "--help" not in command:
                found.add(command)
    return sorted(found)


def accepted(command: str) -> None:
    overrides = [word for word in shlex.split(command)[2:] if not word.startswith("-")]
    for job in expand_sweep(overrides):
        compose_config(job)


def test_printed_commands_are_accepted():
    commands = train_commands()
    wrong = [command for command in commands if "houshold" in command]
    assert len(commands) > 8 and len(wrong) == 1
    for command in commands:
        if command in wrong:
            with pytest.raises(ValueError, match="Did you mean household"):
                accepted(command)
        else:
            accepted(command)


def test_the_table_of_groups_is_complete():
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = {name: set(re.findall(r"`([^`]+)`", choices)) for name, choices in re.findall(
        r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", text, re.MULTILINE)}  # fmt: skip
    known = {name: set(choices) for name, choices in groups().items()}
    assert set(rows) == set(known)
    for name in set(known) - {"experiment"}:
        assert rows[name] == known[name], name
    assert rows["experiment"] <= known["experiment"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    missing = [target for target in local if not (page.parent / target).exists()]
    assert not missing
