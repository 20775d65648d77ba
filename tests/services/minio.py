"""A real MinIO for tests: an object store over TLS, with an authority of its own."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import boto3
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError

from tests.services.certificates import Authority
from tests.services.go_programs import program_file
from tests.services.server_process import ServerProcess, free_port

__all__ = ["READ_ONLY", "WRITER", "Account", "MinIO", "minio"]

_ONCE: Final = Config(
    connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 1, "mode": "standard"}
)
"""So that a test sees every answer itself."""

_OF_NOTHING: Final = hashlib.sha256().hexdigest()
READ_ONLY: Final = ("s3:GetObject", "s3:ListBucket", "s3:GetBucketLocation")
"""What an account may do that reads."""
WRITER: Final = (
    "s3:ListBucket",
    "s3:GetObject",
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListBucketMultipartUploads",
    "s3:ListMultipartUploadParts",
)
"""What the page about catalogs says that an export needs."""


@dataclass(frozen=True, slots=True)
class Account:
    """Credentials as a client has them; a token belongs to those that end by themselves."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


class MinIO(ServerProcess):
    """An object store of one disk; what it has stored outlives its end."""

    region = "us-east-1"

    def __init__(self, directory: Path) -> None:
        self._numbers = itertools.count()
        self.port = free_port()
        self.endpoint = f"https://127.0.0.1:{self.port}"
        self.root = Account("administrator", "administrator's secret")
        self.access_key, self.secret_key = self.root.access_key, self.root.secret_key
        authority = Authority(directory)
        self.ca_file = authority.file
        """The authority's certificate, as PEM."""
        signed, certificates = authority.sign(), directory / "certificates"
        certificates.mkdir()
        signed.certificate.rename(certificates / "public.crt")
        signed.key.rename(certificates / "private.key")
        settings = {
            "HOME": str(directory),
            "MINIO_ROOT_USER": self.access_key,
            "MINIO_ROOT_PASSWORD": self.secret_key,
            "MINIO_REGION": self.region,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }
        # Nothing of the machine's own environment: it may have settings of another MinIO.
        command = ["env", "-i", *(f"{name}={text}" for name, text in settings.items())]
        command += [str(program_file("minio")), "server", "--quiet"]
        command += ["--certs-dir", str(certificates), "--address", f"127.0.0.1:{self.port}"]
        super().__init__("MinIO", [*command, str(directory / "data")], directory, self._answers)

    def make_bucket(self, name: str = "lake") -> str:
        """Make a bucket that no other test has; return its name, which begins with `name`."""
        made = f"{name}-{next(self._numbers)}"
        self.client().create_bucket(Bucket=made)
        return made

    def client(self, account: Account | None = None, *, endpoint: str | None = None) -> Any:
        """Return boto3's client for an account, the administrator's else; it never retries.

        Args:
            account: whose credentials it uses.
            endpoint: where it asks instead, as the proxy of a network fault.
        """
        return self._client("s3", account, endpoint)

    def account(self, *actions: str, bucket: str, below: str = "", seconds: int = 3600) -> Account:
        """Return credentials, with a token, that may do some things with one bucket.

        Args:
            actions: as the store names them, `s3:GetObject`; `READ_ONLY` has those of a reader.
            bucket: the one they hold for.
            below: of its objects those whose keys begin so; all by default.
            seconds: until they end, at least 900.
        """
        resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/{below}*"]
        allowed = {"Effect": "Allow", "Action": list(actions), "Resource": resources}
        made = self._client("sts").assume_role(
            RoleArn="arn:aws:iam::0:role/of-tests",
            RoleSessionName="tests",
            Policy=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}),
            DurationSeconds=seconds,
        )["Credentials"]
        return Account(made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"])

    def end_accounts(self) -> None:
        """End what `account` returned until now, as their time does: the server forgets them."""
        url = f"{self.endpoint}/minio/admin/v3/revoke-tokens/builtin?fullRevoke=true"
        request = AWSRequest("POST", url, headers={"X-Amz-Content-Sha256": _OF_NOTHING})
        keys = Credentials(self.root.access_key, self.root.secret_key)
        SigV4Auth(keys, "s3", self.region).add_auth(request)
        said = requests.post(
            url, headers=dict(request.headers), verify=str(self.ca_file), timeout=30
        )
        assert said.ok, said.text

    def mend(self) -> None:
        """Let it run if it was ended or stands still."""
        self.resume()
        self.start()

    def _client(
        self, service: str, account: Account | None = None, endpoint: str | None = None
    ) -> Any:
        whose = account or self.root
        # A session of its own: boto3's common one is not for several threads.
        return boto3.session.Session().client(
            service,
            endpoint_url=endpoint or self.endpoint,
            aws_access_key_id=whose.access_key,
            aws_secret_access_key=whose.secret_key,
            aws_session_token=whose.token,
            region_name=self.region,
            verify=str(self.ca_file),
            config=_ONCE,
        )

    def _answers(self) -> bool:
        # It answers some time before it knows its accounts.
        with contextlib.suppress(BotoCoreError, ClientError):
            self.client().list_buckets()
            return True
        return False


@contextlib.contextmanager
def minio() -> Iterator[MinIO]:
    """Run a MinIO for the time of a context; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="mergeberg-s3-") as directory:
        server = MinIO(Path(directory))
        try:
            server.start()
            yield server
        finally:
            server.kill()
