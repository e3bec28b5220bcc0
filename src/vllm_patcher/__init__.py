"""Apply, verify and revert versioned patches of an installed vLLM."""

__version__ = "0.1.0"
