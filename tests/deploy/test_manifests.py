"""docker-compose.yml, the Dockerfile and deploy/kubernetes, without an engine."""

import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from ipaddress import ip_network
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

from server.base.settings import Settings
from tests.deploy.conftest import ROOT
from worker.settings import Settings as WorkerSettings

ONE_SHOTS = {"migrate", "backup", "export"}
LASTING = {"postgres", "redis", "store", "server", "proxy", "worker-cpu", "worker-gpu"}
FINAL_STAGES = ("server", "worker", "store")
SECRET_WORDS = re.compile(r"PASSWORD|TOKEN|SECRET|CREDENTIALS|KEY")
PLAIN_SWITCHES = {"GARAGE_ALLOW_WORLD_READABLE_SECRETS"}
ROOMS = {"server": Settings, "worker": WorkerSettings}


def test_the_compose_file_fits_the_published_schema():
    schema = ("--builtin-schema", "vendor.compose-spec", "docker-compose.yml")
    commands = [[sys.executable, "-m", "check_jsonschema", *schema]]
    docker = shutil.which("docker")
    if (
        docker
        and not subprocess.run([docker, "compose", "version"], capture_output=True).returncode
    ):
        commands.append([docker, "compose", "--profile", "*", "config", "--quiet"])
    for command in commands:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr


def check_settings(variables, room, *, secrets):
    """Every variable is a setting of its room, and no secret stands in one."""
    fields = set(ROOMS[room].model_fields)
    known = fields | {f"{field}_file" for field in fields if room == "server"}
    named = {
        variable.removeprefix("FINISHLINE_").lower()
        for variable in variables
        if variable.startswith("FINISHLINE_")
    }
    assert named <= known, named - known
    check_secrets(variables, secrets=secrets)


def check_secrets(variables, *, secrets):
    for variable, value in variables.items():
        assert not re.search(r"://[^/@]*:[^/@]+@", value), variable
        if SECRET_WORDS.search(variable) and variable not in PLAIN_SWITCHES:
            assert value.startswith(secrets), variable


def test_every_service_is_confined(compose):
    assert set(compose["services"]) == ONE_SHOTS | LASTING
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "cap_add" not in service, name
        assert "privileged" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["user"] not in ("root", "0", "0:0"), name
        assert set(service["deploy"]["resources"]["limits"]) == {"cpus", "memory"}, name
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}, name
        assert re.fullmatch(r"\d+s", service["stop_grace_period"]), name
        assert service["restart"] == {"migrate": "on-failure", "backup": "no", "export": "no"}.get(
            name, "unless-stopped"
        ), name
        health = service["healthcheck"]
        assert health == {"disable": True} if name in ONE_SHOTS else health["test"], name


def test_no_image_can_change_under_its_name(compose, dockerfile):
    images = [s["image"] for s in compose["services"].values() if "build" not in s]
    images += [
        source for stage in dockerfile.values() if (source := stage[0].split()[1]) not in dockerfile
    ]
    assert len(images) == 6
    for image in images:
        assert re.search(r":v?\d+\.?\d*[\w.-]*$", image), image


def test_every_variable_is_a_setting_of_who_gets_it_and_no_secret(compose):
    secrets = ("/run/secrets/", "/run/finishline/")
    for name, service in compose["services"].items():
        room, variables = service.get("build", {}).get("target", ""), service.get("environment", {})
        if room in ROOMS:
            check_settings(variables, room, secrets=secrets)
        else:
            assert "FINISHLINE_" not in " ".join(variables), name
            check_secrets(variables, secrets=secrets)
        for path in re.findall(r"/run/secrets/(\w+)", str(service)):
            assert path in service["secrets"], f"{name} reads {path}"
    server = compose["services"]["server"]["environment"]
    assert {"FINISHLINE_SECURE_COOKIES", "FINISHLINE_DRAIN_SECONDS"} <= set(server)


def test_secrets_are_made_by_the_script_once_and_for_nobody_else(compose, tmp_path):
    (tmp_path / "deploy").mkdir()
    script = shutil.copy(ROOT / "deploy/make-secrets.sh", tmp_path / "deploy")
    for _ in range(2):
        subprocess.run(["/bin/sh", script], check=True, capture_output=True, timeout=30)
        made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert {f"./secrets/{name}" for name in made} == {
        secret["file"] for secret in compose["secrets"].values()
    }
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert len(set(made.values())) == len(made)
    assert min(len(secret) for secret in made.values()) > 40
    again = subprocess.run(["/bin/sh", script], check=True, capture_output=True, timeout=30)
    assert again.stdout == b""
    assert made == {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}


