"""Write the demo session into the package: `python -m benchmarks.demo_session`."""

import gzip
import json

from benchmarks.demo_session.story import session
from refold.session_files import DEMO_FILE


def main() -> None:
    """Write one entry per line, the same bytes each time."""
    lines = (
        json.dumps(entry, ensure_ascii=False, separators=(",", ":")) + "\n" for entry in session()
    )
    DEMO_FILE.write_bytes(gzip.compress("".join(lines).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
