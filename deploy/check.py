"""Validate what is in this directory by the schemas and tools of those whose formats they are: `make deploy`.

Kubernetes' own schemas (kubernetes-validate), that of the Compose Specification (check-jsonschema), `promtool` where Prometheus
is installed and `nginx -t` where nginx is (`apt-get install prometheus nginx`). What could not be checked is said.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import kubernetes_validate
import yaml

HERE = Path(__file__).parent


def check_kubernetes():
    """Every object of every manifest, strictly: an unknown key is an error."""
    for path in sorted((HERE / "kubernetes").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            version = kubernetes_validate.latest_version()
            kubernetes_validate.validate(document, version, strict=True)
            print(f"{path.name}: {document['kind']} is valid in Kubernetes {version}")


def is_wrong(tool, *arguments):
    """Run a tool, if it is there, and return whether it found anything wrong."""
    program = shutil.which(tool) or shutil.which(tool, path=Path(sys.executable).parent)
    if program is None:
        print(f"NOT CHECKED: {tool} is not installed")
        return False
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    print((done.stdout + done.stderr).strip())
    return done.returncode != 0


def is_prometheus_wrong(folder):
    """Check configuration and alerts, with a token where the configuration wants one."""
    (folder / "token").write_text("x" * 16)
    text = (HERE / "prometheus.yml").read_text()
    (folder / "prometheus.yml").write_text(text.replace("/run/secrets/admin_token", "token"))
    shutil.copy(HERE / "alerts.yml", folder)
    values = yaml.safe_load((HERE / "kubernetes" / "prometheus.values.yml").read_text())
    (job,) = yaml.safe_load(
        values["extraScrapeConfigs"].replace("/etc/refold/admin-token", "token")
    )
    job.pop("kubernetes_sd_configs")  # Debian's promtool is built without it
    (folder / "chart.yml").write_text(yaml.safe_dump({"scrape_configs": [job]}))
    configs = [f"{folder}/{name}.yml" for name in ("prometheus", "chart")]
    return is_wrong("promtool", "check", "config", *configs)


def is_nginx_wrong(folder):
    """Check the balancer's configuration, with an address for the name that Compose's network has."""
    text = (HERE / "nginx.conf").read_text().replace("gateway:8484", "127.0.0.1:8484")
    (folder / "nginx.conf").write_text(f"pid {folder}/pid; error_log stderr;\n{text}")
    return is_wrong("nginx", "-t", "-c", f"{folder}/nginx.conf")


def main():
    """Check everything; 1 if anything is wrong."""
    check_kubernetes()
    with tempfile.TemporaryDirectory() as name:
        compose = ("--builtin-schema", "vendor.compose-spec", str(HERE / "compose.yaml"))
        checks = [
            is_wrong("check-jsonschema", *compose),
            is_prometheus_wrong(Path(name)),
            is_nginx_wrong(Path(name)),
        ]
    return int(any(checks))


if __name__ == "__main__":
    sys.exit(main())
