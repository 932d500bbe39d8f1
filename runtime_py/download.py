"""Artifacts from a web server, into a cache that survives interruptions.

Every file is known by size and SHA-256 from the manifest before it is asked for. What
arrives is written to ``NAME.part`` and gets its name when its hash is right; a part that
is there already is continued with a range request. The folder of an artifact is named
after its manifest's hash, so an artifact that changes at its address is another folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit, urlunsplit

from runtime_py._compat import IS_PYODIDE, cache_folder
from runtime_py.artifact.manifest import MANIFEST, MAX_MANIFEST_BYTES, FileEntry, Manifest
from runtime_py.artifact.strict_json import looks_like_html
from runtime_py.errors import Aborted, ArtifactCorrupt, ArtifactMissing, ArtifactUnsupported

Progress = Callable[[int, int], object]
"""(bytes that are here, bytes of the whole artifact); called from several threads, one at
a time."""

_CHUNK = 1 << 18
_TIMEOUT_S = 30.0
_ATTEMPTS = 5  # in a row that bring nothing new
_PAUSE_S = 0.2  # before the second of them; then twice as long each time
_PARALLEL = 4


class _Response(Protocol):
    status: int

    def read(self, size: int, /) -> bytes: ...


def is_url(source: str) -> bool:
    """Whether ``source`` names something on the network."""
    return "://" in source


def fetch(url: str, *, cache: Path | None = None, progress: Progress | None = None) -> Path:
    """The local folder of the artifact at ``url``, downloaded as far as it is not here yet.

    Args:
        url: http or https address of the artifact's folder; a query is kept for each file.
        cache: where artifacts are kept; None = the user's cache folder.
        progress: told about every piece; what it raises ends the download.

    Raises:
        ArtifactUnsupported: neither http nor https, or a host without sockets.
        ArtifactMissing: a file is not there, or the connection broke again and again;
            what has arrived is kept, and the next call continues.
        ArtifactCorrupt: the server sends something else than the manifest promises.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # an unfinished IPv6 address
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ArtifactUnsupported(
            f"{url!r} is no address that can be downloaded, expected http:// or https://"
        )
    if IS_PYODIDE:
        raise ArtifactUnsupported(
            f"{url!r} cannot be downloaded by Python here; fetch the files in JavaScript and "
            "load their folder"
        )
    data = _manifest(url)
    manifest = Manifest.parse(data)
    folder = (cache or cache_folder("artifacts")) / hashlib.sha256(data).hexdigest()[:32]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _only_one(folder / ".lock"):
            _fetch_all(url, folder, manifest, progress)
            (folder / f"{MANIFEST}.part").write_bytes(data)
            os.replace(folder / f"{MANIFEST}.part", folder / MANIFEST)
    except OSError as e:
        raise ArtifactMissing(
            f"the download cannot be written to {folder} ({e.strerror}); free space there or "
            "set XDG_CACHE_HOME to another folder"
        ) from None
    return folder


def _manifest(url: str) -> bytes:
    address = _address(url, MANIFEST)
    try:
        with _open(address, MANIFEST) as response:
            data = response.read(MAX_MANIFEST_BYTES + 1)
    except OSError as e:
        raise _unreachable(address, e) from None
    if looks_like_html(data):
        raise _page(address)
    return data


def _fetch_all(url: str, folder: Path, manifest: Manifest, progress: Progress | None) -> None:
    from concurrent.futures import ThreadPoolExecutor
    from threading import Lock

    sizes = dict.fromkeys(manifest.files, 0)
    total, lock = sum(entry.bytes for entry in manifest.files.values()), Lock()
    ended = False

    def note(name: str, size: int) -> None:
        with lock:
            if ended:  # nobody waits for the other files to the end of their shards
                raise Aborted("the download has ended; what has arrived is kept")
            sizes[name] = size
            if progress is not None:
                progress(sum(sizes.values()), total)

    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="volery-download") as pool:
        jobs = [
            pool.submit(_fetch_file, _address(url, name), folder / name, entry, note)
            for name, entry in manifest.files.items()
        ]
        try:
            for job in jobs:
                job.result()
        except BaseException:
            ended = True
            for job in jobs:
                job.cancel()
            raise


