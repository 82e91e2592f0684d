"""Locations of data, and small files in them that are written atomically and durably.

A location is a local path or a URI (``file:``, ``hdfs:``, ``s3:``, ``gs:``). Spark and Arrow differ in two spellings:
Spark resolves a bare path on its default file system, which need not be the local one, and Hadoop calls S3 ``s3a``.

>>> for_spark("/data/x"), for_spark("s3://bucket/x")
('file:///data/x', 's3a://bucket/x')
>>> locate("/data/x")[1], is_local("s3a://bucket/x")
('/data/x', False)

On a local file system only their owner can read such files, unless they are written as shared.

Seals: a prefix of each checkpoint file that detects damage, exchange and forgery.

Without a key a seal is a checksum of the file's name and content: it detects accidents. With a key it is their
HMAC-SHA256: without the key an accepted file cannot be created, nor two existing ones exchanged. A checkpoint holds
pickles, which execute code when loaded, so a seal is checked before anything is decoded.

>>> key = secret("a phrase that only we know")
>>> unsealed(sealed(b"state", "states/1/FM", key), "states/1/FM", key)
b'state'
>>> unsealed(sealed(b"state", "states/1/FM", key), "states/1/MC", key)
Traceback (most recent call last):
...
ValueError: it is not signed with the given key, or it has been changed since
>>> unsealed(sealed(b"state", "states/1/FM")[:-1], "states/1/FM")
Traceback (most recent call last):
...
ValueError: it is cut off or has been overwritten
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import posixpath
import re
from collections.abc import Iterable
from typing import Any, NoReturn, Protocol

import pyarrow as pa
from pyarrow import fs

from fries_nb.errors import CheckpointError

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


PRIVATE = 0o600
"""Mode of a file that only its owner may access; directories created for it have mode 0700."""
SHARED = 0o666
"""Mode of a file that others may read, subject to the umask."""
_WHOLE_OR_NOT = ("s3", "gcs", "abfs")  # object stores: a file appears when it is complete, and a rename is a copy


def read_file(filesystem: fs.FileSystem, place: str) -> bytes:
    """The content of a file; raises an OSError if there is none."""
    with filesystem.open_input_stream(place) as stream:
        return bytes(stream.read())


def entries(filesystem: fs.FileSystem, directory: str) -> list[fs.FileInfo]:
    """The entries of a directory, none if it does not exist; raises an OSError if it cannot be listed."""
    selector = fs.FileSelector(directory, allow_not_found=True)
    try:
        return list(filesystem.get_file_info(selector))
    except FileNotFoundError:  # Arrow raises this if another process creates the directory during the call
        return list(filesystem.get_file_info(selector))


def write_file(
    filesystem: fs.FileSystem, place: str, content: bytes | Iterable[bytes], mode: int = PRIVATE, lasts: bool = True
) -> None:  # fmt: skip
    """Write a file, at once or in pieces, atomically and, if it ``lasts``, durably; raises an OSError if that fails."""
    make_directory(filesystem, posixpath.dirname(place), mode)
    draft = place if filesystem.type_name in _WHOLE_OR_NOT else f"{place}.draft"
    if _is_local(filesystem):
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT, mode))  # Arrow would make it readable by all
    try:
        with filesystem.open_output_stream(draft) as stream:
            for piece in [content] if isinstance(content, bytes) else content:
                stream.write(piece)
    except OSError:
        with contextlib.suppress(OSError):  # it takes room of which there is too little
            filesystem.delete_file(draft)
        raise
    if lasts and draft != place:
        see_durable(filesystem, draft)
    if draft != place:
        filesystem.move(draft, place)
    if lasts and draft != place:
        see_durable(filesystem, posixpath.dirname(place))


def make_directory(filesystem: fs.FileSystem, place: str, mode: int = PRIVATE) -> None:
    """Create a directory and its missing parents; raises an OSError if that fails."""
    if not _is_local(filesystem):
        filesystem.create_dir(place, recursive=True)
        return
    missing = []
    while not os.path.isdir(place):
        missing.append(place)
        place = posixpath.dirname(place)
    for directory in reversed(missing):
        os.makedirs(directory, mode | (mode & 0o444) >> 2, exist_ok=True)  # another writer may make it, too
        see_durable(filesystem, posixpath.dirname(directory))


def see_durable(filesystem: fs.FileSystem, place: str) -> None:
    """Flush a file to a local disk; other file systems do that on closing."""
    if not _is_local(filesystem):
        return
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_local(filesystem: fs.FileSystem) -> bool:
    return bool(filesystem.type_name == "local") and os.name == "posix"


NO_KEY = b""
_CHECKED = b"fries2c\n"
_SIGNED = b"fries2s\n"
SEAL_BYTES = len(_CHECKED) + 64 + 1
"""Length of a seal."""


class _Hash(Protocol):
    def update(self, data: Any, /) -> None: ...
    def hexdigest(self) -> str: ...


def secret(key: bytes | str | None) -> bytes:
    """The key as bytes; ``NO_KEY`` for none."""
    if key is None:
        return NO_KEY
    if not isinstance(key, (bytes, str)):
        raise CheckpointError(f"signing_key= is a {type(key).__name__}; expected bytes or text that only you know")
    if not key:
        expected = "expected bytes or text that only you know, or None to sign nothing"
        raise CheckpointError(f"signing_key= is empty; {expected}")
    return key.encode() if isinstance(key, str) else key


def sealed(content: bytes, name: str, key: bytes = NO_KEY) -> bytes:
    """The content, prefixed with its seal."""
    digest = _begun(name, key)
    digest.update(content)
    return (_SIGNED if key else _CHECKED) + digest.hexdigest().encode() + b"\n" + content


def unsealed(data: bytes, name: str, key: bytes = NO_KEY) -> bytes:
    """The content without its seal; raises a ValueError if the seal does not match content, name and key."""
    expected = _expected(data[:SEAL_BYTES], key)
    digest = _begun(name, key)
    digest.update(memoryview(data)[SEAL_BYTES:])
    _compare(expected, digest, key)
    return data[SEAL_BYTES:]


def _begun(name: str, key: bytes) -> _Hash:
    digest: _Hash = hmac.new(key, digestmod=hashlib.sha256) if key else hashlib.sha256()
    text = name.encode(errors="surrogatepass")
    digest.update(len(text).to_bytes(4, "little") + text)
    return digest


def _expected(head: bytes, key: bytes) -> bytes:
    kind, seal = head[: len(_CHECKED)], head[len(_CHECKED) :].rstrip(b"\n")
    if key and kind == _CHECKED:
        raise ValueError("it is not signed, and signing_key= was given; it was written without a key, or is not yours")
    if not key and kind == _SIGNED:
        raise ValueError("it is signed; give the signing_key= that it was written with")
    if kind != (_SIGNED if key else _CHECKED) or len(head) != SEAL_BYTES or not head.endswith(b"\n"):
        raise ValueError("it is cut off or has been overwritten")
    return seal


def _compare(expected: bytes, digest: _Hash, key: bytes) -> None:
    if not hmac.compare_digest(expected, digest.hexdigest().encode()):
        refuse_digest(key)


def refuse_digest(key: bytes) -> NoReturn:
    """Raise the ValueError for content that is not what was sealed."""
    raise ValueError(
        "it is not signed with the given key, or it has been changed since"
        if key
        else "it is cut off or has been overwritten"
    )
