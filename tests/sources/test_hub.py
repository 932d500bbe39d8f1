"""The hub: real huggingface_hub code against a small server that speaks its protocol."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants

from runtime_py.errors import ArtifactError, ArtifactMissing, ArtifactUnsupported
from toolchain.sources import resolve

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repositories by id -> files by name, over HTTP; records every path asked for."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.requests: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(body=False)

            def do_GET(self) -> None:
                self.answer(body=True)

            def answer(self, *, body: bool) -> None:
                hub.requests.append(self.path)
                status, headers, data = hub.reply(self.path)
                self.send_response(status)
                for k, v in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(k, v)
                self.end_headers()
                if body:
                    self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def reply(self, path: str) -> tuple[int, dict[str, str], bytes]:
        path = path.split("?")[0]
        if path.startswith("/api/models/"):
            repo, _, revision = path.removeprefix("/api/models/").partition("/revision/")
            if repo not in self.repos:
                return 401, {"X-Error-Code": "RepoNotFound"}, b"{}"
            if revision and revision not in ("main", COMMIT):
                return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
            siblings = [{"rfilename": name} for name in self.repos[repo]]
            info = {"id": repo, "sha": COMMIT, "siblings": siblings, "private": False}
            return 200, {"Content-Type": "application/json"}, json.dumps(info).encode()
        repo, _, rest = path.lstrip("/").partition("/resolve/")
        revision, _, name = rest.partition("/")
        if repo not in self.repos:
            return 401, {"X-Error-Code": "RepoNotFound"}, b""
        if revision not in ("main", COMMIT):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        if name not in self.repos[repo]:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}, b""
        data = self.repos[repo][name]
        etag = hashlib.sha1(data).hexdigest()
        return 200, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, data


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(
        constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        hub.url + "/{repo_id}/resolve/{revision}/{filename}",
    )
    monkeypatch.setattr(huggingface_hub.HfApi().__class__, "endpoint", hub.url, raising=False)
    from huggingface_hub import _snapshot_download, file_download, hf_api

    for module in (file_download, hf_api, _snapshot_download):
        for name in ("ENDPOINT", "HUGGINGFACE_CO_URL_TEMPLATE"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(constants, name))
    huggingface_hub.utils.disable_progress_bars()
    yield hub
    huggingface_hub.utils.enable_progress_bars()
    hub.close()


FILES = {
    "config.json": b'{"model_type": "bert"}',
    "tokenizer.json": b"{}",
    "modules.json": b"[]",
    "1_Pooling/config.json": b"{}",
    "README.md": b"---\nlicense: mit\n---\n",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"the same weights again",
    "onnx/model.onnx": b"not needed",
}


def test_model_is_fetched_cached_and_found_again_offline(hub: Hub, tmp_path: Path) -> None:
    hub.repos["owner/bird"] = dict(FILES)
    source = resolve("owner/bird", offline=False, cache_dir=tmp_path)
    assert (source.kind, source.model_id, source.license) == ("hub", "owner/bird", "mit")
    assert source.revision == COMMIT
    names = {str(p.relative_to(source.path)) for p in source.path.rglob("*") if p.is_file()}
    assert names == set(FILES) - {"pytorch_model.bin", "onnx/model.onnx"}

    hub.requests.clear()
    again = resolve("owner/bird", offline=True, cache_dir=tmp_path)
    assert again == source
    assert hub.requests == []


def test_pickled_weights_only_without_safetensors(hub: Hub, tmp_path: Path) -> None:
    hub.repos["owner/old"] = {k: v for k, v in FILES.items() if k != "model.safetensors"}
    source = resolve("owner/old", offline=False, cache_dir=tmp_path)
    assert (source.path / "pytorch_model.bin").is_file()


def test_language_model_brings_its_chat_template(hub: Hub, tmp_path: Path) -> None:
    files = {"chat_template.jinja": b"{{ messages }}", "generation_config.json": b"{}"}
    hub.repos["owner/chat"] = FILES | files | {"config.json": b'{"model_type": "llama"}'}
    source = resolve("owner/chat", offline=False, cache_dir=tmp_path)
    assert source.task == "generate"
    for name, data in files.items():
        assert (source.path / name).read_bytes() == data


def test_revision(hub: Hub, tmp_path: Path) -> None:
    hub.repos["owner/bird"] = dict(FILES)
    source = resolve("owner/bird", revision=COMMIT, offline=False, cache_dir=tmp_path)
    assert source.revision == COMMIT
    with pytest.raises(ArtifactMissing, match="no revision 'v9'"):
        resolve("owner/bird", revision="v9", offline=False, cache_dir=tmp_path)


def test_B2_unsupported_architecture_costs_no_weights(hub: Hub, tmp_path: Path) -> None:
    hub.repos["owner/big"] = {**FILES, "config.json": b'{"model_type": "foo"}'}
    with pytest.raises(ArtifactUnsupported, match="owner/big: architecture 'foo'"):
        resolve("owner/big", offline=False, cache_dir=tmp_path)
    assert not any("safetensors" in r or "pytorch" in r for r in hub.requests)


def test_missing_repository_is_one_line(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissing, match=r"no model on the hub") as caught:
        resolve("owner/nothing", offline=False, cache_dir=tmp_path)
    assert "\n" not in str(caught.value)


def test_repository_without_a_configuration(hub: Hub, tmp_path: Path) -> None:
    hub.repos["owner/data"] = {"README.md": b""}
    with pytest.raises(ArtifactMissing, match=r"no config\.json on the hub"):
        resolve("owner/data", offline=False, cache_dir=tmp_path)


def test_offline_without_a_cache(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissing, match="offline mode forbids asking the hub"):
        resolve("owner/bird", offline=True, cache_dir=tmp_path)
    assert hub.requests == []


def test_hub_that_cannot_be_reached(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub.utils import _http

    pauses: list[float] = []  # which the hub's client makes between its attempts
    monkeypatch.setattr(_http, "time", SimpleNamespace(sleep=pauses.append))
    hub.close()
    with pytest.raises((ArtifactMissing, ArtifactError), match=r"cannot be reached|fetched") as e:
        resolve("owner/bird", offline=False, cache_dir=tmp_path)
    assert "\n" not in str(e.value)
    assert pauses
