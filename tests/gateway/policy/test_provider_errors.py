"""The words in which each provider that a preset names says that a request is too long, and the figures in them."""

import json
import tomllib
from importlib.resources import files

import pytest

from refold.gateway.policy.upstream_errors import (
    ErrorFigures,
    is_context_error,
    read_figures,
)
from refold.gateway.proxy.call import context_error

CLASSIC = "This model's maximum context length is {} tokens. However, "
WORDS: list[tuple[str, int, object, ErrorFigures]] = [
    # (provider, status, its `error` or its message, tokens of the request, of the answer, and the limit)
    (
        "openai",
        400,
        CLASSIC.format(128_000)
        + "your messages resulted in 130222 tokens. Please reduce the length of the messages.",
        ErrorFigures(130_222, 0, 128_000),
    ),
    (
        "openai",
        400,
        CLASSIC.format(8_192)
        + "your messages resulted in 9000 tokens (8500 in the messages, 500 in the functions).",
        ErrorFigures(9_000, 0, 8_192),
    ),
    (
        "openai",
        400,
        CLASSIC.format(4_097)
        + "you requested 4633 tokens (559 in the messages, 74 in the functions, and 4000 in the completion).",
        ErrorFigures(633, 4_000, 4_097),
    ),
    (
        "openai",
        400,
        "This model's maximum context length is 4097 tokens, however you requested 5360 tokens (4360 in your prompt; 1000 for the completion).",
        ErrorFigures(4_360, 1_000, 4_097),
    ),
    (
        "openai",
        400,
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens.",
        ErrorFigures(509_178, 0, 272_000),
    ),
    ("openai", 400, {"code": "context_length_exceeded", "message": "Too long."}, ErrorFigures()),
    (
        "anthropic",
        400,
        "prompt is too long: 205000 tokens > 200000 maximum",
        ErrorFigures(205_000, 0, 200_000),
    ),
    (
        "anthropic",
        400,
        "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length or `max_tokens`",
        ErrorFigures(190_000, 32_000, 200_000),
    ),
    (
        "gemini",
        400,
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        ErrorFigures(1_196_265, 0, 1_048_575),
    ),
    (
        "deepseek",
        400,
        CLASSIC.format(131_072)
        + "you requested 140000 tokens (132000 in the messages, 8000 in the completion).",
        ErrorFigures(132_000, 8_000, 131_072),
    ),
    (
        "openrouter",
        400,
        (
            "This endpoint's maximum context length is 32768 tokens. However, you requested about 32900 tokens (2600 of text input, "
            '300 of tool input, 30000 in the output). Please reduce the length of either one, or use the "middle-out" transform.'
        ),
        ErrorFigures(2_900, 30_000, 32_768),
    ),
    (
        "openrouter",
        400,
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 132463 tokens (1463 of text input, 131000 in the output).",
        ErrorFigures(1_463, 131_000, 131_072),
    ),
    (
        "openrouter",
        400,
        "This endpoint's maximum context length is 128000 tokens. However, you requested about 132888 tokens (132733 of text input, 155 of tool input).",
        ErrorFigures(132_888, 0, 128_000),
    ),
    (
        "openrouter",
        400,
        "Input length 265330 exceeds the maximum allowed input length of 262144 tokens.",
        ErrorFigures(265_330, 0, 262_144),
    ),
    (
        "mistral",
        400,
        "Prompt contains 35000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        ErrorFigures(35_000, 0, 32_768),
    ),
    (
        "xai",
        400,
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        ErrorFigures(537_812, 0, 131_072),
    ),
    ("groq", 400, "Please reduce the length of the messages or completion.", ErrorFigures()),
    (
        "moonshot",
        400,
        "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
        ErrorFigures(140_000, 0, 131_072),
    ),
    (
        "moonshot",
        400,
        "Your request exceeded model token limit: 131072",
        ErrorFigures(0, 0, 131_072),
    ),
    (
        "together",
        422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens and 1000 `max_new_tokens`",
        ErrorFigures(9_000, 1_000, 8_193),
    ),
    (
        "together",
        400,
        "The input (265330 tokens) is longer than the model's context length (262144 tokens).",
        ErrorFigures(265_330, 0, 262_144),
    ),
    (
        "together",
        422,
        "`inputs` must have less than 4096 tokens. Given: 5000",
        ErrorFigures(5_000, 0, 4_096),
    ),
    (
        "fireworks",
        400,
        "The prompt is too long: 140000, model maximum context length: 131071",
        ErrorFigures(140_000, 0, 131_071),
    ),
    (
        "cerebras",
        400,
        "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
        ErrorFigures(9_000, 0, 8_192),
    ),
    (
        "ollama",
        400,
        "The prompt is too long: 208863, model maximum context length: 202752",
        ErrorFigures(208_863, 0, 202_752),
    ),
    ("ollama", 400, "prompt too long; exceeded max context length by 4096 tokens", ErrorFigures()),
    (
        "ollama",
        400,
        "the prompt is longer than the context length currently available to the model",
        ErrorFigures(),
    ),
    ("ollama", 400, "the input length exceeds the context length", ErrorFigures()),
    (
        "lmstudio",
        400,
        "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger one",
        ErrorFigures(),
    ),
    (
        "lmstudio",
        400,
        "Trying to keep the first 6000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
        ErrorFigures(6_000, 0, 4_096, is_minimum=True),
    ),
    ("lmstudio", 400, "Context size has been exceeded.", ErrorFigures()),
    (
        "vllm",
        400,
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 30000. This model's maximum context length is 32768 tokens and your "
            "request has 2900 input tokens (30000 > 32768 - 2900)."
        ),
        ErrorFigures(2_900, 30_000, 32_768),
    ),
    (
        "vllm",
        400,
        CLASSIC.format(32_768)
        + "you requested 8192 output tokens and your prompt contains 26000 input tokens, for a "
        "total of 34192 tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
        ErrorFigures(26_000, 8_192, 32_768),
    ),
    (
        "vllm",
        400,
        CLASSIC.format(32_768)
        + "you requested 8192 output tokens and your prompt contains at least 24577 input "
        "tokens, for a total of at least 32769 tokens. (parameter=input_tokens, value=24577)",
        ErrorFigures(24_577, 8_192, 32_768, is_minimum=True),
    ),
    (
        "vllm",
        400,
        CLASSIC.format(32_768)
        + "you requested 900 output tokens and your prompt contains 300000 characters (more than "
        "262144 characters, which is the upper bound for 32768 input tokens).",
        ErrorFigures(0, 0, 32_768),
    ),
    (
        "vllm",
        400,
        "The prompt (length 40000) is longer than the maximum model length of 32768. Make sure that `max_model_len` is no smaller.",
        ErrorFigures(40_000, 0, 32_768),
    ),
    (
        "vllm",
        400,
        (
            "Requested token count exceeds the model's maximum context length of 131072 tokens. You requested a total of 140000 tokens: "
            "132000 tokens from the input messages and 8000 tokens for the completion."
        ),  # SGLang
        ErrorFigures(132_000, 8_000, 131_072),
    ),
    (
        "llamacpp",
        400,
        "request (40000 tokens) exceeds the available context size (8192 tokens), try increasing it",
        ErrorFigures(40_000, 0, 8_192),
    ),
    (
        "llamacpp",
        400,
        {
            "code": 400,
            "message": "the request exceeds the available context size, try increasing it",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 41_501,
            "n_ctx": 40_960,
        },
        ErrorFigures(41_501, 0, 40_960),
    ),
    (
        "llamacpp",
        400,
        "input (9000 tokens) is larger than the max context size (8192 tokens). skipping",
        ErrorFigures(9_000, 0, 8_192),
    ),
    (
        "llamacpp",
        500,
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        ErrorFigures(),
    ),
    (
        "llamacpp",
        400,
        "Requested tokens (9000) exceed context window of 4096",
        ErrorFigures(9_000, 0, 4_096),
    ),
    # Others that are often put behind a gateway.
    (
        "copilot",
        400,
        "prompt token count of 140000 exceeds the limit of 128000",
        ErrorFigures(140_000, 0, 128_000),
    ),
    ("minimax", 400, "invalid params, context window exceeds limit", ErrorFigures()),
    ("bedrock", 400, "Input is too long for requested model.", ErrorFigures()),
    ("qwen", 400, "Range of input length should be [1, 129024]", ErrorFigures(0, 0, 129_024)),
    ("zai", 400, "Prompt exceeds max length", ErrorFigures()),
    (
        "ds4",
        400,
        "Prompt has 300,000 tokens, but the configured context size is 131,072 tokens",
        ErrorFigures(300_000, 0, 131_072),
    ),
    (
        "mlx",
        400,
        "Context size exceeded: requested 9000 tokens but the model only supports 8192.",
        ErrorFigures(9_000, 0, 8_192),
    ),
    (
        "litellm",
        400,
        "Requested token count exceeds the model's maximum context length of 131072 tokens.",
        ErrorFigures(0, 0, 131_072),
    ),
    ("nginx", 413, "Request Entity Too Large", ErrorFigures()),
]
SHAPES = {
    "an object": lambda said: {"error": said if isinstance(said, dict) else {"message": said}},
    "its fields": lambda said: (
        said if isinstance(said, dict) else {"object": "error", "message": said}
    ),
    "a string": lambda said: {"error": json.dumps(said) if isinstance(said, dict) else said},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("provider", "status", "said", "expected"),
    WORDS,
    ids=[f"{one[0]}-{at}" for at, one in enumerate(WORDS)],
)
def test_what_each_provider_says(
    provider: str, status: int, said: object, expected: ErrorFigures, shape: str
) -> None:
    assert provider
    body = json.dumps(SHAPES[shape](said)).encode()
    assert is_context_error("openai_chat", status, body)
    assert read_figures(body) == expected


