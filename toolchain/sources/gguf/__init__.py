"""GGUF files as a model source.

`GgufFile` reads one; `hf_config` and `load_into` rebuild the Hugging Face model,
`load_tokenizer` the tokenizer and chat template, and `BlockImport` finds the quantized
codes of any weight row without a second rounding.
"""

from toolchain.sources.gguf.exact import BlockRows
from toolchain.sources.gguf.lookup import BlockImport, Found, TensorImport
from toolchain.sources.gguf.metadata import architecture, hf_config, license_of, name_of
from toolchain.sources.gguf.reader import GgufFile, TensorInfo
from toolchain.sources.gguf.tensors import hf_name, load_into, parameters
from toolchain.sources.gguf.tokenizer import GgufTokenizer, load_tokenizer

__all__ = [
    "BlockImport",
    "BlockRows",
    "Found",
    "GgufFile",
    "GgufTokenizer",
    "TensorImport",
    "TensorInfo",
    "architecture",
    "hf_config",
    "hf_name",
    "license_of",
    "load_into",
    "load_tokenizer",
    "name_of",
    "parameters",
]