def test_whoever_waits_waits_for_what_can_come_true(compose):
    services = compose["services"]
    for name, service in services.items():
        for other, wanted in service.get("depends_on", {}).items():
            one_shot = wanted["condition"] == "service_completed_successfully"
            assert one_shot == (other in ONE_SHOTS), f"{name} waits for {other}"
            assert "profiles" not in services[other], f"{name} waits for {other}"


def test_a_worker_reaches_the_broker_and_the_proxy_alone(compose):
    services = compose["services"]

    def beside(name):
        mine = set(services[name]["networks"])
        return {other for other in services if mine & set(services[other]["networks"])} - {name}

    workers = {"worker-cpu", "worker-gpu"}
    assert beside("worker-cpu") - workers == beside("worker-gpu") - workers == {"redis", "proxy"}
    assert beside("postgres") == {"store", "server", *ONE_SHOTS}
    assert beside("redis") == workers | {"server"}
    published = {name for name, service in services.items() if "ports" in service}
    assert published == {"proxy"}
    outside = {name for name, network in compose["networks"].items() if not network}
    assert outside == {"front", "out"}
    assert [name for name in services if "out" in services[name]["networks"]] == ["server"]


def test_everything_mounted_is_declared_and_there(compose):
    services = compose["services"].values()
    mounted = {volume.split(":")[0] for s in services for volume in s.get("volumes", [])}
    assert mounted == set(compose["volumes"])
    used = {config["source"] for s in services for config in s.get("configs", [])}
    assert used == set(compose["configs"])
    for config in compose["configs"].values():
        assert (ROOT / config["file"]).is_file()


def test_state_outlives_its_container(compose):
    folders = {"postgres": "/var/lib/postgresql", "redis": "/data", "store": "/var/lib/garage"}
    for name, folder in folders.items():
        assert compose["services"][name]["volumes"] == [f"{name}:{folder}"]
    assert "appendonly yes" in (ROOT / "deploy/redis.conf").read_text()
    store = tomllib.loads((ROOT / "deploy/garage.toml").read_text())
    assert (store["data_fsync"], store["metadata_fsync"]) == (True, True)
    server = compose["services"]["server"]["environment"]
    assert server["AWS_DEFAULT_REGION"] == store["s3_api"]["s3_region"]
    bucket = compose["services"]["store"]["environment"]["GARAGE_DEFAULT_BUCKET"]
    assert server["FINISHLINE_ARTIFACTS_URL"].startswith(f"s3://{bucket}/")


def test_the_server_has_time_to_drain(compose):
    server = compose["services"]["server"]
    drain_seconds = float(server["environment"]["FINISHLINE_DRAIN_SECONDS"])
    probe = server["healthcheck"]
    noticed_seconds = int(probe["interval"][:-1])
    assert noticed_seconds < drain_seconds < int(server["stop_grace_period"][:-1]) - 5


@pytest.fixture(scope="module")
def proxy():
    """The proxy's configuration."""
    return (ROOT / "deploy/nginx.conf").read_text()


def location(proxy, opening):
    """The directives of one location of the proxy's configuration."""
    return proxy[proxy.index(opening) :].split("}")[0]


def test_the_proxy_says_who_asked_and_keeps_no_event_back(proxy):
    assert proxy.count("{") == proxy.count("}")
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in proxy
    assert "proxy_buffering off;" in location(proxy, "location ~ /events$")


def test_the_proxy_takes_large_bodies_for_submissions_alone_and_stores_none(proxy):
    everywhere = proxy[: proxy.index("upstream servers")]
    submissions = location(proxy, "location ~ ^/(api/v1/submissions|submit)$ {")
    limits = ((everywhere, "max_json_bytes"), (submissions, "max_request_bytes"))
    for directives, setting in limits:
        (largest,) = re.findall(r"client_max_body_size (\d+)m;", directives)
        assert int(largest) * 2**20 == Settings.model_fields[setting].default
    assert proxy.count("client_max_body_size") == len(limits)
    # A body that is stored first lies in this container's memory, whoever sent it.
    assert "proxy_request_buffering off;" in everywhere
    assert "proxy_request_buffering on" not in proxy


def test_the_proxy_limits_a_crowd_and_says_when_to_come_again(proxy):
    for limit in ("limit_req zone=requests", "limit_conn connections"):
        assert limit in proxy[: proxy.index("server {")]
    assert proxy.count("_status 429;") == 2
    assert "error_page 429 @later;" in proxy
    later = location(proxy, "location @later {")
    assert ("add_header Retry-After 1 always;" in later, "return 429;" in later) == (True, True)


