"""The form of what ``--json`` prints, as ``docs/report.schema.json`` describes it."""

from __future__ import annotations

#: Another number means that what older readers rely on is no longer there.
SCHEMA = 1
