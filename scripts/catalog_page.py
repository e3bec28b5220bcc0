"""Write docs/catalog.md from the built-in catalog, its lock, and what was refused.

python scripts/catalog_page.py > docs/catalog.md
"""

from __future__ import annotations

import sys

from vllm_patcher import catalog, chart, manifest

HEAD = """\
# The built-in catalog

<!-- Made by scripts/catalog_page.py from patches/manifest.toml and patches/lock.json. -->

`vllm-patch apply` brings in what the installed release needs of these; `vllm-patch list` shows the
same table and marks the release that is installed. Every patch has a probe, which needs no GPU and
no torch: it runs the code of the installed file, shows the fault on each release that the patch is
for, and shows that it is gone afterwards (`make check-patches`). Names beneath the table.
"""

REFUSED = (
    (
        "`all_special_tokens_extended` with transformers 5",
        (
            "Two lines would do, but `config.rope_theta` is gone in transformers 5, and vLLM 0.11.0"
            " then takes 10000: a loud stop would become wrong output. Pin `transformers<5`."
        ),
    ),
    (
        "The books of the priority scheduler (vLLM 23347)",
        "Twenty lines in the hottest path of the scheduler, which no probe can prove whole.",
    ),
    (
        "The address that process groups bind (CVE-2025-47277)",
        "The change that upstream made stops clusters behind address translation.",
    ),
    (
        "Mooncake and V0 pickles, `cache_salt`, limits of headers, advisories on single models",
        "Too large for a patch, or a feature.",
    ),
)


def page() -> str:
    """Return the page."""
    loaded = catalog.load(catalog.builtin_folder())
    bands = chart.bands(loaded.patches, loaded.lock)
    lines = [HEAD]
    numbers = range(1, len(loaded.patches) + 1)
    heads = [f"[{n}](#{p.id})" for n, p in zip(numbers, loaded.patches, strict=True)]
    lines += [f"| vLLM | {' | '.join(heads)} |", f"|---|{':-:|' * len(heads)}"]
    marks = {chart.GETS: "✓", chart.OPT_IN: "(✓)", chart.LACKS: "no diff", chart.NOT_AFFECTED: ""}
    lines += [
        f"| {band.name} | {' | '.join(marks[mark] for mark in band.marks)} |" for band in bands
    ]
    lines += [
        "",
        "✓ brought in by `vllm-patch apply`; (✓) only if named: not everybody wants the change.",
    ]
    for number, patch in zip(numbers, loaded.patches, strict=True):
        lines += ["", f"## {patch.id}", "", *entry(number, patch)]
    lines += ["", "## Refused", "", "| what | why |", "|---|---|"]
    lines += [f"| {what} | {why} |" for what, why in REFUSED]
    return "\n".join(lines) + "\n"


def entry(number: int, patch: manifest.Patch) -> list[str]:
    """Return what is said of one patch."""
    facts = [f"{number}.", patch.kind, f"vLLM `{patch.affects}`"]
    facts += [f"[{cve}](https://nvd.nist.gov/vuln/detail/{cve})" for cve in patch.cve]
    facts += [f"requires `{name}`" for name in patch.requires]
    facts += [] if patch.default else ["only if named"]
    references = ", ".join(f"<{reference}>" for reference in patch.references)
    lines = [f"{patch.title}.", "", f"{facts[0]} {', '.join(facts[1:])}."]
    lines += ["", patch.note.strip()] if patch.note else []
    return [*lines, "", f"See {references}."] if references else lines


if __name__ == "__main__":
    sys.stdout.write(page())
