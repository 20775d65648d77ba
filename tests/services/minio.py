"""A real MinIO for tests: an object store over TLS, with an authority of its own."""

from __future__ import annotations

import hashlib
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.services.certificates import Identity
from tests.services.go_programs import program_file
from tests.services.s3_server import Account, S3Server, running

__all__ = ["READ_ONLY", "WRITER", "Account", "MinIO", "minio"]

_SECONDS_TO_START: Final = 30.0
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


class MinIO(S3Server):
    """An object store of one disk, with accounts that may do less than the administrator."""

    def __init__(self, directory: Path) -> None:
        super().__init__("MinIO", directory, seconds=_SECONDS_TO_START)

    def _prepared(self, directory: Path, identity: Identity) -> list[str]:
        certificates = directory / "certificates"
        certificates.mkdir()
        identity.certificate.rename(certificates / "public.crt")
        identity.key.rename(certificates / "private.key")
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
        return [*command, str(directory / "data")]

    def account(self, *actions: str, bucket: str, below: str = "", seconds: int = 3600) -> Account:
        """Return credentials, with a token, that allow some actions on one bucket.

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
        response = requests.post(
            url, headers=dict(request.headers), verify=str(self.ca_file), timeout=30
        )
        assert response.ok, response.text


def minio() -> AbstractContextManager[MinIO]:
    """Run a MinIO for the time of a context; nothing of it is left."""
    return running(MinIO)
