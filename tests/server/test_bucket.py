"""Raw logs in an S3-compatible bucket, served by moto: a whole life of a submission."""

import sys

import boto3
import pytest
from botocore.exceptions import ClientError
from moto.server import ThreadedMotoServer

from server.base.artifacts import NOTHING, make_store
from server.base.errors import UnavailableError
from server.commands.check import check_server
from server.operations.backup import back_up, restore
from server.operations.export import export
from server.submissions.rescoring import rescore_submissions
from tests.server.conftest import list_stored_files
from tests.support.copies import settings_of, unserved
from tests.support.services import services_of


@pytest.fixture(scope="module")
def s3_url():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_url, monkeypatch):
    for name, value in {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=s3_url)
    client.create_bucket(Bucket="results")
    yield client
    for key in keys_of(client):
        client.delete_object(Bucket="results", Key=key)
    client.delete_bucket(Bucket="results")
    client.close()


def keys_of(s3):
    listed = s3.list_objects_v2(Bucket="results").get("Contents", [])
    return [each["Key"] for each in listed]


@pytest.fixture
def settings(settings, s3, s3_url):
    return settings.model_copy(
        update={"artifacts_url": "s3://results/kept/logs", "s3_endpoint_url": s3_url}
    )


def test_submission_lies_in_the_bucket(digits_submission, submit, client, olivia, s3, settings):
    division = digits_submission.claim["division"]
    digits_submission.claim["division"] = "open"
    assert submit(digits_submission, as_is=True).status_code == 422
    assert keys_of(s3) == list_stored_files(settings) == []
    digits_submission.claim["division"] = division
    made = submit(digits_submission)
    assert made.status_code == 201, made.text
    address = f"/api/v1/submissions/{made.json()['id']}"
    hashes = [run["log_sha256"] for run in client.get(address).json()["runs"]]
    keys = keys_of(s3)

    assert len(keys) == 4
    assert {f"kept/logs/{sha256[:2]}/{sha256}" for sha256 in hashes} < set(keys)
    assert list_stored_files(settings) == []
    log = client.get(f"{address}/runs/1/log", headers={"Accept-Encoding": "identity"})
    assert log.content == digits_submission.logs["run_1.log"]
    assert log.headers["content-length"] == str(len(log.content))
    again = rescore_submissions(services_of(client), progress=print)
    assert (again.failed, again.submissions) == ([], 1)

    s3.delete_object(Bucket="results", Key=f"kept/logs/{hashes[1][:2]}/{hashes[1]}")
    lost = client.get(f"{address}/runs/1/log")
    assert (lost.status_code, lost.json()["title"]) == (500, "Lost file")
    assert hashes[1] in lost.json()["detail"]


def test_bucket_that_takes_nothing(digits_submission, submit, client, s3, monkeypatch, caplog):
    bucket = services_of(client).artifacts.bucket

    def refuse(**_):
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutObject")

    bucket.check()
    assert keys_of(s3) == []  # Nothing is written before something was refused.
    with monkeypatch.context() as patched:
        patched.setattr(bucket._client, "put_object", refuse)
        refused = submit(digits_submission)
        with pytest.raises(UnavailableError, match="AccessDenied"):
            bucket.check()

    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert "s3://" not in refused.text  # Whoever asks is told no address; the log is.
    assert [line for line in caplog.messages if "s3://results" in line and "AccessDenied" in line]
    bucket.check()
    bucket.check()
    assert keys_of(s3) == [f"kept/logs/{NOTHING[:2]}/{NOTHING}"]


def test_logs_are_copied_and_restored(digits_submission, submit, client, s3, settings, tmp_path):
    submit(digits_submission)
    services = services_of(client)
    exported, _ = export(services, tmp_path / "exports")
    backed_up, _ = back_up(services, tmp_path / "backups")
    assert check_server(services, files=True, proofs=False).looked_at["files"] == 4

    for copy in (exported, backed_up):
        assert len(list(copy.glob("logs/*/*"))) == 4

    other = settings_of(tmp_path, f"sqlite:///{tmp_path / 'restored.db'}").model_copy(
        update={
            "artifacts_url": "s3://results/restored",
            "s3_endpoint_url": settings.s3_endpoint_url,
        }
    )
    with unserved(other) as empty:
        restore(empty, tmp_path / "backups")
        findings = check_server(empty, files=True, proofs=False)
        assert (findings.looked_at["files"], findings.faults) == (4, [])
        assert findings.orphans == []
    assert len([key for key in keys_of(s3) if key.startswith("restored/")]) == 4
    assert list_stored_files(other) == []

    lost = min(key for key in keys_of(s3) if key.startswith("kept/"))
    s3.delete_object(Bucket="results", Key=lost)
    [fault] = check_server(services, files=True, proofs=False).faults
    assert fault.startswith(lost.rsplit("/", 1)[-1])


def test_bucket_that_is_away_keeps_nothing(digits_submission, submit, client, s3, settings):
    kept = submit(digits_submission, key="once").json()["id"]
    store = services_of(client).artifacts
    assert store.bucket is not None
    services_of(client).artifacts.bucket._bucket = "no-such-bucket"

    refused = submit(digits_submission, key="again")
    unread = client.get(f"/api/v1/submissions/{kept}/runs/0/log")
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert "nothing was stored" in refused.json()["detail"]
    assert unread.status_code == 503
    assert len(client.get("/api/v1/submissions").json()["submissions"]) == 1
    assert list_stored_files(settings) == []


def test_a_bucket_without_boto3_stops_the_start_with_what_to_install(settings, monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3", None)

    with pytest.raises(RuntimeError, match=r"'finishline-server\[s3\]'"):
        make_store(settings)