def test_no_provider_of_a_preset_is_left_out() -> None:
    presets = tomllib.loads(
        (files("refold.gateway") / "providers.toml").read_text(encoding="utf-8")
    )
    assert set(presets) <= {provider for provider, *_ in WORDS}


def test_a_body_without_words_is_too_long_only_with_413() -> None:
    for body in (b"", b" \n"):
        assert is_context_error("openai_chat", 413, body)
        assert not is_context_error("openai_chat", 400, body)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            400,
            "max_tokens is too large: 30000. This model supports at most 16384 completion tokens, whereas you provided 30000.",
        ),
        (400, "Range of max_tokens should be [1, 8192]"),
        (400, "max_tokens exceeds the limit of 8192"),
        (400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
        (
            400,
            "max_tokens must be less than or equal to `40960`, the maximum value for `max_tokens` is less than the `context_window`",
        ),
        (
            413,
            "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 12000. Please reduce your message size.",
        ),
        (400, "Throttling error: Too many tokens, please wait before trying again."),
        (500, "Rate limit reached: too many tokens"),
        (
            400,
            "Invalid 'tools[0].name': string too long. Expected a string with maximum length 64, but got one of length 70.",
        ),
    ],
)
def test_what_fewer_tokens_of_the_request_would_not_help(status: int, message: str) -> None:
    assert not is_context_error(
        "openai_chat", status, json.dumps({"error": {"message": message}}).encode()
    )


