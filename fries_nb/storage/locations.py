"""Locations of data, in the spellings of pyarrow and of Spark.

A location is a local path or a URI (``file:``, ``hdfs:``, ``s3:``, ``gs:``). Spark and Arrow differ in two spellings:
Spark resolves a bare path on its default file system, which need not be the local one, and Hadoop calls S3 ``s3a``.

>>> for_spark("/data/x"), for_spark("s3://bucket/x")
('file:///data/x', 's3a://bucket/x')
>>> locate("/data/x")[1], is_local("s3a://bucket/x")
('/data/x', False)
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re

import pyarrow as pa
from pyarrow import fs

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+://?", re.IGNORECASE)
_LONGEST = 100
"""Maximum length of an encoded name; most file systems limit a file name to 255 bytes."""


def locate(place: str) -> tuple[fs.FileSystem, str]:
    """The file system of a location, and its path there."""
    if not _SCHEME.match(place):
        return fs.LocalFileSystem(), os.path.abspath(place)
    try:
        return fs.FileSystem.from_uri(re.sub(r"^s3[an]://", "s3://", place))  # type: ignore[no-any-return]
    except pa.ArrowInvalid as error:
        raise ValueError(f"cannot open {place!r}: {error}") from None


def is_local(place: str) -> bool:
    """Whether the location is on the local disk of each machine."""
    return not _SCHEME.match(place) or place.lower().startswith("file:")


def absolute(place: str) -> str:
    """The location, independent of the working directory; URIs are unchanged.

    >>> absolute("/data/./x"), absolute("file:/data/x")
    ('/data/x', 'file:/data/x')
    """
    return place if _SCHEME.match(place) else os.path.abspath(place)


def resolved(place: str) -> str:
    """The canonical form of the location: equal for all paths and links to the same directory.

    A malformed URI is returned unchanged; opening it raises.

    >>> resolved("file:///usr/../data/x") == resolved("/data/x")
    True
    """
    try:
        return os.path.realpath(locate(place)[1]) if is_local(place) else place
    except ValueError:
        return place


def for_spark(place: str) -> str:
    """The location as a URI for Spark, without the options behind ``?``, which Hadoop has in its configuration.

    >>> for_spark("s3://bucket/x?region=eu-west-1")
    's3a://bucket/x'
    """
    if place.lower().startswith("file:"):
        return for_spark(locate(place)[1])
    if not _SCHEME.match(place):
        return "file://" + os.path.abspath(place)  # Hadoop does not decode %20
    return re.sub(r"^s3n?://", "s3a://", place.partition("?")[0])


def read_by_spark(place: str) -> str:
    r"""The path as Spark's readers take it: characters that Spark would read as glob patterns are escaped.

    >>> read_by_spark("/data/out[1]/*.parquet")
    'file:///data/out\\[1\\]/\\*.parquet'
    """
    return re.sub(r"([\[\]{}*?\\,^])", r"\\\1", for_spark(place))


def join(place: str, *names: str) -> str:
    """A path below the location; the options of a URI stay behind it.

    >>> join("hdfs://host/out/", "a", "b"), join("s3://bucket/out?region=eu-west-1", "a"), join("/data/what?", "a")
    ('hdfs://host/out/a/b', 's3://bucket/out/a?region=eu-west-1', '/data/what?/a')
    """
    above, mark, options = place.partition("?") if _SCHEME.match(place) else (place, "", "")
    return "/".join([above.rstrip("/"), *names]) + mark + options


def name_at(place: str) -> str:
    """The last name of a path, without the options of a URI.

    >>> name_at("s3://bucket/out/part.parquet?region=eu-west-1"), name_at("/data/what?.parquet")
    ('part.parquet', 'what?.parquet')
    """
    return posixpath.basename(place.partition("?")[0] if _SCHEME.match(place) else place)


def encoded(name: str) -> str:
    """A user's name as one path component: letters, digits, ``-`` and inner ``_`` are kept, other bytes become ``~xx``.

    It is not percent-encoded, since Arrow decodes URIs, and ``..%2F`` would leave the directory. Distinct names have
    distinct encodings; a long one is cut and ends with a hash.

    >>> encoded("FM"), encoded("../x"), encoded("_hidden"), encoded("a b")
    ('FM', '~2e~2e~2fx', '~5fhidden', 'a~20b')
    """
    text = re.sub(r"[^A-Za-z0-9_-]|^_", lambda found: "".join(f"~{byte:02x}" for byte in _bytes(found[0])), name)
    if len(text) <= _LONGEST:
        return text or "~"
    return f"{text[: _LONGEST - 20]}~~{hashlib.sha256(_bytes(name)).hexdigest()[:16]}"


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
