"""Tokens of images, documents and sound by their size: the bytes are never read as text."""

from refold.messages import Media

UNKNOWN = 1_500
"""Tokens of anything whose size is unknown: about the most that a picture costs."""
EDGE = 1_568
"""Pixels of the longer edge above which Anthropic scales a picture down."""
PIXELS = 750
"""Pixels a token, as Anthropic documents."""
MOST = 1_600
"""Tokens of the largest picture, after scaling."""
PAGE = 2_000
"""Tokens of a PDF page; Anthropic documents 1,500 to 3,000 for its text."""
PAGE_BYTES = 50_000
"""Bytes of a PDF page, where pages cannot be counted."""
SOUND = 32, 16_000
"""Tokens a second (as Gemini documents) and bytes a second (128 kbit/s)."""
FILM = 295, 250_000
"""Tokens a second (258 a frame and 32 of sound, with framing; Gemini) and bytes a second
(2 Mbit/s)."""
BYTES = 4
"""Bytes a token of a plain text sent as a document."""


def media_tokens(media: Media) -> int:
    """Return tokens by Anthropic's formula for pictures and PDF, Gemini's for sound and film."""
    if media.kind == "image":
        return _picture(media.width, media.height)
    if not media.size:
        return UNKNOWN
    if media.mime.startswith("text/"):
        return -(-media.size // BYTES)
    if media.kind == "document":
        return PAGE * -(-media.size // PAGE_BYTES)
    rate, bytes_a_second = FILM if media.kind == "video" else SOUND
    return -(-rate * media.size // bytes_a_second)


def tile_tokens(media: Media) -> int:
    """Return tokens as `media_tokens` does, with pictures by OpenAI's tiles (GPT-4o).

    Scaled into 2,048 x 2,048, the shorter edge to 768, then 85 tokens and 170 for each tile of 512
    pixels.
    """
    if media.kind != "image" or not (media.width and media.height):
        return media_tokens(media)
    scale = min(1, 2_048 / max(media.width, media.height))
    scale *= min(1, 768 / (scale * min(media.width, media.height)))
    across, down = (-(-max(1, round(edge * scale)) // 512) for edge in (media.width, media.height))
    return 85 + 170 * across * down


def _picture(width: int, height: int) -> int:
    if not (width and height):
        return UNKNOWN
    scale = min(1, EDGE / max(width, height))
    return max(1, min(MOST, round(width * height * scale * scale / PIXELS)))
