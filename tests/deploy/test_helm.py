"""The Helm chart: linted, and the same objects as the overlays of Kustomize."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml
from test_kubernetes import FOREIGN, KUBERNETES, OVERLAYS, ROOT, VERSION, rendered

from causerie import __version__

CHART = ROOT / "deploy" / "helm" / "causerie"
FETCHED = ROOT / "build" / "helm" / "helm"
_OWN_TO_HELM = {"app.kubernetes.io/instance", "annotations", "imagePullPolicy", "namespace"}


def helm(*arguments: str) -> str:
    program = shutil.which("helm") or (str(FETCHED) if FETCHED.exists() else None)
    if program is None:
        pytest.skip("no Helm here; `make helm` fetches it")
    told = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    return told.stdout


def chart(overlay: str) -> list[dict[str, Any]]:
    """Objects of the chart with the values of an overlay."""
    text = KUBERNETES / "overlays" / overlay / "causerie.toml"
    values = ["--values", str(CHART / "ci" / f"{overlay}-values.yaml")]
    values += ["--set-file", f"configuration={text}"]
    return list(yaml.safe_load_all(helm("template", "causerie", str(CHART), *values)))


def alike(value: Any) -> Any:
    """What both have in common: Helm numbers its releases, Kustomize hashes configurations."""
    if isinstance(value, dict):
        return {name: alike(each) for name, each in value.items() if name not in _OWN_TO_HELM}
    if isinstance(value, list):
        return [alike(each) for each in value]
    if isinstance(value, str):
        return re.sub(r"^causerie(-migration)?(-[a-z0-9]{10}|-1|:[0-9.]+)$", r"causerie\1", value)
    return value


def test_the_chart_is_of_this_version() -> None:
    described = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (described["version"], described["appVersion"]) == (__version__, __version__)


def test_helm_finds_nothing_wrong() -> None:
    helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_chart_makes_the_objects_of_the_overlay(overlay: str) -> None:
    made = chart(overlay)
    for each in made:
        if each["kind"] not in FOREIGN:
            kubernetes_validate.validate(each, VERSION, strict=True)
    ours = {each["kind"]: alike(each) for each in made}
    theirs = {each["kind"]: alike(each) for each in rendered(overlay)}
    assert ours.keys() == theirs.keys()
    if "ServiceMonitor" in ours:
        monitored = ours["ServiceMonitor"]["spec"]["selector"]["matchLabels"]
        assert monitored.items() <= ours["Service"]["metadata"]["labels"].items()
    for kind, each in theirs.items():
        for one in (each, ours[kind]):
            one["metadata"].pop("labels", None)  # Kustomize leaves them out where nothing selects
        assert ours[kind] == each, kind
    [pod] = [each for each in made if each["kind"] == "Deployment"]
    assert "checksum/configuration" in pod["spec"]["template"]["metadata"]["annotations"]