def test_no_folder_in_memory_outgrows_its_container(compose):
    units = {"m": 2**20, "g": 2**30}
    for name, service in compose["services"].items():
        memory = service["deploy"]["resources"]["limits"]["memory"]
        sizes = [re.search(r"size=(\d+)([mg])", each) for each in service["tmpfs"]]
        assert None not in sizes, f"{name}: a tmpfs without a size takes half of the host's memory"
        in_memory = sum(int(size[1]) * units[size[2]] for size in sizes if size)
        assert in_memory <= int(memory[:-1]) * units[memory[-1]], name
    server = compose["services"]["server"]
    uploads = int(server["environment"]["FINISHLINE_MAX_UPLOAD_BYTES_IN_FLIGHT"])
    (folder,) = server["tmpfs"]
    assert "size=1g," in folder
    assert uploads < 2**30


def test_the_server_believes_its_proxy_alone_on_who_asked(compose):
    """Its networks but one are shared with others, which could send the header too."""
    server = compose["services"]["server"]
    believed = server["environment"]["FORWARDED_ALLOW_IPS"]
    (subnet,) = [each["subnet"] for each in compose["networks"]["edge"]["ipam"]["config"]]
    assert believed == subnet
    default = re.fullmatch(r"\$\{FINISHLINE_EDGE_SUBNET:-(.+)\}", subnet)
    assert default is not None
    assert ip_network(default[1]).is_private
    on_edge = {name for name, each in compose["services"].items() if "edge" in each["networks"]}
    assert on_edge == {"server", "proxy"}


def test_the_images_contain_only_their_rooms(dockerfile):
    copied = {
        stage: {line.split()[1].rstrip("/") for line in lines if re.match(r"COPY [\w/]+/ ", line)}
        for stage, lines in dockerfile.items()
    }
    assert copied["server-builder"] == {
        *("finishline", "server", "web", "migrations", "benchmarks", "docs", "examples"),
    }
    assert copied["worker"] == {"finishline", "worker", "reference_models"}
    for line in (line for lines in dockerfile.values() for line in lines):
        if line.startswith("COPY --from="):
            assert line.split()[1].removeprefix("--from=") in dockerfile, line
        elif line.startswith("COPY "):
            assert [each for each in line.split()[1:-1] if not (ROOT / each).exists()] == []


def test_the_images_run_as_nobody_and_bring_the_client_of_the_database_alone(dockerfile, compose):
    for stage in FINAL_STAGES:
        lines = dockerfile[stage]
        after = lines[lines.index("USER 10001:10001") + 1 :]
        assert not [line for line in after if line.startswith(("RUN", "COPY", "USER"))], stage
        assert [line for line in lines if line.startswith("HEALTHCHECK")], stage
        assert lines[-1].startswith('CMD ["'), stage
    for stage, lines in dockerfile.items():
        text = "\n".join(lines)
        assert not re.search(r"ADD |curl|wget|:latest|sudo", text), stage
        assert stage == "server" or "apt-get" not in text, stage
        assert stage.endswith("builder") or "pip install" not in text, stage
    version = compose["services"]["postgres"]["image"].split(":")[1].split(".")[0]
    assert f" postgresql-client-{version} " in "\n".join(dockerfile["server"])
    assert "PYTHONDONTWRITEBYTECODE=1" in "\n".join(dockerfile["base"])


def test_the_worker_image_asks_for_the_ranges_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked_of_a_worker = [*extras["worker"], *extras["vision"], *extras["gpu"]]
    light = tomllib.loads((ROOT / "finishline/pyproject.toml").read_text())["project"]
    shared = light["dependencies"] + light["optional-dependencies"]["stats"]
    declared = requirements(project["dependencies"] + shared + asked_of_a_worker)
    lines = (ROOT / "deploy/worker-requirements.txt").read_text().splitlines()
    asked = requirements([line for line in lines if not line.startswith("#")])
    assert {name: declared[name] for name in asked} == asked
    assert {"torchvision", "nvidia-ml-py", "packaging"} < set(asked)  # kombu imports the last one
    assert not {"sqlalchemy", "fastapi", "alembic"} & set(asked)


# Imports all of the image's code, and prints what the modules of it import at their top.
IMPORTS_ALL = """
import ast, importlib, pathlib, sys
for folder in ("worker", "reference_models"):
    for path in sorted(pathlib.Path(folder).rglob("*.py")):
        if "inside" not in path.parts:
            name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
            importlib.import_module(name)
for name, module in list(sys.modules.items()):
    is_ours = name.partition(".")[0] in ("worker", "reference_models", "finishline")
    if is_ours and module.__file__:  # A folder without __init__.py has none.
        for node in ast.parse(pathlib.Path(module.__file__).read_text()).body:
            if isinstance(node, ast.ImportFrom):
                print(node.module.partition(".")[0])
            elif isinstance(node, ast.Import):
                print(*(each.name.partition(".")[0] for each in node.names))
"""


