"""mini-swe-agent: base URL and key in the environment, as LiteLLM reads them."""

from pathlib import Path

from clients import task
from clients.client import MODEL_OUTPUT, Client, Command
from clients.reader import Reader
from refold.testing.scripted_provider import Call


def _configure(home: Path, url: str) -> Command:
    environment = {
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": "a-key",
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_SILENT_STARTUP": "1",
    }
    output = str(home / "trajectory.json")
    configs = ("mini.yaml", f"model.model_kwargs.max_tokens={MODEL_OUTPUT}")
    options = tuple(option for config in configs for option in ("-c", config))
    return Command(
        (
            *("-t", task.PROMPT, "-m", "openai/small", "--yolo", "--exit-immediately"),
            *("-o", output, *options),
        ),
        environment,
    )


CLIENTS = (
    Client(
        name="mini-swe-agent",
        package="mini-swe-agent",
        is_python=True,
        program="mini",
        api="openai_chat",
        model="small",
        configure=_configure,
        make_script=lambda: Reader(
            read=lambda path: Call("bash", {"command": f"cat {path}"}),
            shell=lambda command: Call("bash", {"command": command}),
            end=Call("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"}),
        ),
    ),
)
