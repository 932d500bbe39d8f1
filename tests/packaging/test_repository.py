"""The repository as a reader finds it: small files, nothing unfinished, nothing local."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
CODE = {".py", ".c", ".h", ".js", ".mjs", ".ts", ".wgsl", ".sh"}
MAX_LINES = 500
KNOWN_HOSTS = {
    "127.0.0.1",
    "creativecommons.org",
    "localhost",
    "example.com",
    "example.org",
    "github.com",
    "huggingface.co",
    "json-schema.org",
    "keepachangelog.com",
    "semver.org",
    "www.apache.org",
}
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|X{3}|HA" r"CK)\b")
LOCAL_PATH = re.compile(r"(?<![\w./~$}-])/(?:home|root|opt|mnt|srv|work|farm|tmp|Users)/[\w.]")


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def text_files() -> list[tuple[str, str]]:
    found = []
    for path in tracked():
        raw = path.read_bytes()
        if b"\0" not in raw and path != Path(__file__):
            found.append((str(path.relative_to(ROOT)), raw.decode()))
    return found


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:80]}"
        for name, text in text_files()
        if name != "LICENSE"
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_files_stay_small() -> None:
    long = {
        name: text.count("\n")
        for name, text in text_files()
        if Path(name).suffix in CODE and text.count("\n") > MAX_LINES
    }
    assert long == {}


def test_nothing_is_left_for_later() -> None:
    assert lines_matching(UNFINISHED) == []


def test_no_path_of_somebodys_machine() -> None:
    assert lines_matching(LOCAL_PATH) == []


def test_no_lock_file_names_a_registry() -> None:
    locks = [(n, t) for n, t in text_files() if n.endswith("package-lock.json")]
    assert [name for name, text in locks if '"resolved"' in text] == []


def test_every_address_is_one_we_mean() -> None:
    unknown = {
        (name, host)
        for name, text in text_files()
        if name != "LICENSE" and Path(name).name != "package-lock.json"  # whom to fund
        for url in re.findall(r"https?://[\w.:-]+", text)
        if "." in (host := urlsplit(url).hostname or "")
        and host not in KNOWN_HOSTS
        and not host.endswith(".example")  # a name that nobody can own
    }
    assert unknown == set()


def test_no_large_file_is_tracked() -> None:
    assert {str(p): p.stat().st_size for p in tracked() if p.stat().st_size > 1 << 20} == {}


def test_links_between_pages_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("*/*.md")]
    broken = [
        f"{page.relative_to(ROOT)} links to {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []
