"""The demos' server: what it gives, and what it keeps to itself."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.conftest import serving


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("artifact")
    (folder / "manifest.json").write_text("{}")
    with serving({"/artifacts/tiny": folder}) as origin:
        yield origin.removeprefix("http://")


def get(address: str, path: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    # Not urllib, which would tidy the path up.
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/web/", "text/html"),
        ("/web/search/search.js", "text/javascript"),
        ("/birds.txt", "text/plain"),
        ("/package/src/index.js", "text/javascript"),
        ("/artifacts/tiny/manifest.json?again", "application/json"),
    ],
)
def test_files_come_with_their_type_and_isolated(address: str, path: str, kind: str) -> None:
    status, headers, body = get(address, path)
    assert status == 200
    assert body
    assert headers.get_content_type() == kind
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"


def test_the_root_leads_to_the_demos(address: str) -> None:
    status, headers, _ = get(address, "/")
    assert (status, headers["Location"]) == (302, "/web/")


@pytest.mark.parametrize(
    "path",
    [
        "/README.md",
        "/etc/passwd",
        "/web/../../README.md",
        "/web/%2e%2e/search.py",
        "/web/..%2fsearch.py",
        "//etc/passwd",
        f"/web/{Path('/etc/passwd')}",
        "/webs/index.html",
        "/artifacts/tiny/",
        "/artifacts/other/manifest.json",
    ],
)
def test_nothing_else_can_be_reached(address: str, path: str) -> None:
    assert get(address, path)[0] == 404
