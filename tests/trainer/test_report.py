from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from memory.errors import UserError
from tests.trainer.synthetic_run import CONFIG, KINDS, make_run
from trainer.logging import STEP, Loggers, MetricRow
from trainer.model_card import write_model_card
from trainer.report import build_report
from trainer.report_data import collect
from trainer.run_folder import RunFolder

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_report(make_run(tmp_path_factory.mktemp("runs") / "synthetic"))


class Scripts(HTMLParser):
    """Attributes of all elements, and the text of script elements by their id."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.scripts: dict[str | None, str] = {}
        self._inside: str | None = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [str(found[name]) for name in ("src", "href") if name in found]
        self._inside = found.get("id") if tag == "script" else ""

    def handle_data(self, data: str) -> None:
        if self._inside != "":
            self.scripts[self._inside] = self.scripts.get(self._inside, "") + data

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


def embedded(page: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Scripts(page.read_text(encoding="utf-8")).scripts["data"])
    return data


def rendered(page: Path, folder: Path) -> str:
    """The page after its script has run in a headless browser, without the script elements."""
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync",
        f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000", "--dump-dom", page.as_uri(),
    ]
    page_after = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.sub(r"<script.*?</script>", "", page_after, flags=re.DOTALL)


def test_the_report_stands_alone_and_is_small(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    assert all(address.startswith("#") for address in Scripts(page).addresses)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|\bimport\(", page)
    assert report.stat().st_size < 5_000_000


def test_its_data_are_those_of_the_run(report: Path) -> None:
    data = embedded(report)
    grpo = data["phases"]["grpo"]
    assert grpo["steps"] == list(range(1, 31))
    assert len(grpo["columns"]["success"]) == 30
    assert set(data["phases"]) == {"sft", "grpo"}
    assert [(e["step"], e["name"]) for e in data["evaluations"][:3]] == [
        (0, "sampled_t1"), (0, "greedy"), (10, "sampled_t1"),
    ]
    assert data["evaluations"][-1]["by_kind"].keys() == set(KINDS)
    assert {a["alarm"] for a in data["alarms"]} >= {"entropy collapse"}
    assert data["memory"]["total"] == 60
    assert "</script>" in data["rollouts"][0]["steps"][0]["observation"]


def test_rollouts_are_sampled_over_the_run_with_won_and_lost_siblings(report: Path) -> None:
    rollouts = embedded(report)["rollouts"]
    steps = sorted({row["step"] for row in rollouts})
    assert steps[0] == 1 and steps[-1] == 30 and len(steps) == 8
    outcomes = {(r["step"], r["group"], r["outcome"]["success"]) for r in rollouts}
    assert any((s, g, True) in outcomes and (s, g, False) in outcomes for s, g, _ in outcomes)


def test_embedded_rollouts_and_memory_keep_to_their_room(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.report_data.ROLLOUT_BYTES", 60_000)
    monkeypatch.setattr("trainer.report_data.MEMORY_BYTES", 5_000)
    monkeypatch.setattr("trainer.report_data.PROMPT_CHARACTERS", 40)
    data = collect(report.parent)
    assert 0 < len(json.dumps(data["rollouts"], separators=(",", ":"))) < 60_000
    assert len({row["step"] for row in data["rollouts"]}) > 1
    prompts = [turn["prompt"] for row in data["rollouts"] for turn in row["turns"]]
    assert any("characters left out here" in prompt for prompt in prompts)
    assert max(len(prompt) for prompt in prompts) < 100
    uses = [entry["uses"] for entry in data["memory"]["entries"]]
    assert 0 < len(uses) < 60 == data["memory"]["total"]
    assert uses == sorted(uses, reverse=True)


def test_a_run_without_grpo_memory_or_rollouts_has_a_report_too(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path, CONFIG) as run:
        loggers = Loggers(run.path, CONFIG)
        loggers.log(MetricRow(STEP, "sft", 1, {"loss": float("nan")}))
        loggers.close()
    data = embedded(build_report(tmp_path))
    assert data["phases"]["sft"]["columns"]["loss"] == [None]
    assert data["rollouts"] == [] and data["memory"] is None and data["evaluations"] == []


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no config\.yaml"):
        build_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_building_twice_gives_the_same_page(report: Path) -> None:
    before = report.read_bytes()
    assert build_report(report.parent).read_bytes() == before


def test_the_model_card_states_settings_results_and_how_to_load(report: Path) -> None:
    run = report.parent
    card = write_model_card(run, run / "checkpoints" / "grpo-000030").read_text(encoding="utf-8")
    last = embedded(report)["evaluations"][-1]
    assert f"{last['success_rate']:.1%} [{last['success_low']:.1%}, {last['success_high']:.1%}] of 60" in card
    assert 'folder = "checkpoints/grpo-000030/model"' in card
    assert "| agent | agents.memharness.MemHarness |" in card
    assert card.startswith("---\nlibrary_name: transformers\n")


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_draws_curves_rollouts_bank_and_alarms(report: Path, tmp_path: Path) -> None:
    page = rendered(report, tmp_path)
    assert 'data-ready="true"' in page
    for title in ("Held-out success", "Reward", "Entropy", "Gradient norm", "Groups and limits"):
        assert f">{title}<" in page, title
    assert page.count("<svg") >= 15
    assert page.count('class="turn"') >= 3
    assert "color-mix(in srgb" in page  # token credit
    assert page.count("Lesson ") >= 60
    assert "60 of 60 entries" in page
    assert ">entropy collapse<" in page
    assert "NaN" not in page and "undefined" not in page


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_a_browser_draws_an_almost_empty_run(tmp_path: Path) -> None:
    with RunFolder.open(tmp_path / "run", CONFIG) as run:
        loggers = Loggers(run.path, CONFIG)
        loggers.log(MetricRow(STEP, "sft", 1, {"loss": 2.0}))
        loggers.close()
    assert 'data-ready="true"' in rendered(build_report(tmp_path / "run"), tmp_path)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js on this machine")
def test_the_script_parses(report: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.js"
    script.write_text(Scripts(report.read_text(encoding="utf-8")).scripts[None], encoding="utf-8")
    subprocess.run(["node", "--check", str(script)], check=True)
