"""What the files in deploy/ say of this library is true: commands, paths, metrics, reasons. By `make check-deploy`,
tools made for each of them read them."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from facade.cli import app
from facade.cli.passphrase import CREDENTIAL
from facade.experiment.config import Experiment
from facade.peers.node.journal import Metrics
from facade.peers.protocol.refusals import Reason
from facade.peers.trust import identity

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
RECIPE = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
UNIT = (DEPLOY / "systemd" / "facade-site.service").read_text()
ALERTS = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "site.yaml").read_text()))
YAML = [path for path in sorted(DEPLOY.rglob("*.yaml")) if "templates" not in path.parts]


def instructions(word):
    """The arguments of one kind of instruction in the image's recipe."""
    return [line.split(maxsplit=1)[1] for line in RECIPE.splitlines() if line.startswith(word + " ")]


def parsed(arguments):
    """The command that the words after `facade` call; what it does not know is an error."""
    group, context = get_command(app), None
    words = list(arguments)
    while hasattr(group, "commands"):
        context = group.make_context(words[0], [], parent=context, resilient_parsing=True)
        group, words = group.commands[words[0]], words[1:]
    return group.make_context(group.name, words, parent=context)


def of_kind(kind):
    (found,) = [manifest for manifest in MANIFESTS if manifest["kind"] == kind]
    return found


SITE = of_kind("StatefulSet")["spec"]["template"]["spec"]


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_every_yaml_file_can_be_read(path):
    assert all(isinstance(content, dict) for content in yaml.safe_load_all(path.read_text()))


def test_what_the_recipe_copies_is_in_the_repository_and_in_the_context():
    taken = (ROOT / ".dockerignore").read_text().splitlines()
    for copied in instructions("COPY"):
        if not copied.startswith("--from"):
            for source in copied.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in taken, source


def test_the_recipe_names_a_base_by_tag_and_no_index():
    assert re.search(r"^ARG BASE=\S+/debian:\d[\w.-]+$", RECIPE, re.M)
    assert 'ARG EXTRA_INDEX=""' in RECIPE
    assert "index-url" not in RECIPE.lower().replace("pip_extra_index_url", "")


def test_the_recipe_installs_an_extra_that_there_is_and_starts_a_node_as_an_ordinary_user():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert re.search(r'"/source\[(\w+)\]"', RECIPE)[1] in extras
    assert instructions("USER") == ["10001:10001"]
    assert instructions("ENTRYPOINT") == ['["facade"]']
    assert parsed(json.loads(instructions("CMD")[0])).params["home"] == Path("/site")


def test_the_unit_starts_a_node():
    command = shlex.split(re.search(r"^ExecStart=(.*)$", UNIT, re.M)[1])
    assert (Path(command[0]).name, command[1:3]) == ("facade", ["node", "up"])
    assert parsed(command[1:]).params["home"] == Path("/var/lib/facade/site")


def test_the_passphrase_is_handed_over_under_the_name_that_the_node_looks_for():
    assert f"{CREDENTIAL}:" in (DEPLOY / "systemd" / "passphrase.conf").read_text()
    assert f"/credentials/{CREDENTIAL}" in SITE["initContainers"][0]["args"][0]
    assert SITE["containers"][0]["env"] == [{"name": "CREDENTIALS_DIRECTORY", "value": "/credentials"}]


@pytest.mark.parametrize("name", ["trial", "site"])
def test_the_composed_containers_start_nodes(name):
    services = yaml.safe_load((DEPLOY / "compose" / f"{name}.yaml").read_text())["services"]
    nodes = [service["command"] for service in services.values() if service["command"][0] == "node"]
    assert len(nodes) == (3 if name == "trial" else 1)
    for command in nodes:
        assert parsed(command).command.name == "up"


def test_the_trial_is_founded_by_commands_that_there_are_for_as_many_sites_as_it_has():
    script = (DEPLOY / "compose" / "found-trial.sh").read_text().replace("\\\n", " ")
    options = set(re.findall(r"--[a-z-]+", script))
    known = {
        option
        for command in (["network", "admin"], ["network", "build"], ["node", "init"])
        for option in options_of(command)
    }
    assert options <= known
    services = yaml.safe_load((DEPLOY / "compose" / "trial.yaml").read_text())["services"]
    sites = [word for word in services["found"]["command"] if "=" in word]
    assert [site.partition("=")[0] for site in sites] == sorted(set(services) - {"found"})
    assert Experiment.load(DEPLOY / "compose" / "trial.toml").n == len(sites)


