"""The contents of `make release` and the Containerfile, without building anything."""

import re
from pathlib import Path

import yaml
from release.container import FILE, read_instructions
from release.packages import EXTRAS, PROJECT

ROOT = Path(__file__).parents[2]
INSTRUCTIONS = list(read_instructions(FILE.read_text("utf-8")))
SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]


def of(name: str) -> list[str]:
    return [rest for instruction, rest in INSTRUCTIONS if instruction == name]


def test_every_extra_of_the_project_is_tried_by_the_release() -> None:
    assert set(EXTRAS) == set(PROJECT["optional-dependencies"])


def test_installed_packages_are_pinned() -> None:
    lines = (ROOT / "requirements/release.txt").read_text("utf-8").splitlines()
    assert [line for line in lines if not re.fullmatch(r"#.*|[\w.-]+==[\w.+!-]+", line)] == []
    given = {name for text in of("RUN") for name in re.findall(r"requirements/[\w-]+\.txt", text)}
    pins = "".join((ROOT / name).read_text("utf-8") for name in given)
    names = {
        re.sub("[-_.]+", "-", pin).lower()
        for pin in re.findall(r"^([\w.-]+)==", pins, re.MULTILINE)
    }
    for extra in ("gateway", "postgresql"):
        for requirement in PROJECT["optional-dependencies"][extra]:
            assert re.match(r"[\w-]+", requirement)[0] in names


def test_an_image_is_named_without_a_registry() -> None:
    images = [text.split()[0] for text in of("FROM")]
    images += [service["image"] for service in SERVICES.values() if "image" in service]
    assert images
    assert not any("/" in image or image.endswith(":latest") for image in images)


def test_the_gateway_container_is_not_root_and_is_stopped_by_sigterm() -> None:
    assert of("USER")[-1] == "10001:10001" and of("STOPSIGNAL") == ["SIGTERM"]
    (port,) = of("EXPOSE")
    assert f'"--port", "{port}"' in of("CMD")[0]
    assert f"127.0.0.1:{port}/refold/ready" in of("HEALTHCHECK")[0]
    gateway = SERVICES["gateway"]
    assert gateway["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert int(gateway["stop_grace_period"].removesuffix("s")) > 300
    assert gateway["cap_drop"] == ["ALL"] and gateway["read_only"] is True
    assert "healthcheck" in SERVICES[next(iter(gateway["depends_on"]))]