def test_worker_image_has_what_it_imports():
    lines = (ROOT / "deploy/worker-requirements.txt").read_text().splitlines()
    known, found = set(), {*requirements([line for line in lines if not line.startswith("#")])}
    while found:
        name = found.pop()
        known.add(canonicalize_name(name))
        with suppress(PackageNotFoundError):  # An extra's, which is not installed here.
            needed = {
                re.match(r"[\w.-]+", each)[0]
                for each in requires(name) or ()
                if "extra ==" not in each
            }
            found |= {each for each in needed if canonicalize_name(each) not in known}
    imported = subprocess.run(
        [sys.executable, "-c", IMPORTS_ALL], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    owners = packages_distributions()
    used = {canonicalize_name(owner) for name in imported for owner in owners.get(name, ())}
    assert {"celery", "torch", "pydantic"} <= used
    assert used - known - {"finishline-server", "finishline-tta"} == set()


def requirements(names):
    """Version ranges by distribution name, without extras."""
    split = [re.fullmatch(r"([\w-]+)(?:\[\w+\])?(.*)", name) for name in names]
    return {match.group(1): match.group(2) for match in split if match}


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
def manifests():
    """Every manifest of the folder."""
    return [
        manifest
        for path in sorted(FOLDER.glob("*.yaml"))
        for manifest in yaml.safe_load_all(path.read_text())
    ]


def of_kind(manifests, *kinds):
    """The manifests of some kinds."""
    return [manifest for manifest in manifests if manifest["kind"] in kinds]


def settings_of(manifests, component):
    """The variables in the configuration of servers or of workers."""
    maps = {each["metadata"]["name"]: each["data"] for each in of_kind(manifests, "ConfigMap")}
    return maps[f"finishline-{component}"]


def test_manifests_are_of_stable_versions_and_each_is_there_once(manifests):
    seen = [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert len(set(seen)) == len(seen)
    assert {kind for kind, _ in seen} == set(VERSIONS)
    for each in manifests:
        assert each["apiVersion"] == VERSIONS[each["kind"]]
        assert each["metadata"]["labels"][NAME] == "finishline"


def test_pods_fit_the_restricted_standard(manifests):
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


def test_selectors_find_the_pods_they_are_for(manifests):
    pods = [
        each["spec"]["template"]["metadata"]["labels"] for each in of_kind(manifests, *WORKLOADS)
    ]

    def matched(selector):
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


def test_every_variable_is_a_setting_and_no_secret(manifests):
    for component in ROOMS:
        told = settings_of(manifests, component)
        check_settings(told, component, secrets="/run/secrets/finishline/")
    (worker,) = of_kind(manifests, "StatefulSet")
    own = worker["spec"]["template"]["spec"]["containers"][0]["env"]
    check_settings({each["name"]: "" for each in own}, "worker", secrets="")


def test_secrets_are_those_that_the_note_makes(manifests):
    note = (ROOT / "deploy" / "kubernetes.md").read_text()
    made = dict(re.findall(r"--from-file=(\w+)=secrets/(\w+)", note))
    read = {
        Path(value).name
        for component in ROOMS
        for value in settings_of(manifests, component).values()
        if value.startswith("/run/secrets/finishline/")
    }
    assert read == set(made) | {"worker_token"}
    script = (ROOT / "deploy" / "make-secrets.sh").read_text()
    assert [name for name in made.values() if f"keep {name}" not in script] == []
    (worker,) = of_kind(manifests, "StatefulSet")
    volumes = worker["spec"]["template"]["spec"]["volumes"]
    mine = next(volume["secret"] for volume in volumes if volume["name"] == "secrets")
    assert {item["key"] for item in mine["items"]} == {"broker_password", "worker_token"}
    files = re.findall(r"deploy/kubernetes/([\w-]+\.yaml)", note)
    assert [file for file in files if not (FOLDER / file).is_file()] == []


def test_a_server_drains_longer_than_the_probe_takes_to_notice(manifests):
    pod = of_kind(manifests, "Deployment")[0]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    probe = container["readinessProbe"]
    drain_seconds = float(settings_of(manifests, "server")["FINISHLINE_DRAIN_SECONDS"])
    noticed_seconds = probe["periodSeconds"] * probe["failureThreshold"]
    assert noticed_seconds < drain_seconds < pod["terminationGracePeriodSeconds"] - 5
    assert probe["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_the_server_believes_no_pod_but_the_ingress_on_who_asked(manifests):
    """Workers reach the server too, and a worker may be anybody's."""
    believed = settings_of(manifests, "server")["FORWARDED_ALLOW_IPS"]
    assert ip_network(believed).prefixlen >= 24


def test_a_worker_reaches_the_server_and_the_broker_alone(manifests):
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
