"""The jars of a Hadoop of tests: what PySpark carries of it, and five files of Maven.

    python -m tests.services.hdfs_jars

fetches these, 41 MB, into .readers/hdfs. It is the cluster of Hadoop's own tests, which needs JUnit
to be loaded; its web server needs what Java once had of XML.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import pyspark

from tableformat.errors import SourceError
from tests.services.maven_files import MavenFile, check, main_of
from tests.support.tiers import check_nightly

__all__ = ["class_path"]

_FOLDER: Final = Path(__file__).resolve().parents[2] / ".readers" / "hdfs"
_JARS: Final = (
    MavenFile(
        "org.apache.hadoop",
        "hadoop-client-minicluster",
        "3.4.2",
        "jar",
        "ae2406c544825b7734b8aad4f87eff60d9ec422284f0b16c2856032083b63c77",
    ),
    MavenFile(
        "org.hamcrest",
        "hamcrest-core",
        "1.3",
        "jar",
        "66fdef91e9739348df7a096aa384a5685f4e875584cce89386a7a47251c4d8e9",
    ),
    MavenFile(
        "javax.activation",
        "javax.activation-api",
        "1.2.0",
        "jar",
        "43fdef0b5b6ceb31b0424b208b930c74ab58fac2ceeb7b3f6fd3aeb8b5ca4393",
    ),
    MavenFile(
        "javax.xml.bind",
        "jaxb-api",
        "2.3.1",
        "jar",
        "88b955a0df57880a26a74708bc34f74dcaf8ebf4e78843a28b50eae945732b06",
    ),
    MavenFile(
        "junit",
        "junit",
        "4.13.2",
        "jar",
        "8e495b634469d64fb8acfa3495a065cbacc8a0fff55ce1e31007be4c16dc57d3",
    ),
)


def class_path() -> str:
    """Return the class path of the cluster, without its configuration.

    Raises:
        SourceError: a jar is missing, or another one.
    """
    check_nightly("Hadoop")
    for jar in _JARS:
        if not (_FOLDER / jar.file).is_file():
            message = (
                f"Cannot run Hadoop: there is no {_FOLDER / jar.file}. Fetch it: "
                "python -m tests.services.hdfs_jars"
            )
            raise SourceError(message)
        check(_FOLDER, jar)
    of_spark = Path(pyspark.__file__).resolve().parent / "jars" / "*"
    return os.pathsep.join([*(str(_FOLDER / jar.file) for jar in _JARS), str(of_spark)])


if __name__ == "__main__":
    sys.exit(main_of(_JARS, _FOLDER))
