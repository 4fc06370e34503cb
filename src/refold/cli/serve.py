"""`refold serve`: the gateway, from a file or from flags."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from refold import gateway as gateways
from refold.cli import terminal as screen

if TYPE_CHECKING:
    from refold.gateway.config.config import Config

SHARE = click.FloatRange(0, 1, min_open=True)


@click.command()
@click.option("--config", "path", metavar="FILE", help="Read settings from this TOML file; flags win.")
@click.option(
    "--upstream",
    "upstreams",
    multiple=True,
    metavar="URL",
    help="Send requests here: an address, a provider's name (openai, anthropic, gemini ...), "
    "or NAME=URL for what comes below /NAME. Several are chosen by API.",
)
@click.option("--host", metavar="ADDRESS", help="Listen here. Default: 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65_535), metavar="N", help="Default: 8484.")
@click.option("--store", metavar="PLACE", help="Keep edits here: an SQLite file, postgresql://... Default: refold.db.")
@click.option("--workers", type=click.IntRange(1), metavar="N", help="Answer with N processes. Default: 1.")
@click.option(
    "--record", metavar="TIME", help="Keep transcripts for this long after they grew last: 7d, 12h. Default: none."
)
@click.option("--soft", type=SHARE, metavar="SHARE", help="Prepare summaries from this share of the window on.")
@click.option("--hard", type=SHARE, metavar="SHARE", help="Compact from this share of the window on.")
@click.option("--target", type=SHARE, metavar="SHARE", help="Compact down to this share of the window.")
@click.option(
    "--allow-host", "allowed_hosts", multiple=True, metavar="NAME", help="Clients may call it by this name too."
)
@click.option(
    "--allow-origin", "allowed_origins", multiple=True, metavar="ORIGIN", help="Pages of this site may use it too."
)
@click.option("--no-headers", is_flag=True, help="Do not say in the answers' headers what was done.")
@click.option("--log", metavar="LEVEL", help="debug, info, warning or error.")
@click.option("--check", is_flag=True, help="Only say what would be served.")
def serve(path: str | None, upstreams: tuple[str, ...], no_headers: bool, check: bool, **said: Any) -> int:
    """Run the gateway: an agent's base URL becomes this, and its long sessions go on.

    Bytes pass unchanged where nothing is due. Stops at Ctrl-C, streams are finished first.
    """
    try:
        config = _configured(path, upstreams, no_headers, said).check_servable()
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    for one in config.upstreams:
        screen.complain_all([f"http://{config.host}:{config.port}{one.prefix} -> {one.url} ({one.name})"])
    if check:
        screen.emit({"listens": f"{config.host}:{config.port}", "upstreams": [one.name for one in config.upstreams]})
        return 0
    gateways.run(config)
    return 0


def _configured(path: str | None, upstreams: tuple[str, ...], no_headers: bool, said: dict[str, Any]) -> "Config":
    """The file's settings, with the flags over them. Raises ValueError, ImportError."""
    shares = {name: said.pop(name) for name in ("soft", "hard", "target")}
    config = gateways.load_config(path) if path else gateways.with_environment(gateways.Config())
    settings = replace(config.settings, **{name: value for name, value in shares.items() if value is not None})
    changes = {name: value for name, value in said.items() if value not in (None, ())}
    named = tuple(gateways.parse_upstream(one) for one in upstreams)
    if no_headers:
        changes["answer_headers"] = False
    return replace(config, settings=settings, upstreams=named or config.upstreams, **changes)
