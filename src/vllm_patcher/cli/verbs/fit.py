"""The verb `fit`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from vllm_patcher.cli.common import Common
from vllm_patcher.cli.hints import Call
from vllm_patcher.cli.options import CATALOG, DIFFS, Verb, options, show
from vllm_patcher.cli.running import given, guarded, of_catalog, patch_arguments
from vllm_patcher.cli.shell import EXIT_OK, EXIT_REFUSED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_patcher.catalog import Catalog
    from vllm_patcher.cli.shell import Output
    from vllm_patcher.releases.index import Index
    from vllm_patcher.request import Request


@click.command("fit", cls=Verb)
@patch_arguments(of_catalog, files=True)
@click.option("--releases", "among", metavar="SPEC", help="Only these, as '>=0.9'.")
@click.option(
    "--index-url",
    metavar="URL",
    help="Index to ask.  [PIP_INDEX_URL, UV_DEFAULT_INDEX, UV_INDEX_URL]",
)
@click.option("--check", is_flag=True, help="Prove a whole catalog: ranges, probes and lock.")
@click.option("--lock", is_flag=True, help="Prove it, and write its lock.json.")
@options(DIFFS, CATALOG, show("text", "json", "markdown"))
def command(
    patches: tuple[str, ...],
    *,
    among: str | None,
    index_url: str | None,
    check: bool,
    lock: bool,
    **common: Any,
) -> int:
    """Say which releases of vLLM a patch fits. Needs no vLLM, but a network.

    Only the files that the patch touches are read, out of the released wheels. Nothing that was
    read once is fetched again.
    """
    flags = given(("--check", check), ("--lock", lock))
    call = Call(verb="fit", options=Common(**common), patches=patches, flags=flags)
    output = call.options.output()
    if check or lock:
        if patches or among:
            raise click.UsageError("--check and --lock are about a whole catalog and all releases")
    elif not patches:
        raise click.UsageError("name a PATCH: an id of the catalog, a diff file, or -")

    def one(request: Request) -> int:
        from vllm_patcher import catalog, versions
        from vllm_patcher.releases.cache import Cache
        from vllm_patcher.releases.index import Index

        if among:
            versions.check(among)
        loaded = catalog.load_all(request.catalogs, builtin=request.builtin, locked=not lock)
        index = Index(Cache.of_user(), url=index_url)
        if check or lock:
            return _prove(call, loaded, request, index, write=lock, index_url=index_url)
        return _fit(output, loaded, request, index, among or "", markdown=call.options.markdown)

    return output.ending(guarded(call, output, one))


def _fit(
    output: Output,
    catalog: Catalog,
    request: Request,
    index: Index,
    among: str,
    *,
    markdown: bool,
) -> int:
    from vllm_patcher import fit, fitting

    found = fit.fits(
        request.patches,
        catalog=catalog,
        index=index,
        among=among,
        skip_outside=request.skip_outside,
        progress=_progress(output),
    )
    _print_notes(output, index)
    if output.json:
        output.document(fitting.document(found))
    elif markdown:
        output.lines(fitting.markdown(found))
    else:
        output.lines(fitting.text(found, style=output.style_for(sys.stdout)))
    return EXIT_OK


def _prove(
    call: Call,
    catalog: Catalog,
    request: Request,
    index: Index,
    *,
    write: bool,
    index_url: str | None,
) -> int:
    """Prove the catalogs that are named, or else the built-in one."""
    from vllm_patcher import catalog_lock, fitting, proof
    from vllm_patcher.errors import InvalidCatalog, pasted

    output = call.options.output()
    # A password is not repeated.
    asked = ("--index-url", index_url) if index_url and "@" not in index_url else ()
    builtin = catalog.folders[:1] if request.builtin else ()
    folders = [folder for folder in catalog.folders if folder not in builtin] or list(builtin)
    chosen = [patch for patch in catalog.patches if patch.folder in folders]
    proofs = proof.prove(chosen, catalog=catalog, index=index, progress=_progress(output))
    _print_notes(output, index)
    faults = [fault for one in proofs for fault in one.faults]
    proven = not faults
    hint = pasted("vllm-patch", "fit", "--lock", *asked) if proven else None
    for folder in folders:
        own = {patch.id for patch in chosen if patch.folder == folder}
        text = catalog_lock.text({one.id: one.changes for one in proofs if one.id in own})
        if write and proven:
            if catalog_lock.write(folder, text):
                output.note(f"{catalog_lock.path(folder)} is written")
        elif proven and catalog_lock.read(folder) not in (text, None):
            faults.append(f"{catalog_lock.path(folder)} is not what the released wheels say")
    if output.json:
        output.document(fitting.proof_document(proofs, faults))
    elif call.options.markdown:
        output.lines(fitting.proof_markdown(proofs, faults))
    else:
        output.lines(fitting.proof_text(proofs, style=output.style_for(sys.stdout)))
    if faults and not output.json:
        error = InvalidCatalog("the catalog is not proven", facts=faults, hint=hint)
        output.error(error, call.hint)
    return EXIT_REFUSED if faults else EXIT_OK


def _print_notes(output: Output, index: Index) -> None:
    for note in filter(None, [*index.notes, index.trouble]):
        output.note(note)


def _progress(output: Output) -> Any:
    seen = sys.stderr is not None and sys.stderr.isatty()
    return _bar if seen and not output.quiet else _silent


def _silent(found: Iterable[Any], _length: int) -> Iterable[Any]:
    return found


def _bar(found: Iterable[Any], length: int) -> Iterator[Any]:
    with click.progressbar(found, length=length, label="releases", file=sys.stderr) as bar:
        yield from bar
