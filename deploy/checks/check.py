"""Check the files in deploy/, each by a tool made for it: `make check-deploy`. What is not installed is named, and not
counted as checked; the exit code is 1 if a tool found something."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
WHERE = {
    "promtool": "Debian: prometheus",
    "systemd-analyze": "Debian: systemd",
    "go": "Debian: golang-go golang-github-masterminds-sprig-dev golang-k8s-sigs-yaml-dev",
    "logrotate": "Debian: logrotate",
    "npm": "Node.js",
    "helm": "not in Debian's packages; render_chart.go stands in for it",
    "docker": "only `docker compose config`; check-jsonschema reads the same files by the specification",
}
"""Where to get what the checks call, for what pip does not bring."""


def main() -> int:
    """All checks."""
    failed, missing = [], []
    for check in (recipe, scripts, compose, unit, rotation, manifests, chart, alerts, dashboard):
        try:
            check()
        except FileNotFoundError as error:
            missing.append(f"{check.__name__}: {error.filename} is not installed ({WHERE.get(error.filename, 'pip')})")
        except subprocess.CalledProcessError as error:
            failed.append(f"{check.__name__}: {' '.join(map(str, error.cmd))}\n{error.stdout}{error.stderr}")
        else:
            print(f"ok          {check.__name__}: {check.__doc__}")
    for line in missing:
        print(f"not tried   {line}")
    for line in failed:
        print(f"FAILED      {line}")
    return 1 if failed else 0


def run(command: str, *arguments: object, cwd: Path = DEPLOY, **environment: str) -> str:
    """What a tool says; an exception if it is not there, or finds something."""
    path = BIN / command if (BIN / command).exists() else shutil.which(command)
    if path is None:
        raise FileNotFoundError(2, "not installed", command)
    line = [str(path), *map(str, arguments)]
    return subprocess.run(
        line, cwd=cwd, check=True, capture_output=True, text=True, env=os.environ | environment
    ).stdout


def recipe() -> None:
    """hadolint reads the image's recipe"""
    run("hadolint", "Containerfile")


def scripts() -> None:
    """shellcheck reads the shell scripts"""
    run("shellcheck", "compose/found-trial.sh")


def compose() -> None:
    """the compose files are as the compose specification says"""
    files = sorted((DEPLOY / "compose").glob("*.yaml"))
    run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", *files)


def unit() -> None:
    """systemd knows every line of the unit and its drop-in, and rates its exposure below 2"""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "facade-site.service"
        written = (DEPLOY / "systemd" / path.name).read_text()
        path.write_text(written.replace("/opt/facade/bin/facade", str(BIN / "facade")))
        dropped = path.with_name(f"{path.name}.d")
        dropped.mkdir()
        shutil.copy(DEPLOY / "systemd" / "passphrase.conf", dropped)
        run("systemd-analyze", "verify", path)
        run("systemd-analyze", "security", "--offline=true", "--threshold=20", path)


def rotation() -> None:
    """logrotate reads its rule"""
    with tempfile.TemporaryDirectory() as directory:
        rule = Path(directory) / "rule"
        written = (DEPLOY / "systemd" / "logrotate").read_text()
        rule.write_text(written.replace("su facade facade", "").replace("/var/lib/facade", directory))
        rule.chmod(0o600)
        run("logrotate", "--debug", "--state", Path(directory) / "state", rule)


def manifests() -> None:
    """kubernetes-validate compares the manifests with the schemas of Kubernetes, strictly"""
    run("kubernetes-validate", "--strict", "--quiet", "kubernetes/site.yaml")


def chart() -> None:
    """the chart renders to the manifests in kubernetes/"""
    go = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode"}
    rendered = run("go", "run", "checks/render_chart.go", "h1", "helm/facade-site", **go)
    kept = DEPLOY / "kubernetes" / "site.yaml"
    if "--write" in sys.argv:
        heading = kept.read_text().partition("---\n")[0]
        kept.write_text(heading + rendered)
    if kept.read_text().partition("---\n")[2] != rendered.partition("---\n")[2]:
        raise subprocess.CalledProcessError(1, ["chart"], "kubernetes/site.yaml is older; write it with --write", "")


def alerts() -> None:
    """promtool reads the rules, and they fire when they should"""
    folder = DEPLOY / "monitoring"
    run("promtool", "check", "rules", "alerts.yaml", cwd=folder)
    run("promtool", "test", "rules", "alerts_test.yaml", cwd=folder)


def dashboard() -> None:
    """the dashboard has the type that Grafana's own schema gives it"""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        run("npm", "install", "--no-audit", "--no-fund", "@grafana/schema@13", "typescript@5", cwd=folder)
        content = json.dumps(json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text()))
        typed = f"import type {{ Dashboard }} from '@grafana/schema';\nexport const checked: Dashboard = {content};\n"
        (folder / "checked.ts").write_text(typed)
        options = "--noEmit --strict --skipLibCheck --module esnext --moduleResolution bundler --target es2022"
        run(str(folder / "node_modules" / ".bin" / "tsc"), *options.split(), "checked.ts", cwd=folder)


if __name__ == "__main__":
    sys.exit(main())
