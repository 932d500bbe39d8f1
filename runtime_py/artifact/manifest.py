"""``manifest.json``: what an artifact is and which files it has (docs/design.md, 6.2)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from runtime_py.artifact.strict_json import Record, parse
from runtime_py.errors import ArtifactCorrupt, ArtifactMissing, ArtifactUnsupported

FORMAT, FORMAT_VERSION = "volery", 1
MANIFEST = "manifest.json"
PROGRAM = "program.bin"
TOKENIZER = "tokenizer.json"
GOLDENS = "goldens.json"
MAX_MANIFEST_BYTES = 4 << 20
MAX_SHARD_BYTES = 24 << 20
"""Static hosts cap a file at 25 MiB; a shard stays below that, header included."""
PIECE_BYTES = 1 << 20
"""A file's ``pieces`` are the hashes of so many bytes each, the last of the rest."""

_MAX_BYTES = {PROGRAM: 16 << 20, TOKENIZER: 128 << 20, GOLDENS: 16 << 20}
_MAX_OTHER_BYTES = 128 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHARD = re.compile(r"weights-(\d{5})-of-(\d{5})\.safetensors")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_DIM = 1 << 27


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Where the model comes from."""

    id: str
    architecture: str
    license: str | None
    revision: str | None


@dataclass(frozen=True, slots=True)
class Limits:
    """Lengths in tokens, special tokens included; ``max_positions`` 0 = unlimited."""

    max_tokens: int
    max_tokens_source: str
    max_positions: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class EmbeddingInfo:
    """How the model makes one vector of a text.

    Attributes:
        include_prompt: whether pooling counts the tokens of a prompt.
        prompts: prompt name -> text put before the input.
        similarity: the score the model was trained for.
    """

    dimensions: int
    normalized: bool
    pooling: tuple[str, ...]
    include_prompt: bool
    prompts: Mapping[str, str]
    default_prompt_name: str | None
    similarity: str


@dataclass(frozen=True, slots=True)
class Generation:
    """How the model continues a text.

    Attributes:
        eos_token_ids: ids that end an answer: the union of every source, ascending.
        bos_token, eos_token: texts that a chat template may name; "" = none.
        max_context: most tokens of a sequence, prompt and answer.
        kv_bytes_per_token: of an f32 key-value cache, over all layers.
        chat_template: file of the artifact that holds the template, or None.
    """

    eos_token_ids: tuple[int, ...]
    bos_token: str
    eos_token: str
    max_context: int
    kv_bytes_per_token: int
    chat_template: str | None


@dataclass(frozen=True, slots=True)
class Quantization:
    """The scheme's name and the formats it gave (see `TensorFormat`)."""

    name: str
    linear: str
    embedding: str
    activations: str


@dataclass(frozen=True, slots=True)
class Numerics:
    """Cosine against the f32 graph over the evaluation texts, and the gate it passed."""

    corpus: str
    texts: int
    worst_cosine: float
    mean_cosine: float
    max_abs_diff: float
    gate: float


