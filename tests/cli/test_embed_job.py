"""The bulk job: outputs, checkpoints, and a kill at any moment."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from runtime_py.errors import InvalidInput, TooLong, VoleryError
from tests.cli.embedders import DIMENSIONS, HashEmbedder, vector_of
from toolchain.embedding import job, writers
from toolchain.embedding.job import Embedded, EmbedJob
from toolchain.embedding.journal import InputDigest, Journal, journal_path
from toolchain.embedding.lock import exclusive
from toolchain.embedding.readers import open_records
from toolchain.embedding.settings import InputFormat, OutputFormat, Settings, Truncate, VectorType

TEXTS = [f"text number {i}" for i in range(60)] + [
    "",
    "  ",
    "naïve ☕ 日本語 \u200b",
    'quote " \\ \x01',
]
FORMATS = [OutputFormat.NPY, OutputFormat.JSONL, OutputFormat.PARQUET]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(t + "\n" for t in TEXTS), encoding="utf-8", newline="")
    return path


def settings(fmt: OutputFormat, **changes: object) -> Settings:
    fields = {
        "artifact_sha256": "abc",
        "executor": "wasmtime",
        "dimensions": DIMENSIONS,
        "input_format": InputFormat.LINES,
        "output_format": fmt,
    }
    return Settings(**(fields | changes))


def run(source: Path, output: Path, embed: HashEmbedder, asked: Settings, **options: object):
    with open_records(source, asked.input_format, asked.field, asked.id_field) as rows:
        return asyncio.run(EmbedJob(asked, rows, output, embed, **options).run())


def check_output(path: Path, fmt: OutputFormat, expected: list[str] = TEXTS) -> None:
    vectors = np.stack([vector_of(t) for t in expected])
    match fmt:
        case OutputFormat.NPY:
            got = np.load(path)
            assert got.dtype == np.float32
        case OutputFormat.JSONL:
            rows = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
            assert [r["text"] for r in rows] == expected
            assert [r["id"] for r in rows] == list(range(len(expected)))
            got = np.array([r["embedding"] for r in rows], np.float32)
        case OutputFormat.PARQUET:
            table = pq.read_table(path)
            assert table["text"].to_pylist() == expected
            assert table["id"].to_pylist() == list(range(len(expected)))
            got = np.stack(table["embedding"].to_numpy())
            assert str(table.schema.field("embedding").type) == "fixed_size_list<element: float>[8]"
    assert np.array_equal(got, vectors)


@pytest.mark.parametrize("fmt", FORMATS)
def test_output_reads_back(tmp_path: Path, source: Path, fmt: OutputFormat) -> None:
    output = tmp_path / f"out.{fmt}"
    result = run(source, output, HashEmbedder(), settings(fmt))
    check_output(output, fmt)
    assert (result.rows, result.resumed) == (len(TEXTS), 0)
    assert result.tokens == sum(len(t.split()) + 2 for t in TEXTS)
    assert {p.name for p in tmp_path.iterdir()} == {"texts.txt", output.name}


@pytest.mark.parametrize("fmt", FORMATS)
def test_an_empty_input_gives_an_empty_output(tmp_path: Path, fmt: OutputFormat) -> None:
    empty, output = tmp_path / "empty.txt", tmp_path / f"out.{fmt}"
    empty.touch()
    assert run(empty, output, HashEmbedder(), settings(fmt)).rows == 0
    match fmt:
        case OutputFormat.NPY:
            assert np.load(output).shape == (0, DIMENSIONS)
        case OutputFormat.JSONL:
            assert output.read_bytes() == b""
        case OutputFormat.PARQUET:
            assert pq.read_table(output).shape == (0, 3)


def test_float16_and_no_text(tmp_path: Path, source: Path) -> None:
    expected = np.stack([vector_of(t) for t in TEXTS]).astype(np.float16)
    for fmt in FORMATS:
        output = tmp_path / f"half.{fmt}"
        asked = settings(fmt, dtype=VectorType.FLOAT16, keep_text=False)
        run(source, output, HashEmbedder(), asked)
        match fmt:
            case OutputFormat.NPY:
                got = np.load(output)
                assert got.dtype == np.float16
            case OutputFormat.JSONL:
                rows = [json.loads(line) for line in output.read_text().splitlines()]
                assert set(rows[0]) == {"id", "embedding"}
                got = np.array([r["embedding"] for r in rows]).astype(np.float16)
            case OutputFormat.PARQUET:
                table = pq.read_table(output)
                assert table.column_names == ["id", "embedding"]
                got = np.stack(table["embedding"].to_numpy())
        assert np.array_equal(got, expected)


def test_jsonl_numbers_are_the_shortest_that_read_back(tmp_path: Path) -> None:
    values = np.array([0.1, 1e-10, 3.4e38, -0.0, 1 / 3, 16777216, 5e-324, 1], np.float32)

    async def embed(texts):
        async for _ in texts:
            yield Embedded(values, 3, False)

    one, output = tmp_path / "one.txt", tmp_path / "out.jsonl"
    one.write_text("x\n")
    run(one, output, embed, settings(OutputFormat.JSONL))
    text = output.read_text()
    assert "[0.1, 1e-10, 3.4e+38, -0.0, 0.33333334, 1.6777216e+07, 0.0, 1.0]" in text
    back = np.array(json.loads(text)["embedding"], np.float32)
    assert back.tobytes() == values.tobytes()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Rows are appended seven at a time and every append is a checkpoint."""
    monkeypatch.setattr(job, "APPEND_ROWS", 7)
    monkeypatch.setattr(job, "APPEND_SECONDS", 7.0)
    monkeypatch.setattr(job, "CHECKPOINT_SECONDS", 7.0)
    return count().__next__


