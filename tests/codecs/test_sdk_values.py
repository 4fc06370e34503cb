"""Values that the vendors' SDKs accept in a request besides JSON: bytes, and objects inside
entries."""

import struct
from base64 import b64encode, urlsafe_b64encode
from types import SimpleNamespace
from typing import Any

from refold import Budget, Compactor
from refold.codecs import gemini, openai_chat
from refold.messages import Opaque, ToolCall
from refold.strategies import ClearToolInputs

IMAGE = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 64, 48) + bytes(range(256)) * 9


def dumping(**fields: Any) -> Any:
    """Return an object like those of the SDKs."""
    return SimpleNamespace(model_dump=lambda **_: fields)


def decode_image(data: Any) -> Any:
    part = {"inline_data": {"mime_type": "image/png", "data": data}}
    return gemini.decode({"role": "user", "parts": [part]}, ())


def test_bytes_in_a_gemini_part_are_read_like_their_base64_text():
    """`model_dump()` returns bytes: `FormatError: Object of type bytes is not JSON
    serializable`."""
    decoded = decode_image(IMAGE)
    assert (decoded.parts[0].width, decoded.parts[0].height) == (64, 48)
    assert decoded == decode_image(b64encode(IMAGE).decode())
    assert decoded == decode_image(urlsafe_b64encode(IMAGE).decode())


def test_bytes_in_a_part_of_an_unknown_kind_are_carried():
    code = {"executable_code": {"code": "1"}, "blob": b"ab", "thought_signature": b"sig"}
    (part,) = gemini.decode({"role": "model", "parts": [code]}, ()).parts
    assert (
        isinstance(part, Opaque) and part.json == '{"blob":"YWI=","executable_code":{"code":"1"}}'
    )


def test_a_call_whose_function_is_an_sdk_object_is_read_and_shortened():
    """`{"id": call.id, "type": "function", "function": call.function}` was once refused."""
    arguments = '{"text":"' + "word " * 400 + '"}'
    history: list[Any] = [{"role": "user", "content": "Write it."}]
    for n in range(6):
        function = dumping(name="write", arguments=arguments)
        call = {"id": f"c{n}", "type": "function", "function": function}
        history += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": "ok"},
        ]
    assert isinstance(openai_chat.decode(history[1], ()).parts[0], ToolCall)
    view = Compactor([ClearToolInputs(keep=1)], Budget(1_000, 500), model="gpt-5.2")(history)
    shown = view.payload[1]["tool_calls"][0]
    assert shown["function"]["name"] == "write" and len(shown["function"]["arguments"]) < 200
    assert view.payload[-2] is history[-2]
