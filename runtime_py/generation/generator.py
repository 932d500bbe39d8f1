"""From a prompt or a chat to a running generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from runtime_py.chat import ChatRenderer, check_messages, check_template_options, guarded
from runtime_py.engine import Engine
from runtime_py.errors import Aborted, InvalidInput, InvalidType, TooLong
from runtime_py.generation.options import (
    GenerateArguments,
    SamplingArguments,
    generate_options,
)
from runtime_py.generation.stream import GenerationStream
from runtime_py.generation.tokenizer import TextTokenizer
from runtime_py.options import (
    Traffic,
    checked_tenant,
    deadline_span_ns,
    target_ns,
    traffic_class,
)


@dataclass(frozen=True, slots=True)
class GenerationInfo:
    """What a loaded model can generate.

    Attributes:
        vocab_size: ids.
        max_context: most tokens of a sequence, prompt and answer.
        eos_token_ids: ids that end an answer: the union of what the model's files name.
        chat: it has a chat template.
    """

    vocab_size: int
    max_context: int
    eos_token_ids: tuple[int, ...]
    chat: bool = False


class Generator:
    """`Model.generate` and `Model.chat`.

    Args:
        engine: runs the sequences.
        tokenizer: the model's.
        info: its limits.
        template: makes the chat template when it is first needed; None = there is none.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: TextTokenizer,
        info: GenerationInfo,
        template: Callable[[], ChatRenderer] | None = None,
    ) -> None:
        self.info = info
        self._engine = engine
        self._tokenizer = tokenizer
        self._make_template = template
        self._template: ChatRenderer | None = None

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None,
        template_options: Mapping[str, Any] | None,
        **options: Unpack[GenerateArguments],
    ) -> GenerationStream:
        """See `Model.chat`."""
        checked = check_messages(messages)
        check_template_options(tools, template_options)
        if self._make_template is None:
            raise InvalidInput("the model has no chat template; use generate with a prompt")
        if self._template is None:
            self._template = self._make_template()
        safe, guard = guarded(checked, self._tokenizer.control_tokens)
        text = self._template.render(safe, tools=tools, variables=template_options)
        return self.generate(self._tokenizer.encode_chat(text, guard), **options)

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        traffic: Traffic = "latency",
        deadline_ms: float | None = None,
        ttft_target_ms: float | None = None,
        tpot_target_ms: float | None = None,
        tenant: str = "",
        cache_salt: str = "",
        **sampling: Unpack[SamplingArguments],
    ) -> GenerationStream:
        """See `Model.generate`."""
        info = self.info
        options = generate_options(
            vocab_size=info.vocab_size,
            max_context=info.max_context,
            **sampling,
        )
        kind = traffic_class(traffic)
        if not isinstance(cache_salt, str):
            raise InvalidType(f"cache_salt is {type(cache_salt).__name__}, expected str")
        span_ns = deadline_span_ns(deadline_ms)
        ttft_ns = target_ns("ttft_target_ms", ttft_target_ms)
        tpot_ns = target_ns("tpot_target_ms", tpot_target_ms)
        checked_tenant(tenant)
        ids = self._ids(prompt)
        stops = options.stop_token_ids
        if not options.ignore_eos:
            stops = tuple(sorted({*stops, *info.eos_token_ids}))
        engine, decode = self._engine, self._tokenizer.decode
        deadline_ns = -1 if span_ns < 0 else engine.now_ns() + span_ns
        return GenerationStream(
            engine,
            lambda: engine.generate(
                ids,
                options,
                stops,
                decode,
                traffic=kind,
                deadline_ns=deadline_ns,
                ttft_target_ns=ttft_ns,
                tpot_target_ns=tpot_ns,
                tenant=tenant,
                salt=cache_salt,
            ),
        )

    def _ids(self, prompt: object) -> list[int]:
        if isinstance(prompt, str):
            ids = self._tokenizer.encode(prompt)
        elif isinstance(prompt, Sequence) and not isinstance(prompt, bytes | bytearray):
            ids = list(prompt)
            for i, token in enumerate(ids):
                if isinstance(token, bool) or not isinstance(token, int):
                    raise InvalidType(f"prompt[{i}] is {type(token).__name__}, expected int")
                if not 0 <= token < self.info.vocab_size:
                    raise InvalidInput(
                        f"prompt[{i}] is {token}, the vocabulary has 0 to "
                        f"{self.info.vocab_size - 1}"
                    )
        else:
            raise InvalidType(
                f"prompt is {type(prompt).__name__}, expected str or a list of token ids"
            )
        if not ids:
            raise InvalidInput("the prompt has no tokens, expected at least one")
        limit = self.info.max_context - 1
        if len(ids) > limit:
            raise TooLong(
                f"the prompt has {len(ids)} tokens, the context of {self.info.max_context} "
                f"holds {limit} and a new one; shorten it",
                num_tokens=len(ids),
                max_tokens=limit,
            )
        return ids


def not_a_generator() -> InvalidInput:
    return InvalidInput("the model makes embeddings, it cannot generate text; load a decoder")


def closed() -> Aborted:
    return Aborted("the model is closed; load it again")
