"""Tiny models with random weights and real tokenizers, built when a test needs them.

Sizes are chosen so that no two dimensions coincide, and so that an export takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

HIDDEN = 32
CORPUS = [
    "a volery is a flock of birds in flight, and the large cage they fly in",
    "the quick brown fox jumps over the lazy dog while twelve geese watch",
    "packing wooden boxes with five dozen liquor jugs takes an afternoon",
    "embeddings turn sentences into vectors; near vectors mean near meanings",
    "hello world, how are you today? 12 or 345 apples - nothing more!",
    "sphinx of black quartz, judge my vow; pack my box with jugs",
]

_SIZES = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 66,
}


def _bert(vocab: int) -> Any:
    return transformers.BertModel(
        transformers.BertConfig(vocab_size=vocab, **_SIZES), add_pooling_layer=False
    )


def _bert_with_pooler(vocab: int) -> Any:
    return transformers.BertModel(
        transformers.BertConfig(vocab_size=vocab, hidden_act="gelu_new", **_SIZES)
    )


def _distilbert(vocab: int) -> Any:
    config = transformers.DistilBertConfig(
        vocab_size=vocab, dim=HIDDEN, n_layers=2, n_heads=4, hidden_dim=48,
        max_position_embeddings=66, sinusoidal_pos_embds=False,
    )  # fmt: skip
    return transformers.DistilBertModel(config)


def _roberta(vocab: int) -> Any:
    return transformers.RobertaModel(
        transformers.RobertaConfig(vocab_size=vocab, pad_token_id=1, type_vocab_size=1, **_SIZES),
        add_pooling_layer=False,
    )


def _xlm_roberta(vocab: int) -> Any:
    return transformers.XLMRobertaModel(
        transformers.XLMRobertaConfig(
            vocab_size=vocab, pad_token_id=1, type_vocab_size=1, **_SIZES
        ),
        add_pooling_layer=False,
    )


def _mpnet(vocab: int) -> Any:
    return transformers.MPNetModel(
        transformers.MPNetConfig(
            vocab_size=vocab, pad_token_id=1, relative_attention_num_buckets=32, **_SIZES
        ),
        add_pooling_layer=False,
    )


def _albert(vocab: int) -> Any:
    return transformers.AlbertModel(
        transformers.AlbertConfig(vocab_size=vocab, embedding_size=16, **_SIZES),
        add_pooling_layer=False,
    )


def _electra(vocab: int) -> Any:
    return transformers.ElectraModel(
        transformers.ElectraConfig(vocab_size=vocab, embedding_size=16, **_SIZES)
    )


def _modernbert(vocab: int) -> Any:
    config = transformers.ModernBertConfig(
        vocab_size=vocab,
        **_SIZES,
        local_attention=16,
        pad_token_id=0,
        reference_compile=False,
    )
    return transformers.ModernBertModel(config)


FAMILIES: dict[str, Callable[[int], Any]] = {
    "bert": _bert,
    "bert-pooler": _bert_with_pooler,
    "distilbert": _distilbert,
    "roberta": _roberta,
    "xlm-roberta": _xlm_roberta,
    "mpnet": _mpnet,
    "albert": _albert,
    "electra": _electra,
    "modernbert": _modernbert,
}

_ROBERTA_STYLE = {"roberta", "xlm-roberta", "mpnet"}


def build_model(family: str, folder: Path, *, seed: int = 0) -> Path:
    """Save a random ``family`` model with a trained tokenizer to ``folder``.

    Every weight is random, biases and norms too: exporters merge equal tensors, and a
    bias of zeros hides a bias that is never added.
    """
    tokenizer = build_tokenizer("roberta" if family in _ROBERTA_STYLE else "bert")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    model = FAMILIES[family](len(tokenizer)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            spread = 0.3 if p.ndim == 1 else 0.15
            p.copy_(torch.randn_like(p) * spread + (1.0 if _is_norm_weight(name) else 0.0))
    model.save_pretrained(folder)
    return folder


def _is_norm_weight(name: str) -> bool:
    return name.endswith("weight") and "norm" in name.lower()


def build_tokenizer(style: str) -> Any:
    """A WordPiece ("bert") or byte-level BPE ("roberta") tokenizer trained on `CORPUS`."""
    if style == "bert":
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(
            vocab_size=300, special_tokens=special, show_progress=False
        )
        tokenizer.train_from_iterator(CORPUS, trainer)
        ids = {t: tokenizer.token_to_id(t) for t in special}
        tokenizer.post_processor = processors.BertProcessing(
            ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
        )
        names = {"unk": "[UNK]", "pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    else:
        special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=420,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(CORPUS, trainer)
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
        names = {"unk": "<unk>", "pad": "<pad>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        **{f"{k}_token": v for k, v in names.items()},
    )


def add_sentence_transformers(folder: Path, modules: Sequence[Any], **options: Any) -> Path:
    """Save the model in ``folder`` as a sentence-transformers model with ``modules`` after it.

    ``modules`` are instances of sentence-transformers' own module classes; ``options`` go to
    `SentenceTransformer` (prompts and the like). Written beside ``folder`` with suffix "-st".
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as st

    transformer = st.Transformer(str(folder), max_seq_length=48)
    model = SentenceTransformer(modules=[transformer, *modules], device="cpu", **options)
    out = folder.with_name(folder.name + "-st")
    model.save(str(out), create_model_card=False)
    return out


def edit_json(path: Path, **changes: Any) -> None:
    """Set (or with ``None`` delete) keys of the JSON object in ``path``."""
    value = json.loads(path.read_text())
    for key, new in changes.items():
        if new is None:
            value.pop(key, None)
        else:
            value[key] = new
    path.write_text(json.dumps(value))