@pytest.mark.parametrize("api", ["anthropic", "openai_chat", "openai_responses", "gemini"])
def test_no_limit_is_made_up_where_none_is_known(api: str) -> None:
    body = context_error(api, 30_000)[2]
    assert is_context_error(api, 400, body)
    assert read_figures(body) == ErrorFigures()
    assert not any(digit in json.loads(body)["error"]["message"] for digit in "0123456789")


@pytest.mark.parametrize(
    ("said", "sent", "room"),
    [
        (ErrorFigures(2_900, 30_000, 32_768), 2_000, 32_768 - 2_900 - 1_000),
        (ErrorFigures(8_000, 0, 10_000), 1, 1_900),
        (ErrorFigures(24_577, 8_192, 32_768, is_minimum=True), 24_000, 32_768 - 30_000 - 138),
        (ErrorFigures(24_577, 8_192, 32_768, is_minimum=True), 1_000, 8_191 - 409),
        (ErrorFigures(9_000, 0, 8_000), 1, 0),
        (ErrorFigures(0, 0, 8_000), 1, 0),
        (ErrorFigures(), 1, 0),
    ],
)
def test_what_an_upstreams_figures_leave_for_the_answer(
    said: ErrorFigures, sent: int, room: int
) -> None:
    assert said.answer_room(sent) == room