@dataclass(frozen=True, slots=True)
class LanguageNumerics:
    """A language model next to its f32 graph, and the gate it passed.

    Attributes:
        tokens: of the text that was compared.
        perplexity, perplexity_f32: of that text.
        top1: share of tokens whose most likely successor is the same.
        max_logit_diff: largest difference of two logits.
        greedy_equal, greedy_tokens: of each greedy answer, how many tokens from the first
            on the f32 graph would have chosen too, and how many there are.
        exact_tensors, rounded_tensors: matrices that give back the f32 weights to the bit,
            and those that do not.
        worst_weight_error: of one matrix, RMS difference over RMS value.
        min_top1, max_perplexity_rise: the gate; the rise is a share of the perplexity.
    """

    corpus: str
    tokens: int
    perplexity: float
    perplexity_f32: float
    top1: float
    max_logit_diff: float
    greedy_equal: tuple[int, ...]
    greedy_tokens: tuple[int, ...]
    exact_tensors: int
    rounded_tensors: int
    worst_weight_error: float
    min_top1: float
    max_perplexity_rise: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes a backend needs: for the weights, per token, sequence and wanted row of a step."""

    weights_bytes: int
    bytes_per_token: int
    bytes_per_seq: int
    bytes_per_wanted: int = 0


@dataclass(frozen=True, slots=True)
class CostProfile:
    """Nanoseconds of a step as measured at export: a dot product of named features.

    Features: ``constant`` (1), ``num_seqs``, ``num_tokens``, ``sum_len_sq``, and of a
    decoder ``kv_tokens``. Empty when the export had no backend to measure.
    """

    host: str
    threads: int
    coefficients_ns: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What a file must be.

    Attributes:
        pieces: the sha256 of every `PIECE_BYTES` of it, for readers whose fast hash takes whole
            buffers only; empty where the artifact does not tell.
    """

    bytes: int
    sha256: str
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Manifest:
    """The parsed manifest. ``embedding`` is set when ``"embed"`` is among the tasks,
    ``generation`` when ``"generate"`` is."""

    created_by: str
    model: ModelInfo
    tasks: tuple[str, ...]
    limits: Limits
    embedding: EmbeddingInfo | None
    quantization: Quantization
    numerics: Numerics | LanguageNumerics | None
    memory: Memory
    cost_profile: CostProfile | None
    files: Mapping[str, FileEntry]
    generation: Generation | None = None

    @property
    def shards(self) -> tuple[str, ...]:
        """The weight files, in shard order."""
        return tuple(sorted(n for n in self.files if _SHARD.fullmatch(n)))

    @property
    def total_bytes(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(f.bytes for f in self.files.values())

    @classmethod
    def parse(cls, data: bytes) -> Manifest:
        """Check and decode ``manifest.json``.

        Raises:
            ArtifactCorrupt: not JSON, a field missing or of the wrong type or range.
            ArtifactMissing: a file that every artifact has is not listed.
            ArtifactUnsupported: another format or a newer version.
        """
        m = Record(parse(data, MANIFEST, MAX_MANIFEST_BYTES), MANIFEST)
        if m.value("format") != FORMAT:
            raise m.error("format", m.value("format"), f"{FORMAT!r}: not a Volery artifact")
        version = m.integer("format_version", 1, 1 << 31)
        if version != FORMAT_VERSION:
            raise ArtifactUnsupported(
                f"manifest.json has format_version {version}, this runtime reads "
                f"{FORMAT_VERSION}; export the model again or update volery"
            )
        tasks = m.texts("tasks")
        embedding = _embedding(m.record("embedding")) if "embed" in tasks else None
        limits, files = _limits(m.record("limits")), _files(m.record("files"))
        generation = None
        if "generate" in tasks:
            generation = _generation(m.record("generation"), limits, files)
        return cls(
            created_by=m.text("created_by"),
            model=_model(m.record("model")),
            tasks=tasks,
            limits=limits,
            embedding=embedding,
            quantization=_quantization(m.record("quantization")),
            numerics=_numerics(m.record("numerics")) if "numerics" in m else None,
            memory=_memory(m.record("memory")),
            cost_profile=_cost_profile(m.record("cost_profile")) if "cost_profile" in m else None,
            files=files,
            generation=generation,
        )


def shard_name(index: int, count: int) -> str:
    """File name of shard ``index`` (from 0) of ``count``."""
    return f"weights-{index + 1:05d}-of-{count:05d}.safetensors"


def _model(r: Record) -> ModelInfo:
    return ModelInfo(
        r.text("id"),
        r.text("architecture"),
        r.optional_text("license"),
        r.optional_text("revision"),
    )


def _limits(r: Record) -> Limits:
    return Limits(
        r.integer("max_tokens", 1, _MAX_DIM),
        r.text("max_tokens_source"),
        r.integer("max_positions", 0, _MAX_DIM),
        r.integer("vocab_size", 1, _MAX_DIM),
    )


def _embedding(r: Record) -> EmbeddingInfo:
    prompts = r.record("prompts")
    names = tuple(prompts)
    texts = {}
    for name in names:
        text = prompts.value(name)
        if not isinstance(text, str) or len(text) > 65536:
            raise prompts.error(name, text, "a text of at most 65536 characters")
        texts[name] = text
    default = r.optional_text("default_prompt_name")
    if default is not None and default not in texts:
        raise r.error("default_prompt_name", default, f"one of the prompts {sorted(texts)}")
    return EmbeddingInfo(
        dimensions=r.integer("dimensions", 1, 1 << 20),
        normalized=r.flag("normalized"),
        pooling=r.texts("pooling"),
        include_prompt=r.flag("include_prompt"),
        prompts=texts,
        default_prompt_name=default,
        similarity=r.text("similarity"),
    )


def _generation(r: Record, limits: Limits, files: Mapping[str, FileEntry]) -> Generation:
    template = r.optional_text("chat_template")
    if template is not None and template not in files:
        raise ArtifactMissing(
            f"{MANIFEST} does not list {template[:80]!r}, which generation.chat_template names; "
            "export the model again"
        )
    return Generation(
        eos_token_ids=r.integers("eos_token_ids", 0, limits.vocab_size - 1, 256),
        bos_token=r.optional_text("bos_token") or "",
        eos_token=r.optional_text("eos_token") or "",
        max_context=r.integer("max_context", 2, limits.max_positions or _MAX_DIM),
        kv_bytes_per_token=r.integer("kv_bytes_per_token", 1, 1 << 40),
        chat_template=template,
    )


def _quantization(r: Record) -> Quantization:
    return Quantization(
        r.text("name"), r.text("linear"), r.text("embedding"), r.text("activations")
    )


def _numerics(r: Record) -> Numerics | LanguageNumerics:
    if "perplexity" in r:
        most = 1 << 31
        return LanguageNumerics(
            r.text("corpus"),
            r.integer("tokens", 1, most),
            r.number("perplexity"),
            r.number("perplexity_f32"),
            r.number("top1"),
            r.number("max_logit_diff"),
            r.integers("greedy_equal", 0, most, 64),
            r.integers("greedy_tokens", 0, most, 64),
            r.integer("exact_tensors", 0, most),
            r.integer("rounded_tensors", 0, most),
            r.number("worst_weight_error"),
            r.number("min_top1"),
            r.number("max_perplexity_rise"),
        )
    return Numerics(
        r.text("corpus"),
        r.integer("texts", 1, 1 << 31),
        r.number("worst_cosine"),
        r.number("mean_cosine"),
        r.number("max_abs_diff"),
        r.number("gate"),
    )


def _memory(r: Record) -> Memory:
    names = ["weights_bytes", "bytes_per_token", "bytes_per_seq"]
    if "bytes_per_wanted" in r:
        names.append("bytes_per_wanted")
    return Memory(*(r.integer(n, 0, 1 << 48) for n in names))


def _cost_profile(r: Record) -> CostProfile:
    c = r.record("coefficients_ns")
    coefficients = {name: c.number(name) for name in c}
    for name, v in coefficients.items():
        if v < 0:
            raise c.error(name, v, "a number of nanoseconds >= 0")
    return CostProfile(r.text("host"), r.integer("threads", 1, 4096), coefficients)


def _pieces(entry: Record, size: int) -> tuple[str, ...]:
    if "pieces" not in entry:
        return ()
    pieces, count = entry.texts("pieces"), -(-size // PIECE_BYTES)
    if len(pieces) != count or not all(_SHA256.fullmatch(p) for p in pieces):
        raise entry.error("pieces", pieces, f"{count} of 64 lower-case hex digits")
    return pieces


def _files(r: Record) -> dict[str, FileEntry]:
    files = {}
    for name in r:
        if not _NAME.fullmatch(name) or name == MANIFEST:
            raise ArtifactCorrupt(
                f"{MANIFEST} lists the file {name[:80]!r}, expected a plain file name inside "
                "the artifact's folder; do not use an artifact from a source you do not trust"
            )
        entry = r.record(name)
        shard = _SHARD.fullmatch(name)
        limit = MAX_SHARD_BYTES if shard else _MAX_BYTES.get(name, _MAX_OTHER_BYTES)
        sha256 = entry.text("sha256")
        if not _SHA256.fullmatch(sha256):
            raise entry.error("sha256", sha256, "64 lower-case hex digits")
        size = entry.integer("bytes", 0, limit)
        files[name] = FileEntry(size, sha256, _pieces(entry, size))
    for name in (PROGRAM, TOKENIZER, GOLDENS):
        if name not in files:
            raise ArtifactMissing(f"{MANIFEST} does not list {name}; export the model again")
    shards = sorted(n for n in files if n.startswith("weights-"))
    if not shards:
        raise ArtifactMissing(f"{MANIFEST} lists no weights; export the model again")
    expected = [shard_name(i, len(shards)) for i in range(len(shards))]
    if shards != expected:
        raise ArtifactMissing(
            f"{MANIFEST} lists the shards {shards[:4]}, expected {expected[:4]}; "
            "copy the whole artifact or export it again"
        )
    return files
