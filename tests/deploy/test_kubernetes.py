"""deploy/kubernetes: manifests that hang together, and tell processes what they understand."""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.base.settings import Settings
from tests.deploy.conftest import ROOT
from worker.settings import Settings as WorkerSettings

FOLDER = ROOT / "deploy" / "kubernetes"
NAME = "app.kubernetes.io/name"
COMPONENT = "app.kubernetes.io/component"
VERSIONS = {
    "ConfigMap": "v1",
    "Service": "v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
    "PodDisruptionBudget": "policy/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
}
WORKLOADS = ("Deployment", "StatefulSet", "Job")


@pytest.fixture(scope="module")
def manifests() -> list[dict[str, Any]]:
    """Every manifest of the folder."""
    return [
        manifest
        for path in sorted(FOLDER.glob("*.yaml"))
        for manifest in yaml.safe_load_all(path.read_text())
    ]


def of_kind(manifests: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    """The manifests of some kinds."""
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def settings_of(manifests: list[dict[str, Any]], component: str) -> dict[str, str]:
    """The variables in the configuration of servers or of workers."""
    maps = {each["metadata"]["name"]: each["data"] for each in of_kind(manifests, "ConfigMap")}
    found: dict[str, str] = maps[f"finishline-{component}"]
    return found


def test_manifests_are_of_stable_versions_and_each_is_there_once(
    manifests: list[dict[str, Any]],
) -> None:
    seen = [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert len(set(seen)) == len(seen)
    assert {kind for kind, _ in seen} == set(VERSIONS)
    for each in manifests:
        assert each["apiVersion"] == VERSIONS[each["kind"]]
        assert each["metadata"]["labels"][NAME] == "finishline"


def test_pods_fit_the_restricted_standard(manifests: list[dict[str, Any]]) -> None:
    for workload in of_kind(manifests, *WORKLOADS):
        pod = workload["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 10001
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert re.search(r":\d[\w.]+$", container["image"])
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert "memory" in container["resources"]["limits"]
            volumes = {volume["name"] for volume in pod["volumes"]}
            claims = workload["spec"].get("volumeClaimTemplates", [])
            volumes |= {claim["metadata"]["name"] for claim in claims}
            assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert not [volume for volume in pod["volumes"] if "hostPath" in volume]


def test_selectors_find_the_pods_they_are_for(manifests: list[dict[str, Any]]) -> None:
    pods = [
        each["spec"]["template"]["metadata"]["labels"] for each in of_kind(manifests, *WORKLOADS)
    ]

    def matched(selector: dict[str, str]) -> int:
        return sum(selector.items() <= labels.items() for labels in pods)

    for workload in of_kind(manifests, "Deployment", "StatefulSet"):
        selector = workload["spec"]["selector"]["matchLabels"]
        assert selector.items() <= workload["spec"]["template"]["metadata"]["labels"].items()
    for service in of_kind(manifests, "Service"):
        assert matched(service["spec"]["selector"]) == 1
    for budget in of_kind(manifests, "PodDisruptionBudget"):
        assert matched(budget["spec"]["selector"]["matchLabels"]) == 1
    for policy in of_kind(manifests, "NetworkPolicy"):
        assert matched(policy["spec"]["podSelector"]["matchLabels"]) >= 1


def test_every_variable_is_a_setting_and_no_secret(manifests: list[dict[str, Any]]) -> None:
    for component, fields in (
        ("server", Settings.model_fields),
        ("worker", WorkerSettings.model_fields),
    ):
        told = settings_of(manifests, component)
        named = {v.removeprefix("FINISHLINE_").lower() for v in told if v.startswith("FINISHLINE_")}
        known = set(fields) | {f"{name}_file" for name in fields if component == "server"}
        assert named <= known
        for variable, value in told.items():
            assert isinstance(value, str), variable
            assert not re.search(r"://[^/@]*:[^/@]+@", value), variable
            if re.search("PASSWORD|TOKEN|KEY|CREDENTIALS", variable):
                assert value.startswith("/run/secrets/finishline/"), variable
    worker = next(each for each in of_kind(manifests, "StatefulSet"))
    own = {each["name"] for each in worker["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert {name.removeprefix("FINISHLINE_").lower() for name in own} <= set(
        WorkerSettings.model_fields
    )


def test_secrets_are_those_that_the_note_makes(manifests: list[dict[str, Any]]) -> None:
    note = (ROOT / "deploy" / "kubernetes.md").read_text()
    made = dict(re.findall(r"--from-file=(\w+)=secrets/(\w+)", note))
    read = {
        Path(value).name
        for component in ("server", "worker")
        for value in settings_of(manifests, component).values()
        if value.startswith("/run/secrets/finishline/")
    }
    assert read == set(made) | {"worker_token"}
    script = (ROOT / "deploy" / "make-secrets.sh").read_text()
    for name in made.values():
        assert f"keep {name}" in script
    worker = next(each for each in of_kind(manifests, "StatefulSet"))
    volumes = worker["spec"]["template"]["spec"]["volumes"]
    mine = next(volume["secret"] for volume in volumes if volume["name"] == "secrets")
    assert {item["key"] for item in mine["items"]} == {"broker_password", "worker_token"}
    for file in re.findall(r"deploy/kubernetes/([\w-]+\.yaml)", note):
        assert (FOLDER / file).is_file()


def test_a_server_drains_longer_than_the_probe_takes_to_notice(
    manifests: list[dict[str, Any]],
) -> None:
    pod = of_kind(manifests, "Deployment")[0]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    probe = container["readinessProbe"]
    drain_seconds = float(settings_of(manifests, "server")["FINISHLINE_DRAIN_SECONDS"])
    noticed_seconds = probe["periodSeconds"] * probe["failureThreshold"]
    assert noticed_seconds < drain_seconds < pod["terminationGracePeriodSeconds"] - 5
    assert probe["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_the_server_believes_no_pod_but_the_ingress_on_who_asked(
    manifests: list[dict[str, Any]],
) -> None:
    """Workers reach the server too, and a worker may be anybody's."""
    believed = settings_of(manifests, "server")["FORWARDED_ALLOW_IPS"]
    assert ip_network(believed).prefixlen >= 24


def test_a_worker_reaches_the_server_and_the_broker_alone(
    manifests: list[dict[str, Any]],
) -> None:
    policies = {
        each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "NetworkPolicy")
    }
    assert policies["finishline-default"]["podSelector"]["matchLabels"] == {NAME: "finishline"}
    worker = policies["finishline-worker"]
    assert "ingress" not in worker
    reached = [
        peer["podSelector"]["matchLabels"] for rule in worker["egress"] for peer in rule["to"]
    ]
    assert reached == [{NAME: "finishline", COMPONENT: "server"}, {NAME: "redis"}]
    limits = of_kind(manifests, "StatefulSet")[0]["spec"]["template"]["spec"]["containers"][0]
    assert limits["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert limits["resources"]["limits"] == limits["resources"]["requests"]
