"""``python -m vllm_patcher`` is ``vllm-patch``."""

from .cli import main

main()