def killed_at(event: int, root: Path, action: Callable[[], object]) -> bool:
    """Run ``action`` in a forked child that dies without a word at its ``event``-th file event.

    Events: a file under ``root`` opened, renamed or removed, and bytes written to the partial
    file (death comes before the event, and halfway through a write).
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = event

    def step() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    def audit(name: str, args: tuple[object, ...]) -> None:
        known = name in ("open", "os.rename", "os.remove")
        if known and str(root) in str(args[0]) and step():
            os._exit(9)

    write = writers._Writer._write

    def dying_write(self: writers._Writer, data: bytes) -> None:
        if step():
            self._file.write(data[: len(data) // 2])
            os._exit(9)
        write(self, data)

    try:
        sys.addaudithook(audit)
        writers._Writer._write = dying_write
        action()
        os._exit(0)
    except BaseException:
        os._exit(1)


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_kill_at_any_moment_resumes(
    tmp_path: Path, source: Path, fmt: OutputFormat, eager: Callable[[], float]
) -> None:
    asked = settings(fmt)
    for event in count():
        output = tmp_path / f"out{event}.{fmt}"
        if not killed_at(
            event,
            tmp_path,
            lambda output=output: run(source, output, HashEmbedder(), asked, clock=eager),
        ):
            break
        embedder = HashEmbedder()
        result = run(source, output, embedder, asked, clock=eager, overwrite=True)
        check_output(output, fmt)
        assert result.rows == len(TEXTS)
        assert len(embedder.computed) == len(TEXTS) - result.resumed
        assert not list(tmp_path.glob("*.partial*"))
    assert event > 25
    check_output(output, fmt)


class Stop(Exception):
    pass


def stop_after(n: int) -> HashEmbedder:
    def stop(computed: int) -> None:
        if computed == n:
            raise Stop

    return HashEmbedder(stop)


@pytest.mark.parametrize("fmt", FORMATS)
def test_resume_computes_each_text_once(tmp_path: Path, source: Path, fmt: OutputFormat) -> None:
    output, computed, resumed = tmp_path / f"out.{fmt}", [], []
    for n in (0, 5, 17, 1):
        embedder = stop_after(n)
        with pytest.raises(Stop):
            run(source, output, embedder, settings(fmt))
        computed += embedder.computed
        assert not output.exists()
    last = HashEmbedder()
    resumed = run(source, output, last, settings(fmt)).resumed
    assert computed + last.computed == TEXTS
    assert resumed == 23
    check_output(output, fmt)


def test_cancelling_keeps_what_was_done(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "out.npy"

    async def cancelled() -> None:
        def stop(computed: int) -> None:
            if computed == 20:
                task.cancel()

        with open_records(source, InputFormat.LINES, None, None) as rows:
            bulk = EmbedJob(settings(OutputFormat.NPY), rows, output, HashEmbedder(stop))
            task = asyncio.ensure_future(bulk.run())
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancelled())
    result = run(source, output, HashEmbedder(), settings(OutputFormat.NPY))
    assert result.resumed >= 20
    check_output(output, OutputFormat.NPY)


def test_a_fault_in_the_input_keeps_the_rows_before_it(tmp_path: Path) -> None:
    source, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    asked = settings(OutputFormat.JSONL, input_format=InputFormat.JSONL)
    good = "".join(json.dumps({"text": t}) + "\n" for t in TEXTS[:30])
    source.write_text(good + "{oops\n")
    with pytest.raises(InvalidInput, match="line 31: not JSON"):
        run(source, output, HashEmbedder(), asked)
    source.write_text(good + json.dumps({"text": "mended"}) + "\n")
    embedder = HashEmbedder()
    assert run(source, output, embedder, asked).resumed == 30
    assert embedder.computed == ["mended"]
    check_output(output, OutputFormat.JSONL, [*TEXTS[:30], "mended"])


def test_a_models_error_names_the_line(tmp_path: Path, source: Path) -> None:
    def stop(computed: int) -> None:
        if computed == 4:
            raise TooLong("300 tokens, the limit is 256", num_tokens=300, max_tokens=256)

    with pytest.raises(TooLong, match=r"^line 5: 300 tokens, the limit is 256$"):
        run(source, tmp_path / "out.npy", HashEmbedder(stop), settings(OutputFormat.NPY))


@pytest.mark.parametrize(
    "change",
    [
        {"artifact_sha256": "other"},
        {"prompt_name": "query"},
        {"truncate": Truncate.ERROR},
        {"dtype": VectorType.FLOAT16},
        {"executor": "reference"},
    ],
)
def test_other_settings_do_not_continue(
    tmp_path: Path, source: Path, change: dict[str, object]
) -> None:
    output = tmp_path / "out.npy"
    with pytest.raises(Stop):
        run(source, output, stop_after(10), settings(OutputFormat.NPY))
    asked = settings(OutputFormat.NPY, **change)
    with pytest.raises(InvalidInput, match=rf"begun with {next(iter(change))} = .*--restart"):
        run(source, output, HashEmbedder(), asked)
    assert run(source, output, HashEmbedder(), asked, restart=True).resumed == 0


def test_a_run_without_a_row_binds_nobody(tmp_path: Path, source: Path) -> None:
    """Whoever mistypes an option can mend it and begin."""
    output = tmp_path / "out.npy"
    with pytest.raises(Stop):
        run(source, output, stop_after(0), settings(OutputFormat.NPY, dimensions=9999))
    assert [p.name for p in tmp_path.iterdir()] == ["texts.txt"]
    partial = tmp_path / "out.npy.partial"  # as after a kill
    partial.write_bytes(bytes(128))
    other = settings(OutputFormat.NPY, executor="reference").as_json()
    Journal(other, 0, 128, InputDigest().hexdigest()).save(journal_path(partial))
    run(source, output, HashEmbedder(), settings(OutputFormat.NPY))
    check_output(output, OutputFormat.NPY)


def test_a_device_is_not_replaced(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "out.npy"
    os.mkfifo(output)
    with pytest.raises(InvalidInput, match="not a regular file"):
        run(source, output, HashEmbedder(), settings(OutputFormat.NPY), overwrite=True)
    assert output.is_fifo()


def test_another_input_does_not_continue(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "out.npy"
    with pytest.raises(Stop):
        run(source, output, stop_after(10), settings(OutputFormat.NPY))
    for changed in (["new", *TEXTS[1:]], TEXTS[:3]):
        source.write_text("".join(t + "\n" for t in changed))
        with pytest.raises(InvalidInput, match="first 10 texts of the input are not those"):
            run(source, output, HashEmbedder(), settings(OutputFormat.NPY))
    source.write_text("".join(t + "\n" for t in [*TEXTS[:10], "appended"]))
    assert run(source, output, HashEmbedder(), settings(OutputFormat.NPY)).resumed == 10


@pytest.mark.parametrize("journal", ["{", "[]", '{"version": 2}', '{"rows": -1}', "\x00"])
def test_a_damaged_journal_is_refused(tmp_path: Path, source: Path, journal: str) -> None:
    output = tmp_path / "out.npy"
    with pytest.raises(Stop):
        run(source, output, stop_after(10), settings(OutputFormat.NPY))
    (tmp_path / "out.npy.partial.journal").write_text(journal)
    with pytest.raises(InvalidInput, match="not a journal that this version can read"):
        run(source, output, HashEmbedder(), settings(OutputFormat.NPY))


def test_a_shortened_partial_file_is_refused(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "out.npy"
    with pytest.raises(Stop):
        run(source, output, stop_after(10), settings(OutputFormat.NPY))
    os.truncate(tmp_path / "out.npy.partial", 200)
    with pytest.raises(InvalidInput, match="has 200 bytes, its journal expects at least 448"):
        run(source, output, HashEmbedder(), settings(OutputFormat.NPY))


def test_a_finished_file_is_not_overwritten_unasked(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "out.npy"
    output.write_bytes(b"precious")
    with pytest.raises(InvalidInput, match="exists already; --overwrite"):
        run(source, output, HashEmbedder(), settings(OutputFormat.NPY))
    assert output.read_bytes() == b"precious"
    run(source, output, HashEmbedder(), settings(OutputFormat.NPY), overwrite=True)
    check_output(output, OutputFormat.NPY)


def test_input_that_cannot_be_read_again_keeps_no_journal(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "out.npy"
    with pytest.raises(Stop):
        run(source, output, stop_after(10), settings(OutputFormat.NPY), resumable=False)
    assert [p.name for p in tmp_path.iterdir()] == ["texts.txt"]
    with pytest.raises(Stop):
        run(source, output, stop_after(10), settings(OutputFormat.NPY))
    with pytest.raises(InvalidInput, match="standard input cannot continue; --restart"):
        run(source, output, HashEmbedder(), settings(OutputFormat.NPY), resumable=False)


def test_a_second_writer_is_refused(tmp_path: Path, source: Path) -> None:
    output = tmp_path / "out.npy"
    with (
        exclusive(tmp_path / "out.npy.partial.lock"),
        pytest.raises(VoleryError, match=r"another process is writing .*out\.npy\.partial;"),
    ):
        run(source, output, HashEmbedder(), settings(OutputFormat.NPY))


@pytest.fixture
def small_disk() -> Iterator[None]:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_keeps_whole_rows(
    tmp_path: Path, source: Path, eager: Callable[[], float], request: pytest.FixtureRequest
) -> None:
    output = tmp_path / "out.npy"
    request.getfixturevalue("small_disk")
    with pytest.raises(VoleryError, match=r"cannot write .*: File too large; the rows before"):
        run(source, output, HashEmbedder(), settings(OutputFormat.NPY), clock=eager)
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    result = run(source, output, HashEmbedder(), settings(OutputFormat.NPY), clock=eager)
    assert 0 < result.resumed < len(TEXTS)
    check_output(output, OutputFormat.NPY)


def test_a_full_disk_is_no_fault_of_a_line(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It shows while results are awaited, and what computes them is not left behind."""
    monkeypatch.setattr(job, "APPEND_SECONDS", 0.001)
    ended: list[str] = []

    async def embed(texts):
        async for text in texts:
            yield Embedded(vector_of(text), 3, False)
            if text == TEXTS[0]:
                continue
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append(text)
                raise VoleryError("the model is closed") from None

    room = iter(["header", "first row"])

    def write(self: writers._Writer, data: bytes) -> None:
        if next(room, None) is None:
            raise VoleryError("cannot write it")

    monkeypatch.setattr(writers._Writer, "_write", write)
    asked = settings(OutputFormat.NPY)
    with pytest.raises(VoleryError, match=r"^cannot write it"):
        run(source, tmp_path / "out.npy", embed, asked, clock=lambda: 0.0)
    gc.collect()
    assert ended == TEXTS[1:2]
    assert caplog.records == []


def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    import tracemalloc

    def peak(rows: int) -> int:
        source = tmp_path / f"{rows}.txt"
        with source.open("w") as f:
            f.writelines(f"{i} {'word ' * 200}\n" for i in range(rows))

        async def embed(texts):
            async for text in texts:
                yield Embedded(vector_of(text), 3, False)

        tracemalloc.start()
        try:
            run(source, tmp_path / f"{rows}.npy", embed, settings(OutputFormat.NPY))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(20_000) < peak(2_000) * 1.2 + 100_000
