"""`/v1/embeddings` on every host, asked by OpenAI's own client."""

from __future__ import annotations

import base64

import numpy as np
import openai
import pytest

from tests.engine.tiny import WIDTH, ids_of, truth
from tests.serve.conftest import Server

TEXTS = ["hello", "", "a longer text"]


def test_texts_in_order_as_floats_and_as_base64(server: Server) -> None:
    create = server.client.embeddings.create
    floats = create(model="embedder", input=TEXTS, encoding_format="float")
    packed = create(model="embedder", input=TEXTS, encoding_format="base64")
    assert [d.index for d in floats.data] == [0, 1, 2]
    for text, number, coded in zip(TEXTS, floats.data, packed.data, strict=True):
        np.testing.assert_allclose(number.embedding, truth(ids_of(text)), atol=2e-6)
        raw = base64.b64decode(str(coded.embedding))
        assert np.frombuffer(raw, "<f4").tolist() == number.embedding
    assert floats.model == "embedder"
    assert floats.usage.prompt_tokens == sum(len(ids_of(t)) for t in TEXTS)
    # What the client asks for by itself.
    (one,) = create(model="embedder", input="hello").data
    np.testing.assert_allclose(one.embedding, floats.data[0].embedding)


def test_token_ids_are_taken_as_they_are(server: Server) -> None:
    create = server.client.embeddings.create
    ids = [ids_of("hello"), [2, 9, 3]]
    for given in (ids, ids[0]):
        got = create(model="embedder", input=given, encoding_format="float").data
        wanted = given if isinstance(given[0], list) else [given]
        for item, sequence in zip(got, wanted, strict=True):
            np.testing.assert_allclose(item.embedding, truth(sequence), atol=2e-6)


def test_dimensions_are_cut_and_scaled_again(server: Server) -> None:
    got = server.client.embeddings.create(model="embedder", input="hello", dimensions=5)
    vector = truth(ids_of("hello"))[:5]
    np.testing.assert_allclose(got.data[0].embedding, vector / np.linalg.norm(vector), atol=2e-6)


def test_E8_no_texts_give_no_vectors(server: Server) -> None:
    create = server.client.embeddings.create
    assert create(model="embedder", input=[], encoding_format="float").data == []


def test_E9_a_text_that_is_too_long_is_refused_or_cut(server: Server) -> None:
    texts = ["fine", "x" * 1000]
    create = server.client.embeddings.create
    with pytest.raises(openai.APIStatusError) as refused:
        create(model="embedder", input=texts)
    assert refused.value.status_code == 413
    error = refused.value.body
    assert isinstance(error, dict)
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input[1]")
    assert "1002 tokens" in error["message"]
    assert "32" in error["message"]
    cut = create(model="embedder", input=texts, extra_body={"truncate": "end"})
    assert cut.model_extra is not None
    assert cut.model_extra["volery"]["truncated"] == [1]
    np.testing.assert_allclose(cut.data[1].embedding, truth(ids_of(texts[1])), atol=2e-6)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": {"a": 1}}, "input"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": [[2, 500]]}, "input[0][1]"),
        ({"input": [[]]}, "input[0]"),
        ({"input": "a", "dimensions": WIDTH + 1}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "dimension": 3}, "dimension"),
        ({"input": "a", "traffic": "bulk"}, "traffic"),
        ({"input": "a", "deadline_ms": -1}, "deadline_ms"),
        ({}, "input"),
    ],
)
def test_a_bad_field_is_named(server: Server, body: dict[str, object], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        server.client.post("/embeddings", body={"model": "embedder", **body}, cast_to=object)
    assert refused.value.param == param
    assert refused.value.type == "invalid_request_error"
    assert "\n" not in refused.value.message
    assert refused.value.body["message"].startswith(param.split("[")[0]) or (  # type: ignore[index]
        param == "dimension"
    )


def test_models_by_name(server: Server) -> None:
    names = [model.id for model in server.client.models.list()]
    assert names == ["embedder", "decoder"]
    assert server.client.models.retrieve("embedder").id == "embedder"
    with pytest.raises(openai.NotFoundError, match="expected one of embedder, decoder"):
        server.client.embeddings.create(model="other", input="a")
    with pytest.raises(openai.NotFoundError):
        server.client.models.retrieve("other")
    with pytest.raises(openai.BadRequestError, match="generates text"):
        server.client.embeddings.create(model="decoder", input="a")
