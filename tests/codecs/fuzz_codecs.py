"""Fuzz the codecs: any bytes are read and written back unchanged, or refused with a `FormatError`.

python tests/codecs/fuzz_codecs.py -max_total_time=600

Needs atheris, which is not a dependency of the project. Without it, it prints a note and ends.
"""

import sys

try:
    import atheris
except ImportError:
    sys.exit("atheris is not installed: nothing was fuzzed")

with atheris.instrument_imports(include=["refold"]):
    from refold.codecs.detect import CODECS, open_payload
    from refold.errors import FormatError
    from refold.messages import Message, Text
    from refold.transcript import Transcript

FORMATS = (None, *(codec.NAME for codec in CODECS))


def fuzz(data: bytes) -> None:
    """Fuzz one input: the first byte selects the format, the rest is the payload."""
    format = FORMATS[data[0] % len(FORMATS)] if data else None
    payload = data[1:]
    try:
        envelope = open_payload(payload, format)
        messages = envelope.decode()
    except FormatError:
        return
    assert envelope.join([slice(0, len(envelope))]) == payload
    assert len(Transcript.of(messages)) == len(envelope)
    for item, message in zip(envelope.iter_entries(), messages, strict=True):
        assert envelope.codec.patch(item, message) is item
        try:
            envelope.codec.decode(
                envelope.codec.patch(item, Message(message.role, (Text("new"),))), ()
            )
        except FormatError:
            continue


if __name__ == "__main__":
    atheris.Setup(sys.argv, fuzz)
    atheris.Fuzz()