def options_of(words):
    command = get_command(app)
    for word in words:
        command = command.commands[word]
    return {option for parameter in command.params for option in parameter.opts}


def test_the_pod_starts_a_node_that_stays_and_copies_the_files_that_a_site_has():
    (container,) = SITE["containers"]
    assert parsed(container["args"]).params["stay"] is True
    placed = SITE["initContainers"][0]["args"][0]
    for name in (identity.TLS_KEY, identity.SIGNING_KEY, identity.CERTIFICATE, "node.toml", "membership.json"):
        assert name in placed
    for each in (*SITE["initContainers"], *SITE["containers"]):
        assert each["securityContext"]["readOnlyRootFilesystem"]
        assert not each["securityContext"]["allowPrivilegeEscalation"]
    assert SITE["securityContext"]["runAsNonRoot"]
    assert of_kind("Service")["spec"]["publishNotReadyAddresses"]


def test_probes_ask_for_pages_that_a_node_serves():
    source = (ROOT / "src" / "facade" / "peers" / "node" / "metrics_server.py").read_text()
    asked = {value["httpGet"]["path"] for key, value in SITE["containers"][0].items() if key.endswith("Probe")}
    asked |= set(re.findall(r"9100(/\w+)", instructions("HEALTHCHECK")[0]))
    assert asked == {"/healthz", "/readyz"}
    for path in asked:
        assert f'"{path}"' in source


def metric_names():
    """All metrics that a node serves, with the endings of counters and histograms."""
    return {
        name
        for family in Metrics().registry.collect()
        for ending in ("", "_total", "_sum", "_count", "_bucket", "_info")
        for name in [family.name + ending]
        if not (ending == "" and family.type in ("counter", "histogram", "info"))
        and not (ending == "_total" and family.type != "counter")
        and not (ending == "_info" and family.type != "info")
        and not (ending in ("_sum", "_count", "_bucket") and family.type != "histogram")
    }


def expressions():
    """Everything that is asked of Prometheus."""
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    variables = [each["query"]["query"] for each in DASHBOARD["templating"]["list"] if isinstance(each["query"], dict)]
    return [rule["expr"] for rule in ALERTS] + panels + variables


def test_every_metric_that_rules_and_dashboard_name_is_served_and_hardly_one_is_left_out():
    named = {name for text in expressions() for name in re.findall(r"\bfacade_\w+", text)}
    assert named - metric_names() == set()
    shown = {re.sub("_(total|sum|count|bucket)$", "", name) for name in named}
    families = {re.sub("_(total|sum|count|bucket)$", "", name) for name in metric_names()}
    assert families - shown == {"facade_neighbours_heard", "facade_retries", "facade_deadline_misses"}


def test_every_reason_that_a_rule_names_is_one():
    listed = {
        reason
        for text in expressions()
        for group in re.findall(r'reason=~"([^"]*)"', text)
        for reason in group.split("|")
    }
    words = {reason.word for reason in Reason}
    assert listed <= words
    unheeded = {"none", "ignored", "busy", "no-such-round", "no-such-chunk", "not-entitled", "too-long", "not-admitted"}
    assert words - listed == unheeded


def test_the_runbook_says_what_to_do_at_every_alarm_and_at_no_other():
    text = (ROOT / "docs" / "runbooks.md").read_text().partition("## Alarms")[2].partition("\n## ")[0]
    assert re.findall(r"^\*\*(Facade\w+)\*\*", text, re.M) == [rule["alert"] for rule in ALERTS]


def test_the_chart_and_the_image_have_the_version_of_the_library():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((DEPLOY / "helm" / "facade-site" / "Chart.yaml").read_text())
    values = yaml.safe_load((DEPLOY / "helm" / "facade-site" / "values.yaml").read_text())
    assert (chart["version"], chart["appVersion"], values["image"]) == (version, version, f"facade-site:{version}")
