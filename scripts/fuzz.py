"""Feed the readers of foreign bytes with what a coverage-guided fuzzer (atheris) thinks up.

    python scripts/fuzz.py READER [libFuzzer options, such as -max_total_time=600]

READER is `diff`, `manifest`, `record` or `receipt`. Whatever comes in, only a VllmPatchError may
come out; anything else is a crash, whose input is written to a file that a test can be made of.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable

import atheris

with atheris.instrument_imports():
    from vllm_patcher import catalog, diff, paths, receipt, record
    from vllm_patcher.errors import VllmPatchError

    # Imported at first use otherwise, and then not instrumented.
    from vllm_patcher import manifest, versions  # noqa: F401  isort: skip
    import unidiff  # noqa: F401

Reader = Callable[[bytes], object]

SEEDS: dict[str, tuple[bytes, ...]] = {
    "diff": (
        (
            b"diff --git a/vllm/a.py b/vllm/a.py\nindex 1111111..2222222 100644\n--- a/vllm/a.py\n"
            b"+++ b/vllm/a.py\n@@ -1,3 +1,4 @@ def f():\n a\n-b\n+c\n+d\n e\n"
        ),
        (
            b'--- "a/vllm/\\303\\251.py"\t2024-01-01\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n'
            b"\\ No newline at end of file\n"
        ),
        (
            b"diff --git a/vllm/a.py b/vllm/b.py\nsimilarity index 100%\nrename from vllm/a.py\n"
            b"rename to vllm/b.py\n"
        ),
        (
            b"From 1 Mon Sep 17 00:00:00 2001\nSubject: x\n\n---\n a | 2 +-\n\n"
            b"diff --git a/vllm/a b/vllm/a\nGIT binary patch\nliteral 0\nHcmV?d00001\n\n-- \n2.39\n"
        ),
    ),
    "manifest": (
        (
            b'schema = 1\n[[patch]]\nid = "a"\ntitle = "t"\nkind = "leak"\naffects = ">=0.8,<0.9"\n'
            b'references = ["https://example.org"]\nrequires = ["b"]\ncve = ["CVE-2024-1"]\n'
            b'[[patch.variant]]\nvllm = "~=0.8.1"\ndiff = "a.patch"\nsha256 = "00"\n'
        ),
    ),
    "record": (
        b'vllm/a.py,sha256=AAAA,12\n"vllm/,b.py",sha512=BB,1\r\nvllm-1.dist-info/RECORD,,\n',
    ),
    "receipt": (
        (
            b'{"schema": 1, "patches": [{"id": "a", "wanted": "in", "diff": "x", "requires": ["b"],'
            b' "places": [["a.py"]], "adhoc": true}, {"id": "b", "wanted": "out", "diff_base64":'
            b' "eA==", "places": [["a.py", "b.py"], []]}]}'
        ),
    ),
}


def read_diff(data: bytes) -> None:
    """Read a diff and ask which files it means."""
    parsed = diff.parse(data, name="x.patch")
    paths.resolve(parsed, name="x.patch", exists=lambda path: path.endswith("a.py"))
    for file in parsed.files:
        if file.reversed().reversed() != file:
            raise AssertionError("a diff that is reversed twice is another one")


def read_record(data: bytes) -> None:
    """Read a RECORD; lines that are put in come out again to the byte."""
    parsed = record.Record.parse(data, name="RECORD")
    for path in parsed.paths():
        parsed.digest(path)
        parsed.matches(path, data)
    added = ["vllm/new.py", "vllm/a,b.py"]
    if not any(parsed.lists(path) for path in added):
        longer = record.add_lines(data, added)
        if record.remove_lines(longer, added) != data:
            raise AssertionError("RECORD has not come back to the byte")


def read_receipt(data: bytes) -> None:
    """Read a receipt; what is written from it reads the same."""
    entries = receipt.load(data, path="receipt")
    if receipt.load(receipt.dump(entries), path="receipt") != entries:
        raise AssertionError("a receipt that is written again is another one")


def read_manifest(data: bytes) -> None:
    """Read a catalog of which there is only the manifest."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("a.patch", "b.patch"):
            with open(os.path.join(folder, name), "wb"):
                pass
        with open(os.path.join(folder, "manifest.toml"), "wb") as file:
            file.write(data)
        catalog.load(folder)


READERS: dict[str, Reader] = {
    "diff": read_diff,
    "manifest": read_manifest,
    "record": read_record,
    "receipt": read_receipt,
}


def main(arguments: list[str]) -> None:
    """Fuzz one reader, from its seeds, until libFuzzer's options say that it is enough."""
    if not arguments[1:] or arguments[1] not in READERS:
        sys.exit(str(__doc__))
    reader = READERS[arguments[1]]

    def once(data: bytes) -> None:
        try:
            reader(data)
        except VllmPatchError:
            pass

    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS[arguments[1]]):
            with open(os.path.join(corpus, str(number)), "wb") as file:
                file.write(seed)
        atheris.Setup([arguments[0], corpus, *arguments[2:]], once)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