def _fetch_file(
    address: str, path: Path, entry: FileEntry, note: Callable[[str, int], None]
) -> None:
    """One file, from where an earlier attempt stopped."""
    if _is_whole(path, entry):
        note(path.name, entry.bytes)
        return
    part = path.with_name(path.name + ".part")
    attempts, digest = 0, hashlib.sha256()
    with part.open("a+b") as file:
        kept = size = _hash_part(file, digest, entry.bytes)
        while size < entry.bytes:
            before = size
            try:
                with _open(address, path.name, size) as response:
                    if size and response.status != 206:  # the server begins again
                        file.truncate(0)
                        size, digest = 0, hashlib.sha256()
                    while data := response.read(_CHUNK):
                        if not size and looks_like_html(data):
                            raise _page(address)
                        file.write(data)
                        digest.update(data)
                        size += len(data)
                        note(path.name, min(size, entry.bytes))
                        if size > entry.bytes:
                            break
                file.flush()
                error: Exception | None = None
            except OSError as e:
                file.flush()
                error = e
            attempts = 0 if size > before else attempts + 1
            if attempts >= _ATTEMPTS:
                raise _broken(address, size, entry.bytes, error)
            if attempts:
                time.sleep(_PAUSE_S * 2 ** (attempts - 1))
    if size != entry.bytes or digest.hexdigest() != entry.sha256:
        part.unlink()
        if kept:  # what was here may have been damaged: only a whole download is evidence
            _fetch_file(address, path, entry, note)
            return
        found = f"{size} bytes" if size != entry.bytes else f"sha256 {digest.hexdigest()}"
        expected = entry.bytes if size != entry.bytes else entry.sha256
        raise ArtifactCorrupt(
            f"{address} has {found}, the manifest says {expected}; its files are of different "
            "versions: upload the whole artifact again"
        )
    os.replace(part, path)


def _is_whole(path: Path, entry: FileEntry) -> bool:
    """It is here and undamaged."""
    if not path.is_file() or path.stat().st_size != entry.bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == entry.sha256


def _hash_part(file: IO[bytes], digest: hashlib._Hash, most: int) -> int:
    """Take what an earlier attempt left into ``digest``; its size."""
    size = file.seek(0, os.SEEK_END)
    if size > most:
        file.truncate(0)
        return 0
    file.seek(0)
    while data := file.read(_CHUNK):
        digest.update(data)
    return size


@contextlib.contextmanager
def _open(address: str, name: str, start: int = 0) -> Iterator[_Response]:
    """GET, from byte ``start`` on.

    Raises:
        ArtifactMissing: there is no such file.
        OSError: another attempt may help.
    """
    import http.client  # slow to import, and needed for addresses only
    import urllib.error
    import urllib.request

    headers = {"User-Agent": "volery", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:
            yield response
    except urllib.error.HTTPError as e:
        with e:
            if e.code >= 500 or e.code in (408, 429):
                raise  # for another attempt
            raise ArtifactMissing(
                f"{address} cannot be downloaded (HTTP {e.code} {e.reason}), expected the "
                f"artifact's {name}; check the address"
            ) from None
    except http.client.HTTPException as e:  # it ended too early, or speaks no HTTP
        raise ConnectionError(str(e) or type(e).__name__) from None


def _address(url: str, name: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}", fragment=""))


def _page(address: str) -> ArtifactCorrupt:
    return ArtifactCorrupt(
        f"{address} is an HTML page, expected a file of an artifact; check the address"
    )


def _unreachable(address: str, error: Exception) -> ArtifactMissing:
    reason = getattr(error, "reason", None) or error
    return ArtifactMissing(
        f"{address} cannot be reached ({reason}); check the address and the connection"
    )


def _broken(address: str, size: int, expected: int, error: Exception | None) -> ArtifactMissing:
    reason = f" ({getattr(error, 'reason', None) or error})" if error is not None else ""
    return ArtifactMissing(
        f"{address} broke off after {size} of {expected} bytes{reason}; what has arrived is "
        "kept: try again to continue"
    )


@contextlib.contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Processes that download the same artifact go one after the other."""
    try:
        import fcntl
    except ImportError:  # Windows: whoever is second finds a wrong hash and begins again
        yield
        return
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
