"""``toolchain simulate`` as a person runs it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runtime_py.batching import replay
from toolchain.cli.app import make_app

SHORT = ["--duration", "3", "-q"]


def simulate(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(make_app(), ["simulate", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_it_prints_a_table_of_all_policies() -> None:
    out = simulate("poisson", "--compare", "--load", "1.1", *SHORT)
    for name in ("volery", "no-batching", "triton-queue", "litserve", "mosec", "bentoml", "tei"):
        assert re.search(rf"^{name} +\d", out, re.MULTILINE), out
    assert "moore-hodgson" not in out  # a bound is no competitor
    assert "SLO of the latency class" in out


def test_json_holds_every_number_of_the_report() -> None:
    plain = json.loads(simulate("mixed", "--json", "--policy", "volery", *SHORT))
    assert plain["format"] == "volery-simulation"
    (policy,) = plain["policies"]
    assert set(policy["classes"]) == {"latency", "throughput"}
    assert {"p50", "p99"} <= set(policy["total"]["latency_ms"])
    assert policy["steps"]["batch_sizes"]
    assert policy["total"]["offered"] == sum(g["offered"] for g in policy["classes"].values())


def test_a_language_model_has_ttft_tpot_and_recompute() -> None:
    out = simulate("poisson", "--profile", "smollm2", "--compare", "--duration", "30", "-q")
    for word in ("TTFT p99", "TPOT p99", "preempted", "recomputed", "vllm", "exllamav2"):
        assert word in out


def test_two_models_on_one_device_are_served_by_pairs_of_servers() -> None:
    both = ["--profile", "minilm", "--profile", "smollm2"]
    out = simulate("mixed", *both, "--compare", "--duration", "10", "-q")
    for word in ("triton+vllm", "all-MiniLM-L6-v2/embed", "SmolLM2-135M-Instruct/generate"):
        assert word in out


def test_plots_come_as_png_and_svg_with_the_numbers(tmp_path: Path) -> None:
    simulate("bursts", "--compare", "-o", tmp_path / "out", *SHORT)
    names = {p.name for p in (tmp_path / "out").iterdir()}
    for plot in ("latency", "goodput", "over-time", "queue", "batch-sizes"):
        assert {f"{plot}.png", f"{plot}.svg"} <= names
    assert (tmp_path / "out" / "goodput.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["policies"][0]["policy"] == "volery"


class _Links(HTMLParser):
    """Everything that could make a browser ask for something."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in {"src", "href", "xlink:href", "srcset", "data", "action", "poster"}:
                self.links.append(value or "")


def test_the_page_asks_nobody_for_anything(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    simulate("flooding-tenant", "--compare", "--html", path, *SHORT)
    text = path.read_text(encoding="utf-8")
    page = _Links()
    page.feed(text)
    assert all(link.startswith("#") for link in page.links), page.links
    assert not page.tags & {"script", "link", "iframe", "img", "object"}
    assert not re.search(r"@import|url\((?!#|\"#|'#)", text)
    for word in ("<svg", "Volery serves", "Tenants", "of its fair share", "Who is who"):
        assert word in text


def test_the_same_seed_writes_the_same_page(tmp_path: Path) -> None:
    for name in ("a", "b"):
        simulate("poisson", "--html", tmp_path / f"{name}.html", *SHORT)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_recorded_trace_replays(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    simulate("mixed", "--record", path, *SHORT)
    with path.open(encoding="utf-8") as lines:
        assert len(replay(lines)) == 64


def test_it_explains_one_request() -> None:
    lines = simulate("poisson", "--load", "1.2", "--explain", "5", *SHORT).splitlines()
    assert lines[0].startswith("request 5")
    assert "arrives: 1 text" in lines[1]
    assert lines[-1].split()[1] == "ends:"
    times = [float(line.split()[0].replace(",", "")) for line in lines[1:]]
    assert times[0] == 0
    assert times == sorted(times)
    assert any("predicted" in line for line in lines)


def test_it_explains_a_generation() -> None:
    life = simulate("poisson", "--profile", "smollm2", "--explain", "0", "--duration", "9", "-q")
    assert "arrives: a prompt of" in life
    assert re.search(r"token \d+ at position \d+", life)
    assert "sample 0 ends: stop" in life


def test_a_request_that_never_arrives_has_no_life() -> None:
    assert "request 999999 never arrived" in simulate("--explain", "999999", *SHORT)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["nonsense"], "no workload 'nonsense', expected one of poisson"),
        (["--policy", "nobody"], "no policy 'nobody', expected one of volery"),
        (["--policy", "vllm"], "cannot serve this"),
        (["--profile", "nowhere"], "no profile 'nowhere'"),
        (["--profile", "minilm", "--profile", "minilm"], "one of an embedding model and one"),
        (["--slow-at", "soon"], "expected SECOND:FACTOR"),
        (["--slow-at", "5:0"], "expected SECOND:FACTOR"),
        (["azure-conv", "--trace", "missing.csv"], "cannot read the trace"),
        (
            ["closed-loop", "--profile", "minilm", "--profile", "smollm2"],
            "this workload is for one model",
        ),
        (["--record", "/nowhere/trace.jsonl"], "cannot write"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], what: str) -> None:
    result = CliRunner().invoke(make_app(), ["simulate", *arguments, *SHORT])
    assert result.exit_code == 1
    assert what in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_device_that_slows_down_and_stalls_is_survived() -> None:
    out = simulate(
        *("poisson", "--slow-at", "1:3", "--stalls", "1", "--thermal", "1.5"),
        *("--noise", "0.2", "--profile-error", "2", "--json", *SHORT),
    )
    plain = json.loads(out)
    assert "3 times slower from 1 s" in plain["facts"]["device"]
    assert plain["policies"][0]["total"]["in_time"] > 0
