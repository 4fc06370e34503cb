from refold.gateway.app import Gateway as Gateway
from refold.gateway.config import Config as Config
from refold.gateway.config import ConfigError as ConfigError
from refold.gateway.config import load_config as load_config
from refold.gateway.config import parse_upstream as parse_upstream
from refold.gateway.config import with_environment as with_environment
from refold.gateway.exchange import (
    GatewayResponse as GatewayResponse,
)
from refold.gateway.exchange import (
    Incoming as Incoming,
)
from refold.gateway.exchange import (
    Outgoing as Outgoing,
)
from refold.gateway.pipeline.pipeline import Pipeline as Pipeline
from refold.gateway.serve import (
    create_app as create_app,
)
from refold.gateway.serve import (
    create_gateway as create_gateway,
)
from refold.gateway.serve import (
    create_server as create_server,
)
from refold.gateway.serve import (
    run as run,
)
from refold.gateway.settings import Limits as Limits
from refold.gateway.settings import Settings as Settings
from refold.gateway.settings import Upstream as Upstream

NEEDED: tuple[str, ...]
