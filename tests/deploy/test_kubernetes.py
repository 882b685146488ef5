"""What a cluster gets: rendered by kubectl, held to the schemas of its API, and consistent."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from casekit import first_of

from causerie.settings.doors import door_addresses
from causerie.settings.load import load

ROOT = Path(__file__).parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = sorted(folder.name for folder in (KUBERNETES / "overlays").iterdir())
VERSION = "1.31"
FOREIGN = {"HTTPRoute", "PrometheusRule", "ScaledObject", "ServiceMonitor"}
"""Kinds that extensions of the API define; no schema of them is at hand."""
SECRETS = {
    "CAUSERIE_STORE_URL": "sqlite:////tmp/none.db",
    "PROVIDER_KEY": "k",
    "STORE_SECRET_KEY": "S" * 43 + "=",
}


def _kubectl() -> str:
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("no kubectl here")
    told = subprocess.run([program, "version", "--client"], capture_output=True, text=True)
    found = re.search(r"Kustomize Version: v(\d+)", told.stdout)
    if found is None or int(found[1]) < 4:
        pytest.skip("this kubectl knows no components of Kustomize")
    return program


def rendered(overlay: str) -> list[dict[str, Any]]:
    """Objects of an overlay, as a cluster gets them."""
    command = [_kubectl(), "kustomize", str(KUBERNETES / "overlays" / overlay)]
    told = subprocess.run(command, capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, "")
    return list(yaml.safe_load_all(told.stdout))


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the kind of each object that makes pods, and the template of those."""
    for each in objects:
        if each["kind"] in ("Deployment", "Job"):
            yield each["kind"], each["spec"]["template"]


def selects(selector: Mapping[str, str], template: dict[str, Any]) -> bool:
    labels = template.get("metadata", {}).get("labels", {})
    return selector.items() <= labels.items()


@pytest.mark.parametrize("overlay", first_of(OVERLAYS))
def test_every_object_is_one_of_the_api(overlay: str) -> None:
    objects = rendered(overlay)
    assert {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"} <= {
        each["kind"] for each in objects
    }
    for each in objects:
        assert each["metadata"]["namespace"] == "causerie"
        if each["kind"] not in FOREIGN:
            kubernetes_validate.validate(each, VERSION, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_selectors_choose_the_pods_that_serve(overlay: str) -> None:
    """A migration has labels of the program too, and gets no requests."""
    objects = {each["kind"]: each for each in rendered(overlay)}
    selectors = [
        objects["Service"]["spec"]["selector"],
        objects["Deployment"]["spec"]["selector"]["matchLabels"],
        objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ]
    for kind, template in pods(list(objects.values())):
        for selector in selectors:
            assert selects(selector, template) == (kind == "Deployment"), (kind, selector)
    if "ServiceMonitor" in objects:
        monitored = objects["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
        assert monitored.items() <= objects["Service"]["metadata"]["labels"].items()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_names_lead_somewhere(overlay: str) -> None:
    objects = rendered(overlay)
    kinds = {each["kind"]: each["metadata"]["name"] for each in objects}
    for _, template in pods(objects):
        [container] = template["spec"]["containers"]
        ports = {port["name"] for port in container.get("ports", ())}
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in container:
                assert container[probe]["httpGet"]["port"] in ports
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        assert mounts == volumes.keys()
        assert volumes["configuration"]["configMap"]["name"] == kinds["ConfigMap"]
        assert template["spec"]["serviceAccountName"] == kinds["ServiceAccount"]
    for each in objects:
        target = each["spec"].get("scaleTargetRef") if "spec" in each else None
        assert target is None or target["name"] == kinds["Deployment"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_replicas_are_left_to_the_autoscaler(overlay: str) -> None:
    """Whoever applies an overlay under load does not scale it back."""
    objects = {each["kind"]: each for each in rendered(overlay)}
    assert "replicas" not in objects["Deployment"]["spec"]


def test_only_what_is_public_is_routed() -> None:
    [route] = [each for each in rendered("team") if each["kind"] == "HTTPRoute"]
    settings = load(file=KUBERNETES / "overlays" / "team" / "causerie.toml").settings
    doors = {each.prefix for each in door_addresses(settings)}
    [rule] = route["spec"]["rules"]
    assert {each["path"]["value"] for each in rule["matches"]} == {
        "/v1",
        "/api",
        "/console",
        "/scim",
        *doors,
    }


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_have_no_more_rights_than_they_need(overlay: str) -> None:
    for _, template in pods(rendered(overlay)):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        for container in spec["containers"]:
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_configuration_is_right(overlay: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a pod has longer to stop than the service takes."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    [pod] = [template["spec"] for kind, template in pods(rendered(overlay)) if kind == "Deployment"]
    [container] = pod["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    settings = load(file=KUBERNETES / "overlays" / overlay / "causerie.toml").settings
    assert settings.metrics.listen == "0.0.0.0:9100"
    server = settings.server
    assert server.shutdown_delay_seconds > 0
    takes = server.shutdown_delay_seconds + server.drain_seconds
    assert pod["terminationGracePeriodSeconds"] > takes


def test_the_alerts_are_those_of_prometheus() -> None:
    """A cluster's object repeats the file, because Kustomize reads nothing outside its folder."""
    rule = KUBERNETES / "components" / "monitoring" / "prometheus-rule.yaml"
    alerts = ROOT / "deploy" / "prometheus" / "alerts.yaml"
    assert yaml.safe_load(rule.read_text())["spec"] == yaml.safe_load(alerts.read_text())
